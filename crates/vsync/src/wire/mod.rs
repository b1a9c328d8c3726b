//! Messages between members. Spec: docs/spec/vsync.md.
//!
//! Every message begins with version, kind and two zero bytes. Parsing checks every length and count; a message that
//! fails is dropped and counted.

mod change;
mod codec;
mod data;

pub(crate) use change::{Cut, Hello, MAX_CUTS, Proposal, Report, Run, Status};
pub(crate) use codec::{Reader, Writer};
pub use data::Class;
pub(crate) use data::{DATA_HEADER, DataHeader, Packet, finish_data, next_message};

use crate::config::MAX_CHUNK;
use crate::view::{Ballot, MemberId, ViewId};

/// Version of the protocol.
pub(crate) const VERSION: u8 = 1;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends inside a field.
    #[error("the message is truncated")]
    Truncated,
    /// Bytes follow its last field.
    #[error("the message has trailing bytes")]
    TrailingBytes,
    /// A list or a part exceeds its limit.
    #[error("a list of the message is too long")]
    TooLong,
    /// A field has an impossible value.
    #[error("a field of the message is out of range")]
    OutOfRange,
    /// Another version of the protocol.
    #[error("protocol version {0} is not supported")]
    Version(u8),
    /// An unknown kind of message.
    #[error("unknown kind of message {0}")]
    Kind(u8),
}

/// Why a member refuses a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The member has promised a later ballot.
    Outdated,
    /// It waits for another coordinator.
    Deferred,
}

/// A parsed message; packets stay bytes, see [`DataHeader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Hello(Hello),
    /// A coordinator asks for the status.
    Collect {
        ballot: Ballot,
    },
    Status {
        ballot: Ballot,
        status: Box<Status>,
    },
    Refuse {
        ballot: Ballot,
        round: u64,
        refusal: Refusal,
    },
    /// The next view; for each sender of the receiver's last view a member that has its packets.
    Propose {
        ballot: Ballot,
        proposal: Box<Proposal>,
        holders: Vec<MemberId>,
    },
    Accepted {
        ballot: Ballot,
    },
    /// The component has no majority.
    NoMajority {
        ballot: Ballot,
    },
    /// Asks for packets of a sender, after `after` to `end`.
    Fetch {
        view: ViewId,
        rank: u8,
        after: u64,
        end: u64,
    },
    /// A packet of another sender, unchanged.
    Relay {
        rank: u8,
        packet: &'a [u8],
    },
    /// A packet of messages.
    Data(DataHeader),
    /// Places of the order from `first` on, and the number of places that are stable.
    Order {
        view: ViewId,
        first: u64,
        stable: u64,
        runs: Vec<Run>,
    },
    /// All packets up to this place are received.
    Ack {
        view: ViewId,
        place: u64,
    },
    /// A piece of the application's state.
    Chunk {
        view: ViewId,
        index: u64,
        last: bool,
        bytes: &'a [u8],
    },
    /// The joiner has taken this many pieces.
    ChunkAck {
        view: ViewId,
        taken: u64,
    },
    /// The sender is no longer a member.
    Bye,
}

impl<'a> Message<'a> {
    const HELLO: u8 = 1;
    const COLLECT: u8 = 2;
    const STATUS: u8 = 3;
    const REFUSE: u8 = 4;
    const PROPOSE: u8 = 5;
    const ACCEPTED: u8 = 6;
    const NO_MAJORITY: u8 = 7;
    const FETCH: u8 = 8;
    const RELAY: u8 = 9;
    pub(crate) const DATA: u8 = 10;
    const ORDER: u8 = 11;
    const ACK: u8 = 12;
    const CHUNK: u8 = 13;
    const CHUNK_ACK: u8 = 14;
    const BYE: u8 = 15;

    /// Parses a message.
    ///
    /// # Errors
    /// [`WireError`] if it is malformed.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader(bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let kind = r.u8()?;
        if r.u16()? != 0 {
            return Err(WireError::OutOfRange);
        }
        let r = &mut r;
        let message = match kind {
            Self::HELLO => Self::Hello(Hello::read(r)?),
            Self::COLLECT => Self::Collect { ballot: r.ballot()? },
            Self::STATUS => Self::Status { ballot: r.ballot()?, status: Status::read(r)?.into() },
            Self::REFUSE => Self::Refuse {
                ballot: r.ballot()?,
                round: r.count()?,
                refusal: if r.flag()? { Refusal::Deferred } else { Refusal::Outdated },
            },
            Self::PROPOSE => Self::Propose {
                ballot: r.ballot()?,
                proposal: Proposal::read(r)?.into(),
                holders: r.members()?,
            },
            Self::ACCEPTED => Self::Accepted { ballot: r.ballot()? },
            Self::NO_MAJORITY => Self::NoMajority { ballot: r.ballot()? },
            Self::FETCH => {
                Self::Fetch { view: r.ballot()?, rank: r.u8()?, after: r.count()?, end: r.count()? }
            }
            Self::RELAY => {
                let rank = r.u8()?;
                Self::Relay { rank, packet: std::mem::take(&mut r.0) }
            }
            Self::DATA => {
                r.0 = &[];
                Self::Data(DataHeader::parse(bytes)?)
            }
            Self::ORDER => Self::Order {
                view: r.ballot()?,
                first: r.count()?,
                stable: r.count()?,
                runs: change::runs(r)?,
            },
            Self::ACK => Self::Ack { view: r.ballot()?, place: r.count()? },
            Self::CHUNK => {
                let (view, index, last) = (r.ballot()?, r.count()?, r.flag()?);
                let bytes = std::mem::take(&mut r.0);
                if bytes.len() > MAX_CHUNK {
                    return Err(WireError::TooLong);
                }
                Self::Chunk { view, index, last, bytes }
            }
            Self::CHUNK_ACK => Self::ChunkAck { view: r.ballot()?, taken: r.count()? },
            Self::BYE => Self::Bye,
            kind => return Err(WireError::Kind(kind)),
        };
        r.end()?;
        Ok(message)
    }

    /// The message as bytes. Packets have a separate encoding, see [`finish_data`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer(vec![VERSION, self.kind(), 0, 0]);
        match self {
            Self::Hello(hello) => hello.write(&mut w),
            Self::Collect { ballot } | Self::Accepted { ballot } | Self::NoMajority { ballot } => {
                w.ballot(*ballot)
            }
            Self::Status { ballot, status } => {
                w.ballot(*ballot);
                status.write(&mut w);
            }
            Self::Refuse { ballot, round, refusal } => {
                w.ballot(*ballot);
                w.u64(*round);
                w.flag(*refusal == Refusal::Deferred);
            }
            Self::Propose { ballot, proposal, holders } => {
                w.ballot(*ballot);
                proposal.write(&mut w);
                w.members(holders);
            }
            Self::Fetch { view, rank, after, end } => {
                w.ballot(*view);
                w.u8(*rank);
                w.u64(*after);
                w.u64(*end);
            }
            Self::Relay { rank, packet } => {
                w.u8(*rank);
                w.0.extend_from_slice(packet);
            }
            Self::Data(header) => w.0 = header.encode().to_vec(),
            Self::Order { view, first, stable, runs } => {
                w.ballot(*view);
                w.u64(*first);
                w.u64(*stable);
                change::write_runs(&mut w, runs);
            }
            Self::Ack { view, place: count } | Self::ChunkAck { view, taken: count } => {
                w.ballot(*view);
                w.u64(*count);
            }
            Self::Chunk { view, index, last, bytes } => {
                w.ballot(*view);
                w.u64(*index);
                w.flag(*last);
                w.0.extend_from_slice(bytes);
            }
            Self::Bye => {}
        }
        w.0
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => Self::HELLO,
            Self::Collect { .. } => Self::COLLECT,
            Self::Status { .. } => Self::STATUS,
            Self::Refuse { .. } => Self::REFUSE,
            Self::Propose { .. } => Self::PROPOSE,
            Self::Accepted { .. } => Self::ACCEPTED,
            Self::NoMajority { .. } => Self::NO_MAJORITY,
            Self::Fetch { .. } => Self::FETCH,
            Self::Relay { .. } => Self::RELAY,
            Self::Data(_) => Self::DATA,
            Self::Order { .. } => Self::ORDER,
            Self::Ack { .. } => Self::ACK,
            Self::Chunk { .. } => Self::CHUNK,
            Self::ChunkAck { .. } => Self::CHUNK_ACK,
            Self::Bye => Self::BYE,
        }
    }

    /// The view that the sender of this message has installed, if the message shows it.
    pub(crate) fn installed(&self) -> Option<ViewId> {
        match self {
            Self::Hello(hello) => Some(hello.view),
            Self::Data(header) => Some(header.view),
            Self::Order { view, .. }
            | Self::Ack { view, .. }
            | Self::Chunk { view, .. }
            | Self::ChunkAck { view, .. } => Some(*view),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
