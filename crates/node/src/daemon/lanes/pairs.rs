//! Pairs of processes that share an arena: made with their first lane, gone some time after their last.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;

use utipc_attach::{LaneId, PairId};
use utipc_core::Time;
use utipc_lanes::{Arena, Doorbell, Incoming, Outgoing, Shape, Side};
use utipc_os::reactor::Waker;

use crate::daemon::attachments::attachment::AttachmentId;

/// A pair without lanes is kept this long, milliseconds: who has talked often talks again.
const IDLE_MS: u64 = 10_000;

/// Pairs that a process is part of, at most. Those with dead processes count until what these wrote is read.
const MAX_PAIRS: usize = 4096;

/// The daemon as one side of a pair.
pub(in crate::daemon) const DAEMON: AttachmentId = 0;

/// The daemon's own side of a pair, which is side 0.
#[derive(Debug)]
pub(in crate::daemon) struct Near {
    pub(in crate::daemon) out: Outgoing,
    pub(in crate::daemon) inc: Incoming,
    /// What the process rings.
    pub(in crate::daemon) bell: Doorbell,
    /// What wakes the process.
    pub(in crate::daemon) partner: Doorbell,
    /// And how it says that it has.
    pub(in crate::daemon) knock: Waker,
    /// The event loop watches it.
    pub(in crate::daemon) watched: bool,
}

impl Near {
    fn new(arena: &Arena) -> utipc_os::Result<Self> {
        Ok(Self {
            out: arena.outgoing(Side::Zero),
            inc: arena.incoming(Side::Zero),
            bell: arena.doorbell(Side::Zero),
            partner: arena.doorbell(Side::One),
            knock: Waker::new()?,
            watched: false,
        })
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

/// Two processes, or one with itself, or one with the daemon.
#[derive(Debug)]
pub(in crate::daemon) struct Pair {
    pub(in crate::daemon) arena: Arena,
    pub(in crate::daemon) sides: [AttachmentId; 2],
    /// One side is the daemon.
    pub(in crate::daemon) near: Option<Near>,
    /// Until every side has fetched it.
    fd: Option<OwnedFd>,
    fetched: [bool; 2],
    slots: [Slots; 2],
    lanes: usize,
    /// Since when it has no lanes.
    idle: Time,
}

/// All pairs.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Pairs {
    pairs: HashMap<PairId, Pair>,
    /// By attachments, the lower number first.
    of: BTreeMap<(AttachmentId, AttachmentId), PairId>,
    next: u32,
    of_each: BTreeMap<AttachmentId, BTreeSet<PairId>>,
    /// Pairs that had no lanes at some time, oldest first.
    idle: VecDeque<(Time, PairId)>,
}

/// The side of an arena with this number.
pub(in crate::daemon) const fn side(number: u8) -> Side {
    if number == 0 { Side::Zero } else { Side::One }
}

impl Pairs {
    pub(in crate::daemon) fn get(&self, id: PairId) -> Option<&Pair> {
        self.pairs.get(&id)
    }

    pub(in crate::daemon) fn get_mut(&mut self, id: PairId) -> Option<&mut Pair> {
        self.pairs.get_mut(&id)
    }

    /// A free slot for a lane from one process to another; their arena is made if there is none.
    pub(in crate::daemon) fn slot(
        &mut self,
        from: AttachmentId,
        to: AttachmentId,
    ) -> utipc_os::Result<Option<LaneId>> {
        let sides = [from.min(to), from.max(to)];
        let id = match self.of.get(&(sides[0], sides[1])) {
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

    /// The daemon has as many as there are processes.
    fn is_full(&self, side: AttachmentId) -> bool {
        side != DAEMON && self.of_each.get(&side).map_or(0, BTreeSet::len) >= MAX_PAIRS
    }

    fn make(&mut self, sides: [AttachmentId; 2]) -> utipc_os::Result<PairId> {
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
        self.of.insert((sides[0], sides[1]), id);
        for side in sides {
            self.of_each.entry(side).or_default().insert(id);
        }
        Ok(id)
    }

    /// The descriptor of a pair's arena for one of its processes; behind it the one by which it tells the daemon, if that is
    /// the other side.
    pub(in crate::daemon) fn fetch(&mut self, id: PairId, who: AttachmentId) -> Option<Vec<OwnedFd>> {
        let pair = self.pairs.get_mut(&id).filter(|p| p.sides.contains(&who))?;
        let mut copies = vec![pair.fd.as_ref()?.try_clone().ok()?];
        if let Some(near) = &pair.near {
            copies.push(near.knock.share().ok()?);
        }
        for (side, fetched) in pair.sides.iter().zip(&mut pair.fetched) {
            *fetched |= *side == who;
        }
        if pair.fetched == [true; 2] {
            pair.fd = None;
        }
        Some(copies)
    }

    /// A lane's slot is free again.
    pub(in crate::daemon) fn give_back(&mut self, now: Time, lane: LaneId) {
        let Some(pair) = self.pairs.get_mut(&lane.pair) else { return };
        pair.slots[usize::from(lane.writer & 1)].free.push(lane.slot);
        pair.lanes -= 1;
        if pair.lanes == 0 {
            pair.idle = now;
            self.idle.push_back((now, lane.pair));
        }
    }

    /// When [`Self::expire`] may have something to do.
    pub(in crate::daemon) fn deadline(&self) -> Option<Time> {
        self.idle.front().map(|(since, _)| since.plus_millis(IDLE_MS))
    }

    /// Drops a pair that has had no lanes for some time, and says whose it was. `None`: there is none.
    pub(in crate::daemon) fn expire(&mut self, now: Time) -> Option<(PairId, [AttachmentId; 2])> {
        while let Some((since, id)) = self.idle.front().copied() {
            if since.plus_millis(IDLE_MS) > now {
                return None;
            }
            self.idle.pop_front();
            if self.pairs.get(&id).is_some_and(|p| p.lanes == 0 && p.idle == since) {
                return self.drop_pair(id);
            }
        }
        None
    }

    /// Drops the pair of a process that is gone, if its lanes are over.
    pub(in crate::daemon) fn drop_if_empty(&mut self, id: PairId) -> Option<(PairId, [AttachmentId; 2])> {
        self.pairs.get(&id).filter(|p| p.lanes == 0)?;
        self.drop_pair(id)
    }

    fn drop_pair(&mut self, id: PairId) -> Option<(PairId, [AttachmentId; 2])> {
        let pair = self.pairs.remove(&id)?;
        self.of.remove(&(pair.sides[0], pair.sides[1]));
        for side in pair.sides {
            if let Some(pairs) = self.of_each.get_mut(&side) {
                pairs.remove(&id);
                if pairs.is_empty() {
                    self.of_each.remove(&side);
                }
            }
        }
        Some((id, pair.sides))
    }

    /// Wakes whoever sleeps until its node takes more.
    pub(in crate::daemon) fn ring_all(&self) {
        for near in self.pairs.values().filter_map(|pair| pair.near.as_ref()) {
            // Who waits for a descriptor waits for the node, not for a word.
            let _ = near.partner.ring();
        }
    }

    /// The pairs of a process.
    pub(in crate::daemon) fn of(&self, who: AttachmentId) -> impl Iterator<Item = PairId> + '_ {
        self.of_each.get(&who).into_iter().flatten().copied()
    }

    pub(in crate::daemon) fn len(&self) -> usize {
        self.pairs.len()
    }
}
