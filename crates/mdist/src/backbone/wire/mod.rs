//! What source ends and sink ends say to each other; the same on every backbone. All numbers are big-endian.
//!
//! Everything decoded here is foreign: each decoder checks all it reads and names what is wrong.

use rssl::wire::Reader;

use super::{FeedId, SourceId};

/// Version of all that is described here; both ends must have the same.
pub const VERSION: u16 = 2;
/// Most bytes of a packet: below what TIPC carries in one message (66,000).
pub const MAX_PACKET: usize = 60_000;
/// Most bytes of a record, images included.
pub const MAX_RECORD: usize = 16 << 20;
/// Bytes of the header of a packet.
pub const HEADER: usize = 36;
/// First byte of a packet: nothing else on a feed begins with it.
const PACKET_MARK: u8 = 0xFD;
/// First byte of a credit.
const CREDIT_MARK: u8 = 0xCD;
/// The length of a message that is followed by a kind and a longer length instead.
const SPECIAL: u16 = u16::MAX;
/// Bytes before the body of a special entry: [`SPECIAL`], kind, `u32` length.
const SPECIAL_HEADER: usize = 7;
/// The packet carries a part of one entry that is too long for a packet.
const FLAG_PART: u8 = 1;
/// It is the last part.
const FLAG_LAST: u8 = 2;
/// Longest name of an end, bytes.
const MAX_NAME: usize = 255;
/// Most feeds of one source.
pub const MAX_FEEDS: usize = 1024;

/// Why foreign bytes were not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It ends too early.
    #[error("{what} on the backbone is cut short: {why}")]
    Short {
        /// What was decoded.
        what: &'static str,
        /// Which field.
        why: rssl::Error,
    },
    /// A value that is not allowed.
    #[error("{what} on the backbone has an unknown {field} {value} (is the other end of another version?)")]
    Unknown {
        /// What was decoded.
        what: &'static str,
        /// Which field.
        field: &'static str,
        /// What it was.
        value: u64,
    },
}

type Result<T> = std::result::Result<T, WireError>;

fn short(what: &'static str) -> impl FnOnce(rssl::Error) -> WireError {
    move |why| WireError::Short { what, why }
}

/// The header of a packet on a feed.
///
/// Wire: mark `u8`, flags `u8`, count `u16`, source `u32`, feed `u32`, first `u64`, position `u64`, total `u32`, offset `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Entries in the packet; 1 if it is a part of one.
    pub count: u16,
    /// Whose feed.
    pub source: SourceId,
    /// Which.
    pub feed: FeedId,
    /// Number of the first entry; the first one of a feed has number 1.
    pub first: u64,
    /// Bytes of all packets of the feed before this one.
    pub position: u64,
    /// Set if the packet carries a part of one long entry.
    pub part: Option<Part>,
}

/// Which part of a long entry a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the entry before this part.
    pub offset: u32,
    /// Bytes of the whole entry.
    pub total: u32,
    /// No part follows.
    pub last: bool,
}

impl Header {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let part = self.part.unwrap_or(Part { offset: 0, total: 0, last: false });
        let flags = if self.part.is_some() { FLAG_PART } else { 0 } | if part.last { FLAG_LAST } else { 0 };
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

    /// Reads the header of a packet; the entries follow [`HEADER`] bytes after its start.
    ///
    /// # Errors
    /// It is cut short or no packet of this version.
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
            Ok(Self { count, source, feed, first, position, part })
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

/// One numbered entry of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A message for all live streams of the item whose stream id at the source it carries.
    Message(&'a [u8]),
    /// The item with this stream id at the source has ended; that id may mean another item afterwards.
    Gone {
        /// The source's stream id.
        item: i32,
        /// What its live streams are told last; empty if nothing.
        message: &'a [u8],
    },
    /// An image for one stream of one sink, sent among the others because its order matters more than who reads it.
    Image {
        /// As [`Record::Welcome`] numbers the sink.
        sink: u32,
        /// The sink's stream.
        stream: i32,
        /// The last part.
        complete: bool,
        /// The refresh, with the source's stream id.
        message: &'a [u8],
    },
    /// From here on nothing is meant for this sink: the source has given it up, and the ids of its items may mean others.
    Cut {
        /// As [`Record::Welcome`] numbers the sink.
        sink: u32,
    },
}

const ENTRY_MESSAGE: u8 = 1;
const ENTRY_GONE: u8 = 2;
const ENTRY_IMAGE: u8 = 3;
const ENTRY_CUT: u8 = 4;

impl<'a> Entry<'a> {
    /// Takes the next entry off the front of `bytes`, at which it then begins no more. The hot path: a plain message is two
    /// checks and a split.
    ///
    /// # Errors
    /// It is cut short or of an unknown kind.
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

    /// Bytes that [`Entry::append`] appends.
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
    // No longer than `MAX_RECORD` and a header.
    let len = body.iter().map(|part| part.len()).sum::<usize>() as u32;
    out.extend_from_slice(&SPECIAL.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// The bytes of a credit: mark, feed, position.
#[must_use]
pub fn encode_credit(feed: FeedId, position: u64) -> [u8; 13] {
    let mut out = [CREDIT_MARK; 13];
    out[1..5].copy_from_slice(&feed.0.to_be_bytes());
    out[5..13].copy_from_slice(&position.to_be_bytes());
    out
}

/// Feed and position of a credit.
///
/// # Errors
/// It is none.
pub fn decode_credit(bytes: &[u8]) -> Result<(FeedId, u64)> {
    const WHAT: &str = "a credit";
    let mut r = Reader::new(bytes);
    let mark = r.u8().map_err(short(WHAT))?;
    if mark != CREDIT_MARK {
        return Err(WireError::Unknown { what: WHAT, field: "mark", value: mark.into() });
    }
    Ok((FeedId(r.u32().map_err(short(WHAT))?), r.u64().map_err(short(WHAT))?))
}

/// What an answer is; see [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnswerKind {
    /// The stream has this item from now on. No message.
    Opened = 1,
    /// A part of an image that is not the last.
    Image = 2,
    /// The last part of an image, or the only one.
    Complete = 3,
    /// A status while the image is still to come.
    Notice = 4,
    /// An acknowledgement or generic message.
    Reply = 5,
    /// A status: the stream is over.
    Refused = 6,
}

/// A message for one stream of one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it is.
    pub kind: AnswerKind,
    /// The feed of the item's service.
    pub feed: FeedId,
    /// Number of the feed's last entry that came before it.
    pub as_of: u64,
    /// The sink's stream.
    pub stream: i32,
    /// The source's stream id of the item, 0 if there is none.
    pub item: i32,
    /// An RWF message; its stream id means nothing.
    pub message: Vec<u8>,
}

/// A record on the link between a source end and a sink end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Sink: who it is and where it reads feeds. The first record.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Its address on the backbone.
        address: u64,
        /// A name for people.
        name: String,
    },
    /// Sink: listens to this feed. A higher epoch than before ends all its streams and joins first.
    Join {
        /// Counts the sink's new beginnings.
        epoch: u32,
        /// Which.
        feed: FeedId,
    },
    /// Sink: a request, close, post or generic message, with the sink's stream id.
    Ask {
        /// A request on a stream that was open when it left: meaningless if it is not any more.
        reissue: bool,
        /// Send the image among the entries of the feed.
        in_feed: bool,
        /// The RWF message.
        message: Vec<u8>,
    },
    /// Source: the answer to `Hello`.
    Welcome {
        /// [`VERSION`].
        version: u16,
        /// The sink's number in [`Entry::Image`].
        sink: u32,
        /// A name for people.
        name: String,
    },
    /// Source: its services, always all of them.
    Directory {
        /// The feed of each service.
        feeds: Vec<(u16, FeedId)>,
        /// The payload of an RWF directory refresh.
        payload: Vec<u8>,
    },
    /// Source: the answer to `Join`.
    Joined {
        /// As asked.
        epoch: u32,
        /// As asked.
        feed: FeedId,
        /// Number of the last entry before those that the sink gets.
        number: u64,
        /// Bytes of the feed so far.
        position: u64,
        /// Bytes that may be on their way to the sink, what it has read and not yet used included.
        window: u64,
    },
    /// Source: for one stream.
    Answer(Answer),
    /// Source: the sink did not keep up; all its streams and joins are over.
    Cut {
        /// The epoch that is over.
        epoch: u32,
        /// Why.
        why: String,
    },
    /// Source: the number of the feed's newest entry, when a sink seems to have missed it.
    Newest {
        /// Which feed.
        feed: FeedId,
        /// The number.
        number: u64,
    },
}

const HELLO: u8 = 1;
const JOIN: u8 = 2;
const ASK: u8 = 3;
const WELCOME: u8 = 16;
const DIRECTORY: u8 = 17;
const JOINED: u8 = 18;
const ANSWER: u8 = 19;
const CUT: u8 = 20;
const NEWEST: u8 = 21;

impl Record {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Hello { version, address, name } => {
                out.push(HELLO);
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(&address.to_be_bytes());
                text(&mut out, name);
            }
            Self::Join { epoch, feed } => {
                out.push(JOIN);
                out.extend_from_slice(&epoch.to_be_bytes());
                out.extend_from_slice(&feed.0.to_be_bytes());
            }
            Self::Ask { reissue, in_feed, message } => {
                out.extend_from_slice(&[ASK, u8::from(*reissue) | u8::from(*in_feed) << 1]);
                out.extend_from_slice(message);
            }
            Self::Welcome { version, sink, name } => {
                out.push(WELCOME);
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(&sink.to_be_bytes());
                text(&mut out, name);
            }
            Self::Directory { feeds, payload } => {
                out.push(DIRECTORY);
                // At most `MAX_FEEDS`.
                out.extend_from_slice(&(feeds.len() as u16).to_be_bytes());
                for (service, feed) in feeds {
                    out.extend_from_slice(&service.to_be_bytes());
                    out.extend_from_slice(&feed.0.to_be_bytes());
                }
                out.extend_from_slice(payload);
            }
            Self::Joined { epoch, feed, number, position, window } => {
                out.push(JOINED);
                out.extend_from_slice(&epoch.to_be_bytes());
                out.extend_from_slice(&feed.0.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&position.to_be_bytes());
                out.extend_from_slice(&window.to_be_bytes());
            }
            Self::Answer(Answer { kind, feed, as_of, stream, item, message }) => {
                answer(&mut out, *kind, *feed, *as_of, *stream, *item, message);
            }
            Self::Cut { epoch, why } => {
                out.push(CUT);
                out.extend_from_slice(&epoch.to_be_bytes());
                text(&mut out, why);
            }
            Self::Newest { feed, number } => {
                out.push(NEWEST);
                out.extend_from_slice(&feed.0.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        out
    }

    /// Reads a record.
    ///
    /// # Errors
    /// It is cut short or of an unknown kind.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let kind = r.u8().map_err(short("a record"))?;
        match kind {
            HELLO => decode_hello(r).map_err(short("a hello")),
            JOIN => decode_join(r).map_err(short("a join")),
            ASK => decode_ask(r).map_err(short("an ask")),
            WELCOME => decode_welcome(r).map_err(short("a welcome")),
            DIRECTORY => decode_directory(r),
            JOINED => decode_joined(r).map_err(short("a joined")),
            ANSWER => decode_answer(r),
            CUT => decode_cut(r).map_err(short("a cut")),
            NEWEST => decode_newest(r).map_err(short("a newest")),
            kind => Err(WireError::Unknown { what: "a record", field: "kind", value: kind.into() }),
        }
    }
}

/// Appends an answer without a copy of its message in between.
pub(crate) fn answer(
    out: &mut Vec<u8>,
    kind: AnswerKind,
    feed: FeedId,
    as_of: u64,
    stream: i32,
    item: i32,
    message: &[u8],
) {
    out.extend_from_slice(&[ANSWER, kind as u8]);
    out.extend_from_slice(&feed.0.to_be_bytes());
    out.extend_from_slice(&as_of.to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&item.to_be_bytes());
    out.extend_from_slice(message);
}

/// Length in a byte, and as much of the text as that counts.
fn text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(text.as_bytes().get(..end).unwrap_or(&[]));
}

fn read_text(r: &mut Reader<'_>) -> rssl::Result<String> {
    Ok(String::from_utf8_lossy(r.buf8()?).into_owned())
}

fn decode_hello(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Hello { version: r.u16()?, address: r.u64()?, name: read_text(&mut r)? })
}

fn decode_join(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Join { epoch: r.u32()?, feed: FeedId(r.u32()?) })
}

fn decode_ask(mut r: Reader<'_>) -> rssl::Result<Record> {
    let flags = r.u8()?;
    Ok(Record::Ask { reissue: flags & 1 != 0, in_feed: flags & 2 != 0, message: r.rest().to_vec() })
}

fn decode_welcome(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Welcome { version: r.u16()?, sink: r.u32()?, name: read_text(&mut r)? })
}

fn decode_joined(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Joined {
        epoch: r.u32()?,
        feed: FeedId(r.u32()?),
        number: r.u64()?,
        position: r.u64()?,
        window: r.u64()?,
    })
}

fn decode_newest(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Newest { feed: FeedId(r.u32()?), number: r.u64()? })
}

fn decode_cut(mut r: Reader<'_>) -> rssl::Result<Record> {
    Ok(Record::Cut { epoch: r.u32()?, why: read_text(&mut r)? })
}

fn decode_directory(mut r: Reader<'_>) -> Result<Record> {
    const WHAT: &str = "a directory";
    let count = r.u16().map_err(short(WHAT))?;
    if usize::from(count) > MAX_FEEDS {
        return Err(WireError::Unknown { what: WHAT, field: "count", value: count.into() });
    }
    let mut feed = || -> rssl::Result<(u16, FeedId)> { Ok((r.u16()?, FeedId(r.u32()?))) };
    let feeds = (0..count).map(|_| feed()).collect::<rssl::Result<_>>().map_err(short(WHAT))?;
    Ok(Record::Directory { feeds, payload: r.rest().to_vec() })
}

fn decode_answer(mut r: Reader<'_>) -> Result<Record> {
    const WHAT: &str = "an answer";
    let kind = match r.u8().map_err(short(WHAT))? {
        1 => AnswerKind::Opened,
        2 => AnswerKind::Image,
        3 => AnswerKind::Complete,
        4 => AnswerKind::Notice,
        5 => AnswerKind::Reply,
        6 => AnswerKind::Refused,
        kind => return Err(WireError::Unknown { what: WHAT, field: "kind", value: kind.into() }),
    };
    let mut rest = || -> rssl::Result<Answer> {
        let (feed, as_of) = (FeedId(r.u32()?), r.u64()?);
        let (stream, item) = (r.i32()?, r.i32()?);
        Ok(Answer { kind, feed, as_of, stream, item, message: r.rest().to_vec() })
    };
    Ok(Record::Answer(rest().map_err(short(WHAT))?))
}

/// Cuts records out of a stream of bytes, for backbones whose links carry pieces: `u32` length, record.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    taken: usize,
}

impl Records {
    /// Appends `record` with its length to what a link shall carry.
    pub fn append(out: &mut Vec<u8>, record: &[u8]) {
        // No longer than `MAX_RECORD`.
        out.extend_from_slice(&(record.len() as u32).to_be_bytes());
        out.extend_from_slice(record);
    }

    /// Takes in what a link has carried.
    pub fn put(&mut self, piece: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..std::mem::take(&mut self.taken));
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole record.
    ///
    /// # Errors
    /// Its length is above [`MAX_RECORD`]: the link is of no use any more.
    pub fn take(&mut self) -> Result<Option<&[u8]>> {
        let Some((len, rest)) = self.bytes.get(self.taken..).and_then(<[u8]>::split_first_chunk::<4>) else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len) as usize;
        if len > MAX_RECORD {
            return Err(WireError::Unknown { what: "a record", field: "length", value: len as u64 });
        }
        let Some(record) = rest.get(..len) else { return Ok(None) };
        self.taken += 4 + len;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests;
