//! Messages that can be checked: a flow, a number, and content derived from both.

/// Bytes before the content.
pub(crate) const HEAD: usize = 32;
/// The longest message, bytes.
pub(crate) const LONGEST: usize = 66_000;

/// The first bytes of every message.
const MAGIC: u32 = 0x7574_736f;

/// The action that a message requests of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// Send the same message back.
    Echo,
    /// End. Sent by the receiver's own process.
    Stop,
}

/// The head of a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Sender and flow; never used twice.
    pub(crate) flow: u64,
    /// Number in the flow, from 0.
    pub(crate) number: u64,
    /// Length of the whole message, bytes.
    pub(crate) len: usize,
    pub(crate) ask: Ask,
}

/// A number all of whose bits depend on all bits of `of`. Source: the finaliser of SplitMix64.
pub(crate) const fn mixed(of: u64) -> u64 {
    let a = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

/// Random numbers from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mixed(self.0)
    }

    /// 0 to `end` − 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A random length: most messages are short, a few have the largest length.
    pub(crate) fn length(&mut self) -> usize {
        let most = match self.below(20) {
            0 => LONGEST,
            1..=3 => 9000,
            _ => 700,
        };
        HEAD + self.below((most - HEAD) as u64 + 1) as usize
    }
}

fn checksum(head: &Head) -> u64 {
    mixed(head.flow ^ mixed(head.number ^ mixed(head.len as u64 ^ (head.ask as u64) << 32)))
}

/// Writes a message over `into`; `len` is at least [`HEAD`].
pub(crate) fn write(into: &mut Vec<u8>, flow: u64, number: u64, len: usize, ask: Ask) {
    let head = Head { flow, number, len, ask };
    let sum = checksum(&head);
    into.clear();
    into.extend(MAGIC.to_le_bytes());
    into.extend((len as u32 | (ask as u32) << 24).to_le_bytes());
    for word in [flow, number, sum] {
        into.extend(word.to_le_bytes());
    }
    let mut word = sum;
    while into.len() < len {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        into.extend(word.to_le_bytes());
    }
    into.truncate(len);
}

/// The head of the message that begins with these bytes; its length may differ from theirs.
pub(crate) fn head(bytes: &[u8]) -> Result<Head, String> {
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let first = word(0);
    if bytes.len() < HEAD || first as u32 != MAGIC {
        return Err(format!("{} bytes are not a message", bytes.len()));
    }
    let ask = match first >> 56 {
        0 => Ask::Nothing,
        1 => Ask::Echo,
        2 => Ask::Stop,
        other => return Err(format!("{other} is not a valid request")),
    };
    let head = Head { flow: word(8), number: word(16), len: (first >> 32) as usize & 0x00ff_ffff, ask };
    if checksum(&head) == word(24) { Ok(head) } else { Err(format!("wrong checksum in {head:?}")) }
}

/// The head of a whole message, after a check of every byte.
pub(crate) fn check(bytes: &[u8]) -> Result<Head, String> {
    let head = head(bytes)?;
    if head.len != bytes.len() {
        return Err(format!("{} bytes of {head:?}", bytes.len()));
    }
    let mut word = checksum(&head);
    for (index, chunk) in bytes[HEAD..].chunks(8).enumerate() {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if chunk != &word.to_le_bytes()[..chunk.len()] {
            return Err(format!("content differs from byte {} on in {head:?}", HEAD + index * 8));
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_of_a_message_is_detected() {
        let mut bytes = Vec::new();
        for (len, ask) in [(HEAD, Ask::Stop), (77, Ask::Echo), (200, Ask::Nothing)] {
            write(&mut bytes, 7, 9, len, ask);
            assert_eq!(check(&bytes), Ok(Head { flow: 7, number: 9, len, ask }));
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(check(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(check(&bytes[..199]).is_err());
        write(&mut bytes, 1, 2, LONGEST, Ask::Echo);
        assert_eq!(check(&bytes).unwrap().len, LONGEST);
    }
}
