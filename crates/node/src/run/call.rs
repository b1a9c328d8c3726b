//! Calls that return at once, and calls that wait while another thread drives.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::Wait;

use super::{CALLERS, Guard, SUPERVISOR, Shared, TICK};
use crate::driver::{Drive, DriveEvent, Sleeper, Slot, Want, now};

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
    pub(super) fn leave_call(&self, mut driver: Guard<'_>, now: Time) {
        if driver.drive == Drive::Supervisor && driver.polled == 0 {
            // The next calls read the bearers themselves, and frames do not wake the supervisor.
            driver.change_drive(DriveEvent::CallPasses);
            driver.armed = Time::ZERO;
        }
        if now.since(driver.last_read).as_nanos() > READ_INTERVAL_NS && driver.drive == Drive::Undriven {
            driver.receive_all(now);
            driver.handle_timeout(now);
        }
        driver.send_and_notify();
        if driver.stack.take_backlogged() {
            self.check_often(&mut driver, now);
        }
        if driver.take_must_wake() {
            self.wake(driver);
        }
    }

    /// The call leaves messages that wait for acknowledgements: the supervisor receives these, unless the
    /// program calls again soon.
    fn check_often(&self, driver: &mut Guard<'_>, now: Time) {
        if driver.check_often_until <= now && driver.drive == Drive::Undriven {
            self.wake_supervisor(driver);
        }
        driver.check_often_until = now + TICK;
    }

    /// Wakes the thread that waits for the wire.
    pub(super) fn wake(&self, mut driver: Guard<'_>) {
        let sleeper = driver.take_sleeper();
        drop(driver);
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
        let mut driver = self.lock();
        driver.calls += 1;
        let mut time = now();
        let until = end_of(wait, time);
        if let Some(done) = attempt(&mut driver.stack, time) {
            self.leave_call(driver, time);
            return Some(done);
        }
        if wait == Wait::Never {
            return self.poll_once(driver, time, attempt);
        }
        loop {
            if !driver.drive.is_by_caller() {
                return self.drive(driver, (slot, want), (time, until), attempt);
            }
            driver.send_and_notify();
            if driver.take_must_wake() {
                let sleeper = driver.take_sleeper();
                self.wake_sleeper(sleeper);
            }
            driver = self.wait(driver, slot, want, until.since(time));
            time = now();
            let done = attempt(&mut driver.stack, time);
            if done.is_some() || time >= until {
                self.hand_over(&mut driver);
                self.leave_call(driver, time);
                return done;
            }
        }
    }

    /// A call that may not wait reads the bearers once: a loop of such calls drives the node.
    fn poll_once<T>(
        &self,
        mut driver: Guard<'_>,
        now: Time,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        driver.receive_all_spinning(now);
        driver.handle_timeout(now);
        let done = attempt(&mut driver.stack, now);
        self.leave_call(driver, now);
        done
    }

    /// Waits on the slot while another thread drives.
    fn wait<'a>(&self, mut driver: Guard<'a>, slot: &Arc<Slot>, want: Want, limit: Duration) -> Guard<'a> {
        slot.enter(want);
        slot.begin_sleep();
        driver.waiting.push(Arc::clone(slot));
        // A cap far above real limits, because a condition variable cannot add the largest durations to a clock.
        let limit = limit.min(Duration::from_secs(86_400));
        driver = slot.ready.wait_timeout(driver, limit).unwrap_or_else(PoisonError::into_inner).0;
        slot.end_sleep();
        slot.leave(want);
        if let Some(at) = driver.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, slot)) {
            driver.waiting.swap_remove(at);
        }
        driver
    }

    /// Makes another thread drive, if none does.
    pub(super) fn hand_over(&self, driver: &mut Guard<'_>) {
        if driver.drive != Drive::Undriven {
            return;
        }
        match driver.waiting.first() {
            Some(slot) => slot.ready.notify_one(),
            None => self.wake_supervisor(driver),
        }
    }
}
