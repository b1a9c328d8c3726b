//! The eight message classes. Spec: rssl.md §2.
//!
//! Each class is one struct for decoding and encoding, made from one declaration (`class.rs`). The structs' `flags` do
//! not have the flags of optional parts: decoding masks them, encoding computes them.

mod class;
mod items;
mod peek;
mod posts;
#[cfg(test)]
mod tests;

pub use items::{
    Close, CloseFlags, Conflation, Priority, Refresh, RefreshFlags, Request, RequestFlags, Status,
    StatusFlags, Update, UpdateFlags, update_kind,
};
pub use peek::{Head, peek, peek_payload, set_stream};
pub use posts::{Ack, AckFlags, Generic, GenericFlags, Post, PostFlags, nak, rights};

use super::{DataType, Domain, Key};
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// Class of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Opens a stream, or changes or reissues its request.
    Request = 1,
    /// An image, or a part of one.
    Refresh = 2,
    /// A change of state, group or permission.
    Status = 3,
    /// A change of data.
    Update = 4,
    /// Ends a stream from the side that opened it.
    Close = 5,
    /// Answers a post (or a close).
    Ack = 6,
    /// Application data in either direction.
    Generic = 7,
    /// A contribution.
    Post = 8,
}

impl Class {
    /// The class in the low five bits of the header's byte.
    ///
    /// # Errors
    /// [`Error::Class`].
    #[inline]
    pub const fn from_byte(byte: u8) -> Result<Self> {
        Ok(match byte & 0x1F {
            1 => Self::Request,
            2 => Self::Refresh,
            3 => Self::Status,
            4 => Self::Update,
            5 => Self::Close,
            6 => Self::Ack,
            7 => Self::Generic,
            8 => Self::Post,
            other => return Err(Error::Class(other)),
        })
    }
}

/// User that posts: an IPv4 address and an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PostUser {
    /// IPv4 address, as an integer.
    pub addr: u32,
    /// Id, chosen by the user.
    pub id: u32,
}

impl PostUser {
    #[inline]
    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { addr: r.u32().named("post user address")?, id: r.u32().named("post user id")? })
    }

    #[inline]
    fn write(self, w: &mut Writer<'_>) -> Result<()> {
        w.u32(self.addr)?;
        w.u32(self.id)
    }
}

/// A message of any class.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are the classes")]
pub enum Message<'a> {
    Request(Request<'a>),
    Refresh(Refresh<'a>),
    Status(Status<'a>),
    Update(Update<'a>),
    Close(Close<'a>),
    Ack(Ack<'a>),
    Generic(Generic<'a>),
    Post(Post<'a>),
}

macro_rules! each {
    ($message:expr, $m:ident => $then:expr) => {
        match $message {
            Message::Request($m) => $then,
            Message::Refresh($m) => $then,
            Message::Status($m) => $then,
            Message::Update($m) => $then,
            Message::Close($m) => $then,
            Message::Ack($m) => $then,
            Message::Generic($m) => $then,
            Message::Post($m) => $then,
        }
    };
}

impl<'a> Message<'a> {
    /// Reads a message from all of `bytes`; the payload is everything after the header.
    ///
    /// # Errors
    /// A class that does not exist, or a header that is cut short or malformed. The payload is not read.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        Ok(match peek(bytes)?.class {
            Class::Request => Self::Request(Request::decode(bytes)?),
            Class::Refresh => Self::Refresh(Refresh::decode(bytes)?),
            Class::Status => Self::Status(Status::decode(bytes)?),
            Class::Update => Self::Update(Update::decode(bytes)?),
            Class::Close => Self::Close(Close::decode(bytes)?),
            Class::Ack => Self::Ack(Ack::decode(bytes)?),
            Class::Generic => Self::Generic(Generic::decode(bytes)?),
            Class::Post => Self::Post(Post::decode(bytes)?),
        })
    }

    /// Writes header and payload.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] for a part that does not fit its length field, [`Error::Malformed`] for a
    /// payload type that is not a container.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<()> {
        each!(self, m => m.encode(w))
    }

    /// The message as bytes.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        each!(self, m => m.to_vec())
    }

    /// Class, domain and stream.
    #[must_use]
    pub const fn head(&self) -> Head {
        let class = match self {
            Self::Request(_) => Class::Request,
            Self::Refresh(_) => Class::Refresh,
            Self::Status(_) => Class::Status,
            Self::Update(_) => Class::Update,
            Self::Close(_) => Class::Close,
            Self::Ack(_) => Class::Ack,
            Self::Generic(_) => Class::Generic,
            Self::Post(_) => Class::Post,
        };
        each!(self, m => Head { class, domain: m.domain, stream: m.stream })
    }

    /// Type of the payload.
    #[must_use]
    pub const fn container(&self) -> DataType {
        each!(self, m => m.container)
    }

    /// Payload.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        each!(self, m => m.payload)
    }

    /// The key, if the message carries one. Requests always do.
    #[must_use]
    pub const fn key(&self) -> Option<&Key<'a>> {
        match self {
            Self::Request(m) => Some(&m.key),
            Self::Refresh(m) => m.key.as_ref(),
            Self::Status(m) => m.key.as_ref(),
            Self::Update(m) => m.key.as_ref(),
            Self::Close(_) => None,
            Self::Ack(m) => m.key.as_ref(),
            Self::Generic(m) => m.key.as_ref(),
            Self::Post(m) => m.key.as_ref(),
        }
    }
}

/// The common first part of the header, the rest of the header, and the payload.
struct Start<'a> {
    domain: Domain,
    stream: i32,
    flags: u16,
    container: DataType,
    /// The part of the header that only this class has.
    header: Reader<'a>,
    payload: &'a [u8],
}

impl<'a> Start<'a> {
    #[inline]
    fn read(message: &'a [u8], class: Class) -> Result<Self> {
        let mut whole = Reader::new(message);
        let size = whole.u16().named("header size")?;
        let mut header = whole.inner(usize::from(size)).named("header")?;
        let found = Class::from_byte(header.u8().named("message class")?)?;
        if found != class {
            return Err(Error::Class(found as u8));
        }
        let domain = Domain(header.u8().named("domain")?);
        let stream = header.i32().named("stream id")?;
        let flags = header.rb15().named("message flags")?;
        let bad = header.malformed("container type");
        let container = header.u8().named("container type")?;
        let container = DataType::from_container_byte(container).ok_or(bad)?;
        Ok(Self { domain, stream, flags, container, header, payload: whole.rest() })
    }
}

/// Writes the size of a header, its common first part, and the part that `rest` writes.
#[inline]
fn write_header(
    w: &mut Writer<'_>,
    head: Head,
    flags: u16,
    container: DataType,
    rest: impl FnOnce(&mut Writer<'_>) -> Result<()>,
) -> Result<()> {
    w.nested_header(|w| {
        w.u8(head.class as u8)?;
        w.u8(head.domain.0)?;
        w.i32(head.stream)?;
        w.rb15(flags).named("message flags")?;
        let bad = Error::Malformed { what: "container type", at: w.len() };
        w.u8(container.container_byte().ok_or(bad)?)?;
        rest(w)
    })
    .named("header")
}
