//! The messages of an answer, written and read.

use crate::attribute::{Nest, Writer};
use crate::entry::Entry;
use crate::errno::{Errno, Refusal};
use crate::family::VERSION;
use crate::netlink::{self, HEADER, Header, Messages, flag, kind};

/// The attribute of an error that holds its words.
const ERROR_TEXT: u16 = 1;
/// Longest words of an error that are read, bytes.
const MAX_ERROR_TEXT: usize = 512;

/// Writes the answer to one request, message by message.
#[derive(Debug)]
pub struct Answer {
    request: Header,
    bytes: Vec<u8>,
}

impl Answer {
    /// An empty one to the request with this header.
    #[must_use]
    pub const fn new(request: Header) -> Self {
        Self { request, bytes: Vec::new() }
    }

    /// What is written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, taken.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The header of the request.
    #[must_use]
    pub const fn request(&self) -> &Header {
        &self.request
    }

    /// A message that says `entry`; what the kernel does not tell if the request allows it.
    pub fn entry(&mut self, entry: &Entry) {
        let flags = if self.request.is_dump() { flag::MULTI } else { 0 };
        let header = Header { flags, command: entry.command(), version: VERSION, ..self.request };
        let extended = self.request.is_extended();
        netlink::put(&mut self.bytes, &header, |out| entry.write(&mut Writer::new(out), extended));
    }

    /// The end: of a list always, else an acknowledgement if one was asked for.
    pub fn done(&mut self) {
        if self.request.is_dump() {
            let header = Header { family: kind::DONE, flags: flag::MULTI, ..self.request };
            netlink::put(&mut self.bytes, &header, |out| out.extend_from_slice(&0i32.to_ne_bytes()));
        } else if self.request.flags & flag::ACK != 0 {
            self.error(Errno(0), "");
        }
    }

    /// The request is refused.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.error(refusal.errno, &refusal.text);
    }

    fn error(&mut self, errno: Errno, text: &str) {
        let with_text = if text.is_empty() { 0 } else { flag::ACK_ATTRIBUTES };
        let header = Header { family: kind::ERROR, flags: flag::CAPPED | with_text, ..self.request };
        let request = self.request;
        netlink::put(&mut self.bytes, &header, |out| {
            out.extend_from_slice(&errno.0.wrapping_neg().to_ne_bytes());
            // The header of the request, whose body is left out: so the length is that of the headers.
            let mut head = Vec::new();
            netlink::put(&mut head, &request, |_| {});
            out.extend_from_slice(head.get(..HEADER).unwrap_or_default());
            if !text.is_empty() {
                Writer::new(out).text(ERROR_TEXT, text);
            }
        });
    }
}

/// What a message of an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "read one at a time, never kept in numbers")]
pub enum Reply {
    /// It says something.
    Entry(Entry),
    /// The request is done.
    Done,
    /// It is not.
    Refused(Refusal),
}

/// The replies in a packet; an error for a message that is none.
pub fn replies(packet: &[u8]) -> impl Iterator<Item = Result<Reply, Errno>> {
    Messages::new(packet).map(|message| {
        let code = || netlink::word32(message.body, 0).map(|code| code as i32).ok_or(Errno::INVALID);
        match message.header.family {
            kind::DONE | kind::ERROR => match code()? {
                0 => Ok(Reply::Done),
                code => Ok(Reply::Refused(Refusal::new(Errno(code.wrapping_abs()), error_text(&message)))),
            },
            family if family >= kind::CONTROL => {
                Entry::read(message.header.command, Nest(message.body)).map(Reply::Entry)
            }
            _ => Err(Errno::INVALID),
        }
    })
}

/// The same messages, errors without words: for who has not said that it understands them.
#[must_use]
pub fn without_words(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packet.len());
    for message in Messages::new(packet) {
        if message.header.family == kind::ERROR && message.header.flags & flag::ACK_ATTRIBUTES != 0 {
            let header = Header { flags: message.header.flags & !flag::ACK_ATTRIBUTES, ..message.header };
            let body = message.body.get(..4 + HEADER).unwrap_or(message.body);
            netlink::put(&mut out, &header, |out| out.extend_from_slice(body));
        } else {
            out.extend_from_slice(message.bytes);
            out.resize(out.len().div_ceil(4) * 4, 0);
        }
    }
    out
}

/// The words of an error, if it has some.
fn error_text(message: &netlink::Message<'_>) -> String {
    if message.header.flags & flag::ACK_ATTRIBUTES == 0 {
        return String::new();
    }
    let capped = message.header.flags & flag::CAPPED != 0;
    let skip = match message.header.family {
        kind::DONE => 4,
        _ if capped => 4 + HEADER,
        // The whole request is in between.
        _ => 4 + netlink::padded(netlink::word32(message.body, 4).unwrap_or(0) as usize),
    };
    let attributes = Nest(message.body.get(skip..).unwrap_or_default());
    attributes.text(ERROR_TEXT, MAX_ERROR_TEXT).ok().flatten().unwrap_or_default()
}
