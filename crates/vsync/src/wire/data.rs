//! Packets: messages of one sender and one class, each preceded by its length. A packet has one place in the order.

use std::sync::Arc;

use super::codec::Reader;
use super::{Message, VERSION, WireError};
use crate::config::MAX_PACKET;
use crate::view::{Ballot, MemberId, ViewId};

/// When a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// In the total order.
    Agreed,
    /// In the total order, when every member of the view has it.
    Safe,
    /// As [`Class::Safe`]; all members of the view deliver it or none does, and its sender learns the outcome. Needs
    /// [`Components::Primary`](crate::Components::Primary).
    Atomic,
}

impl Class {
    const fn code(self) -> u8 {
        match self {
            Self::Agreed => 0,
            Self::Safe => 1,
            Self::Atomic => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Agreed),
            1 => Some(Self::Safe),
            2 => Some(Self::Atomic),
            _ => None,
        }
    }

    /// Whether every member of the view must have the message first.
    pub(crate) const fn is_safe(self) -> bool {
        matches!(self, Self::Safe | Self::Atomic)
    }
}

/// Bytes before the first message of a packet.
pub(crate) const DATA_HEADER: usize = 40;

/// The fields before the messages of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataHeader {
    pub(crate) class: Class,
    pub(crate) view: ViewId,
    /// Number of the packet among those of its sender in this view, from 1.
    pub(crate) number: u64,
    /// Places up to which the sender has all packets.
    pub(crate) ack: u64,
}

impl DataHeader {
    /// Checks a whole packet and returns its header.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > DATA_HEADER + MAX_PACKET {
            return Err(WireError::TooLong);
        }
        let mut r = Reader(bytes);
        if r.u8()? != VERSION || r.u8()? != Message::DATA || r.u16()? != 0 {
            return Err(WireError::OutOfRange);
        }
        let view = r.ballot()?;
        let (number, ack) = (r.count()?, r.count()?);
        let class = u8::try_from(r.u32()?).ok().and_then(Class::from_code);
        let header = Self { class: class.ok_or(WireError::OutOfRange)?, view, number, ack };
        if number == 0 {
            return Err(WireError::OutOfRange);
        }
        while !r.0.is_empty() {
            let len = r.u32()? as usize;
            r.bytes(len)?;
        }
        Ok(header)
    }

    /// The header as bytes.
    pub(crate) fn encode(&self) -> [u8; DATA_HEADER] {
        let mut bytes = [0; DATA_HEADER];
        let Ballot { round, coordinator: MemberId(coordinator) } = self.view;
        let words = [round, coordinator, self.number, self.ack].map(u64::to_be_bytes);
        let front = [VERSION, Message::DATA, 0, 0];
        let back = [0, 0, 0, self.class.code()];
        let all = front.into_iter().chain(words.into_iter().flatten()).chain(back);
        for (to, from) in bytes.iter_mut().zip(all) {
            *to = from;
        }
        bytes
    }
}

/// Writes the header into the space that a batch has left for it.
pub(crate) fn finish_data(mut batch: Vec<u8>, header: &DataHeader) -> Arc<[u8]> {
    if let Some(front) = batch.first_chunk_mut::<DATA_HEADER>() {
        *front = header.encode();
    }
    batch.into()
}

/// A checked packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) class: Class,
}

/// The message of a checked packet at `offset`, as a range; the next offset is its end.
pub(crate) fn next_message(bytes: &[u8], offset: usize) -> Option<core::ops::Range<usize>> {
    let len = bytes.get(offset..)?.first_chunk::<4>()?;
    let start = offset + 4;
    Some(start..start + u32::from_be_bytes(*len) as usize)
}
