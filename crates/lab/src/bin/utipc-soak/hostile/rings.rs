//! The memory of lanes, written directly after docs/spec/lanes.md: many lanes to one socket whose start words lead to
//! rings full of small messages, granted or not, some to the same ring. Then the socket's waiting messages are counted,
//! or its lanes end.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::attacker::Link;
use super::grammar::{self, CLOSE, FETCH_PAIR, GET_OPTION, GROW, MAKE_HOSTED, OPEN, SEND, WANT_LANE};

/// Number of sockets that write to one.
const SENDERS: usize = 40;

/// Number of rings that they fill; some sockets share one.
const RINGS: u64 = 12;

/// Class and log2 of the size of the largest rings.
const LARGEST: (u64, u64) = (3, 20);

/// Bytes of a line of a ring.
const LINE: u64 = 64;

/// Where an arena's parts are.
struct Layout {
    slots: u64,
    /// Where direction 0 has its rings, the first ones and the larger ones.
    firsts: u64,
    larger: u64,
    /// log2 of the size of a first ring.
    first: u64,
}

impl Layout {
    fn read(file: &File) -> Option<Self> {
        let word = |at| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).ok().map(|()| u64::from_le_bytes(bytes))
        };
        let (slots, shifts) = (word(24)?, word(40)?.to_le_bytes());
        let (first, largest) = (u64::from(shifts[0]), u64::from(shifts[3]));
        if word(0)? != u64::from_le_bytes(*b"utipcARN") || slots == 0 || slots > 16_384 || largest > 24 {
            return None;
        }
        let words = (slots.div_ceil(64) * 8).next_multiple_of(128);
        let control = 2 * (128 + words) + slots * 256;
        let firsts = (512 + 2 * control).next_multiple_of(4096);
        let larger = (slots << first).next_multiple_of(1 << largest);
        Some(Self { slots: 512 + 2 * (128 + words), firsts, larger: firsts + larger, first })
    }

    /// The start word of a slot.
    fn start(&self, slot: u64) -> u64 {
        self.slots + slot * 256 + 64
    }

    /// The place of a larger ring, as a start word.
    fn place(&self, class: u64, offset: u64) -> u64 {
        let unit = (self.larger - self.firsts + offset) >> self.first;
        1 << 63 | class << 60 | unit << 36
    }
}

/// A ring full of messages of 40 bytes from one socket to another, or of records without a body.
fn full_ring(from: u64, to: u64, is_empty: bool) -> Vec<u8> {
    let mut bytes = vec![0; 1 << LARGEST.1];
    let (from, to) = (from as u32, to as u32);
    // Version 2, 8 words of header, 40 bytes; to a socket.
    let header: [u32; 8] = [2 << 29 | 8 << 21 | 40, 3 << 29, 0, 0, from, to, 0, 0];
    for (line, record) in bytes.chunks_exact_mut(LINE as usize).enumerate() {
        let len: u64 = if is_empty { 0 } else { 40 };
        let commit = len | 1 << 32 | (line as u64) << 40;
        record[..8].copy_from_slice(&commit.to_le_bytes());
        for (word, place) in header.iter().zip(record[8..40].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }
    // One line always stays free.
    let last = bytes.len() - LINE as usize;
    bytes[last..].fill(0);
    bytes
}

impl Link<'_> {
    /// The attack; false if the attachment has ended.
    pub(super) fn fill_rings(&mut self) -> bool {
        let mut ports = Vec::new();
        for _ in 0..=SENDERS {
            // Reliable datagrams.
            if !self.ask(OPEN, &[2]) {
                return false;
            }
            ports.extend(self.known.ports.last().copied());
        }
        let Some((to, senders)) = ports.split_first() else { return true };
        // Until this message is received, lanes to the socket are unopened.
        if !self.ask(SEND, &[senders[0], 1, 2, *to, 0, 7]) {
            return false;
        }
        let mut lanes = Vec::new();
        for from in senders {
            if !self.ask(WANT_LANE, &[*from, *to]) {
                return false;
            }
            lanes.extend(self.known.lanes.last().copied());
        }
        let Some([pair, ..]) = lanes.first().copied() else { return true };
        if !self.ask(FETCH_PAIR, &[pair]) {
            return false;
        }
        let copy = self.kept.last().and_then(|fd| fd.as_fd().try_clone_to_owned().ok());
        let Some(file) = copy.map(File::from) else { return true };
        let Some(layout) = Layout::read(&file) else { return true };
        let is_empty = self.below(2) == 0;
        for (n, ([_, writer, slot], from)) in (0_u64..).zip(lanes.iter().zip(senders)) {
            let ring = if self.below(3) == 0 { 0 } else { n % RINGS } << LARGEST.1;
            if self.below(2) == 0 && !self.ask(GROW, &[pair, *writer, *slot, LARGEST.1, 3]) {
                return false;
            }
            if n < RINGS {
                let _ = file.write_all_at(&full_ring(*from, *to, is_empty), layout.larger + ring);
            }
            let place = layout.place(LARGEST.0, ring).to_le_bytes();
            let _ = file.write_all_at(&place, layout.start(*slot));
            self.done.writes += 1;
        }
        for _ in 0..self.below(20) {
            // How much waits: messages, or bytes.
            let option = [5, 10][self.below(2) as usize];
            if !self.ask(GET_OPTION, &[*to, option]) {
                return false;
            }
        }
        match self.below(3) {
            0 => self.ask(CLOSE, &[*to]),
            1 => self.ask(MAKE_HOSTED, &[*to, 0]),
            // The process ends.
            _ => false,
        }
    }

    /// A request of these numbers, and its reply.
    fn ask(&mut self, kind: u64, numbers: &[u64]) -> bool {
        self.send(&grammar::of(kind, numbers), 0) && self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_is_full_of_records_that_the_spec_allows() {
        let ring = full_ring(5, 7, false);
        assert_eq!(ring.len(), 1 << 20);
        for (line, record) in (0_u64..).zip(ring.chunks_exact(64)).take((1 << 14) - 1) {
            let commit = u64::from_le_bytes(record[..8].try_into().unwrap());
            assert_eq!((commit & 0xffff_ffff, commit >> 32 & 0xff, commit >> 40), (40, 1, line));
            assert_eq!(record[24..32], [0, 0, 0, 5, 0, 0, 0, 7]);
        }
        assert!(ring[ring.len() - 64..].iter().all(|byte| *byte == 0));
    }
}
