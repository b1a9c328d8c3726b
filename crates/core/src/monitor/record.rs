//! The domain record. Spec: tipc.md §11.1.

use crate::addr::NodeAddr;
use crate::error::WireError;
use crate::limits::capability;
use crate::wire::View;

/// Members of a domain. Spec: tipc.md §11.1.
pub const MAX_DOMAIN: usize = 64;
/// Length of the record without its members, bytes.
const FIXED_LEN: usize = 16;

/// The nodes that a node supervises, and which of them it sees up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainRecord {
    /// Counts the changes.
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

    /// Replaces the content by a new generation.
    pub(super) fn set(&mut self, generation: u16, members: &[(NodeAddr, bool)]) {
        self.generation = generation;
        self.members = members.iter().map(|(addr, _)| *addr).collect();
        self.up =
            members.iter().take(MAX_DOMAIN).zip(0..).fold(0, |map, ((_, up), i)| map | u64::from(*up) << i);
    }

    /// The record as bytes, with the generation of the peer's record that is acknowledged. Without members it only
    /// acknowledges.
    #[must_use]
    pub fn build(&self, acknowledged: u16, with_members: bool) -> Vec<u8> {
        let members = if with_members { &self.members[..] } else { &[] };
        let up = if with_members { self.up } else { 0 };
        let len = FIXED_LEN + 4 * members.len();
        let mut bytes = Vec::with_capacity(len);
        for half in [len as u16, self.generation, acknowledged, members.len() as u16] {
            bytes.extend_from_slice(&half.to_be_bytes());
        }
        bytes.extend_from_slice(&up.to_be_bytes());
        members.iter().for_each(|member| bytes.extend_from_slice(&member.0.to_be_bytes()));
        bytes
    }

    /// Reads a record and the generation of our record that it acknowledges; `None` if there is none.
    ///
    /// # Errors
    /// [`WireError`] that names the rule broken. Spec: tipc.md §11.1.
    pub fn parse(data: &[u8]) -> Result<Option<(Self, u16)>, WireError> {
        if data.is_empty() {
            return Ok(None);
        }
        let have = data.len();
        let (fixed, rest) =
            data.split_at_checked(FIXED_LEN).ok_or(WireError::Truncated { need: FIXED_LEN, have })?;
        let half = |at: usize| {
            let bytes = fixed.get(at..at + 2).and_then(|b| b.try_into().ok());
            u16::from_be_bytes(bytes.unwrap_or_default())
        };
        let (len, generation, acknowledged, count) = (half(0), half(2), half(4), half(6));
        if usize::from(count) > MAX_DOMAIN {
            return Err(WireError::Malformed("monitor record: more than 64 members"));
        }
        if usize::from(len) != have || rest.len() != 4 * usize::from(count) {
            return Err(WireError::Malformed("monitor record: its length does not fit its members"));
        }
        let up = fixed.get(8..).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes);
        let member = |b: &[u8]| NodeAddr(b.iter().fold(0, |w, b| w << 8 | u32::from(*b)));
        let members = rest.chunks_exact(4).map(member).collect();
        Ok(Some((Self { generation, members, up }, acknowledged)))
    }
}

/// What a STATE of a peer with these capability bits carries behind the gap record; empty if that is malformed.
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
