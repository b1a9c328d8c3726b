//! Changes of bindings reach the subscriptions that they concern: at once as far as the budget of the caller allows,
//! the rest in portions ([`super::announcements`]). The events of each connection are the same in both cases, and in
//! the same order.

use super::announcements::{Party, Place, Step};
use super::server::{Close, TopologyServer};
use crate::names::Change;
use crate::planted::{self, Fault};
use crate::wire::EventKind;

impl TopologyServer {
    /// Reports a binding that was published or withdrawn. Within a connection, the newest subscription comes first.
    /// Parties for which something is left when `budget` is used up catch up later.
    pub fn announce(&mut self, change: &Change, budget: &mut usize) {
        let service = change.binding.range.service;
        let mut last = None;
        while let Some(party) = self.interests.next_party(service, last) {
            last = Some(party);
            let mut place = Place::BEGIN;
            if self.announcements.contains(party) || !self.tell(party, change, &mut place, budget) {
                self.announcements.add_change(party, change, place);
            }
        }
    }

    /// A party that has to catch up; reported once until it has.
    pub fn poll_behind(&mut self) -> Option<Party> {
        self.announcements.poll()
    }

    /// Does what has been left for a party: at most `budget` visits of subscriptions, which is reduced by those. False
    /// if nothing is left.
    pub fn catch_up(&mut self, party: Party, budget: &mut usize) -> bool {
        while *budget > 0 {
            match self.announcements.next(party) {
                None => return false,
                Some(Step::Free(freed)) => self.free(party, freed, budget),
                Some(Step::Change(change, mut place)) => {
                    if !self.tell(party, &change, &mut place, budget) {
                        self.announcements.put_back(party, change, place);
                    }
                }
                Some(Step::TimedOut { service, id }) => {
                    *budget = budget.saturating_sub(super::FREE_VISITS);
                    self.time_out(party, service, id, budget);
                }
                Some(Step::Dropped) => *budget -= 1,
                Some(Step::Close(service)) => {
                    *budget -= 1;
                    match self.interests.any_connection(party, service) {
                        Some(connection) => self.close(connection, Close::Overflow, budget),
                        None => self.announcements.forget_lost(party, service),
                    }
                }
            }
        }
        self.announcements.contains(party)
    }

    /// Announces a change to a party, from a place on; true if all of it know the change.
    fn tell(&mut self, party: Party, change: &Change, place: &mut Place, budget: &mut usize) -> bool {
        if let Place::Finding(last) = place {
            if !change.up && !self.keep_withdrawn(party, change, last, budget) {
                return false;
            }
            *place = Place::Subscriptions(u64::MAX);
        }
        let Place::Subscriptions(last) = place else { return false };
        let Change { binding, up, edge, .. } = *change;
        let kind = if up { EventKind::Published } else { EventKind::Withdrawn };
        let silent = planted::active(Fault::SilentWithdrawal) && !up && !edge;
        let (mut events, mut is_over) = (Vec::new(), true);
        for (id, entry) in self.interests.older_than(party, binding.range.service, *last) {
            if *budget == 0 {
                is_over = false;
                break;
            }
            *budget -= 1;
            *last = id;
            if !silent && entry.wants(&binding, edge) {
                events.push(((entry.connection, id), entry.event(kind, binding.range, binding.port)));
            }
        }
        for (of, event) in events {
            self.queue_or_close(of, event, budget);
        }
        is_over
    }

    /// Keeps a withdrawn binding for the subscriptions that have it in their first events and may not have found it;
    /// true if all have kept it.
    fn keep_withdrawn(
        &mut self,
        party: Party,
        change: &Change,
        last: &mut Option<u32>,
        budget: &mut usize,
    ) -> bool {
        let service = change.binding.range.service;
        while let Some(connection) = self.interests.next_finding(party, service, *last) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            *last = Some(connection);
            let Some(owner) = self.connections.get_mut(&connection) else { continue };
            let before = owner.waiting();
            if let Some(initial) = &mut owner.initial {
                initial.keep_withdrawn(change);
            }
            self.update_waiting(connection, before, budget);
        }
        true
    }
}
