//! Packets on a feed: a header, and numbered entries.

use rssl::wire::Reader;

use super::{HEADER, Result, WireError, short};
use crate::backbone::{FeedId, SourceId};

/// First byte of a packet.
const PACKET_MARK: u8 = 0xFD;
/// In place of a message's length: a kind and a `u32` length follow.
const SPECIAL: u16 = u16::MAX;
/// Bytes before the body of a special entry: [`SPECIAL`], kind, `u32` length.
const SPECIAL_HEADER: usize = 7;
/// Flag: the packet carries a part of one entry that is longer than a packet.
const FLAG_PART: u8 = 1;
/// Flag: it is the last part.
const FLAG_LAST: u8 = 2;
/// Flag: the packet may arrive before earlier ones, because they took another path.
const FLAG_UNORDERED: u8 = 4;

/// The header of a packet on a feed.
///
/// Wire: mark `u8`, flags `u8`, count `u16`, source `u32`, feed `u32`, first `u64`, position `u64`, total `u32`, offset
/// `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of entries in the packet; 1 if it carries a part of one.
    pub count: u16,
    /// The source.
    pub source: SourceId,
    /// The feed.
    pub feed: FeedId,
    /// Number of the first entry; the first entry of a feed has number 1.
    pub first: u64,
    /// Bytes of all packets of the feed before this one.
    pub position: u64,
    /// Set if the packet carries a part of one long entry.
    pub part: Option<Part>,
    /// Whether the packet may arrive before earlier ones; otherwise those are lost.
    pub unordered: bool,
}

/// The part of a long entry that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the entry before this part.
    pub offset: u32,
    /// Bytes of the whole entry.
    pub total: u32,
    /// Whether it is the last part.
    pub last: bool,
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let part = self.part.unwrap_or(Part { offset: 0, total: 0, last: false });
        let flags = if self.part.is_some() { FLAG_PART } else { 0 }
            | if part.last { FLAG_LAST } else { 0 }
            | if self.unordered { FLAG_UNORDERED } else { 0 };
        out[0] = PACKET_MARK;
        out[1] = flags;
        out[2..4].copy_from_slice(&self.count.to_be_bytes());
        out[4..8].copy_from_slice(&self.source.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.feed.0.to_be_bytes());
        out[12..20].copy_from_slice(&self.first.to_be_bytes());
        out[20..28].copy_from_slice(&self.position.to_be_bytes());
        out[28..32].copy_from_slice(&part.total.to_be_bytes());
        out[32..36].copy_from_slice(&part.offset.to_be_bytes());
        out
    }

    /// Decodes the header of a packet; the entries follow [`HEADER`] bytes after its start.
    ///
    /// # Errors
    /// The packet is cut short or not of this version.
    pub fn decode(packet: &[u8]) -> Result<Self> {
        const WHAT: &str = "a packet";
        let mut r = Reader::new(packet);
        let (mark, flags) = (r.u8().map_err(short(WHAT))?, r.u8().map_err(short(WHAT))?);
        if mark != PACKET_MARK {
            return Err(WireError::Unknown { what: WHAT, field: "mark", value: mark.into() });
        }
        let mut rest = || -> rssl::Result<Self> {
            let count = r.u16()?;
            let (source, feed) = (SourceId(r.u32()?), FeedId(r.u32()?));
            let (first, position) = (r.u64()?, r.u64()?);
            let (total, offset) = (r.u32()?, r.u32()?);
            let part =
                (flags & FLAG_PART != 0).then_some(Part { offset, total, last: flags & FLAG_LAST != 0 });
            Ok(Self { count, source, feed, first, position, part, unordered: flags & FLAG_UNORDERED != 0 })
        };
        let header = rest().map_err(short(WHAT))?;
        if header.first == 0 || header.first.checked_add(header.count.into()).is_none() {
            return Err(WireError::Unknown { what: WHAT, field: "number", value: header.first });
        }
        if header.position.checked_add(packet.len() as u64).is_none() {
            return Err(WireError::Unknown { what: WHAT, field: "position", value: header.position });
        }
        Ok(header)
    }
}

/// Sets [`Header::unordered`] in an encoded packet.
pub(crate) fn mark_unordered(packet: &mut [u8]) {
    if let Some(flags) = packet.get_mut(1) {
        *flags |= FLAG_UNORDERED;
    }
}

/// One numbered entry of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A message for all live streams of the item with the message's stream id; on
    /// [`SERVICE_STREAM`](super::SERVICE_STREAM) an update of the directory
    /// with the state of the feed's service, or an announcement of states or groups of its items
    /// ([`Announcement`](crate::hub::Announcement)), or neither. Its sequence number is that of the announcement to
    /// which statuses belong until the next such message; without one they are the items' own.
    Message(&'a [u8]),
    /// The item has ended; its stream id may mean another item afterwards.
    Gone {
        /// The source's stream id of the item.
        item: i32,
        /// The final message for its live streams; may be empty.
        message: &'a [u8],
    },
    /// An image for one stream of one sink; in the feed, so that its order among the updates is exact.
    Image {
        /// Number of the sink, from [`Record::Welcome`](super::Record::Welcome).
        sink: u32,
        /// The sink's stream.
        stream: i32,
        /// Whether it is the last part.
        complete: bool,
        /// The refresh, with the source's stream id.
        message: &'a [u8],
    },
    /// The source has disconnected this sink from the feed. The sink must ignore later entries, whose stream ids may
    /// mean other items.
    Cut {
        /// Number of the sink, from [`Record::Welcome`](super::Record::Welcome).
        sink: u32,
    },
}

const ENTRY_MESSAGE: u8 = 1;
const ENTRY_GONE: u8 = 2;
const ENTRY_IMAGE: u8 = 3;
const ENTRY_CUT: u8 = 4;

impl<'a> Entry<'a> {
    /// Splits the next entry off the front of `bytes`. This is the hot path: a plain message costs two checks
    /// and a split.
    ///
    /// # Errors
    /// The entry is cut short or of an unknown kind.
    #[inline]
    pub fn take(bytes: &mut &'a [u8]) -> Result<Self> {
        if let Some((len, rest)) = bytes.split_first_chunk::<2>() {
            let len = u16::from_be_bytes(*len);
            if len != SPECIAL
                && let Some((message, rest)) = rest.split_at_checked(len.into())
            {
                *bytes = rest;
                return Ok(Self::Message(message));
            }
        }
        Self::take_special(bytes)
    }

    #[cold]
    fn take_special(bytes: &mut &'a [u8]) -> Result<Self> {
        const WHAT: &str = "an entry of a packet";
        let mut r = Reader::new(bytes);
        let mut body = || -> rssl::Result<(u8, &'a [u8])> {
            let len = r.u16()?;
            if len != SPECIAL {
                return Ok((ENTRY_MESSAGE, r.bytes(len.into())?));
            }
            let kind = r.u8()?;
            let len = r.u32()?;
            Ok((kind, r.bytes(len as usize)?))
        };
        let (kind, body) = body().map_err(short(WHAT))?;
        *bytes = r.rest();
        let mut r = Reader::new(body);
        match kind {
            ENTRY_MESSAGE => Ok(Self::Message(body)),
            ENTRY_GONE => {
                let item = r.i32().map_err(short(WHAT))?;
                Ok(Self::Gone { item, message: r.rest() })
            }
            ENTRY_IMAGE => {
                let sink = r.u32().map_err(short(WHAT))?;
                let stream = r.i32().map_err(short(WHAT))?;
                let complete = r.u8().map_err(short(WHAT))? != 0;
                Ok(Self::Image { sink, stream, complete, message: r.rest() })
            }
            ENTRY_CUT => Ok(Self::Cut { sink: r.u32().map_err(short(WHAT))? }),
            kind => Err(WireError::Unknown { what: WHAT, field: "kind", value: kind.into() }),
        }
    }

    /// Appends the entry to a packet under construction.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Message(message) => match u16::try_from(message.len()) {
                Ok(len) if len != SPECIAL => {
                    out.extend_from_slice(&len.to_be_bytes());
                    out.extend_from_slice(message);
                }
                _ => special(out, ENTRY_MESSAGE, &[message]),
            },
            Self::Gone { item, message } => special(out, ENTRY_GONE, &[&item.to_be_bytes(), message]),
            Self::Image { sink, stream, complete, message } => {
                let head = [sink.to_be_bytes(), stream.to_be_bytes()].concat();
                special(out, ENTRY_IMAGE, &[&head, &[complete.into()], message]);
            }
            Self::Cut { sink } => special(out, ENTRY_CUT, &[&sink.to_be_bytes()]),
        }
    }

    /// Number of bytes that [`Entry::append`] appends.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Message(message) if message.len() < usize::from(SPECIAL) => 2 + message.len(),
            Self::Message(message) => SPECIAL_HEADER + message.len(),
            Self::Gone { message, .. } => SPECIAL_HEADER + 4 + message.len(),
            Self::Image { message, .. } => SPECIAL_HEADER + 9 + message.len(),
            Self::Cut { .. } => SPECIAL_HEADER + 4,
        }
    }
}

#[cold]
fn special(out: &mut Vec<u8>, kind: u8, body: &[&[u8]]) {
    // Fits: at most `MAX_RECORD` and a header.
    let len = body.iter().map(|part| part.len()).sum::<usize>() as u32;
    out.extend_from_slice(&SPECIAL.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}
