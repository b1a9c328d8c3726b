//! The gap-ack record at the start of a STATE message's data. Spec: tipc.md §3.1, §5.8.

use super::receive::{GapBlock, MAX_GAP_BLOCKS};

/// Length and counts of a record, bytes.
const HEAD: usize = 4;
/// One block, bytes.
const BLOCK: usize = 4;

/// A received record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GapRecord {
    /// Its length in bytes: what follows belongs to the monitor.
    pub(crate) len: usize,
    /// Blocks about the link.
    pub(crate) unicast: Vec<GapBlock>,
}

impl GapRecord {
    /// Reads the record; `None` if its length exceeds the data. Blocks that do not add up are ignored.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let [l0, l1, u, b] = *data.first_chunk::<HEAD>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let record = data.get(..len)?;
        let (u, b) = (usize::from(u), usize::from(b));
        let skip = if len == HEAD + BLOCK * (u + b) {
            b
        } else if len == HEAD + BLOCK * u {
            0
        } else {
            return Some(Self { len, unicast: Vec::new() });
        };
        if u > MAX_GAP_BLOCKS || b > MAX_GAP_BLOCKS {
            return Some(Self { len, unicast: Vec::new() });
        }
        let blocks = record.get(HEAD + BLOCK * skip..).unwrap_or_default().chunks_exact(BLOCK);
        let block = |c: &[u8]| {
            let word = c.first_chunk().map_or(0, |w| u32::from_be_bytes(*w));
            ((word >> 16) as u16, word as u16)
        };
        Some(Self { len, unicast: blocks.map(block).collect() })
    }

    /// Writes a record with the blocks of both directions, at most [`MAX_GAP_BLOCKS`] each.
    pub(crate) fn build(broadcast: &[GapBlock], unicast: &[GapBlock]) -> Vec<u8> {
        let broadcast = broadcast.get(..MAX_GAP_BLOCKS).unwrap_or(broadcast);
        let unicast = unicast.get(..MAX_GAP_BLOCKS).unwrap_or(unicast);
        let len = HEAD + BLOCK * (broadcast.len() + unicast.len());
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend_from_slice(&[unicast.len() as u8, broadcast.len() as u8]);
        for (ack, gap) in broadcast.iter().chain(unicast) {
            bytes.extend_from_slice(&ack.to_be_bytes());
            bytes.extend_from_slice(&gap.to_be_bytes());
        }
        bytes
    }
}
