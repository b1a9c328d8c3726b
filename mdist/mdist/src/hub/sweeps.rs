//! Changes of all items of an upstream, applied in portions: it is lost, or a service or group changes its state.
//!
//! A *sweep* goes through the item table and applies one event to each item that it reaches; a turn takes a portion, so
//! that sockets do not wait for 100,000 statuses. What happens to an item in the meantime comes after the event: the
//! hub settles the item first, that is, it applies the sweeps to it that have not reached it yet. So the log has the
//! messages of each item in the same order as if the event changed all items at once. Only requests that wait in a
//! queue are not settled but wait for the sweep, because to send them settles no further item.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::batch::Batch;
use super::effects::Effect;
use super::ids::{ItemId, Now, Token, UpstreamId};
use super::item::Item;
use super::state::{Hub, PORTION};

/// Places of the table that a portion visits for each item that it may change. A visit takes about 10 ns.
const VISITS: usize = 16;
/// Maximum number of sweeps under way. The first of more ends in one turn, so that their number is bounded.
const MAX_SWEEPS: usize = 64;

/// The effects of an event on the items of services: the service's id, the effect, and the announcement that has told
/// some consumers of it (0: none). Sorted by service, which has one effect.
type Effects = Vec<(u16, Effect, Token)>;

/// The rest of one event's work on items.
#[derive(Debug)]
struct Sweep {
    number: u32,
    up: UpstreamId,
    effects: Arc<Effects>,
    /// The next place of the item table, and the end of the table when the event came.
    next: u32,
    end: u32,
}

/// Sweeps in the order of their events. Each begins when the one before it has ended, so that the statuses of an
/// announcement are together.
#[derive(Debug)]
pub(super) struct Sweeps {
    list: VecDeque<Sweep>,
    /// Maximum number of items that a portion changes.
    pub(super) portion: usize,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { list: VecDeque::new(), portion: PORTION }
    }
}

impl Sweeps {
    /// Whether none is under way.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether each sweep under way has reached this item.
    pub(super) fn have_reached(&self, item: &Item) -> bool {
        self.list.back().is_none_or(|last| item.swept >= last.number)
    }

    /// The effects under way on items of a service.
    pub(super) fn effects_on(&self, service: u16) -> impl Iterator<Item = &Effect> {
        self.list.iter().filter_map(move |sweep| Some(&effect_on(&sweep.effects, service)?.1))
    }
}

fn effect_on(effects: &Effects, service: u16) -> Option<&(u16, Effect, Token)> {
    effects.binary_search_by_key(&service, |effect| effect.0).ok().and_then(|at| effects.get(at))
}

impl Hub {
    /// Begins to apply effects of one event of an upstream to items, and applies the first portion. Effects on one
    /// service are applied in their order.
    pub(super) fn begin_sweeps(
        &mut self,
        now: Now,
        up: UpstreamId,
        effects: Vec<(u16, Effect, Token)>,
        out: &mut Batch,
    ) {
        let mut rounds: Vec<Effects> = Vec::new();
        let mut earlier: HashMap<u16, usize> = HashMap::new();
        for effect in effects {
            let round = earlier.entry(effect.0).or_default();
            match rounds.get_mut(*round) {
                Some(others) => others.push(effect),
                None => rounds.push(vec![effect]),
            }
            *round += 1;
        }
        for mut effects in rounds {
            effects.sort_by_key(|effect| effect.0);
            let (number, end) = self.items.begin_sweep();
            self.sweeps.list.push_back(Sweep { number, up, effects: Arc::new(effects), next: 0, end });
        }
        while self.sweeps.list.len() > MAX_SWEEPS {
            self.sweep_front(now, &mut (usize::MAX, usize::MAX), out);
        }
        self.sweep(now, out);
    }

    /// Applies a portion of the sweeps under way.
    pub(super) fn sweep(&mut self, now: Now, out: &mut Batch) {
        let portion = self.sweeps.portion;
        let mut left = (portion, portion.saturating_mul(VISITS));
        while self.sweep_front(now, &mut left, out) {}
    }

    /// Continues the first sweep, for at most `left` items and places. Returns whether it has ended.
    fn sweep_front(&mut self, now: Now, left: &mut (usize, usize), out: &mut Batch) -> bool {
        let Some(front) = self.sweeps.list.front() else { return false };
        let (number, up, mut next, end) = (front.number, front.up, front.next, front.end);
        let effects = Arc::clone(&front.effects);
        while next < end && left.0 > 0 && left.1 > 0 {
            left.1 -= 1;
            left.0 -= usize::from(self.reach(now, ItemId(next), number, up, &effects, out));
            next += 1;
        }
        if next < end {
            if let Some(front) = self.sweeps.list.front_mut() {
                front.next = next;
            }
            return false;
        }
        self.sweeps.list.pop_front();
        for (_, _, announcement) in effects.iter() {
            out.end_announcement(*announcement);
        }
        true
    }

    /// Applies to an item the sweeps that have not reached it yet. To be called before a message or request that
    /// concerns the item is handled.
    #[inline]
    pub(super) fn settle(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        if !self.sweeps.is_empty() {
            self.settle_late(now, id, out);
        }
    }

    #[cold]
    fn settle_late(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        for at in 0..self.sweeps.list.len() {
            let Some(sweep) = self.sweeps.list.get(at) else { return };
            let (number, up, effects) = (sweep.number, sweep.up, Arc::clone(&sweep.effects));
            self.reach(now, id, number, up, &effects, out);
        }
    }

    /// Applies to an item the effect of one sweep, unless it has been. Returns whether that took work.
    fn reach(
        &mut self,
        now: Now,
        id: ItemId,
        number: u32,
        up: UpstreamId,
        effects: &Effects,
        out: &mut Batch,
    ) -> bool {
        let Some(item) = self.items.get_mut(id).filter(|item| item.swept < number) else { return false };
        item.swept = number;
        let Some((_, effect, covered)) = effect_on(effects, item.spec.service) else { return false };
        if !item.phase.is_open() || !effect.concerns(item, up) {
            return false;
        }
        self.apply_effect(now, id, effect, *covered, out);
        true
    }
}
