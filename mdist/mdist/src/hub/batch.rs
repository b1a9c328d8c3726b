//! What the hub tells its sides: one ordered log per turn, the same for all of them.

use std::sync::Arc;

use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::services::Directory;

/// A transport frame header: `u16` length of the frame, flags (Spec: rssl.md §1.6).
pub const FRAME_HEADER: usize = 3;

/// Longest RWF message that goes into one plain frame with the fragment size that everybody uses.
pub const MAX_FRAMED: usize = 6144;

/// The frame flag DATA.
const FRAME_DATA: u8 = 0x02;

/// Why an entry is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token's request has this item from now on, and the side holds it once more. No message.
    Opened,
    /// A refresh for this token alone: from the first part on its stream is live, that is gets `Message`.
    Image,
    /// A status for this token alone, whose image is still to come: why it waits (service down, timeout …).
    Notice,
    /// Refresh, update, status or generic message for all live streams of the item.
    Message,
    /// The item has ended for good: the side drops its streams and gives back its holds by `HubRequest::Close`. No message.
    Gone,
    /// The directory changed: [`Batch::directory`] of this entry.
    Services,
    /// Ack or generic message for this token.
    Reply,
    /// The token's request has failed for good; the message is the status that says why. Nothing is held.
    Refused,
}

/// One entry of the log.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it tells.
    pub kind: Kind,
    /// The bytes begin with the 3-byte header of a plain frame; a message too long for one frame has none.
    pub framed: bool,
    /// Whom it concerns.
    pub to: SideId,
    /// `ItemId::NONE` where no item is meant.
    pub item: ItemId,
    /// Where its bytes begin in [`Batch::bytes`].
    pub at: u32,
    /// How many they are; 0 where the kind has no message.
    pub len: u32,
    /// 0 where all streams of the item are meant.
    pub token: Token,
}

impl Entry {
    /// Whether the entry concerns this side.
    #[must_use]
    pub fn is_for(&self, side: SideId) -> bool {
        self.to == side || self.to == SideId::ALL
    }
}

/// A read of an upstream, and where what it brought is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When it returned.
    pub at: Now,
    /// Whose it was; `None`: several upstreams' together.
    pub up: Option<UpstreamId>,
    /// The first entry of what it brought, and the first that is not.
    pub entries: (usize, usize),
}

/// The log of one turn. Cleared and filled again, so that a steady stream of updates allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Messages one after the other, framed or bare as their entries say; the stream id in them is the item's.
    pub bytes: Vec<u8>,
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// Directories that entries of kind `Services` point to.
    pub directories: Vec<Arc<Directory>>,
    /// Whether reads are noted: somebody measures how long messages stay here.
    pub timed: bool,
    /// Reads in order, if they are.
    pub reads: Vec<Read>,
}

impl Batch {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Empties the log and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.directories.clear();
        self.reads.clear();
    }

    /// Notes a read, if that is wanted.
    #[inline]
    pub fn begin_read(&mut self, up: Option<UpstreamId>, clock: impl FnOnce() -> Now) {
        if self.timed {
            let first = self.entries.len();
            self.reads.push(Read { at: clock(), up, entries: (first, first) });
        }
    }

    /// What the newest read has brought is in the log.
    #[inline]
    pub fn end_read(&mut self) {
        if let Some(read) = self.reads.last_mut() {
            read.entries.1 = self.entries.len();
        }
    }

    /// The reads that brought something.
    pub fn reads_with_entries(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().filter(|read| read.entries.0 < read.entries.1)
    }

    /// The entry's bytes as they stand: frame header and message, or the bare message.
    #[must_use]
    pub fn framed(&self, entry: &Entry) -> &[u8] {
        let at = entry.at as usize;
        self.bytes.get(at..at + entry.len as usize).unwrap_or(&[])
    }

    /// The entry's RWF message without a frame; empty where the entry has none.
    #[must_use]
    pub fn message(&self, entry: &Entry) -> &[u8] {
        let framed = self.framed(entry);
        if entry.framed { framed.get(FRAME_HEADER..).unwrap_or(&[]) } else { framed }
    }

    /// The directory of an entry of kind `Services`.
    #[must_use]
    pub fn directory(&self, entry: &Entry) -> Option<&Arc<Directory>> {
        self.directories.get(entry.token as usize)
    }

    /// Tells all sides of a new directory.
    pub(super) fn services(&mut self, directory: Arc<Directory>) {
        self.push_bare(Kind::Services, SideId::ALL, ItemId::NONE, self.directories.len() as Token);
        self.directories.push(directory);
    }

    /// Appends an entry without bytes.
    pub fn push_bare(&mut self, kind: Kind, to: SideId, item: ItemId, token: Token) {
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.entries.push(Entry { kind, framed: false, to, item, at, len: 0, token });
    }

    /// Appends a message with the item's stream id in it, framed if it fits one frame, and the entry that points to it.
    /// `message` must be longer than a stream id's place (the caller has peeked at it).
    pub fn push(&mut self, kind: Kind, to: SideId, item: ItemId, token: Token, message: &[u8]) {
        let at = self.bytes.len();
        let framed = message.len() <= MAX_FRAMED;
        if framed {
            // `MAX_FRAMED` + header fits u16.
            let [high, low] = ((message.len() + FRAME_HEADER) as u16).to_be_bytes();
            self.bytes.extend_from_slice(&[high, low, FRAME_DATA]);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        if let Some(place) = self.bytes.get_mut(start + 4..start + 8) {
            place.copy_from_slice(&item.stream().to_be_bytes());
        }
        let len = (self.bytes.len() - at) as u32;
        self.entries.push(Entry { kind, framed, to, item, at: at as u32, len, token });
    }

    /// Appends one more entry for the bytes of the newest one: the same message for another token.
    pub fn push_repeat(&mut self, kind: Kind, to: SideId, item: ItemId, token: Token) {
        if let Some(&last) = self.entries.last() {
            self.entries.push(Entry { kind, to, item, token, ..last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_brought_something_are_noted_if_that_is_wanted() {
        let mut batch = Batch::default();
        batch.begin_read(None, || unreachable!("nobody measures"));
        batch.end_read();
        assert_eq!(batch.reads_with_entries().count(), 0);
        batch.timed = true;
        for (second, messages) in [(1, 2), (2, 0), (3, 1)] {
            batch.begin_read(Some(UpstreamId(second)), || Now::from_secs(second.into()));
            for _ in 0..messages {
                batch.push(Kind::Message, SideId::ALL, ItemId(0), 0, &[0; 12]);
            }
            batch.end_read();
            // What is not of the read.
            batch.push_bare(Kind::Gone, SideId::ALL, ItemId(0), 0);
        }
        let brought: Vec<_> = batch.reads_with_entries().map(|read| (read.up, read.entries)).collect();
        assert_eq!(brought, [(Some(UpstreamId(1)), (0, 2)), (Some(UpstreamId(3)), (4, 5))]);
        batch.clear();
        assert!(batch.timed && batch.reads.is_empty());
    }
}
