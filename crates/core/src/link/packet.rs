//! A packet as a sending sequence keeps it.

use std::sync::Arc;

use crate::outbox::{BearerId, FrameBatch, FrameSink, Part, Target};
use crate::pool::Pool;
use crate::wire::{BareHeader, Message, Packet, View};

/// A packet on its way out, until it is acknowledged: whole, or a header before a part of a message that the other
/// fragments share, so that cutting a message copies nothing.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A message that is a packet by itself.
    Whole(Message),
    /// A FRAGMENTER packet.
    Fragment(BareHeader, Part),
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        Self::Whole(message)
    }
}

impl Outgoing {
    /// The packet, of a fragment the header alone: all fields may be asked for, but not the data.
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Self::Whole(message) => message.view(),
            Self::Fragment(header, _) => header.view(),
        }
    }

    /// The header, to be changed.
    pub(crate) fn edit(&mut self) -> Packet<&mut [u8]> {
        match self {
            Self::Whole(message) => message.edit(),
            Self::Fragment(header, _) => header.edit(),
        }
    }

    /// What lies behind the header.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Whole(message) => message.data(),
            Self::Fragment(_, part) => part.bytes(),
        }
    }

    /// Sends it.
    pub(crate) fn push(&self, frames: &mut FrameSink<'_>) {
        match self {
            Self::Whole(message) => frames.push(message.bytes()),
            Self::Fragment(header, part) => frames.push_part(header.bytes(), part),
        }
    }

    /// Sends it over `bearer`.
    pub(crate) fn push_to(&self, frames: &mut FrameBatch, bearer: BearerId, to: Target) {
        self.push(&mut FrameSink::new(frames, bearer, to));
    }

    /// The packet in one piece.
    pub(crate) fn into_message(self) -> Message {
        match self {
            Self::Whole(message) => message,
            Self::Fragment(header, part) => header.with_data(part.bytes()),
        }
    }

    /// Gives its memory up, if nobody shares it any more.
    pub(crate) fn recycle(self, pool: &mut Pool) {
        match self {
            Self::Whole(message) => pool.put(message),
            Self::Fragment(_, part) => {
                if let Some(message) = Arc::into_inner(part.message) {
                    pool.put(message);
                }
            }
        }
    }
}
