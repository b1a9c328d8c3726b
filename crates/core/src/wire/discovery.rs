//! The LINK_CONFIG message. Spec: tipc.md §4.3.

use core::net::SocketAddr;

use super::{DISCOVERY_HEADER, MEDIA_INFO_LEN, MediaAddr, Message, User, View};
use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::error::WireError;
use crate::limits::capability;

/// Offset of the media address info in the message, bytes.
const MEDIA_OFFSET: usize = 20;
/// Length of the identity after the header, bytes.
const ID_LEN: usize = 16;

/// Purpose of a discovery message. Spec: tipc.md §4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryKind {
    /// Announces the sender and asks all nodes to respond.
    Request,
    /// The response to a request.
    Response,
    /// Asks whether the trial address is free.
    Trial,
    /// The trial address is taken; suggests another one.
    TrialFail,
}

/// A decoded discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryMessage {
    /// Purpose.
    pub kind: DiscoveryKind,
    /// REQ and TRIAL: domain that should respond; RESP: the requester; TRIAL_FAIL: the refused address.
    pub dest_domain: NodeAddr,
    /// Own or trial address of the sender.
    pub source: NodeAddr,
    /// Cluster of the sender.
    pub cluster: ClusterId,
    /// Capability bits of the sender, 13 bits.
    pub capabilities: u16,
    /// Signature of this run of the sender; its bit 15 shares a bit with the capabilities.
    pub signature: u16,
    /// Address of the sender's bearer.
    pub media: MediaAddr,
    /// Random number of the sender's network namespace.
    pub net_hash: u32,
    /// TRIAL_FAIL: the address to try instead; else 0.
    pub suggestion: NodeAddr,
    /// Identity of the sender.
    pub identity: NodeId,
}

impl DiscoveryMessage {
    /// Encodes the message: 76 bytes, or 60 for a node without a 128-bit identity.
    #[must_use]
    pub fn build(&self) -> Message {
        let kind = match self.kind {
            DiscoveryKind::Request => 0,
            DiscoveryKind::Response => 1,
            DiscoveryKind::Trial => 2,
            DiscoveryKind::TrialFail => 3,
        };
        let has_id = self.capabilities & capability::NODE_ID128 != 0;
        let id = if has_id { &self.identity.0[..] } else { &[] };
        let mut message = Message::build(User::LinkConfig, kind, DISCOVERY_HEADER, id);
        message.set_non_sequenced(true);
        message.set_signature(self.signature);
        message.set_capabilities(self.capabilities); // last: overwrites the bit shared with the signature
        message.set_word(2, self.dest_domain.0);
        message.set_prev_node(self.source);
        message.set_word(4, self.cluster.0);
        for (n, word) in self.media.to_info().chunks_exact(4).enumerate() {
            let word = word.iter().fold(0, |w, b| w << 8 | u32::from(*b));
            message.set_word(MEDIA_OFFSET / 4 + n, word);
        }
        message.set_net_hash(self.net_hash);
        message.set_word(14, self.suggestion.0);
        message
    }

    /// Decodes a discovery message; checks every field that does not depend on the bearer.
    ///
    /// # Errors
    /// [`WireError`] names the first rule violated. Spec: tipc.md §4.3, §14.2.
    pub fn parse(view: View<'_>) -> Result<Self, WireError> {
        if view.user() != User::LinkConfig || !view.non_sequenced() {
            return Err(WireError::User(view.user().into()));
        }
        if view.header_size() != DISCOVERY_HEADER {
            return Err(WireError::HeaderSize { need: DISCOVERY_HEADER, have: view.header_size() });
        }
        let kind = match view.kind() {
            0 => DiscoveryKind::Request,
            1 => DiscoveryKind::Response,
            2 => DiscoveryKind::Trial,
            3 => DiscoveryKind::TrialFail,
            kind => return Err(WireError::Type { user: view.user().into(), kind }),
        };
        let source = view.prev_node();
        if source.is_none() {
            return Err(WireError::Malformed("discovery message: source address is 0"));
        }
        let info = view.bytes().get(MEDIA_OFFSET..MEDIA_OFFSET + MEDIA_INFO_LEN);
        let media = MediaAddr::from_info(info.unwrap_or_default())?;
        check_reachable(&media)?;
        Ok(Self {
            kind,
            dest_domain: NodeAddr(view.word(2)),
            source,
            cluster: ClusterId(view.word(4)),
            capabilities: view.capabilities(),
            signature: view.signature(),
            media,
            net_hash: view.net_hash(),
            suggestion: NodeAddr(view.word(14)),
            identity: identity(view, source)?,
        })
    }
}

/// The identity after the header. Nodes older than 128-bit identities get their address as text.
fn identity(view: View<'_>, source: NodeAddr) -> Result<NodeId, WireError> {
    if view.capabilities() & capability::NODE_ID128 == 0 {
        return Ok(NodeId::from_legacy(source));
    }
    let bytes = view.data().get(..ID_LEN).and_then(|b| b.try_into().ok());
    let id = bytes.map(NodeId).ok_or(WireError::Truncated { need: ID_LEN, have: view.data().len() })?;
    if id.is_none() { Err(WireError::Malformed("discovery message: identity is 0")) } else { Ok(id) }
}

/// Refuses addresses that cannot receive a frame.
fn check_reachable(media: &MediaAddr) -> Result<(), WireError> {
    let reachable = match media {
        MediaAddr::Ethernet(mac) => *mac != [0; 6],
        MediaAddr::Udp(at) => !at.ip().is_unspecified() && at.port() != 0,
    };
    if reachable { Ok(()) } else { Err(WireError::MediaAddress) }
}

/// `heard`, completed with the interface of `own` if it is an IPv6 link-local address, which a message does not carry.
pub(crate) fn with_scope_of(heard: MediaAddr, own: &MediaAddr) -> MediaAddr {
    match (heard, own) {
        (MediaAddr::Udp(SocketAddr::V6(mut at)), MediaAddr::Udp(SocketAddr::V6(own)))
            if at.ip().is_unicast_link_local() =>
        {
            at.set_scope_id(own.scope_id());
            MediaAddr::Udp(at.into())
        }
        _ => heard,
    }
}

/// True if frames can go from one to the other: same medium, and over UDP the same IP version.
pub(crate) fn same_medium(a: &MediaAddr, b: &MediaAddr) -> bool {
    match (a, b) {
        (MediaAddr::Ethernet(_), MediaAddr::Ethernet(_)) => true,
        (MediaAddr::Udp(a), MediaAddr::Udp(b)) => a.is_ipv4() == b.is_ipv4(),
        _ => false,
    }
}
