//! The domain record. Spec: tipc.md §11.1.

use crate::addr::NodeAddr;
use crate::error::WireError;
use crate::limits::capability;
use crate::wire::{self, View};

/// Maximum number of members of a domain. Spec: tipc.md §11.1.
pub const MAX_DOMAIN: usize = wire::MAX_DOMAIN_MEMBERS;

/// The nodes that a node supervises, and their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainRecord {
    /// Counts the changes of the record.
    pub generation: u16,
    /// The members, at most 64, in the order of the ring.
    pub members: Vec<NodeAddr>,
    /// Bit i: member i is up.
    pub up: u64,
}

impl DomainRecord {
    /// Member `i`, and whether it is up.
    #[must_use]
    pub fn member(&self, i: usize) -> Option<(NodeAddr, bool)> {
        self.members.get(i).map(|addr| (*addr, self.up >> (i % MAX_DOMAIN) & 1 != 0))
    }

    /// Replaces the contents by a new generation.
    pub(super) fn set(&mut self, generation: u16, members: &[(NodeAddr, bool)]) {
        self.generation = generation;
        self.members = members.iter().map(|(addr, _)| *addr).collect();
        self.up =
            members.iter().take(MAX_DOMAIN).zip(0..).fold(0, |map, ((_, up), i)| map | u64::from(*up) << i);
    }

    /// Encodes the record and acknowledges a generation of the peer's record. Without members it is only an
    /// acknowledgement.
    #[must_use]
    pub fn build(&self, acknowledged: u16, with_members: bool) -> Vec<u8> {
        let members = if with_members { self.members.clone() } else { Vec::new() };
        let up_map = if with_members { self.up } else { 0 };
        let acked_generation = acknowledged;
        wire::DomainRecord { generation: self.generation, acked_generation, up_map, members }.to_bytes()
    }

    /// Decodes a record and the generation that it acknowledges; `None` if `data` is empty.
    ///
    /// # Errors
    /// [`WireError`] names the rule violated. Spec: tipc.md §11.1.
    pub fn parse(data: &[u8]) -> Result<Option<(Self, u16)>, WireError> {
        if data.is_empty() {
            return Ok(None);
        }
        let wire::DomainRecord { generation, acked_generation, up_map: up, members } =
            wire::DomainRecord::parse(data)?;
        Ok(Some((Self { generation, members, up }, acked_generation)))
    }
}

/// The monitor record in a STATE of a peer with these capability bits; empty if the gap record is malformed.
#[must_use]
pub fn record_in_state(view: View<'_>, capabilities: u16) -> &[u8] {
    let data = view.payload();
    let gaps = match data {
        [a, b, ..] if capabilities & capability::GAP_ACK_BLOCK != 0 => {
            usize::from(u16::from_be_bytes([*a, *b]))
        }
        _ => 0,
    };
    data.get(gaps..).unwrap_or_default()
}
