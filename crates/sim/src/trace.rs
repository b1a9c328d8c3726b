//! A hash of all events of a run. Equal hashes mean equal runs.

use utipc_bench_kit::numbered;
use utipc_core::{Time, View};

#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    pub(crate) events: u64,
    log: bool,
}

impl Trace {
    pub(crate) fn new(seed: u64, log: bool) -> Self {
        Self { hash: seed ^ 0xcbf2_9ce4_8422_2325, events: 0, log }
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Adds one event: time, kind (a letter), node, and its bytes.
    pub(crate) fn note(&mut self, now: Time, what: u8, place: u64, bytes: &[u8]) {
        self.events += 1;
        if self.log {
            eprintln!("{:>14} {} {place} {}", now.as_nanos() / 1000, char::from(what), text(what, bytes));
        }
        self.mix(now.as_nanos());
        self.mix(u64::from(what) << 56 ^ place);
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.mix(u64::from(*byte));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// The event as a line of the log.
fn text(what: u8, bytes: &[u8]) -> String {
    match View::parse(bytes) {
        Ok(frame) if what == b'f' => format!(
            "{frame:?} nonseq {} ack {} seq {} back {} w4 {:08x} w8 {:x} {:x}",
            frame.non_sequenced(),
            frame.ack(),
            frame.seqno(),
            frame.bcast_ack(),
            frame.word(4),
            frame.word(8),
            frame.word(9)
        ),
        _ if matches!(what, b'e' | b'!') => String::from_utf8_lossy(bytes).into_owned(),
        _ => match numbered::check_front(bytes) {
            Ok(head) => format!("{head:x?}"),
            Err(_) => format!("{} bytes", bytes.len()),
        },
    }
}
