//! LINK_PROTOCOL: link supervision and setup. Spec: tipc.md §3.1.

use super::{DomainRecord, Envelope, GapRecord, LinkProtocolType, Message, User, View};
use crate::error::WireError;

/// Length of the interface name in RESET and ACTIVATE, bytes, NUL included. Spec: tipc.md §3.1.
pub const INTERFACE_NAME_LEN: usize = 16;
/// Largest data of a LINK_PROTOCOL message, bytes. Spec: tipc.md §5.3.
const MAX_PROTOCOL_DATA: usize = 65_535;

/// The fields common to all types of LINK_PROTOCOL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFields {
    /// Last broadcast packet sent.
    pub last_bcast: u16,
    /// Number of the next link packet.
    pub next_sent: u16,
    /// Session of the sender.
    pub session: u16,
    /// The broadcast ack is not valid yet.
    pub bcast_ack_invalid: bool,
    /// The sender's end has just gone down.
    pub peer_stopping: bool,
    /// The node is reachable over another link.
    pub redundant_link: bool,
    /// Bearer of the sender, 0 to 7 (0 to 2 in use).
    pub bearer: u8,
    /// New priority, 0 for "unchanged".
    pub priority: u8,
    /// Net plane, 0 for A.
    pub net_plane: u8,
    /// New tolerance in milliseconds, 0 for "unchanged".
    pub tolerance_ms: u16,
}

impl LinkFields {
    fn read(v: View<'_>) -> Self {
        Self {
            last_bcast: v.last_bcast(),
            next_sent: v.next_sent(),
            session: v.session(),
            bcast_ack_invalid: v.bcast_ack_invalid(),
            peer_stopping: v.peer_stopping(),
            redundant_link: v.redundant_link(),
            bearer: v.bearer_id(),
            priority: v.link_priority(),
            net_plane: v.net_plane(),
            tolerance_ms: v.link_tolerance(),
        }
    }

    fn write(&self, m: &mut Message) {
        m.set_last_bcast(self.last_bcast);
        m.set_next_sent(self.next_sent);
        m.set_session(self.session);
        m.set_bcast_ack_invalid(self.bcast_ack_invalid);
        m.set_peer_stopping(self.peer_stopping);
        m.set_redundant_link(self.redundant_link);
        m.set_bearer_id(self.bearer);
        m.set_link_priority(self.priority);
        m.set_net_plane(self.net_plane);
        m.set_link_tolerance(self.tolerance_ms);
    }
}

/// The name of an interface as RESET and ACTIVATE carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceName(pub [u8; INTERFACE_NAME_LEN]);

impl InterfaceName {
    /// The name as text, at most 15 characters: ends at the first NUL; other than printable ASCII becomes `?`.
    #[must_use]
    pub fn text(&self) -> String {
        let printable = |b: &u8| if b.is_ascii_graphic() { char::from(*b) } else { '?' };
        self.0.iter().take(INTERFACE_NAME_LEN - 1).take_while(|b| **b != 0).map(printable).collect()
    }
}

impl From<&str> for InterfaceName {
    /// Text beyond 15 bytes is truncated.
    fn from(text: &str) -> Self {
        let mut name = [0; INTERFACE_NAME_LEN];
        for (to, from) in name.iter_mut().take(INTERFACE_NAME_LEN - 1).zip(text.bytes()) {
            *to = from;
        }
        Self(name)
    }
}

/// A STATE message: packets received and missing, and neighbours that the sender supervises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Fields of all types.
    pub link: LinkFields,
    /// The message is a probe, or the reply to one.
    pub keepalive: bool,
    /// A reply is requested.
    pub probe: bool,
    /// Packets missing after the acknowledged one, 13 bits.
    pub gap: u16,
    /// Broadcast packets missing after the acknowledged one, 10 bits.
    pub bcast_gap: u16,
    /// The gap-ack record; peers without GAP_ACK_BLOCK send none.
    pub gaps: Option<GapRecord>,
    /// The monitor record; also `None` if it violates a rule, because the rest of the message is valid without it.
    pub monitor: Option<DomainRecord>,
}

impl State {
    /// Reads a STATE; `with_gaps`: whether the peer sends gap-ack records.
    ///
    /// # Errors
    /// [`WireError`] if it is not a STATE, too long, or its gap-ack record is longer than its data.
    pub fn parse(v: View<'_>, with_gaps: bool) -> Result<Self, WireError> {
        expect(v, LinkProtocolType::State)?;
        if v.payload().len() > MAX_PROTOCOL_DATA {
            return Err(WireError::Malformed("STATE: more than 65535 bytes of data"));
        }
        let gaps = if with_gaps { Some(GapRecord::parse(v.payload())?) } else { None };
        let rest = v.payload().get(gaps.as_ref().map_or(0, |g| g.len)..).unwrap_or_default();
        Ok(Self {
            link: LinkFields::read(v),
            keepalive: v.keepalive(),
            probe: v.probe(),
            gap: v.seq_gap(),
            bcast_gap: v.bcast_gap(),
            gaps,
            monitor: DomainRecord::parse(rest).ok(),
        })
    }

    /// True if the data of a STATE starts with a consistent gap-ack record: for a printer, which does not know
    /// the peer's capabilities.
    #[must_use]
    pub fn has_gaps(data: &[u8]) -> bool {
        let consistent = |g: GapRecord| g.len == 4 || !g.broadcast.is_empty() || !g.unicast.is_empty();
        GapRecord::parse(data).is_ok_and(consistent)
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let mut data = self.gaps.as_ref().map(GapRecord::to_bytes).unwrap_or_default();
        data.extend(self.monitor.iter().flat_map(DomainRecord::to_bytes));
        let mut m = envelope.message(User::LinkProtocol, LinkProtocolType::State.into(), &data);
        self.link.write(&mut m);
        m.set_keepalive(self.keepalive);
        m.set_probe(self.probe);
        m.set_seq_gap(self.gap);
        m.set_bcast_gap(self.bcast_gap);
        m
    }
}

/// A RESET or ACTIVATE message: the link starts over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Fields of all types.
    pub link: LinkFields,
    /// The receiver's session as the sender knows it; absent in RESET.
    pub activate: Option<ActivateSession>,
    /// MTU of the sender's bearer divided by 4.
    pub max_packet: u16,
    /// Interface of the sender's bearer.
    pub interface: InterfaceName,
}

/// The receiver's session in ACTIVATE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivateSession {
    /// The number is valid.
    pub valid: bool,
    /// Last session number received from the receiver.
    pub session: u16,
}

impl Restart {
    /// Reads a RESET or ACTIVATE.
    ///
    /// # Errors
    /// [`WireError`] if it is neither, or too short for the interface name.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        let activate = v.link_type() == LinkProtocolType::Activate;
        expect(v, if activate { LinkProtocolType::Activate } else { LinkProtocolType::Reset })?;
        let short = WireError::Truncated { need: INTERFACE_NAME_LEN, have: v.payload().len() };
        let interface = InterfaceName(*v.payload().first_chunk().ok_or(short)?);
        let session = ActivateSession { valid: v.dest_session_valid(), session: v.dest_session() };
        Ok(Self {
            link: LinkFields::read(v),
            activate: activate.then_some(session),
            max_packet: v.max_packet(),
            interface,
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let kind = if self.activate.is_some() { LinkProtocolType::Activate } else { LinkProtocolType::Reset };
        let mut m = envelope.message(User::LinkProtocol, kind.into(), &self.interface.0);
        self.link.write(&mut m);
        if let Some(dest) = self.activate {
            m.set_dest_session_valid(dest.valid);
            m.set_dest_session(dest.session);
        }
        m.set_max_packet(self.max_packet);
        m
    }
}

fn expect(v: View<'_>, kind: LinkProtocolType) -> Result<(), WireError> {
    super::expect_user(v, User::LinkProtocol)?;
    super::expect_header(v)?;
    if v.link_type() == kind {
        Ok(())
    } else {
        Err(WireError::Type { user: User::LinkProtocol.into(), kind: v.kind() })
    }
}
