//! The supervisor: the background thread, which drives while no call is in progress.

use std::sync::PoisonError;
use std::time::Duration;

use utipc_core::Time;
use utipc_os::reactor::Reactor;

use super::state::{Drive, DriveEvent, Supervision};
use super::{Guard, Shared, TICK};
use crate::driver::now;

/// Interval of checks while messages wait for acknowledgements. Calls during that time receive these themselves.
const SHORT_TICK: Duration = Duration::from_micros(500);

impl Shared {
    /// Runs the supervisor until the node stops. `others` watches all descriptors but the express paths.
    pub(super) fn supervise(&self, mut reactor: Reactor, mut others: Reactor) {
        let mut driven = self.lock();
        let (mut calls, mut drives) = (driven.calls, 0);
        while !driven.stop {
            match driven.drive {
                Drive::Undriven if driven.calls == calls || driven.polled > 0 => {
                    driven = self.supervise_alone(driven, &mut reactor);
                    calls = driven.calls;
                }
                Drive::Undriven => {
                    calls = driven.calls;
                    let time = now();
                    driven.node.receive_all(time);
                    driven.node.handle_timeout(time);
                    driven.send_and_notify();
                    let tick = if time < driven.check_often_until { SHORT_TICK } else { TICK };
                    driven = self.rest(driven, Some(tick));
                }
                state if driven.drives == drives && state.is_express() => {
                    driven = self.watch_others(driven, &mut others);
                }
                _ if driven.drives == drives => driven = self.rest(driven, None),
                state => {
                    drives = driven.drives;
                    if state.is_express() {
                        // Calls on an express path do not read the other descriptors.
                        driven.node.receive_others(now());
                        driven = self.finish_check(driven);
                    }
                    driven = self.rest(driven, Some(TICK));
                }
            }
        }
    }

    /// Waits for frames on all descriptors except the express path on which a call waits.
    fn watch_others<'a>(&'a self, mut driven: Guard<'a>, others: &mut Reactor) -> Guard<'a> {
        driven.supervision = Supervision::WatchingOthers;
        let pause = driven.node.prepare_sleep().then_some(Duration::ZERO);
        drop(driven);
        let mut ready = Vec::new();
        let waited = others.wait(pause, &mut ready);
        driven = self.lock();
        driven.supervision = Supervision::Working;
        if ready.is_empty() && waited.is_ok() && pause.is_none() {
            return driven;
        }
        driven.node.receive_others(now());
        driven.node.end_streak();
        self.finish_check(driven)
    }

    /// Sends frames and wakes threads after frames were received while another thread drives.
    fn finish_check<'a>(&'a self, mut driven: Guard<'a>) -> Guard<'a> {
        driven.send_and_notify();
        if driven.take_must_wake() {
            self.wake(driven);
            return self.lock();
        }
        driven
    }

    /// Sleeps for this time, or until a call wakes it.
    fn rest<'a>(&self, mut driven: Guard<'a>, limit: Option<Duration>) -> Guard<'a> {
        if driven.stop {
            return driven;
        }
        let Some(limit) = limit else {
            driven.supervision = Supervision::Asleep;
            driven = self.supervisor.wait(driven).unwrap_or_else(PoisonError::into_inner);
            driven.supervision = Supervision::Working;
            return driven;
        };
        self.supervisor.wait_timeout(driven, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Drives while no call is in progress.
    fn supervise_alone<'a>(&'a self, mut driven: Guard<'a>, reactor: &mut Reactor) -> Guard<'a> {
        driven.change_drive(DriveEvent::SupervisorBegins);
        let mut ready = Vec::new();
        let mut time = now();
        while driven.drive == Drive::Supervisor && !driven.stop {
            let mut pause = driven.node.pause(time, Time::NEVER);
            if driven.node.prepare_sleep() {
                pause = Some(Duration::ZERO);
            }
            drop(driven);
            let waited = reactor.wait(pause, &mut ready);
            driven = self.lock();
            if driven.drive != Drive::Supervisor {
                break;
            }
            time = now();
            if waited.is_err() {
                driven.node.receive_all(time);
            }
            driven.node.receive(time, &ready);
            driven.node.handle_timeout(time);
            driven.send_and_notify();
        }
        driven.change_drive(DriveEvent::SupervisorEnds);
        driven
    }
}
