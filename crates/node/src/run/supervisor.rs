//! The supervisor: the background thread, which drives while no call is in progress.

use std::sync::PoisonError;
use std::time::Duration;

use utipc_core::Time;
use utipc_os::reactor::Reactor;

use super::{Guard, Shared, TICK};
use crate::driver::{Drive, DriveEvent, Supervision, now};

/// Interval of checks while messages wait for acknowledgements. Calls during that time receive these themselves.
const SHORT_TICK: Duration = Duration::from_micros(500);

impl Shared {
    /// Runs the supervisor until the node stops. `others` watches all descriptors but the express paths.
    pub(super) fn supervise(&self, mut reactor: Reactor, mut others: Reactor) {
        let mut driver = self.lock();
        let (mut calls, mut drives) = (driver.calls, 0);
        while !driver.stop {
            match driver.drive {
                Drive::Undriven if driver.calls == calls || driver.polled > 0 => {
                    driver = self.supervise_alone(driver, &mut reactor);
                    calls = driver.calls;
                }
                Drive::Undriven => {
                    calls = driver.calls;
                    let time = now();
                    driver.receive_all(time);
                    driver.handle_timeout(time);
                    driver.send_and_notify();
                    let tick = if time < driver.check_often_until { SHORT_TICK } else { TICK };
                    driver = self.rest(driver, Some(tick));
                }
                state if driver.drives == drives && state.is_express() => {
                    driver = self.watch_others(driver, &mut others);
                }
                _ if driver.drives == drives => driver = self.rest(driver, None),
                state => {
                    drives = driver.drives;
                    if state.is_express() {
                        // Calls on an express path do not read the other descriptors.
                        driver.receive_others(now());
                        driver = self.finish_check(driver);
                    }
                    driver = self.rest(driver, Some(TICK));
                }
            }
        }
    }

    /// Waits for frames on all descriptors except the express path on which a call waits.
    fn watch_others<'a>(&'a self, mut driver: Guard<'a>, others: &mut Reactor) -> Guard<'a> {
        driver.supervision = Supervision::WatchingOthers;
        let pause = driver.prepare_sleep().then_some(Duration::ZERO);
        drop(driver);
        let mut ready = Vec::new();
        let waited = others.wait(pause, &mut ready);
        driver = self.lock();
        driver.supervision = Supervision::Working;
        if ready.is_empty() && waited.is_ok() && pause.is_none() {
            return driver;
        }
        driver.receive_others(now());
        driver.end_streak();
        self.finish_check(driver)
    }

    /// Sends frames and wakes threads after frames were received while another thread drives.
    fn finish_check<'a>(&'a self, mut driver: Guard<'a>) -> Guard<'a> {
        driver.send_and_notify();
        if driver.take_must_wake() {
            self.wake(driver);
            return self.lock();
        }
        driver
    }

    /// Sleeps for this time, or until a call wakes it.
    fn rest<'a>(&self, mut driver: Guard<'a>, limit: Option<Duration>) -> Guard<'a> {
        if driver.stop {
            return driver;
        }
        let Some(limit) = limit else {
            driver.supervision = Supervision::Asleep;
            driver = self.supervisor.wait(driver).unwrap_or_else(PoisonError::into_inner);
            driver.supervision = Supervision::Working;
            return driver;
        };
        self.supervisor.wait_timeout(driver, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Drives while no call is in progress.
    fn supervise_alone<'a>(&'a self, mut driver: Guard<'a>, reactor: &mut Reactor) -> Guard<'a> {
        driver.change_drive(DriveEvent::SupervisorBegins);
        let mut ready = Vec::new();
        let mut time = now();
        while driver.drive == Drive::Supervisor && !driver.stop {
            let mut pause = driver.pause(time, Time::NEVER);
            if driver.prepare_sleep() {
                pause = Some(Duration::ZERO);
            }
            drop(driver);
            let waited = reactor.wait(pause, &mut ready);
            driver = self.lock();
            if driver.drive != Drive::Supervisor {
                break;
            }
            time = now();
            if waited.is_err() {
                driver.receive_all(time);
            }
            driver.receive(time, &ready);
            driver.handle_timeout(time);
            driver.send_and_notify();
        }
        driver.change_drive(DriveEvent::SupervisorEnds);
        driver
    }
}
