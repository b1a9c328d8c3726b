//! The bytes that both kinds of peer send, as in `interop/matrix/pattern.py`: byte i is
//! (7·i + i/256 + seed) mod 256, so every shift or mix-up is visible.

use std::sync::OnceLock;

/// After this many bytes the pattern repeats.
const PERIOD: usize = 65536;

/// Two periods of the pattern with seed 0.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| (0..2 * PERIOD).map(|i| (i * 7 + (i >> 8)) as u8).collect())
}

/// Appends bytes `at .. at + length` of the endless pattern.
pub(crate) fn extend(out: &mut Vec<u8>, seed: u8, at: usize, length: usize) {
    let mut done = 0;
    while done < length {
        let start = (at + done) % PERIOD;
        let run = (length - done).min(2 * PERIOD - start);
        let Some(piece) = base().get(start..start + run) else { return };
        out.extend(piece.iter().map(|b| b.wrapping_add(seed)));
        done += run;
    }
}

/// Bytes `at .. at + length` of the endless pattern.
pub(crate) fn piece(seed: u8, at: usize, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    extend(&mut out, seed, at, length);
    out
}

/// A message that carries its own number: 4 bytes, big-endian, then the pattern seeded by the number.
pub(crate) fn numbered(number: u32, length: usize) -> Vec<u8> {
    let head = number.to_be_bytes();
    let Some(rest) = length.checked_sub(head.len()) else {
        return head.get(head.len() - length..).unwrap_or_default().to_vec();
    };
    let mut out = Vec::with_capacity(length);
    out.extend(head);
    extend(&mut out, head[3], 0, rest);
    out
}

/// Adler-32, begun at 1.
pub(crate) fn checksum(data: &[u8], start: u32) -> u32 {
    const MODULUS: u32 = 65521;
    // Largest number of bytes before the sums have to be reduced to stay within 32 bits.
    const RUN: usize = 5552;
    let (mut low, mut high) = (start & 0xffff, start >> 16);
    for run in data.chunks(RUN) {
        for byte in run {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_that_of_the_python_peer() {
        // Values printed by pattern.py.
        assert_eq!(checksum(&piece(3, 65530, 70000), 1), 2_547_137_125);
        assert_eq!(checksum(&numbered(70001, 5000), 1), 1_474_280_453);
        assert_eq!(numbered(0x0102_0304, 2), [3, 4]);
    }

    #[test]
    fn pieces_make_up_the_whole_pattern() {
        let whole = piece(9, 0, 300_000);
        assert_eq!(piece(9, 123_456, 1000), whole[123_456..124_456]);
        let half = checksum(&whole[..150_000], 1);
        assert_eq!(checksum(&whole[150_000..], half), checksum(&whole, 1));
    }
}
