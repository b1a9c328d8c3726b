//! The gap-ack record at the start of a STATE message's data. Spec: tipc.md §3.1, §5.8.

use super::seq;
use crate::error::WireError;

/// {last packet received after a gap, number of packets missing after it}.
pub type GapBlock = (u16, u16);

/// Maximum number of gap blocks in one direction of one record. Spec: tipc.md §3.1.
pub const MAX_GAP_BLOCKS: usize = 64;

/// Size of length and counts, bytes.
const HEAD: usize = 4;
/// Size of a block, bytes.
const BLOCK: usize = 4;

/// A gap-ack record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GapRecord {
    /// Length that the record claims, bytes; the monitor record follows it.
    pub len: usize,
    /// Blocks of the broadcast link; empty if the record is inconsistent.
    pub broadcast: Vec<GapBlock>,
    /// Blocks of the link; empty if the record is inconsistent.
    pub unicast: Vec<GapBlock>,
}

impl GapRecord {
    /// A record with the blocks of both directions, at most [`MAX_GAP_BLOCKS`] each.
    #[must_use]
    pub fn new(broadcast: &[GapBlock], unicast: &[GapBlock]) -> Self {
        let limited = |blocks: &[GapBlock]| blocks.iter().copied().take(MAX_GAP_BLOCKS).collect::<Vec<_>>();
        let (broadcast, unicast) = (limited(broadcast), limited(unicast));
        Self { len: HEAD + BLOCK * (broadcast.len() + unicast.len()), broadcast, unicast }
    }

    /// Reads the record at the start of `data`. If the number of blocks contradicts the length or exceeds
    /// [`MAX_GAP_BLOCKS`], the blocks are ignored, as the kernel does. Old peers do not count the broadcast blocks.
    ///
    /// # Errors
    /// [`WireError`] if the record is longer than the data.
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let Some([l0, l1, u, b]) = data.first_chunk::<HEAD>() else {
            return Err(WireError::Truncated { need: HEAD, have: data.len() });
        };
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let record = data.get(..len).ok_or(WireError::Truncated { need: len, have: data.len() })?;
        let (u, b) = (usize::from(*u), usize::from(*b));
        let b = match len {
            _ if u > MAX_GAP_BLOCKS || b > MAX_GAP_BLOCKS => None,
            _ if len == HEAD + BLOCK * (u + b) => Some(b),
            _ if len == HEAD + BLOCK * u => Some(0),
            _ => None,
        };
        let Some(b) = b else { return Ok(Self { len, ..Self::default() }) };
        let mut blocks = record.get(HEAD..).unwrap_or_default().as_chunks::<BLOCK>().0.iter().map(block);
        let broadcast = blocks.by_ref().take(b).collect();
        Ok(Self { len, broadcast, unicast: blocks.collect() })
    }

    /// Encodes the record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        bytes.extend_from_slice(&(self.len as u16).to_be_bytes());
        bytes.extend_from_slice(&[self.unicast.len() as u8, self.broadcast.len() as u8]);
        for (ack, gap) in self.broadcast.iter().chain(&self.unicast) {
            bytes.extend_from_slice(&ack.to_be_bytes());
            bytes.extend_from_slice(&gap.to_be_bytes());
        }
        bytes
    }

    /// True if the blocks follow `ack`, its `gap` and each other in strictly rising order. Spec: tipc.md §14.2.
    #[must_use]
    pub fn rises(ack: u16, gap: u16, blocks: &[GapBlock]) -> bool {
        let mut end = ack.wrapping_add(gap);
        blocks.iter().all(|(ack, gap)| {
            let after = seq::lt(end, *ack);
            end = ack.wrapping_add(*gap);
            after
        })
    }
}

fn block(bytes: &[u8; BLOCK]) -> GapBlock {
    let [a0, a1, g0, g1] = *bytes;
    (u16::from_be_bytes([a0, a1]), u16::from_be_bytes([g0, g1]))
}
