//! The record of the overlapping-ring monitor, after the gap-ack record of a STATE. Spec: tipc.md §11.1.

use crate::addr::NodeAddr;
use crate::error::WireError;

/// Maximum number of members in one record. Spec: tipc.md §11.1.
pub const MAX_DOMAIN_MEMBERS: usize = 64;
/// Size of a record without members, bytes.
const HEAD: usize = 16;
const MEMBER: usize = 4;

/// The neighbours that the sender supervises, and their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainRecord {
    /// Counts the changes of this record.
    pub generation: u16,
    /// Generation of the receiver's record that the sender has received.
    pub acked_generation: u16,
    /// Bit `i`: member `i` is up. Meaningless without members.
    pub up_map: u64,
    /// Supervised nodes, at most [`MAX_DOMAIN_MEMBERS`].
    pub members: Vec<NodeAddr>,
}

impl DomainRecord {
    /// Reads a record that takes all of `data`.
    ///
    /// # Errors
    /// [`WireError`] if length, member count and data disagree, or there are too many members.
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let Some(([l0, l1, g0, g1, a0, a1, n0, n1, map @ ..], members)) = data.split_first_chunk::<HEAD>()
        else {
            return Err(WireError::Truncated { need: HEAD, have: data.len() });
        };
        let n = usize::from(u16::from_be_bytes([*n0, *n1]));
        if n > MAX_DOMAIN_MEMBERS {
            return Err(WireError::Malformed("monitor record: more than 64 members"));
        }
        if data.len() != HEAD + MEMBER * n || usize::from(u16::from_be_bytes([*l0, *l1])) != data.len() {
            return Err(WireError::Malformed("monitor record: length and member count disagree"));
        }
        Ok(Self {
            generation: u16::from_be_bytes([*g0, *g1]),
            acked_generation: u16::from_be_bytes([*a0, *a1]),
            up_map: u64::from_be_bytes(*map),
            members: members
                .as_chunks::<MEMBER>()
                .0
                .iter()
                .map(|m| NodeAddr(u32::from_be_bytes(*m)))
                .collect(),
        })
    }

    /// Encodes the record; members beyond [`MAX_DOMAIN_MEMBERS`] are omitted.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let members = self.members.get(..MAX_DOMAIN_MEMBERS).unwrap_or(&self.members);
        let len = HEAD + MEMBER * members.len();
        let mut bytes = Vec::with_capacity(len);
        for half in [len as u16, self.generation, self.acked_generation, members.len() as u16] {
            bytes.extend_from_slice(&half.to_be_bytes());
        }
        bytes.extend_from_slice(&self.up_map.to_be_bytes());
        bytes.extend(members.iter().flat_map(|m| m.0.to_be_bytes()));
        bytes
    }
}
