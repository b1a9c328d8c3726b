//! Records on the connection between a source end and a sink end.

use rssl::wire::Reader;

use super::{MAX_FEEDS, Result, VERSION, WireError, short};
use crate::backbone::FeedId;

/// Longest name of an endpoint, bytes.
const MAX_NAME: usize = 255;

/// The kind of an [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnswerKind {
    /// The stream is open on this item. No message.
    Opened = 1,
    /// A part of an image, not the last.
    Image = 2,
    /// The last or only part of an image.
    Complete = 3,
    /// A status before the image.
    Notice = 4,
    /// An acknowledgement or generic message.
    Reply = 5,
    /// A status that closes the stream.
    Refused = 6,
}

/// A message for one stream of one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The kind of answer.
    pub kind: AnswerKind,
    /// The feed of the item's service.
    pub feed: FeedId,
    /// Number of the feed's last entry before this answer.
    pub as_of: u64,
    /// The sink's stream.
    pub stream: i32,
    /// The source's stream id of the item; 0: none.
    pub item: i32,
    /// An RWF message; its stream id is not used.
    pub message: Vec<u8>,
}

/// A record on the connection between a source end and a sink end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// From a sink, the first record: its version, its address and its name.
    Hello {
        /// [`VERSION`](super::VERSION).
        version: u16,
        /// The address of the sink's reader on the backbone.
        address: u64,
        /// The sink's name, for logs.
        name: String,
    },
    /// From a sink: it listens to this feed. A higher epoch than before first ends all its streams and joins.
    Join {
        /// Number of resynchronisations of the sink.
        epoch: u32,
        /// The feed.
        feed: FeedId,
    },
    /// From a sink: a request, close, post or generic message, with the sink's stream id.
    Ask {
        /// Whether the request is for a stream that the sink had open. It is ignored if that has ended
        /// meanwhile.
        reissue: bool,
        /// Whether the image is requested in the feed.
        in_feed: bool,
        /// The RWF message.
        message: Vec<u8>,
    },
    /// From a source: the reply to `Hello`.
    Welcome {
        /// [`VERSION`](super::VERSION).
        version: u16,
        /// The sink's number in [`Entry::Image`](super::Entry::Image).
        sink: u32,
        /// The address from which the source sends the packets of its feeds.
        sender: u64,
        /// The source's name, for logs.
        name: String,
    },
    /// From a source: all its services.
    Directory {
        /// The feed of each service.
        feeds: Vec<(u16, FeedId)>,
        /// The payload of an RWF directory refresh.
        payload: Vec<u8>,
    },
    /// From a source, before the directory: a part of a dictionary.
    Dictionary {
        /// The enumerated types, not the fields.
        enums: bool,
        /// The first part.
        first: bool,
        /// The last part.
        last: bool,
        /// The payload of an RWF dictionary refresh.
        payload: Vec<u8>,
    },
    /// From a source: the reply to `Join`.
    Joined {
        /// As in `Join`.
        epoch: u32,
        /// As in `Join`.
        feed: FeedId,
        /// Number of the last entry before those that the sink gets.
        number: u64,
        /// Bytes of the feed so far.
        position: u64,
        /// Bytes that may be under way to the sink, including those that it has read and not yet used.
        window: u64,
    },
    /// From a source: for one stream.
    Answer(Answer),
    /// From a source: the sink was too slow and has been disconnected from its feeds; all its streams and joins have
    /// ended.
    Cut {
        /// The epoch that has ended.
        epoch: u32,
        /// The reason.
        why: String,
    },
    /// From a source: number of the feed's newest entry, in case the sink has missed it.
    Newest {
        /// The feed.
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
const DICTIONARY: u8 = 22;

impl Record {
    /// Encodes the record.
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
            Self::Welcome { version, sink, sender, name } => {
                out.push(WELCOME);
                out.extend_from_slice(&version.to_be_bytes());
                out.extend_from_slice(&sink.to_be_bytes());
                out.extend_from_slice(&sender.to_be_bytes());
                text(&mut out, name);
            }
            Self::Directory { feeds, payload } => {
                out.push(DIRECTORY);
                // Fits: at most `MAX_FEEDS`.
                out.extend_from_slice(&(feeds.len() as u16).to_be_bytes());
                for (service, feed) in feeds {
                    out.extend_from_slice(&service.to_be_bytes());
                    out.extend_from_slice(&feed.0.to_be_bytes());
                }
                out.extend_from_slice(payload);
            }
            Self::Dictionary { enums, first, last, payload } => {
                let flags = u8::from(*enums) | u8::from(*first) << 1 | u8::from(*last) << 2;
                out.extend_from_slice(&[DICTIONARY, flags]);
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

    /// Decodes a record.
    ///
    /// # Errors
    /// The record is cut short or of an unknown kind.
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
            DICTIONARY => decode_dictionary(r).map_err(short("a dictionary")),
            NEWEST => decode_newest(r).map_err(short("a newest")),
            kind => Err(WireError::Unknown { what: "a record", field: "kind", value: kind.into() }),
        }
    }
}

/// Appends an answer without copying its message first.
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

/// Appends a text with its length in one byte, cut to [`MAX_NAME`] bytes.
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
    let (version, sink) = (r.u16()?, r.u32()?);
    if version != VERSION {
        // The rest has another layout; the receiver only reports the version.
        return Ok(Record::Welcome { version, sink, sender: 0, name: String::new() });
    }
    Ok(Record::Welcome { version, sink, sender: r.u64()?, name: read_text(&mut r)? })
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

fn decode_dictionary(mut r: Reader<'_>) -> rssl::Result<Record> {
    let flags = r.u8()?;
    let flag = |bit: u8| flags & bit != 0;
    Ok(Record::Dictionary { enums: flag(1), first: flag(2), last: flag(4), payload: r.rest().to_vec() })
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
