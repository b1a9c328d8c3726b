//! The reading end of one lane of a socket.

use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};
use utipc_core::socket::{GroupMessage, Received, RecvOptions};
use utipc_core::wire::blocks;

use crate::message::{Checked, Expected, HEADER_MAX, check};
use crate::{Corrupt, Kind, Pair, Peek, Reader, Record, Wakeup};

/// Maximum number of records without data that one call skips. A correct writer sends no empty message, and few
/// markers.
const WITHOUT_DATA_MAX: u32 = 4096;

/// Maximum number of attempts to arm a lane while markers arrive.
const ARM_MAX: u32 = 64;

/// What a check of lanes finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A message, or a fault that the next receive reports.
    Something,
    /// No message.
    Nothing,
    /// No message, and a lane that has ended and is read to its end: leave it. A lane can end at any time, also
    /// between two checks.
    Ended,
}

/// Where received data goes.
#[derive(Debug)]
pub enum Sink<'a> {
    /// Memory of the caller.
    Slice(&'a mut [u8]),
    /// Memory that is resized to the message.
    Whole(&'a mut Vec<u8>),
}

impl Sink<'_> {
    /// Space for `wanted` bytes, or less.
    #[inline]
    pub(crate) fn space(&mut self, wanted: usize) -> &mut [u8] {
        match self {
            Self::Slice(buffer) => buffer,
            Self::Whole(data) => {
                data.clear();
                data.resize(wanted, 0);
                data
            }
        }
    }

    /// Maximum number of bytes that fit; `most` if the memory grows.
    #[must_use]
    pub fn capacity(&self, most: usize) -> usize {
        match self {
            Self::Slice(buffer) => buffer.len(),
            Self::Whole(_) => most,
        }
    }
}

/// One call of receive.
#[derive(Debug)]
pub struct ReceiveCall<'a> {
    /// Where data goes.
    pub sink: Sink<'a>,
    /// The caller's options.
    pub options: RecvOptions,
    /// The result. It is filled in place: moving it between functions would cost more than the rest of the work for a
    /// message.
    pub received: Received,
}

impl<'a> ReceiveCall<'a> {
    /// A call without a result yet.
    #[must_use]
    pub fn new(sink: Sink<'a>, options: RecvOptions) -> Self {
        Self { sink, options, received: Received::default() }
    }
}

/// The next thing in a lane.
pub(crate) enum Found {
    Message(Record, Checked),
    Nothing,
    /// The lane is over and read to its end.
    Ended,
}

/// A lane that a socket reads.
#[derive(Debug)]
pub struct InboundLane {
    pub(crate) id: LaneId,
    pub(crate) pair: Arc<Pair>,
    /// The socket that writes, or whose messages the daemon writes; 0 for messages of any socket on other nodes.
    pub(crate) peer: u32,
    /// The node of `peer`; `None` for the own node.
    pub(crate) peer_node: Option<NodeAddr>,
    /// Its address in the group, if the lane leads from one member to another.
    pub(crate) member: Option<ServiceAddr>,
    /// It is in the receiver's list of lanes to check.
    pub(crate) listed: bool,
    pub(crate) reader: Reader,
}

impl InboundLane {
    /// The reading end of lane `id` from the socket `peer`, which is on another node if `peer_node` is given.
    ///
    /// # Errors
    /// The lane does not exist.
    pub fn new(id: LaneId, pair: Arc<Pair>, peer: u32, peer_node: Option<NodeAddr>) -> Result<Self, Corrupt> {
        let reader = pair.inc.reader(u32::from(id.slot))?;
        Ok(Self { id, pair, peer, peer_node, member: None, listed: false, reader })
    }

    /// Between members of a group: with the address of the member that writes.
    #[must_use]
    pub fn with_member(self, member: Option<ServiceAddr>) -> Self {
        Self { member, ..self }
    }

    /// Whether it carries messages of any socket of other nodes.
    pub(crate) fn is_from_any(&self) -> bool {
        self.peer == 0
    }

    /// The socket at the other end, seen from a socket of `own`.
    pub(crate) fn peer_of(&self, own: NodeAddr) -> PortId {
        PortId { port: self.peer, node: self.peer_node.unwrap_or(own) }
    }

    /// Finds the next message with data and checks its header.
    ///
    /// # Errors
    /// The fault of the lane.
    #[inline]
    pub(crate) fn find(&mut self, expected: &Expected) -> Result<Found, &'static str> {
        for _ in 0..WITHOUT_DATA_MAX {
            let record = match self.reader.peek().map_err(|corrupt| corrupt.what)? {
                Peek::Record(record) => record,
                Peek::Empty => return Ok(Found::Nothing),
                Peek::Ended => return Ok(Found::Ended),
            };
            if record.kind() != Kind::Data {
                self.reader.consume(record, 0);
                continue;
            }
            let mut copy = [0; HEADER_MAX];
            let len = self.reader.read_header(&record, &mut copy);
            let checked = check(&copy[..len], record.len(), expected)?;
            if checked.data > 0 {
                return Ok(Found::Message(record, checked));
            }
            // A message without data is never delivered. Spec: tipc.md §8.3.
            self.reader.consume(record, 0);
        }
        Err("too many records without data")
    }

    /// Skips markers, and checks for a message without taking it.
    pub(crate) fn check(&mut self) -> Check {
        for _ in 0..WITHOUT_DATA_MAX {
            match self.reader.peek() {
                Ok(Peek::Record(record)) if record.kind() != Kind::Data => self.reader.consume(record, 0),
                Ok(Peek::Empty) => return Check::Nothing,
                Ok(Peek::Ended) => return Check::Ended,
                // The next receive reports a corrupt lane.
                Ok(Peek::Record(_)) | Err(_) => return Check::Something,
            }
        }
        Check::Something
    }

    /// Asks the writer to report the next message, unless a check finds something.
    pub(crate) fn arm(&mut self) -> Check {
        for _ in 0..ARM_MAX {
            match self.reader.arm() {
                Ok(false) => return Check::Nothing,
                // The next receive reports a corrupt lane.
                Err(_) => return Check::Something,
                // A marker alone is not a message.
                Ok(true) => match self.check() {
                    Check::Nothing => {}
                    found => return found,
                },
            }
        }
        Check::Something
    }

    /// Copies data from `offset` on; returns the number of bytes.
    #[inline]
    pub(crate) fn copy(&self, record: &Record, checked: &Checked, offset: usize, into: &mut [u8]) -> usize {
        self.reader.copy_payload(record, checked.header + offset, into)
    }

    /// The wake-up that the writer is owed.
    #[inline]
    pub(crate) fn take_wakeup(&mut self) -> Wakeup {
        let wakeup = self.reader.take_wakeup();
        self.pair.wake_daemon(wakeup)
    }

    /// Takes a message that was read out of the lane; returns the wake-up that the writer is owed.
    #[inline]
    pub(crate) fn consume(&mut self, record: Record) -> Wakeup {
        self.reader.consume(record, blocks(record.len()));
        self.take_wakeup()
    }

    /// Receives one message, or a part of it, from `offset` on; not for SOCK_STREAM. Returns the offset at which the
    /// message goes on (`None`: it is consumed) and the wake-up that the writer is owed.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        (record, checked): (Record, &Checked),
        offset: usize,
        call: &mut ReceiveCall<'_>,
    ) -> (Option<usize>, Wakeup) {
        let ReceiveCall { sink, options, received } = call;
        let unread = checked.data.saturating_sub(offset);
        let space = sink.space(unread);
        let len = self.copy(&record, checked, offset, space);
        let whole = len >= unread;
        received.len = len;
        received.source = checked.origin;
        received.destination = checked.destination;
        received.truncated = !whole && !options.keep_remainder;
        received.end_of_record = whole && options.keep_remainder;
        received.importance = checked.importance;
        received.group = self.member.zip(checked.group).map(|(member, kind)| GroupMessage { member, kind });
        if options.peek {
            return (Some(offset), Wakeup::Quiet);
        }
        if !whole && options.keep_remainder {
            return (Some(offset + len), Wakeup::Quiet);
        }
        (None, self.consume(record))
    }
}
