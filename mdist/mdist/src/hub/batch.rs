//! The log of the hub for its sides: one ordered batch per event loop turn, the same for all sides.

use std::sync::Arc;

use super::announce::Announcement;
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::services::Directory;

/// A transport frame header: `u16` length of the frame, flags (Spec: rssl.md §1.6).
pub const FRAME_HEADER: usize = 3;

/// Longest RWF message that fits one plain frame of the usual fragment size, in bytes.
pub const MAX_FRAMED: usize = 6144;

/// The frame flag DATA.
const FRAME_DATA: u8 = 0x02;

/// The kind of an entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token's request now has this item, and the side one more hold on it. No message.
    Opened,
    /// A refresh for this token alone; from its first part on the token's stream is live, that is, gets `Message`.
    Image,
    /// A status for this token alone, whose image has not come, with the reason why it waits (service down,
    /// timeout …).
    Notice,
    /// Refresh, update, status or generic message for all live streams of the item.
    Message,
    /// As `Message`: a status, of which consumers that have got the announcement with the number `token` know.
    Covered,
    /// One change of many items: [`Batch::announcement`] of this entry. `Services` follows if the directory changes
    /// too, so that both can go in one message. No message.
    Announced,
    /// All items that the announcement with the number `token` concerns have had their status. No message.
    AnnouncementEnd,
    /// The item has ended for good: the side ends its streams and gives back its holds by `HubRequest::Close`. No
    /// message.
    Gone,
    /// The directory changed: [`Batch::directory`] of this entry.
    Services,
    /// An ack or generic message for this token.
    Reply,
    /// The token's request has failed for good; the message is a status with the cause. The side has no hold.
    Refused,
}

/// One entry of the log.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Whether the bytes begin with the 3-byte header of a plain frame. A message too long for one frame has no
    /// header.
    pub framed: bool,
    /// The side that it is for.
    pub to: SideId,
    /// The item; `ItemId::NONE` for entries without one.
    pub item: ItemId,
    /// Offset of its bytes in [`Batch::bytes`].
    pub at: u32,
    /// Number of its bytes; 0 for kinds without a message.
    pub len: u32,
    /// The request that it answers; 0 for all streams of the item.
    pub token: Token,
}

impl Entry {
    /// Whether the entry concerns this side.
    #[must_use]
    pub fn is_for(&self, side: SideId) -> bool {
        self.to == side || self.to == SideId::ALL
    }
}

/// A read of an upstream, and the entries that resulted from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Time at which it returned.
    pub at: Now,
    /// The upstream; `None`: several together.
    pub up: Option<UpstreamId>,
    /// Its entries: the first, and the one after the last.
    pub entries: (usize, usize),
}

/// The log of one event loop turn. Cleared and filled again, so that a steady stream of updates allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Messages one after the other, framed or bare as their entries say, with the item's stream id.
    pub bytes: Vec<u8>,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// Directories that entries of kind `Services` point to.
    pub directories: Vec<Arc<Directory>>,
    /// Announcements that entries of kind `Announced` point to.
    pub announcements: Vec<Announcement>,
    /// Whether reads are recorded, to measure the latency of messages.
    pub timed: bool,
    /// The recorded reads, in order.
    pub reads: Vec<Read>,
}

impl Batch {
    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Empties the log and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.directories.clear();
        self.announcements.clear();
        self.reads.clear();
    }

    /// Records the begin of a read, if reads are recorded.
    #[inline]
    pub fn begin_read(&mut self, up: Option<UpstreamId>, clock: impl FnOnce() -> Now) {
        if self.timed {
            let first = self.entries.len();
            self.reads.push(Read { at: clock(), up, entries: (first, first) });
        }
    }

    /// Ends the last read. Entries that follow do not belong to it.
    #[inline]
    pub fn end_read(&mut self) {
        if let Some(read) = self.reads.last_mut() {
            read.entries.1 = self.entries.len();
        }
    }

    /// The reads that have entries.
    pub fn reads_with_entries(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().filter(|read| read.entries.0 < read.entries.1)
    }

    /// The entry's bytes: frame header and message, or the bare message.
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

    /// Appends a new directory, for all sides.
    pub(super) fn services(&mut self, directory: Arc<Directory>) {
        self.push_bare(Kind::Services, SideId::ALL, ItemId::NONE, self.directories.len() as Token);
        self.directories.push(directory);
    }

    /// The announcement of an entry of kind `Announced`.
    #[must_use]
    pub fn announcement(&self, entry: &Entry) -> Option<&Announcement> {
        self.announcements.get(entry.token as usize)
    }

    /// Appends an announcement, for all sides.
    pub fn announce(&mut self, announcement: Announcement) {
        self.push_bare(Kind::Announced, SideId::ALL, ItemId::NONE, self.announcements.len() as Token);
        self.announcements.push(announcement);
    }

    /// Appends the end of the announcement with this number, unless that is 0.
    pub(super) fn end_announcement(&mut self, number: Token) {
        if number != 0 {
            self.push_bare(Kind::AnnouncementEnd, SideId::ALL, ItemId::NONE, number);
        }
    }

    /// Appends an entry without bytes.
    pub fn push_bare(&mut self, kind: Kind, to: SideId, item: ItemId, token: Token) {
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.entries.push(Entry { kind, framed: false, to, item, at, len: 0, token });
    }

    /// Appends a message with the item's stream id put in, framed if it fits one frame, and its entry. The message must
    /// reach beyond its stream id (the caller has peeked at it).
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

    /// Appends one more entry for the bytes of the last one: the same message for another token.
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
    fn reads_with_entries_are_recorded_if_timed() {
        let mut batch = Batch::default();
        batch.begin_read(None, || unreachable!("reads are not recorded"));
        batch.end_read();
        assert_eq!(batch.reads_with_entries().count(), 0);
        batch.timed = true;
        for (second, messages) in [(1, 2), (2, 0), (3, 1)] {
            batch.begin_read(Some(UpstreamId(second)), || Now::from_secs(second.into()));
            for _ in 0..messages {
                batch.push(Kind::Message, SideId::ALL, ItemId(0), 0, &[0; 12]);
            }
            batch.end_read();
            // Not of the read.
            batch.push_bare(Kind::Gone, SideId::ALL, ItemId(0), 0);
        }
        let reads: Vec<_> = batch.reads_with_entries().map(|read| (read.up, read.entries)).collect();
        assert_eq!(reads, [(Some(UpstreamId(1)), (0, 2)), (Some(UpstreamId(3)), (4, 5))]);
        batch.clear();
        assert!(batch.timed && batch.reads.is_empty());
    }
}
