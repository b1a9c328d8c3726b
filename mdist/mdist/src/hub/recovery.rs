//! Recovery: items whose stream is lost, and requests without an answer in time.

use rssl::rwf::{State, StreamState, code};

use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state};
use super::ids::{ItemId, Now, Token};
use super::item::{Event, Queue};
use super::pacing::back_off;
use super::state::{Hub, PORTION};
use super::upstream_messages::push_status;

impl Hub {
    /// Sets the state of an item whose stream or upstream was lost, sends it to the sides, and recovers the
    /// item. Private streams end, because only their consumer knows how to open them again.
    /// `covered` is the announcement that has told some consumers of the state; 0: none.
    pub(super) fn stream_lost(
        &mut self,
        now: Now,
        id: ItemId,
        state: &State<'_>,
        covered: Token,
        out: &mut Batch,
    ) {
        let Some(item) = self.items.get_mut(id) else { return };
        let ends = item.spec.private;
        let state = if ends { State { stream: StreamState::Closed, ..*state } } else { *state };
        item.set_state(&state);
        let bytes = encode::status(&mut self.scratch, item.spec.domain, &state);
        push_status(item, id, bytes, if ends { 0 } else { covered }, out);
        if ends {
            self.end_item(now, id, out);
        } else if state.stream == StreamState::ClosedRecover {
            self.retry(now, id);
        } else {
            self.watch_if_stale(now, id);
        }
    }

    /// Ends the item's stream and requests the item again: at once the first time, with backoff after that.
    pub(super) fn retry(&mut self, now: Now, id: ItemId) {
        if self.items.get(id).is_some_and(|i| i.is_unwanted()) {
            self.dequeue(id);
        }
        let link = self.items.get(id).and_then(|item| item.link);
        let upstream = link.and_then(|link| self.upstreams.get(usize::from(link.up.0)));
        let is_kept = upstream.is_some_and(|upstream| upstream.recovers);
        self.unlink(now, id, is_kept);
        let Some(item) = self.items.get_mut(id) else { return };
        item.apply(Event::RestartDue);
        item.requeue_receiving();
        if item.is_unwanted() {
            return self.free(id);
        }
        let held_back = std::mem::take(&mut item.held_back);
        if !held_back.is_zero() {
            self.delayed.insert((now + held_back, id, item.age));
        } else if item.tries == 0 {
            item.tries = 1;
            self.enqueue(id, Queue::Recovery);
            self.pump_item(now, id);
        } else {
            self.retry_later(now, id);
        }
    }

    /// Requests the item again after a backoff.
    fn retry_later(&mut self, now: Now, id: ItemId) {
        let Some(item) = self.items.get_mut(id) else { return };
        let (tries, age) = (item.tries, item.age);
        item.tries = tries.saturating_add(1);
        self.delayed.insert((now + back_off(tries), id, age));
    }

    /// Drops requests that have had no answer, or no next part of one, for the request timeout.
    pub(super) fn end_overdue_requests(&mut self, now: Now, out: &mut Batch) {
        for _ in 0..PORTION {
            let Some(&(_, id, number)) = self.timeouts.front().filter(|due| due.0 <= now) else { break };
            self.timeouts.pop_front();
            self.settle(now, id, out);
            let Some(link) = self.items.get(id).and_then(|i| i.link) else { continue };
            let Some(request) = link.pending.filter(|request| request.number == number) else { continue };
            if request.at + self.options.request_timeout > now {
                // Parts are coming.
                self.timeouts.push_back((now + self.options.request_timeout, id, number));
                continue;
            }
            self.request_timed_out(now, id, out);
        }
    }

    fn request_timed_out(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        self.stats.timeouts += 1;
        let state =
            suspect_state(StreamState::ClosedRecover, code::TIMEOUT, "No answer from the source in time");
        let Some(item) = self.items.get_mut(id) else { return };
        let (domain, is_live) = (item.spec.domain, item.phase.is_live());
        item.requeue_receiving();
        if !item.image.is_known() {
            item.set_state(&state);
        }
        let snapshots = item.waiting.take_where(|w| w.snapshot);
        for w in item.waiting.iter() {
            let bytes = encode::status(&mut self.scratch, domain, &state);
            out.push(Kind::Notice, w.side, id, w.token, bytes);
        }
        for w in snapshots {
            self.refuse(w.side, w.token, domain, &state, out);
        }
        if is_live {
            // The stream works; only its image does not come.
            self.complete_request(id);
            if let Some(item) = self.items.get_mut(id) {
                item.apply(Event::ImageOverdue);
                self.retry_later(now, id);
                self.release_if_unwanted(now, id);
            }
        } else {
            self.unlink(now, id, true);
            self.retry(now, id);
        }
    }
}
