//! The writing end of one lane of a socket.

use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::PortId;
use utipc_core::wire::blocks;
use utipc_lanes::{Corrupt, LaneError, Wakeup, Writer};

use super::head::{Address, Head, Style};
use super::pair::Pair;

/// log2 of the ring sizes, by class.
const SHIFTS: [u8; 4] = [12, 15, 18, 20];
/// The class of the largest ring.
const LARGEST: u8 = 3;
/// Messages that find a lane full before a larger ring is asked for again, once one was refused.
const PATIENCE: u32 = 256;

/// A larger ring that a lane could do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) lane: LaneId,
    pub(crate) class: u8,
    /// The message does not fit the present ring at all.
    pub(crate) needed: bool,
}

impl Growth {
    pub(crate) fn log2(&self) -> u8 {
        SHIFTS[usize::from(self.class.min(LARGEST))]
    }
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Sent(Wakeup),
    /// Not now.
    Full(Option<Growth>),
    /// The lane is over: send by the node.
    Over,
    /// It holds what no honest process writes.
    Corrupt,
}

/// A lane that a socket writes.
#[derive(Debug)]
pub(crate) struct OutLane {
    pub(crate) id: LaneId,
    pub(crate) pair: Arc<Pair>,
    /// The socket that reads.
    pub(crate) other: u32,
    pub(crate) writer: Writer,
    patience: u32,
    /// How far it had got at the last [`OutLane::rest`].
    seen: u64,
}

/// What became of an idle lane's memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There is no more than each lane has.
    Small,
    /// The lane is in use, or its reader has not left the large ring yet.
    Large,
    /// It goes back as soon as the reader, which was told, has looked.
    Returned(Wakeup),
}

impl OutLane {
    pub(crate) fn new(id: LaneId, pair: Arc<Pair>, other: u32) -> Result<Self, Corrupt> {
        let writer = pair.out.writer(u32::from(id.slot))?;
        Ok(Self { id, pair, other, writer, patience: 0, seen: 0 })
    }

    /// Sends one message.
    #[inline]
    pub(crate) fn put(&mut self, style: Style, own: PortId, address: Address, data: &[u8]) -> Put {
        self.put_with(Head::new(style, own, self.other, address, data.len()), data)
    }

    /// Sends one message, without a connection, that the daemon takes to a socket of another node.
    pub(crate) fn put_far(
        &mut self,
        style: Style,
        own: PortId,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Put {
        self.put_with(Head::new(style, own, to.port, address, data.len()).at(to.node), data)
    }

    #[inline]
    fn put_with(&mut self, head: Head, data: &[u8]) -> Put {
        let cost = blocks(head.bytes().len() + data.len());
        match self.writer.send(head.bytes(), &[data], cost) {
            Ok(ring) => Put::Sent(self.pair.tell(ring)),
            Err(error) => self.explain(error),
        }
    }

    #[cold]
    fn explain(&mut self, error: LaneError) -> Put {
        let growth = |class, needed| Some(Growth { lane: self.id, class, needed });
        match error {
            LaneError::Full => Put::Full(match self.writer.class() {
                Some(class) if class < LARGEST && self.patience == 0 => growth(class + 1, false),
                _ => {
                    self.patience = self.patience.saturating_sub(1);
                    None
                }
            }),
            LaneError::NeedsRing(class) => Put::Full(growth(class, true)),
            // Every ring is in use, or the reader is far behind: room comes with time.
            LaneError::NoRing => Put::Full(None),
            LaneError::Gone { .. } | LaneError::Frozen | LaneError::Ended | LaneError::TooLarge => Put::Over,
            LaneError::Corrupt(_) => Put::Corrupt,
        }
    }

    /// The daemon has granted a ring, or not.
    pub(crate) fn granted(&mut self, growth: Growth, granted: bool) -> bool {
        let grown = granted && self.writer.grow(growth.class).is_ok();
        if !grown {
            self.patience = PATIENCE;
        }
        grown
    }

    /// Gives a large ring back if nothing was sent since the last time this was asked, and all was read.
    pub(crate) fn rest(&mut self) -> Rest {
        let (sent, large) = self.writer.extent();
        if !large {
            return Rest::Small;
        }
        if std::mem::replace(&mut self.seen, sent) != sent {
            return Rest::Large;
        }
        match self.writer.shrink_if_idle() {
            Ok(Some(ring)) => {
                self.seen = self.writer.extent().0;
                Rest::Returned(self.pair.tell(ring))
            }
            Ok(None) if self.writer.extent().1 => Rest::Large,
            Ok(None) => Rest::Small,
            // It is over, or nonsense, which the next message finds.
            Err(_) => Rest::Small,
        }
    }

    /// Blocks sent that the reader has not given back.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        u32::try_from(self.writer.outstanding_cost()).unwrap_or(u32::MAX)
    }
}
