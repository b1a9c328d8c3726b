//! Clean-up after an attachment has ended, for any reason: frees everything that only its process held.

use utipc_core::Time;
use utipc_core::quota::{Resource, UserId};
use utipc_lanes::daemon::Work;

use super::Dispatcher;
use super::lane_tasks::Then;
use super::tasks::Task;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::counters::EndReason;
use crate::daemon::sockets::Holder;

impl Dispatcher {
    /// Ends the attachments that have ended in this turn.
    pub(super) fn end_attachments(&mut self, now: Time) {
        for (id, reason) in std::mem::take(&mut self.ended) {
            self.recover_from(now, id, reason);
        }
    }

    /// Lanes are frozen and read out first; then bindings are withdrawn, unread messages go back and connections end;
    /// subscribers learn it last ([`utipc_core::stack::Stack::close_all`]).
    fn recover_from(&mut self, now: Time, id: AttachmentId, reason: EndReason) {
        let user = self.user(id);
        let Some(was_served) = self.attachments.end(&mut self.reactors, id, reason) else { return };
        self.counters.count_end(reason);
        if let Some(user) = user.as_ref().ok().copied().filter(|_| was_served) {
            self.driver.stack.ledger_mut().release(user, Resource::Processes, 1);
        }
        self.lanes.remove_process(id);
        self.management.positions.forget(id);
        self.barriers.forget(id);
        self.driver.captures.end_of(id);
        if let Ok(user) = user
            && was_served
        {
            let ports = self.sockets.remove_process(id);
            self.leaving += 1;
            self.release_left(now, user, ports, (Holder::Process(id), Some(id)));
        } else {
            let user = user.unwrap_or(UserId(self.rules.own_user()));
            self.begin_task(now, user, Task::Lanes { work: vec![Work::forget(id)], then: Then::Nothing });
        }
        debug_assert!(self.driver.stack.ledger().is_balanced());
    }

    /// Releases these sockets for one holder; returns those without other holders.
    pub(super) fn release_all(
        &mut self,
        now: Time,
        ports: impl IntoIterator<Item = u32>,
        holder: Holder,
    ) -> Vec<u32> {
        let held = |dispatcher: &mut Self, port| dispatcher.release(now, port, holder);
        ports.into_iter().filter(|port| self.sockets.contains(*port) && !held(self, *port)).collect()
    }
}
