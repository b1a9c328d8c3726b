//! Messages that can be checked: each carries its flow, its number and its length, and content that follows from them.
//! The soak, the path campaign and both workloads of the simulator check them with this.

use std::collections::HashMap;

/// Bytes before the content: the length of the shortest message.
pub const HEAD: usize = 24;
/// Bytes compared at a time.
const BLOCK: usize = 1024;
/// Maximum number of flows that are remembered at a time: more than reach a socket in its life.
const MAX_FLOWS: usize = 1 << 16;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The flow: a sender, or one direction of a connection. No two flows of a run have the same number.
    pub flow: u64,
    /// Number of the message in its flow.
    pub number: u64,
    /// Length of the whole message, bytes; below 2^24.
    pub len: usize,
    /// What the message asks of its receiver; the programs agree on the meaning.
    pub kind: u8,
}

/// A number all of whose bits depend on all bits of `of`. Source: the finaliser of SplitMix64.
#[must_use]
pub const fn mixed(of: u64) -> u64 {
    let a = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

/// Random numbers from a seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A random number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mixed(self.0)
    }

    /// 0 to `end` − 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

/// Eight bytes of the endless stream `id`, starting at byte `8 * word`.
fn stream_word(id: u64, word: u64) -> u64 {
    let z = (id ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 29
}

fn fill_bytes(id: u64, offset: u64, out: &mut [u8]) {
    for (i, byte) in (offset..).zip(out) {
        *byte = stream_word(id, i / 8).to_le_bytes()[(i % 8) as usize];
    }
}

/// Fills `out` with the bytes of the endless stream `id` from `offset` on, a word at a time, because half the time of a
/// simulator's run is spent here.
pub fn fill(id: u64, offset: u64, out: &mut [u8]) {
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
#[must_use]
pub fn first_wrong(id: u64, offset: u64, data: &[u8]) -> Option<u64> {
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

impl Head {
    /// The stream that the content is from. All of its bits depend on all of the head.
    const fn content(&self) -> u64 {
        mixed(self.flow ^ mixed(self.number ^ mixed(self.len as u64 ^ (self.kind as u64) << 32)))
    }

    /// Writes the message over `into`.
    pub fn write(&self, into: &mut Vec<u8>) {
        let id = self.content();
        into.clear();
        into.extend((id as u32).to_le_bytes());
        into.extend(self.flow.to_le_bytes());
        into.extend(self.number.to_le_bytes());
        into.extend((self.len as u32 | u32::from(self.kind) << 24).to_le_bytes());
        into.resize(self.len.max(HEAD), 0);
        fill(id, 0, into.get_mut(HEAD..).unwrap_or_default());
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// The head of the message that begins with these bytes; its length may differ from theirs.
    ///
    /// # Errors
    /// The bytes are not the beginning of a message.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let (first, last) = (word(0), word(HEAD - 8));
        let Some(((flow, number), (first, last))) = word(4).zip(word(12)).zip(first.zip(last)) else {
            return Err(format!("{} bytes are not a message", bytes.len()));
        };
        let rest = (last >> 32) as u32;
        let head = Self { flow, number, len: (rest & 0x00ff_ffff) as usize, kind: (rest >> 24) as u8 };
        if head.content() as u32 == first as u32 {
            Ok(head)
        } else {
            Err(format!("{} bytes with a damaged head: {head:?}", bytes.len()))
        }
    }
}

/// The head of a message, after a check of every byte that is there. A message that was returned to its sender may be
/// truncated.
///
/// # Errors
/// What is wrong, as text.
pub fn check_front(bytes: &[u8]) -> Result<Head, String> {
    let head = Head::read(bytes)?;
    if bytes.len() > head.len {
        return Err(format!("{} bytes of {head:?}", bytes.len()));
    }
    match first_wrong(head.content(), 0, bytes.get(HEAD..).unwrap_or_default()) {
        None => Ok(head),
        Some(at) => Err(format!("byte {} of {head:?} differs", at + HEAD as u64)),
    }
}

/// The head of a whole message, after a check of every byte.
///
/// # Errors
/// What is wrong, as text.
pub fn check(bytes: &[u8]) -> Result<Head, String> {
    let head = check_front(bytes)?;
    if head.len == bytes.len() { Ok(head) } else { Err(format!("{} bytes of {head:?}", bytes.len())) }
}

/// The flows of datagrams that reach one socket: their numbers only rise.
#[derive(Debug, Default)]
pub struct Flows(HashMap<u64, u64>);

impl Flows {
    /// Takes the next message; returns how many numbers are missing before it.
    ///
    /// # Errors
    /// The message is repeated or late.
    pub fn see(&mut self, head: &Head) -> Result<u64, String> {
        if self.0.len() >= MAX_FLOWS {
            self.0.clear();
        }
        // Later copies of a multicast may reach a receiver that the first ones missed.
        match self.0.insert(head.flow, head.number) {
            Some(last) if head.number <= last => Err(format!("number {last} came before {head:?}")),
            Some(last) => Ok(head.number - last - 1),
            None => Ok(0),
        }
    }
}

/// A flow of which no message may be missing: one direction of a connection.
#[derive(Debug, Default)]
pub struct Exact {
    flow: Option<u64>,
    next: u64,
}

impl Exact {
    /// The next message has this number.
    #[must_use]
    pub const fn at(flow: u64, number: u64) -> Self {
        Self { flow: Some(flow), next: number }
    }

    /// Checks that this message is the next one.
    ///
    /// # Errors
    /// It is another one.
    pub fn see(&mut self, head: &Head) -> Result<(), String> {
        let flow = *self.flow.get_or_insert(head.flow);
        if flow != head.flow || head.number != self.next {
            return Err(format!("{head:?} instead of number {} of flow {flow}", self.next));
        }
        self.next += 1;
        Ok(())
    }
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
    fn every_changed_bit_of_a_message_is_detected() {
        for (len, kind) in [(HEAD, 2), (77, 1), (200, 0), (66_000, 1)] {
            let head = Head { flow: 7, number: 9, len, kind };
            let mut bytes = head.message();
            assert_eq!(check(&bytes), Ok(head));
            for bit in (0..len * 8).take(2000) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(check(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            bytes[len - 1] ^= 1;
            assert!(check(&bytes).is_err());
        }
        let head = Head { flow: 7, number: 9, len: 100, kind: 0 };
        let bytes = head.message();
        assert!(check(&bytes[..99]).is_err() && check_front(&bytes[..HEAD - 1]).is_err());
        assert_eq!((check_front(&bytes[..99]), check_front(&bytes[..HEAD])), (Ok(head), Ok(head)));
    }

    fn head(flow: u64, number: u64) -> Head {
        Head { flow, number, len: 32, kind: 0 }
    }

    #[test]
    fn datagrams_may_be_lost_but_not_repeated_or_reordered() {
        let mut flows = Flows::default();
        assert_eq!(flows.see(&head(1, 4)), Ok(0));
        assert_eq!(flows.see(&head(2, 0)), Ok(0));
        assert_eq!(flows.see(&head(1, 7)), Ok(2));
        assert!(flows.see(&head(1, 7)).is_err());
        assert!(flows.see(&head(1, 5)).is_err());
    }

    #[test]
    fn connection_misses_no_message() {
        let mut exact = Exact::default();
        assert_eq!(exact.see(&head(1, 0)), Ok(()));
        assert!(exact.see(&head(1, 2)).is_err());
        assert!(exact.see(&head(2, 1)).is_err());
        assert_eq!(exact.see(&head(1, 1)), Ok(()));
    }
}
