//! Test messages: numbered, with contents derived from the numbers, so that a receiver can check every byte.

/// Shortest connectionless message, bytes.
pub(crate) const HEADER: usize = 24;
const MAGIC: u32 = 0x7e57_da7a;

/// The numbers in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The sending socket (or connection direction), unique in the run.
    pub(crate) sender: u64,
    /// Number of the message at its sender.
    pub(crate) seq: u64,
    /// Size of the whole message, bytes.
    pub(crate) len: usize,
}

/// Bytes compared at a time.
const BLOCK: usize = 1024;

/// Eight bytes of the endless stream `id`, starting at byte `8 * word`.
pub(crate) fn stream_word(id: u64, word: u64) -> u64 {
    let z = (id ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 29
}

fn fill_bytes(id: u64, offset: u64, out: &mut [u8]) {
    for (i, byte) in (offset..).zip(out) {
        *byte = stream_word(id, i / 8).to_le_bytes()[(i % 8) as usize];
    }
}

/// Fills `out` with the bytes of stream `id` from `offset` on, a word at a time, because half the time of a run
/// is spent here.
pub(crate) fn fill(id: u64, offset: u64, out: &mut [u8]) {
    let first = offset.next_multiple_of(8);
    let (start, rest) = out.split_at_mut(out.len().min((first - offset) as usize));
    fill_bytes(id, offset, start);
    let (words, end) = rest.as_chunks_mut::<8>();
    let beyond = first + 8 * words.len() as u64;
    for (word, n) in words.iter_mut().zip(first / 8..) {
        *word = stream_word(id, n).to_le_bytes();
    }
    fill_bytes(id, beyond, end);
}

/// Position of the first byte that differs from the stream; `None` if all are correct.
pub(crate) fn first_wrong(id: u64, offset: u64, data: &[u8]) -> Option<u64> {
    let mut buffer = [0; BLOCK];
    for (block, at) in data.chunks(BLOCK).zip((offset..).step_by(BLOCK)) {
        let right = &mut buffer[..block.len()];
        fill(id, at, right);
        if right != block {
            let wrong = right.iter().zip(block).position(|(a, b)| a != b);
            return wrong.map(|n| at + n as u64);
        }
    }
    None
}

/// Builds the message with these numbers; `len` is at least [`HEADER`].
pub(crate) fn build(numbers: Numbers) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len.max(HEADER)];
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..12].copy_from_slice(&numbers.sender.to_le_bytes());
    bytes[12..20].copy_from_slice(&numbers.seq.to_le_bytes());
    bytes[20..24].copy_from_slice(&(numbers.len as u32).to_le_bytes());
    fill(numbers.sender ^ numbers.seq.rotate_left(32), 0, &mut bytes[HEADER..]);
    bytes
}

/// The numbers of a message, or a description of the error. `whole`: the message must not be truncated.
pub(crate) fn parse(bytes: &[u8], whole: bool) -> Result<Numbers, String> {
    if bytes.len() < HEADER {
        return Err(format!("{} bytes", bytes.len()));
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes[0..4] != MAGIC.to_le_bytes() {
        return Err("not a message of this workload".into());
    }
    let (sender, seq) = (word(4), word(12));
    let len = u32::from_le_bytes(bytes[20..24].try_into().expect("four bytes")) as usize;
    if bytes.len() > len || whole && bytes.len() != len {
        return Err(format!("message {seq} of sender {sender}: {} bytes instead of {len}", bytes.len()));
    }
    if let Some(at) = first_wrong(sender ^ seq.rotate_left(32), 0, &bytes[HEADER..]) {
        return Err(format!(
            "message {seq} of sender {sender}: byte {} of {len} differs",
            at + HEADER as u64
        ));
    }
    Ok(Numbers { sender, seq, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_and_stream_word_agree() {
        let mut whole = [0; 3000];
        fill_bytes(5, 0, &mut whole);
        for (from, to) in [(0, 3000), (1, 2), (3, 8), (5, 2999), (8, 16), (15, 15), (2993, 3000)] {
            let mut part = whole[from..to].to_vec();
            fill(5, from as u64, &mut part);
            assert_eq!(part, whole[from..to]);
            assert_eq!(first_wrong(5, from as u64, &part), None);
        }
        for at in [0, 7, 1023, 1024, 2999] {
            let mut wrong = whole;
            wrong[at] ^= 1;
            assert_eq!(first_wrong(5, 0, &wrong), Some(at as u64));
            assert_eq!(first_wrong(6, 0, &whole[..at]).is_some(), at > 0);
        }
    }

    #[test]
    fn message_contents_depend_on_its_numbers() {
        for len in [24, 25, 100, 5000] {
            let numbers = Numbers { sender: 7, seq: 9, len };
            let mut bytes = build(numbers);
            assert_eq!(parse(&bytes, true), Ok(numbers));
            if len > HEADER {
                assert!(parse(&bytes[..len - 1], true).is_err());
                assert_eq!(parse(&bytes[..HEADER], false), Ok(numbers));
                bytes[len - 1] ^= 1;
                assert!(parse(&bytes, true).is_err());
            }
        }
    }
}
