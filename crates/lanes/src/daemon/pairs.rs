//! Pairs of processes that share an arena: made with their first lane, dropped some time after their last.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::{Arena, Doorbell, Incoming, Outgoing, Shape, Side};
use utipc_attach::{LaneId, PairId};
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_os::heap::shrink_queue;
use utipc_os::reactor::Waker;

use super::{DAEMON, ProcessId};
use utipc_os::many::{Index, Many};

/// A pair without lanes is kept this long, milliseconds: the same processes often exchange messages again.
const IDLE_MS: u64 = 10_000;

/// Maximum number of pairs of one process. Pairs with a dead process count until its messages are read.
const MAX_PAIRS: usize = 4096;

/// The daemon's own side of a pair, side 0.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) out: Outgoing,
    pub(super) inc: Incoming,
    /// Rung by the process.
    pub(super) bell: Doorbell,
    /// Wakes the process.
    pub(super) peer: Doorbell,
    /// Wakes the daemon.
    pub(super) knock: Waker,
    /// The user for whom the event loop watches [`Self::knock`].
    pub(super) watched: Option<UserId>,
    /// Whether it is served again in its user's turn.
    pub(super) is_behind: bool,
}

impl Near {
    fn new(arena: &Arena) -> utipc_os::Result<Self> {
        Ok(Self {
            out: arena.outgoing(Side::Zero),
            inc: arena.incoming(Side::Zero),
            bell: arena.doorbell(Side::Zero),
            peer: arena.doorbell(Side::One),
            knock: Waker::new()?,
            watched: None,
            is_behind: false,
        })
    }

    /// Whether the process has written or read something.
    pub(super) fn has_work(&self) -> bool {
        self.inc.has_ready() || self.out.has_room()
    }
}

/// Slots of one direction.
#[derive(Debug, Default)]
struct Slots {
    next: u32,
    free: Vec<u16>,
}

impl Slots {
    fn take(&mut self, limit: u32) -> Option<u16> {
        self.free.pop().or_else(|| {
            let slot = u16::try_from(self.next).ok().filter(|_| self.next < limit)?;
            self.next += 1;
            Some(slot)
        })
    }
}

/// A pair of two processes, of one with itself, or of one with the daemon.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) arena: Arena,
    pub(super) sides: [ProcessId; 2],
    /// Present if one side is the daemon.
    pub(super) near: Option<Near>,
    /// The descriptor of the arena, until every side has fetched it.
    fd: Option<OwnedFd>,
    fetched: [bool; 2],
    slots: [Slots; 2],
    lanes: usize,
    /// When the last lane ended.
    idle: Time,
}

/// All pairs.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pairs: Index<PairId, Pair>,
    /// By processes, the lower number first.
    by_sides: Many<(ProcessId, ProcessId), PairId>,
    next: u32,
    by_process: Index<ProcessId, Many<PairId, ()>>,
    /// Pairs that had no lanes at some time, oldest first.
    idle: VecDeque<(Time, PairId)>,
    /// The reactor's token of a pair is this number plus the pair's.
    token: u64,
}

/// The side of an arena with this number.
pub(super) const fn side(number: u8) -> Side {
    if number == 0 { Side::Zero } else { Side::One }
}

impl Pairs {
    pub(super) fn new(token: u64) -> Self {
        Self { token, ..Self::default() }
    }

    /// The reactor's token of a pair.
    pub(super) fn token(&self, id: PairId) -> u64 {
        self.token | u64::from(id.0)
    }

    /// See [`super::Lanes::shrink`].
    pub(super) fn shrink(&mut self, part: usize) {
        self.pairs.shrink(part);
        self.by_process.shrink(part);
        shrink_queue(&mut self.idle);
    }

    pub(super) fn get(&self, id: PairId) -> Option<&Pair> {
        self.pairs.get(&id)
    }

    /// The daemon's side of a pair, if it is one side.
    pub(super) fn near(&self, id: PairId) -> Option<&Near> {
        self.pairs.get(&id).and_then(|pair| pair.near.as_ref())
    }

    pub(super) fn get_mut(&mut self, id: PairId) -> Option<&mut Pair> {
        self.pairs.get_mut(&id)
    }

    /// A free slot for a lane from one process to another; their arena is made if it does not exist.
    pub(super) fn slot(&mut self, from: ProcessId, to: ProcessId) -> utipc_os::Result<Option<LaneId>> {
        let sides = [from.min(to), from.max(to)];
        let id = match self.by_sides.get(&(sides[0], sides[1])) {
            Some(id) => *id,
            None if sides.iter().any(|side| self.is_full(*side)) => return Ok(None),
            None => self.make(sides)?,
        };
        let Some(pair) = self.pairs.get_mut(&id) else { return Ok(None) };
        let writer = u8::from(from != sides[0]);
        let limit = pair.arena.slots();
        let Some(slot) = pair.slots[usize::from(writer)].take(limit) else { return Ok(None) };
        pair.lanes += 1;
        Ok(Some(LaneId { pair: id, writer, slot }))
    }

    /// Whether a process has its maximum number of pairs; the daemon has one for each process.
    fn is_full(&self, side: ProcessId) -> bool {
        side != DAEMON && self.by_process.get(&side).map_or(0, Many::len) >= MAX_PAIRS
    }

    fn make(&mut self, sides: [ProcessId; 2]) -> utipc_os::Result<PairId> {
        let (arena, fd) = Arena::create("utipc-pair", Shape::STANDARD)?;
        let is_near = sides[0] == DAEMON;
        let near = if is_near { Some(Near::new(&arena)?) } else { None };
        let id = PairId(self.next);
        self.next += 1;
        let pair = Pair {
            arena,
            sides,
            near,
            fd: Some(fd),
            fetched: [is_near, false],
            slots: Default::default(),
            lanes: 0,
            idle: Time::NEVER,
        };
        self.pairs.insert(id, pair);
        self.by_sides.insert((sides[0], sides[1]), id);
        for side in sides {
            self.by_process.get_or_insert(side, Many::default).insert(id, ());
        }
        Ok(id)
    }

    /// The descriptor of a pair's arena for one of its processes, followed, if the other side is the daemon, by the
    /// event descriptor that wakes the daemon.
    pub(super) fn fetch(&mut self, id: PairId, process: ProcessId) -> Option<Vec<OwnedFd>> {
        let pair = self.pairs.get_mut(&id).filter(|p| p.sides.contains(&process))?;
        let mut copies = vec![pair.fd.as_ref()?.try_clone().ok()?];
        if let Some(near) = &pair.near {
            copies.push(near.knock.share().ok()?);
        }
        for (side, fetched) in pair.sides.iter().zip(&mut pair.fetched) {
            *fetched |= *side == process;
        }
        if pair.fetched == [true; 2] {
            pair.fd = None;
        }
        Some(copies)
    }

    /// Frees the slot of a lane.
    pub(super) fn free_slot(&mut self, now: Time, lane: LaneId) {
        let Some(pair) = self.pairs.get_mut(&lane.pair) else { return };
        pair.slots[usize::from(lane.writer & 1)].free.push(lane.slot);
        pair.lanes -= 1;
        if pair.lanes == 0 {
            pair.idle = now;
            self.idle.push_back((now, lane.pair));
        }
    }

    /// Time when [`Self::expire`] may have something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.idle.front().map(|(since, _)| since.plus_millis(IDLE_MS))
    }

    /// Takes out a pair that has had no lanes for some time.
    pub(super) fn expire(&mut self, now: Time) -> Option<(PairId, Pair)> {
        while let Some((since, id)) = self.idle.front().copied() {
            if since.plus_millis(IDLE_MS) > now {
                return None;
            }
            self.idle.pop_front();
            if self.pairs.get(&id).is_some_and(|p| p.lanes == 0 && p.idle == since) {
                return self.take(id);
            }
        }
        None
    }

    /// Takes out the pair of a process that is gone, unless a lane is left.
    pub(super) fn take_if_empty(&mut self, id: PairId) -> Option<(PairId, Pair)> {
        self.pairs.get(&id).filter(|p| p.lanes == 0)?;
        self.take(id)
    }

    fn take(&mut self, id: PairId) -> Option<(PairId, Pair)> {
        let pair = self.pairs.remove(&id)?;
        self.by_sides.remove(&(pair.sides[0], pair.sides[1]));
        for side in pair.sides {
            if let Some(pairs) = self.by_process.get_mut(&side) {
                pairs.remove(&id);
                if pairs.is_empty() {
                    self.by_process.remove(&side);
                }
            }
        }
        Some((id, pair))
    }

    /// Wakes some of the processes that share memory with the daemon, those behind `last`; returns the last one, or
    /// `None` if no others are left.
    pub(super) fn ring_some(&self, last: ProcessId, count: usize) -> Option<ProcessId> {
        // The daemon has the lowest number, so that its pairs come first.
        let keys = self.by_sides.some_after(Some((DAEMON, last)), count);
        let mut rung = None;
        for key in keys.iter().filter(|(side, _)| *side == DAEMON) {
            let near = self.by_sides.get(key).and_then(|id| self.near(*id));
            // Threads that wait for a descriptor are woken by readiness, not by this word.
            let _ = near.map(|near| near.peer.ring());
            rung = Some(key.1);
        }
        rung
    }

    /// Some pairs of a process, those behind `last`.
    pub(super) fn some_of(&self, process: ProcessId, last: Option<PairId>, count: usize) -> Vec<PairId> {
        self.by_process.get(&process).map_or_else(Vec::new, |pairs| pairs.some_after(last, count))
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }
}
