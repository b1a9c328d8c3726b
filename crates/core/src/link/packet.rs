//! A packet in a sequence to be sent.

use std::sync::Arc;

use super::parts;
use crate::outbox::{FrameSink, Part};
use crate::pool::Pool;
use crate::wire::{BareHeader, Message, Packet, View};

/// An outgoing packet, kept until it is acknowledged: a whole message, or a header and a part of a message shared with
/// the other fragments, so that fragmenting copies nothing.
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
    /// The packet; of a fragment only the header: all fields are valid, the data is not.
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Self::Whole(message) => message.view(),
            Self::Fragment(header, _) => header.view(),
        }
    }

    /// The header, mutable.
    pub(crate) fn edit(&mut self) -> Packet<&mut [u8]> {
        match self {
            Self::Whole(message) => message.edit(),
            Self::Fragment(header, _) => header.edit(),
        }
    }

    /// The data after the header.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Whole(message) => message.data(),
            Self::Fragment(_, part) => part.bytes(),
        }
    }

    /// Size of header and data, bytes.
    pub(crate) fn size(&self) -> usize {
        self.view().size()
    }

    /// Sends the packet.
    pub(crate) fn push(&self, frames: &mut FrameSink<'_>) {
        match self {
            Self::Whole(message) => frames.push(message.bytes()),
            Self::Fragment(header, part) => frames.push_part(header.bytes(), part),
        }
    }

    /// Sends the packet in parts of at most `largest` bytes. `header` is that of a part.
    pub(crate) fn push_parts(&self, header: BareHeader, largest: usize, frames: &mut FrameSink<'_>) {
        match self {
            Self::Whole(message) => parts::push(message.bytes(), header, largest, frames),
            Self::Fragment(head, part) => {
                parts::push(&[head.bytes(), part.bytes()].concat(), header, largest, frames);
            }
        }
    }

    /// The packet as one message.
    pub(crate) fn into_message(self) -> Message {
        match self {
            Self::Whole(message) => message,
            Self::Fragment(header, part) => header.with_data(part.bytes()),
        }
    }

    /// Recycles the buffer if it is not shared any more.
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
