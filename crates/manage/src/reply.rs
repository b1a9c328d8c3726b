//! Replies: writing and reading their messages.

use crate::attribute::{Nest, Writer};
use crate::entry::Entry;
use crate::errno::{Errno, Refusal};
use crate::family::VERSION;
use crate::netlink::{self, HEADER, Header, Messages, flag, kind};

/// The attribute of an error message that holds its text.
const ERROR_TEXT: u16 = 1;
/// Longest error text that is read, in bytes.
const MAX_ERROR_TEXT: usize = 512;

/// Writes the reply to one request, message by message.
#[derive(Debug)]
pub struct ReplyWriter {
    request: Header,
    bytes: Vec<u8>,
}

impl ReplyWriter {
    /// An empty reply to the request with this header.
    #[must_use]
    pub const fn new(request: Header) -> Self {
        Self { request, bytes: Vec::new() }
    }

    /// The messages written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the messages written so far.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The header of the request.
    #[must_use]
    pub const fn request(&self) -> &Header {
        &self.request
    }

    /// Appends a message for `entry`, with the attributes that the kernel does not send if the request allows
    /// them.
    pub fn entry(&mut self, entry: &Entry) {
        let flags = if self.request.is_dump() { flag::MULTI } else { 0 };
        let header = Header { flags, command: entry.command(), version: VERSION, ..self.request };
        let extended = self.request.is_extended();
        netlink::put(&mut self.bytes, &header, |out| entry.write(&mut Writer::new(out), extended));
    }

    /// Ends the reply. A list gets its end marker, another reply an acknowledgement if one was requested.
    pub fn done(&mut self) {
        if self.request.is_dump() {
            let header = Header { family: kind::DONE, flags: flag::MULTI, ..self.request };
            netlink::put(&mut self.bytes, &header, |out| out.extend_from_slice(&0i32.to_ne_bytes()));
        } else if self.request.flags & flag::ACK != 0 {
            self.error(Errno(0), "");
        }
    }

    /// Refuses the request.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.error(refusal.errno, &refusal.text);
    }

    fn error(&mut self, errno: Errno, text: &str) {
        let with_text = if text.is_empty() { 0 } else { flag::ACK_ATTRIBUTES };
        let header = Header { family: kind::ERROR, flags: flag::CAPPED | with_text, ..self.request };
        let request = self.request;
        netlink::put(&mut self.bytes, &header, |out| {
            out.extend_from_slice(&errno.0.wrapping_neg().to_ne_bytes());
            // The header of the request without its body: its length covers only the headers.
            let mut head = Vec::new();
            netlink::put(&mut head, &request, |_| {});
            out.extend_from_slice(head.get(..HEADER).unwrap_or_default());
            if !text.is_empty() {
                Writer::new(out).text(ERROR_TEXT, text);
            }
        });
    }
}

/// One message of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "read one at a time, never stored in collections")]
pub enum Reply {
    /// An entry: a bearer, a link, a socket, …
    Entry(Entry),
    /// The request is done, or the list complete.
    Done,
    /// The request was refused.
    Refused(Refusal),
}

/// Decodes the messages of a packet; each malformed message is an error.
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

/// The entries of a reply.
///
/// # Errors
/// The refusal of the request, or the error of the first malformed message.
pub fn entries(packet: &[u8]) -> Result<Vec<Entry>, Refusal> {
    let mut entries = Vec::new();
    for reply in replies(packet) {
        match reply? {
            Reply::Entry(entry) => entries.push(entry),
            Reply::Done => break,
            Reply::Refused(refusal) => return Err(refusal),
        }
    }
    Ok(entries)
}

/// Copies messages, with errors stripped of their text, for receivers that do not support it.
#[must_use]
pub fn without_error_texts(packet: &[u8]) -> Vec<u8> {
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

/// The text of an error message; empty if it has none.
fn error_text(message: &netlink::Message<'_>) -> String {
    if message.header.flags & flag::ACK_ATTRIBUTES == 0 {
        return String::new();
    }
    let capped = message.header.flags & flag::CAPPED != 0;
    let skip = match message.header.family {
        kind::DONE => 4,
        _ if capped => 4 + HEADER,
        // The attributes follow the whole request.
        _ => 4 + netlink::padded(netlink::word32(message.body, 4).unwrap_or(0) as usize),
    };
    let attributes = Nest(message.body.get(skip..).unwrap_or_default());
    attributes.text(ERROR_TEXT, MAX_ERROR_TEXT).ok().flatten().unwrap_or_default()
}
