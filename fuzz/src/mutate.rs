//! Mutation of inputs.

use utipc_core::Rng;

/// Longest input, bytes.
pub(crate) const MAX_INPUT: usize = 4096;

/// Values at the edges of header fields.
const EDGES: [u32; 14] =
    [0, 1, 4, 24, 40, 60, 64, 0x7fff, 0x8000, 0xffff, 0x1_0000, 66_000, 0x7fff_ffff, u32::MAX];

/// A mutation of `parent`, sometimes combined with `other`.
pub(crate) fn mutate(parent: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut input = parent.to_vec();
    for _ in 0..=rng.below(4) {
        change(&mut input, other, rng);
    }
    input.truncate(MAX_INPUT);
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let len = input.len();
    let mut below = |bound: usize| rng.below(bound as u64) as usize;
    if len == 0 {
        input.extend((0..1 + below(64)).map(|i| (i * 37) as u8));
        return;
    }
    match below(10) {
        0 | 1 => input[below(len)] ^= 1 << below(8),
        2 => input[below(len)] = below(256) as u8,
        3 => {
            // Sets a header word to an edge value, or changes it slightly.
            let at = below(len.min(80)) & !3;
            let Some(word) = input.get_mut(at..at + 4) else { return };
            let old = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            let new = if below(2) == 0 {
                EDGES[below(EDGES.len())] << if below(3) == 0 { 16 } else { 0 }
            } else {
                old.wrapping_add(below(16) as u32).wrapping_sub(8)
            };
            word.copy_from_slice(&new.to_be_bytes());
        }
        4 => {
            // Corrects the message size, so that the input passes the structural check.
            let Some(word) = input.first_chunk_mut::<4>() else { return };
            let fixed = u32::from_be_bytes(*word) & !0x1_ffff | len as u32 & 0x1_ffff;
            *word = fixed.to_be_bytes();
        }
        5 => input.truncate(below(len + 1)),
        6 => {
            let (from, count) = (below(len), 1 + below(16));
            input.drain(from..(from + count).min(len));
        }
        7 => {
            let (from, count, to) = (below(len), 1 + below(32), below(len));
            let piece = input[from..(from + count).min(len)].to_vec();
            input.splice(to..to, piece);
        }
        8 if !other.is_empty() => {
            let (from, count, to) = (below(other.len()), 1 + below(64), below(len));
            let piece = &other[from..(from + count).min(other.len())];
            let end = if below(2) == 0 { to } else { (to + piece.len()).min(len) };
            input.splice(to..end, piece.iter().copied());
        }
        _ => {
            let count = 1 + below(24);
            for _ in 0..count {
                let byte = below(256) as u8;
                input.push(byte);
            }
        }
    }
}
