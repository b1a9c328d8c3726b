//! The word that commits a record.

use utipc_os::shm::LINE;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TIPC message.
    Data,
    /// In a node lane: from here on this sender uses the lane named.
    Switch,
    /// In a node lane: the reader may read the lane named.
    Open,
    /// The end of the lane.
    End,
}

/// The code of a commit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Mark(Kind),
    /// The lane continues in the ring named.
    Jump,
    /// Skips the end of a ring that is too short for the next record.
    Pad,
    /// A record that the daemon has taken out, or the writer has taken back.
    Void,
}

impl Code {
    const fn number(self) -> u64 {
        match self {
            Code::Mark(Kind::Data) => 1,
            Code::Mark(Kind::Switch) => 2,
            Code::Mark(Kind::Open) => 3,
            Code::Mark(Kind::End) => 4,
            Code::Jump => 5,
            Code::Pad => 6,
            Code::Void => 7,
        }
    }
}

/// A commit word: bits 0 to 31 the body's length, 32 to 39 the code, 40 to 63 the record's line in the lane modulo
/// 2^24, which distinguishes it from leftovers of an earlier lap. Never zero: zero means "not committed yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) code: Code,
    pub(super) len: u32,
}

/// Bytes of the commit word, before the body.
pub(super) const WORD: usize = 8;

fn tag(position: u64) -> u64 {
    (position / LINE as u64) << 40
}

impl Commit {
    #[inline]
    pub(super) fn pack(self, position: u64) -> u64 {
        u64::from(self.len) | self.code.number() << 32 | tag(position)
    }

    /// `None` if no writer commits this word at `position`.
    #[inline]
    pub(super) fn unpack(word: u64, position: u64) -> Option<Commit> {
        if word >> 40 != tag(position) >> 40 {
            return None;
        }
        let code = match word >> 32 & 0xff {
            1 => Code::Mark(Kind::Data),
            2 => Code::Mark(Kind::Switch),
            3 => Code::Mark(Kind::Open),
            4 => Code::Mark(Kind::End),
            5 => Code::Jump,
            6 => Code::Pad,
            7 => Code::Void,
            _ => return None,
        };
        Some(Commit { code, len: word as u32 })
    }
}

/// Bytes that a record with a body of `len` bytes takes in a ring.
#[inline]
pub(super) const fn span(len: usize) -> usize {
    (WORD + len).next_multiple_of(LINE)
}

/// Maximum number of bytes of a record in a ring of `size` bytes, so that it fits at any position once the ring is
/// empty.
pub(super) const fn span_max(size: usize) -> usize {
    size / 2
}
