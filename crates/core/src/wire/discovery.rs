//! The LINK_CONFIG message. Spec: tipc.md §4.3.

use core::net::SocketAddr;

use super::{DISCOVERY_HEADER, MEDIA_INFO_LEN, MediaAddr, Message, User, View};
use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::error::WireError;
use crate::limits::capability;

/// Where the media address info starts in the message, bytes.
const MEDIA_OFFSET: usize = 20;
/// Length of the identity behind the header, bytes.
const ID_LEN: usize = 16;

/// What a discovery message is for. Spec: tipc.md §4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryKind {
    /// "Here I am; who else?"
    Request,
    /// The answer to a request.
    Response,
    /// "May I use this address?"
    Trial,
    /// "No; take that one."
    TrialFail,
}

/// A discovery message as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryMessage {
    /// What it is for.
    pub kind: DiscoveryKind,
    /// REQ and TRIAL: domain asked; RESP: the requester; TRIAL_FAIL: the refused address.
    pub dest_domain: NodeAddr,
    /// Own or trial address of the sender.
    pub source: NodeAddr,
    /// Cluster of the sender.
    pub cluster: ClusterId,
    /// Capability bits of the sender, 13 bits.
    pub capabilities: u16,
    /// Signature of this run of the sender; bit 15 reads as capability bit 0.
    pub signature: u16,
    /// Where the sender's bearer is reached.
    pub media: MediaAddr,
    /// Mark of the sender's network namespace.
    pub net_hash: u32,
    /// TRIAL_FAIL: the address to try instead; else 0.
    pub suggestion: NodeAddr,
    /// Identity of the sender.
    pub identity: NodeId,
}

impl DiscoveryMessage {
    /// The message as bytes: 76 of them, or 60 from a node without 128-bit identity.
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
        message.set_capabilities(self.capabilities); // last: shares bit 15 with the signature
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

    /// Reads a discovery message; every field is checked that can be without knowing the bearer.
    ///
    /// # Errors
    /// [`WireError`] that names the first rule broken. Spec: tipc.md §4.3, §14.2.
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
            return Err(WireError::Malformed("discovery message: its source address is 0"));
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

/// The identity behind the header; nodes from before 128-bit identities have their address as text.
fn identity(view: View<'_>, source: NodeAddr) -> Result<NodeId, WireError> {
    if view.capabilities() & capability::NODE_ID128 == 0 {
        return Ok(NodeId::from_legacy(source));
    }
    let bytes = view.data().get(..ID_LEN).and_then(|b| b.try_into().ok());
    let id = bytes.map(NodeId).ok_or(WireError::Truncated { need: ID_LEN, have: view.data().len() })?;
    if id.is_none() { Err(WireError::Malformed("discovery message: its identity is 0")) } else { Ok(id) }
}

/// Refuses addresses that no frame can be sent to.
fn check_reachable(media: &MediaAddr) -> Result<(), WireError> {
    let reachable = match media {
        MediaAddr::Ethernet(mac) => *mac != [0; 6],
        MediaAddr::Udp(at) => !at.ip().is_unspecified() && at.port() != 0,
    };
    if reachable { Ok(()) } else { Err(WireError::MediaAddress) }
}

/// `heard`, completed by what a message cannot carry: an IPv6 link-local address needs the interface of `own`.
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

/// True if both are of one medium, and over UDP of one IP version: frames can go from one to the other.
pub(crate) fn same_medium(a: &MediaAddr, b: &MediaAddr) -> bool {
    match (a, b) {
        (MediaAddr::Ethernet(_), MediaAddr::Ethernet(_)) => true,
        (MediaAddr::Udp(a), MediaAddr::Udp(b)) => a.is_ipv4() == b.is_ipv4(),
        _ => false,
    }
}
