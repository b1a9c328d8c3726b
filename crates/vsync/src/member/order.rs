//! The sequencer's part of the order, and what a member has acknowledged.

use utipc_core::Time;

use crate::planted::{Fault, active};
use crate::wire::Run;

/// What a member has told about the order of its view.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// As the sequencer: places that are not announced yet.
    runs: Vec<Run>,
    /// As the sequencer: the last place and the last stable place that are announced.
    announced: u64,
    announced_stable: u64,
    /// As the sequencer: for each rank, the place up to which it has all packets.
    acks: Vec<u64>,
    /// The place up to which this member has acknowledged.
    acked: u64,
    /// When a lazy acknowledgement or announcement of stability is due.
    ack_at: Option<Time>,
}

impl Order {
    /// A new view begins.
    pub(super) fn begin(&mut self, seats: usize) {
        *self = Self { acks: vec![0; seats], ..Self::default() };
    }

    /// The view takes no messages any more.
    pub(super) fn stop(&mut self) {
        self.runs.clear();
        self.ack_at = None;
    }

    /// The next `count` packets of a sender have their places.
    pub(super) fn place(&mut self, rank: usize, count: u16) {
        match self.runs.last_mut() {
            _ if count == 0 => {}
            Some(run) if usize::from(run.rank) == rank && run.count.checked_add(count).is_some() => {
                run.count += count
            }
            _ => self.runs.push(Run { rank: rank as u8, count }),
        }
    }

    /// Whether places wait for their announcement.
    pub(super) fn has_places(&self) -> bool {
        !self.runs.is_empty()
    }

    /// The member of a rank has all packets up to `place`.
    pub(super) fn note_ack(&mut self, rank: usize, place: u64) {
        if let Some(ack) = self.acks.get_mut(rank) {
            *ack = (*ack).max(place);
        }
    }

    /// For each rank, the place up to which it has all packets.
    pub(super) fn acks(&self) -> &[u64] {
        &self.acks
    }

    /// The place up to which all members have all packets; `own`: that of the sequencer, which has this rank.
    pub(super) fn stable(&mut self, rank: usize, own: u64) -> u64 {
        self.acked = own;
        if let Some(ack) = self.acks.get_mut(rank) {
            *ack = own;
        }
        let acks = self.acks.iter();
        let stable = if active(Fault::StableTooEarly) { acks.max() } else { acks.min() };
        stable.copied().unwrap_or(0)
    }

    pub(super) fn announced_stable(&self) -> u64 {
        self.announced_stable
    }

    /// Takes the places that are to be announced with a stable place; the first of them, and their runs.
    pub(super) fn announce(&mut self, stable: u64) -> (u64, Vec<Run>) {
        let first = self.announced + 1;
        let runs = std::mem::take(&mut self.runs);
        self.announced += runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        self.announced_stable = stable;
        self.ack_at = None;
        (first, runs)
    }

    /// The place up to which this member has acknowledged.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// A packet of this member acknowledges up to `place`.
    pub(super) fn note_acked(&mut self, place: u64) {
        self.acked = self.acked.max(place);
    }

    /// An acknowledgement of its own is sent.
    pub(super) fn acknowledge(&mut self, place: u64) {
        self.acked = place;
        self.ack_at = None;
    }

    /// When a lazy acknowledgement or announcement is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.ack_at
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.ack_at.is_some_and(|at| at <= now)
    }

    /// What is to be told can wait until `at`, unless something else waits for less; `None`: there is nothing to tell.
    pub(super) fn tell_by(&mut self, at: Option<Time>) {
        self.ack_at = at.map(|at| self.ack_at.unwrap_or(at));
    }
}
