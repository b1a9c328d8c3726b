//! Calls that return at once, and calls that wait while another thread drives.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::Wait;

use super::driven::Sleeper;
use super::slot::{Slot, Want};
use super::state::{Drive, DriveEvent};
use super::{CALLERS, Guard, SUPERVISOR, Shared, TICK};
use crate::driver::now;

/// Longest time for which calls that never wait leave the bearers unread, nanoseconds.
const READ_INTERVAL_NS: u128 = 500_000;

/// The end of a wait that begins now.
fn end_of(wait: Wait, now: Time) -> Time {
    match wait {
        Wait::Never => now,
        Wait::AtMost(limit) => now + limit,
        Wait::Forever => Time::NEVER,
    }
}

impl Shared {
    /// The end of a call that did not wait.
    pub(super) fn leave_call(&self, mut driven: Guard<'_>, now: Time) {
        if driven.drive == Drive::Supervisor && driven.polled == 0 {
            // The next calls read the bearers themselves, and frames do not wake the supervisor.
            driven.change_drive(DriveEvent::CallPasses);
            driven.node.disarm();
        }
        if now.since(driven.node.last_read()).as_nanos() > READ_INTERVAL_NS && driven.drive == Drive::Undriven
        {
            driven.node.receive_all(now);
            driven.node.handle_timeout(now);
        }
        driven.send_and_notify();
        if driven.node.stack.take_backlogged() {
            self.check_often(&mut driven, now);
        }
        if driven.take_must_wake() {
            self.wake(driven);
        }
    }

    /// The call leaves messages that wait for acknowledgements: the supervisor receives these, unless the
    /// program calls again soon.
    fn check_often(&self, driven: &mut Guard<'_>, now: Time) {
        if driven.check_often_until <= now && driven.drive == Drive::Undriven {
            self.wake_supervisor(driven);
        }
        driven.check_often_until = now + TICK;
    }

    /// Wakes the thread that waits for the wire.
    pub(super) fn wake(&self, mut driven: Guard<'_>) {
        let sleeper = driven.take_sleeper();
        drop(driven);
        self.wake_sleeper(sleeper);
    }

    fn wake_sleeper(&self, sleeper: Sleeper) {
        match sleeper {
            Sleeper::None => {}
            Sleeper::Express(path) => path.wake(),
            Sleeper::Caller => self.wakers[CALLERS].wake(),
            Sleeper::Supervisor => self.wakers[SUPERVISOR].wake(),
        }
    }

    pub(super) fn block<T>(
        &self,
        slot: &Arc<Slot>,
        want: Want,
        wait: Wait,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut driven = self.lock();
        driven.calls += 1;
        let mut time = now();
        let until = end_of(wait, time);
        if let Some(done) = attempt(&mut driven.node.stack, time) {
            self.leave_call(driven, time);
            return Some(done);
        }
        if wait == Wait::Never {
            return self.poll_once(driven, time, attempt);
        }
        loop {
            if !driven.drive.is_by_caller() {
                return self.drive(driven, (slot, want), (time, until), attempt);
            }
            driven.send_and_notify();
            if driven.take_must_wake() {
                let sleeper = driven.take_sleeper();
                self.wake_sleeper(sleeper);
            }
            driven = self.wait(driven, slot, want, until.since(time));
            time = now();
            let done = attempt(&mut driven.node.stack, time);
            if done.is_some() || time >= until {
                self.hand_over(&mut driven);
                self.leave_call(driven, time);
                return done;
            }
        }
    }

    /// A call that may not wait reads the bearers once: a loop of such calls drives the node.
    fn poll_once<T>(
        &self,
        mut driven: Guard<'_>,
        now: Time,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        driven.node.receive_all_spinning(now);
        driven.node.handle_timeout(now);
        let done = attempt(&mut driven.node.stack, now);
        self.leave_call(driven, now);
        done
    }

    /// Waits on the slot while another thread drives.
    fn wait<'a>(&self, mut driven: Guard<'a>, slot: &Arc<Slot>, want: Want, limit: Duration) -> Guard<'a> {
        slot.enter(want);
        slot.begin_sleep();
        driven.waiting.push(Arc::clone(slot));
        // A cap far above real limits, because a condition variable cannot add the largest durations to a clock.
        let limit = limit.min(Duration::from_secs(86_400));
        driven = slot.ready.wait_timeout(driven, limit).unwrap_or_else(PoisonError::into_inner).0;
        slot.end_sleep();
        slot.leave(want);
        if let Some(at) = driven.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, slot)) {
            driven.waiting.swap_remove(at);
        }
        driven
    }

    /// Makes another thread drive, if none does.
    pub(super) fn hand_over(&self, driven: &mut Guard<'_>) {
        if driven.drive != Drive::Undriven {
            return;
        }
        match driven.waiting.first() {
            Some(slot) => slot.ready.notify_one(),
            None => self.wake_supervisor(driven),
        }
    }
}
