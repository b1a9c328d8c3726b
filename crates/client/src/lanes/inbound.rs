//! The reading end of one lane of a socket.

use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::NodeAddr;
use utipc_core::wire::blocks;
use utipc_lanes::{Corrupt, Kind, Peek, Reader, Record, Wakeup};

use super::head::{Arrived, Expected, HEAD_MAX, check};
use super::pair::Pair;
use super::receive::Call;

/// Where received data goes.
pub(crate) enum Sink<'a> {
    /// Memory of the caller's.
    Slice(&'a mut [u8]),
    /// Memory that is made as large as the message.
    Whole(&'a mut Vec<u8>),
}

impl Sink<'_> {
    /// Room for `wanted` bytes, or less.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize) -> &mut [u8] {
        match self {
            Self::Slice(buffer) => buffer,
            Self::Whole(data) => {
                data.clear();
                data.resize(wanted, 0);
                data
            }
        }
    }

    /// The bytes that fit at most; `most` if it grows.
    pub(crate) fn size(&self, most: usize) -> usize {
        match self {
            Self::Slice(buffer) => buffer.len(),
            Self::Whole(_) => most,
        }
    }
}

/// What a look at a lane found.
pub(crate) enum Found {
    Message(Record, Arrived),
    Nothing,
    /// Nothing will come any more.
    Ended,
}

/// A lane that a socket reads.
#[derive(Debug)]
pub(crate) struct InLane {
    pub(crate) id: LaneId,
    pub(crate) pair: Arc<Pair>,
    /// The socket that writes, or whose messages the node writes,
    pub(crate) other: u32,
    /// and its node; `None` for the own one.
    pub(crate) node: Option<NodeAddr>,
    /// It is in the list of lanes to look at.
    pub(crate) listed: bool,
    pub(crate) reader: Reader,
}

impl InLane {
    pub(crate) fn new(
        id: LaneId,
        pair: Arc<Pair>,
        other: u32,
        node: Option<NodeAddr>,
    ) -> Result<Self, Corrupt> {
        let reader = pair.inc.reader(u32::from(id.slot))?;
        Ok(Self { id, pair, other, node, listed: false, reader })
    }

    /// It brings messages of any socket of other nodes.
    pub(crate) fn is_for_all(&self) -> bool {
        self.other == 0
    }

    /// The next message with data, its header checked.
    ///
    /// # Errors
    /// What is wrong with the lane.
    #[inline]
    pub(crate) fn look(&mut self, expected: &Expected) -> Result<Found, &'static str> {
        loop {
            let record = match self.reader.peek().map_err(|corrupt| corrupt.what)? {
                Peek::Record(record) => record,
                Peek::Empty => return Ok(Found::Nothing),
                Peek::Ended => return Ok(Found::Ended),
            };
            if record.kind() != Kind::Data {
                self.reader.consume(record, 0);
                continue;
            }
            let mut head = [0; HEAD_MAX];
            let len = self.reader.read_header(&record, &mut head);
            let arrived = check(&head[..len], record.len(), expected)?;
            if arrived.data > 0 {
                return Ok(Found::Message(record, arrived));
            }
            // A message without data is never delivered. Spec: tipc.md §8.3.
            self.reader.consume(record, 0);
        }
    }

    /// Whether it is over and read to its end.
    pub(crate) fn is_at_end(&mut self) -> bool {
        loop {
            match self.reader.peek() {
                Ok(Peek::Record(record)) if record.kind() != Kind::Data => self.reader.consume(record, 0),
                Ok(Peek::Ended) => return true,
                // Nonsense is for the receive to report.
                Ok(Peek::Record(_) | Peek::Empty) | Err(_) => return false,
            }
        }
    }

    /// Copies data from `offset` on; how many bytes.
    #[inline]
    pub(crate) fn copy(&self, record: &Record, arrived: &Arrived, offset: usize, into: &mut [u8]) -> usize {
        self.reader.copy_payload(record, arrived.header + offset, into)
    }

    /// What the writer is owed.
    #[inline]
    pub(crate) fn take_wakeup(&mut self) -> Wakeup {
        let ring = self.reader.take_wakeup();
        self.pair.tell(ring)
    }

    /// The message was read.
    #[inline]
    pub(crate) fn consume(&mut self, record: Record) -> Wakeup {
        self.reader.consume(record, blocks(record.len()));
        self.take_wakeup()
    }

    /// One message, or a part of it, for all kinds but STREAM: how far it is read now (`None`: to its end), and what the
    /// writer is owed.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        (record, arrived): (Record, &Arrived),
        offset: usize,
        call: &mut Call<'_>,
    ) -> (Option<usize>, Wakeup) {
        let Call { sink, options, received } = call;
        let unread = arrived.data.saturating_sub(offset);
        let room = sink.room(unread);
        let len = self.copy(&record, arrived, offset, room);
        let whole = len >= unread;
        received.len = len;
        received.source = arrived.origin;
        received.destination = arrived.destination;
        received.truncated = !whole && !options.keep_remainder;
        received.end_of_record = whole && options.keep_remainder;
        received.importance = arrived.importance;
        if options.peek {
            return (Some(offset), Wakeup::Quiet);
        }
        if !whole && options.keep_remainder {
            return (Some(offset + len), Wakeup::Quiet);
        }
        (None, self.consume(record))
    }
}
