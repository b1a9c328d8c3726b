//! The common header: every field by name. Spec: tipc.md §2.1, §3.

use core::fmt;

use super::{
    BASIC_HEADER, ErrorCode, INTERNAL_HEADER, LinkProtocolType, MULTICAST_HEADER, MessageType, NAMED_HEADER,
    SHORT_HEADER, User,
};
use crate::addr::{ClusterId, Importance, NodeAddr, PortId, ServiceAddr, ServiceRange};
use crate::error::WireError;
use crate::limits::{MAX_HEADER, MAX_MESSAGE, MAX_USER_DATA};

/// A TIPC message over bytes `B`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<B>(B);

/// A message that borrows its bytes.
pub type View<'a> = Packet<&'a [u8]>;
/// A message that owns its bytes; the node passes messages by this type (decision 3).
pub type Message = Packet<Vec<u8>>;

/// Size of the whole message at the start of `bytes`, after the structural checks of tipc.md §14.1.
fn check(bytes: &[u8]) -> Result<usize, WireError> {
    check_header(bytes, bytes.len())
}

/// Same as `check`, where `bytes` hold at least the header and `total` bytes are available.
fn check_header(bytes: &[u8], total: usize) -> Result<usize, WireError> {
    let have = bytes.len();
    if have < SHORT_HEADER {
        return Err(WireError::Truncated { need: SHORT_HEADER, have });
    }
    let p = Packet(bytes);
    let header = p.header_size();
    if !(SHORT_HEADER..=MAX_HEADER).contains(&header) {
        return Err(WireError::HeaderSize { need: SHORT_HEADER, have: header });
    }
    if have < header {
        return Err(WireError::Truncated { need: header, have });
    }
    if p.version() != 2 {
        return Err(WireError::Version(p.version()));
    }
    let size = p.size();
    if size < header || size - header > MAX_USER_DATA || size > total {
        return Err(WireError::Size { size, header, have: total });
    }
    Ok(size)
}

impl<'a> View<'a> {
    /// A view of a header that this node has written; fields beyond its end read as 0.
    pub(crate) const fn of_header(bytes: &'a [u8]) -> Self {
        Packet(bytes)
    }

    /// The message at the start of `bytes`; trailing bytes (Ethernet padding) are ignored.
    ///
    /// # Errors
    /// [`WireError`] if the bytes fail the structural checks. Spec: tipc.md §14.1.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let size = check(bytes)?;
        Ok(Self(bytes.get(..size).unwrap_or(bytes)))
    }

    /// The header of a message of `total` bytes whose data lies elsewhere. No bytes may follow the message there.
    ///
    /// # Errors
    /// Same as [`View::parse`].
    pub fn parse_header(bytes: &'a [u8], total: usize) -> Result<Self, WireError> {
        let size = check_header(bytes, total)?;
        let header = Packet(bytes).header_size();
        if size != total {
            return Err(WireError::Size { size, header, have: total });
        }
        Ok(Self(bytes.get(..header).unwrap_or(bytes)))
    }

    /// The data after the header; lives as long as the bytes.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.0.get(self.header_size()..).unwrap_or_default()
    }

    /// Copies the bytes into a message of its own.
    #[must_use]
    pub fn to_message(&self) -> Message {
        Packet(self.0.to_vec())
    }
}

impl Message {
    /// Takes over `bytes` that start with a message; trailing bytes are removed.
    ///
    /// # Errors
    /// [`WireError`] if the bytes fail the structural checks. Spec: tipc.md §14.1.
    pub fn from_vec(mut bytes: Vec<u8>) -> Result<Self, WireError> {
        let size = check(&bytes)?;
        bytes.truncate(size);
        Ok(Self(bytes))
    }

    /// A new message of version 2, all other fields zero: `data` after a header of `header` bytes (24 to 60). Data
    /// beyond 66000 bytes is truncated; callers check the size first.
    #[must_use]
    pub fn build(user: User, kind: u8, header: usize, data: &[u8]) -> Self {
        Self::build_in(Vec::new(), user, kind, header, data)
    }

    /// Appends data and updates the size; the caller keeps it within [`MAX_MESSAGE`].
    pub fn append(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
        self.fix_size();
    }

    /// Makes room for `additional` more bytes of data.
    pub fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }

    /// Appends zeros up to `size` bytes; does nothing if the message is not shorter.
    pub fn pad_to(&mut self, size: usize) {
        self.0.resize(size.max(self.0.len()), 0);
        self.fix_size();
    }

    /// Truncates the data to `len` bytes and updates the size.
    pub fn truncate_data(&mut self, len: usize) {
        self.0.truncate(self.header_size() + len);
        self.fix_size();
    }

    /// A copy of the header and the first `len` bytes of the data.
    #[must_use]
    pub fn head(&self, len: usize) -> Self {
        let bytes = self.0.get(..self.header_size() + len).unwrap_or(&self.0);
        let mut head = Self(bytes.to_vec());
        head.fix_size();
        head
    }

    /// Same as [`Self::build`], reusing `memory`, whose contents are dropped.
    #[must_use]
    pub fn build_in(mut memory: Vec<u8>, user: User, kind: u8, header: usize, data: &[u8]) -> Self {
        let data = data.get(..MAX_USER_DATA).unwrap_or(data);
        memory.clear();
        memory.reserve(header + data.len());
        memory.resize(header, 0);
        memory.extend_from_slice(data);
        let mut message = Self(memory);
        message.start(user, kind, header);
        message.fix_size();
        message
    }

    /// The message in other memory, to which `to` moves its bytes, or where it was.
    pub(crate) fn moved(self, to: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, Vec<u8>>) -> Result<Self, Self> {
        to(self.0).map(Self).map_err(Self)
    }

    /// The bytes of the message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn fix_size(&mut self) {
        let size = self.0.len().min(MAX_MESSAGE);
        self.set_bits(0, 0, 17, size as u32);
    }
}

/// A header of 40 bytes by itself; the data lies elsewhere.
pub(crate) type BareHeader = Packet<[u8; INTERNAL_HEADER]>;

impl BareHeader {
    /// The header of a message with `data` bytes of data: version 2, all other fields zero.
    pub(crate) fn new(user: User, kind: u8, data: usize) -> Self {
        let mut header = Self([0; INTERNAL_HEADER]);
        header.start(user, kind, INTERNAL_HEADER);
        header.set_data_size(data);
        header
    }

    /// Sets the size for `data` bytes of data.
    pub(crate) fn set_data_size(&mut self, data: usize) {
        self.set_bits(0, 0, 17, (INTERNAL_HEADER + data) as u32);
    }

    /// The message: this header, and `data`.
    pub(crate) fn with_data(&self, data: &[u8]) -> Message {
        Packet([self.0.as_slice(), data].concat())
    }
}

/// A payload header by itself, 24 to 44 bytes; the data behind it lies elsewhere.
pub type DataHeader = Packet<[u8; MULTICAST_HEADER]>;

impl DataHeader {
    /// The header, as long as `kind` needs it, of a message with `data` bytes: version 2, all else zero.
    ///
    /// `kind` is a connection's message, a direct one, an anycast or a multicast; `data` has at most [`MAX_USER_DATA`]
    /// bytes.
    #[inline]
    #[must_use]
    pub fn of_data(importance: Importance, kind: MessageType, data: usize) -> Self {
        let header = match kind {
            MessageType::Conn => SHORT_HEADER,
            MessageType::Direct => BASIC_HEADER,
            MessageType::Named => NAMED_HEADER,
            _ => MULTICAST_HEADER,
        };
        let mut packet = Self([0; MULTICAST_HEADER]);
        packet.start(User::from(importance as u8), kind.into(), header);
        packet.set_bits(0, 0, 17, (header + data) as u32);
        packet
    }

    /// The bytes of the header.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.0.get(..self.header_size()).unwrap_or(&self.0)
    }

    /// The message: this header and `data`, in `memory`, whose contents are dropped. Data beyond 66000 bytes is
    /// truncated; callers check the size first.
    #[must_use]
    pub fn with_data(&self, mut memory: Vec<u8>, data: &[u8]) -> Message {
        let data = data.get(..MAX_USER_DATA).unwrap_or(data);
        memory.clear();
        memory.reserve(self.header_size() + data.len());
        memory.extend_from_slice(self.header());
        memory.extend_from_slice(data);
        let mut message = Packet(memory);
        message.fix_size();
        message
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $get:ident $set:ident: $word:literal [$low:literal; $width:literal] as $ty:ty;)*) => {
        impl<B: AsRef<[u8]>> Packet<B> {
            $($(#[$doc])* #[must_use] pub fn $get(&self) -> $ty { self.bits($word, $low, $width) as $ty })*
        }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> Packet<B> {
            $($(#[$doc])* pub fn $set(&mut self, value: $ty) { self.set_bits($word, $low, $width, u32::from(value)); })*
        }
    };
}

macro_rules! flags {
    ($($(#[$doc:meta])* $get:ident $set:ident: $word:literal [$bit:literal];)*) => {
        impl<B: AsRef<[u8]>> Packet<B> {
            $($(#[$doc])* #[must_use] pub fn $get(&self) -> bool { self.bits($word, $bit, 1) != 0 })*
        }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> Packet<B> {
            $($(#[$doc])* pub fn $set(&mut self, value: bool) { self.set_bits($word, $bit, 1, u32::from(value)); })*
        }
    };
}

flags! {
    /// Takes the path of discovery or broadcast, not a link's sequence.
    non_sequenced set_non_sequenced: 0[20];
    /// Data: the receiver may drop the message instead of returning it (`d` bit).
    dest_droppable set_dest_droppable: 0[19];
    /// STATE: probe, or reply to one.
    keepalive set_keepalive: 0[19];
    /// Data without a connection: may be dropped at the sender (`s` bit).
    src_droppable set_src_droppable: 0[18];
    /// Data on a connection: the sender's Nagle algorithm requests an acknowledgement.
    ack_required set_ack_required: 0[18];
    /// Multicast data: sent by replicast.
    is_replicast set_is_replicast: 0[18];
    /// CONN_ACK: acknowledges a message that requested it.
    nagle_ack set_nagle_ack: 0[18];
    /// Connection request, or change of the multicast method.
    syn set_syn: 0[17];
    /// ACTIVATE: the destination session is valid.
    dest_session_valid set_dest_session_valid: 1[16];
    /// NAME_DISTRIBUTOR: part of the bulk sent on contact.
    name_bulk set_name_bulk: 1[28];
    /// NAME_DISTRIBUTOR: last message of the bulk.
    name_last_bulk set_name_last_bulk: 1[27];
    /// NAME_DISTRIBUTOR: numbered ("not legacy").
    name_numbered set_name_numbered: 1[26];
    /// The broadcast ack is not valid yet.
    bcast_ack_invalid set_bcast_ack_invalid: 5[14];
    /// LINK_PROTOCOL RESET: the sender's end has just gone down.
    peer_stopping set_peer_stopping: 5[13];
    /// LINK_PROTOCOL: the node is reachable over another link.
    redundant_link set_redundant_link: 5[12];
    /// LINK_PROTOCOL: a reply is requested.
    probe set_probe: 5[0];
}

fields! {
    /// Protocol version, 2 (7 marks an encrypted packet).
    version set_version: 0[29; 3] as u8;
    /// Message type; its meaning depends on the user.
    kind set_kind: 1[29; 3] as u8;
    /// Number of times the message was redirected.
    reroute_count set_reroute_count: 1[21; 4] as u8;
    /// Scope of a deferred lookup: 2 cluster, 3 node, 0 none.
    lookup_scope set_lookup_scope: 1[19; 2] as u8;
    /// Acknowledged broadcast packet.
    bcast_ack set_bcast_ack: 1[0; 16] as u16;
    /// ACTIVATE: the peer's session.
    dest_session set_dest_session: 1[0; 16] as u16;
    /// STATE: packets missing after the acknowledged one.
    seq_gap set_seq_gap: 1[16; 13] as u16;
    /// Acknowledged link packet.
    ack set_ack: 2[16; 16] as u16;
    /// Number of this link packet.
    seqno set_seqno: 2[0; 16] as u16;
    /// Port of the sender.
    origin_port set_origin_port: 4[0; 32] as u32;
    /// Port of the receiver.
    dest_port set_dest_port: 5[0; 32] as u32;
    /// Service type, or group.
    name_type set_name_type: 8[0; 32] as u32;
    /// Instance.
    name_instance set_name_instance: 9[0; 32] as u32;
    /// Lower end of a multicast range.
    name_lower set_name_lower: 9[0; 32] as u32;
    /// Upper end of a multicast range.
    name_upper set_name_upper: 10[0; 32] as u32;
    /// LINK_PROTOCOL, BCAST_PROTOCOL: last broadcast packet sent.
    last_bcast set_last_bcast: 4[16; 16] as u16;
    /// LINK_PROTOCOL: number of the next link packet.
    next_sent set_next_sent: 4[0; 16] as u16;
    /// LINK_PROTOCOL: the sender's session.
    session set_session: 5[16; 16] as u16;
    /// LINK_PROTOCOL, TUNNEL: bearer of the sender.
    bearer_id set_bearer_id: 5[9; 3] as u8;
    /// LINK_PROTOCOL: priority, 0 for "unchanged".
    link_priority set_link_priority: 5[4; 5] as u8;
    /// LINK_PROTOCOL: net plane, 0 for A.
    net_plane set_net_plane: 5[1; 3] as u8;
    /// STATE: broadcast packets missing after the acknowledged one.
    bcast_gap set_bcast_gap: 8[0; 10] as u16;
    /// RESET, ACTIVATE: MTU of the sender's bearer divided by 4.
    max_packet set_max_packet: 9[16; 16] as u16;
    /// LINK_PROTOCOL: tolerance in milliseconds, 0 for "unchanged".
    link_tolerance set_link_tolerance: 9[0; 16] as u16;
    /// FRAGMENTER, TUNNEL: number of the fragment.
    fragment_number set_fragment_number: 4[16; 16] as u16;
    /// FRAGMENTER, TUNNEL: number of fragments.
    fragment_count set_fragment_count: 4[0; 16] as u16;
    /// BUNDLER, TUNNEL: messages inside.
    message_count set_message_count: 9[16; 16] as u16;
    /// TUNNEL SYNCH: last packet of the old link before the switch.
    sync_point set_sync_point: 9[16; 16] as u16;
    /// CONN_ACK: blocks consumed.
    conn_acked set_conn_acked: 9[16; 16] as u16;
    /// CONN_ACK: advertised window in blocks.
    advertised_window set_advertised_window: 9[0; 16] as u16;
    /// NAME_DISTRIBUTOR: number of the update.
    name_seqno set_name_seqno: 4[0; 16] as u16;
    /// LINK_CONFIG: signature of the node (bit 15 is shared with the capabilities).
    signature set_signature: 1[0; 16] as u16;
    /// LINK_CONFIG: capability bits.
    capabilities set_capabilities: 1[15; 13] as u16;
    /// LINK_CONFIG: random number of the sender's network namespace.
    net_hash set_net_hash: 13[0; 32] as u32;
    /// Legacy BCAST_PROTOCOL NACK: last packet before the gap.
    bcast_gap_after set_bcast_gap_after: 2[16; 16] as u16;
    /// Legacy BCAST_PROTOCOL NACK: last packet missing.
    bcast_gap_to set_bcast_gap_to: 2[0; 16] as u16;
    /// Importance carried in the outer header of a bundle or fragment.
    carried_importance set_carried_importance: 9[0; 3] as u8;
    /// Group: number of the sender's broadcast.
    group_seqno set_group_seqno: 10[16; 16] as u16;
}

impl<B: AsRef<[u8]>> Packet<B> {
    /// The bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Header word `n`; 0 beyond the header.
    #[must_use]
    pub fn word(&self, n: usize) -> u32 {
        let bytes = self.0.as_ref().get(n * 4..n * 4 + 4).and_then(|b| b.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    fn bits(&self, word: usize, low: u32, width: u32) -> u32 {
        if word > 2 && word * 4 >= self.header_size() {
            return 0; // not in this header: do not read it from the data after it
        }
        self.word(word) >> low & (u32::MAX >> (32 - width))
    }

    /// Header size, bytes.
    #[must_use]
    pub fn header_size(&self) -> usize {
        (self.word(0) >> 21 & 0xf) as usize * 4
    }

    /// Size of header and data, bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        (self.word(0) & 0x1_ffff) as usize
    }

    /// The data after the header.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.0.as_ref().get(self.header_size()..).unwrap_or_default()
    }

    /// A view of the same bytes.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        Packet(self.0.as_ref())
    }

    /// Message user.
    #[must_use]
    pub fn user(&self) -> User {
        User::from(self.bits(0, 25, 4) as u8)
    }

    /// True for payload.
    #[must_use]
    pub fn is_data(&self) -> bool {
        self.user().is_data()
    }

    /// True for payload with nothing in the header that only a node sets: no error, no redirection, no connection
    /// request, nothing of a link.
    #[must_use]
    pub fn is_unsent_data(&self) -> bool {
        const OF_NODE: [u32; 3] = [1 << 20 | 1 << 17, !(7 << 29 | 3 << 19), !0];
        self.is_data() && OF_NODE.iter().enumerate().all(|(n, bits)| self.word(n) & bits == 0)
    }

    /// Type of a payload message.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        MessageType::from(self.kind())
    }

    /// Type of a LINK_PROTOCOL message.
    #[must_use]
    pub fn link_type(&self) -> LinkProtocolType {
        LinkProtocolType::from(self.kind())
    }

    /// Error code. Valid only for payload and CONN_MANAGER: NAME_DISTRIBUTOR and LINK_PROTOCOL use the bits for flags.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        ErrorCode::from(self.bits(1, 25, 4) as u8)
    }

    /// Importance of payload; critical for all other users.
    #[must_use]
    pub fn importance(&self) -> Importance {
        Importance::from_number(u32::from(u8::from(self.user()))).unwrap_or(Importance::Critical)
    }

    /// Node that sent this hop.
    #[must_use]
    pub fn prev_node(&self) -> NodeAddr {
        NodeAddr(self.word(3))
    }

    /// Node of the sender; a 24-byte header has only the previous node.
    #[must_use]
    pub fn origin_node(&self) -> NodeAddr {
        if self.header_size() > SHORT_HEADER { NodeAddr(self.word(6)) } else { self.prev_node() }
    }

    /// Node of the receiver; `None` if the header has no such field: then the receiving node is meant.
    #[must_use]
    pub fn dest_node(&self) -> Option<NodeAddr> {
        (self.header_size() >= BASIC_HEADER).then(|| NodeAddr(self.word(7)))
    }

    /// Socket address of the sender.
    #[must_use]
    pub fn origin(&self) -> PortId {
        PortId { port: self.origin_port(), node: self.origin_node() }
    }

    /// Cluster id of a broadcast packet (in place of the destination port).
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(self.word(5))
    }

    /// Service address of a NAMED message.
    #[must_use]
    pub fn service(&self) -> ServiceAddr {
        ServiceAddr { service: self.name_type(), instance: self.name_instance() }
    }

    /// Service range of a multicast.
    #[must_use]
    pub fn service_range(&self) -> ServiceRange {
        ServiceRange::new(self.name_type(), self.name_lower(), self.name_upper())
    }

    /// Selects one of two parallel links for the message: the low bit of the origin port. Spec: tipc.md §5.11.
    #[must_use]
    pub fn link_selector(&self) -> u32 {
        self.origin_port()
    }

    /// Smallest header that holds the fields of the user and type, bytes. Spec: tipc.md §14.2.
    #[must_use]
    pub fn required_header(&self) -> usize {
        match (self.user(), self.message_type()) {
            (u, MessageType::Conn) if u.is_data() => SHORT_HEADER,
            (u, MessageType::Direct) if u.is_data() => BASIC_HEADER,
            (u, MessageType::Named) if u.is_data() => NAMED_HEADER,
            (u, _) if u.is_data() => MULTICAST_HEADER,
            (User::LinkConfig, _) => super::DISCOVERY_HEADER,
            _ => super::INTERNAL_HEADER,
        }
    }

    /// True if the header holds the fields of its user and type. Spec: tipc.md §14.2.
    #[must_use]
    pub fn header_fits(&self) -> bool {
        self.header_size() >= self.required_header()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Packet<B> {
    /// Sets header word `n`; does nothing if it is outside the message.
    pub fn set_word(&mut self, n: usize, value: u32) {
        if let Some(word) = self.0.as_mut().get_mut(n * 4..n * 4 + 4) {
            word.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// A mutable view of the same bytes.
    pub(crate) fn edit(&mut self) -> Packet<&mut [u8]> {
        Packet(self.0.as_mut())
    }

    /// Sets the fields that every message starts with.
    fn start(&mut self, user: User, kind: u8, header: usize) {
        let words = 2 << 29 | u32::from(u8::from(user) & 0xf) << 25 | ((header / 4) as u32 & 0xf) << 21;
        self.set_word(0, words);
        self.set_word(1, u32::from(kind & 7) << 29);
    }

    fn set_bits(&mut self, word: usize, low: u32, width: u32, value: u32) {
        if word > 2 && word * 4 >= self.header_size() {
            return;
        }
        let mask = (u32::MAX >> (32 - width)) << low;
        let rest = self.word(word) & !mask;
        self.set_word(word, rest | (value << low & mask));
    }

    /// Sets the message user.
    pub fn set_user(&mut self, user: User) {
        self.set_bits(0, 25, 4, u32::from(u8::from(user)));
    }

    /// Sets the error code.
    pub fn set_error_code(&mut self, code: ErrorCode) {
        self.set_bits(1, 25, 4, u32::from(u8::from(code)));
    }

    /// Sets the node that sends this hop.
    pub fn set_prev_node(&mut self, node: NodeAddr) {
        self.set_word(3, node.0);
    }

    /// Sets the node of the sender; does nothing on a 24-byte header.
    pub fn set_origin_node(&mut self, node: NodeAddr) {
        self.set_bits(6, 0, 32, node.0);
    }

    /// Sets the node of the receiver; does nothing on a 24-byte header.
    pub fn set_dest_node(&mut self, node: NodeAddr) {
        self.set_bits(7, 0, 32, node.0);
    }

    /// Sets the cluster id of a broadcast packet.
    pub fn set_cluster_id(&mut self, id: ClusterId) {
        self.set_word(5, id.0);
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Packet<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}/{} {} bytes {}:{} -> {}",
            self.user(),
            self.kind(),
            self.size(),
            self.prev_node(),
            self.origin_port(),
            self.dest_port()
        )
    }
}
