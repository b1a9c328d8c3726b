//! Events for the application, in order.

use super::Member;
use crate::config::Ordering;
use crate::event::{Delivery, Event, Outcome, Payload};
use crate::wire::{Class, DATA_HEADER, next_message};

impl Member {
    /// The next event for the application. Messages that it does not take are acknowledged only up to a window, so that
    /// the senders wait.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let Some((epoch, current)) = self.history.first_mut() else { return self.history.next_after() };
            if let Some(event) = epoch.before.pop_front() {
                if current && matches!(event, Event::State { .. }) {
                    self.piece_taken();
                }
                return Some(event);
            }
            if !epoch.ready {
                // Notices of a member without state; other events keep their place.
                return None;
            }
            if let Some(change) = epoch.change.take() {
                if current && std::mem::take(&mut self.transfer.ask) {
                    epoch.before.push_back(Event::StateWanted { view: change.view.id });
                }
                return Some(Event::View(change));
            }
            if let Some(event) = self.next_message() {
                return Some(event);
            }
            if !self.history.end_first() {
                self.resume_acknowledging();
                return self.history.next_after();
            }
        }
    }

    /// The next message of the oldest view.
    fn next_message(&mut self) -> Option<Event> {
        let (epoch, _) = self.history.first_mut()?;
        loop {
            let turn = epoch.log.turn(self.config.ordering == Ordering::Safe)?;
            let offset = epoch.offset.max(DATA_HEADER);
            let Some(range) = next_message(&turn.packet.bytes, offset) else {
                epoch.offset = 0;
                epoch.log.delivered_one();
                continue;
            };
            epoch.offset = range.end;
            let sender = epoch.log.view.seats.get(turn.rank).map(|seat| seat.id)?;
            if turn.packet.class == Class::Atomic
                && sender == self.me
                && let Some(token) = epoch.tokens.pop_front()
            {
                epoch.before.push_back(Event::Outcome(token, Outcome::Delivered));
            }
            let delivery = Delivery {
                view: epoch.log.view.id,
                place: turn.place,
                sender,
                payload: Payload::new(turn.packet.bytes.clone(), range),
                transitional: turn.transitional,
            };
            self.stats.delivered += 1;
            return Some(Event::Deliver(delivery));
        }
    }
}
