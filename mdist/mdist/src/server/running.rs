//! The threads of a program: their start, their loops and their end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use crate::net::{Poller, Role, ThreadSettings, Waker, now, spawn};

use super::driver::Driver;
use super::feed_thread::{FeedThread, FeedsToRead};
use super::side::Side;
use super::ticket_lock::TicketLock;
use super::turns::{Part, Ready};

/// Longest sleep, which limits the delay after a missed wake-up.
pub(super) const MAX_SLEEP: Duration = Duration::from_millis(500);

/// A program that runs in threads of this process; it stops when dropped.
#[derive(Debug)]
pub struct Running {
    /// Addresses of its listeners, in the order of its settings.
    pub addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts the threads: one for sockets and timers, and one for the feeds of the backbone if it is upstream.
    pub(super) fn start(
        driver: Driver,
        poller: Poller,
        feeds: Option<FeedsToRead>,
        addresses: Vec<SocketAddr>,
        threads: &crate::config::Threads,
    ) -> Result<Self> {
        let mut running = Self {
            addresses,
            stop: Arc::new(AtomicBool::new(false)),
            waker: poller.waker(),
            threads: Vec::new(),
        };
        let timed = driver.log.timed;
        let driver = Arc::new(TicketLock::new(driver));
        if let Some(feeds) = feeds {
            let thread = FeedThread { driver: driver.clone(), feeds, timed, main: poller.waker() };
            running.spawn(Role::Feed, &threads.feed, move |stop| thread.run(stop))?;
        }
        running.spawn(Role::Main, &threads.main, move |stop| serve(&driver, &poller, stop))?;
        Ok(running)
    }

    /// Starts another thread of the program; if its body fails, the program stops.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub(super) fn spawn(
        &mut self,
        role: Role,
        settings: &ThreadSettings,
        body: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (stop, waker) = (self.stop.clone(), self.waker.clone());
        let thread = spawn(role, settings, move || {
            if let Err(why) = body(&stop) {
                tracing::error!(%why, thread = role.name(), "a thread has failed: the program stops");
                stop.store(true, Ordering::Release);
                waker.wake();
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Stops the program: disconnects consumers, closes upstreams, and waits for the threads.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        for thread in self.threads.drain(..) {
            // The panic of a thread was printed when it happened.
            let _ = thread.join();
        }
    }

    /// Whether all threads still run.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The main thread's loop.
fn serve(driver: &TicketLock<Driver>, poller: &Poller, stop: &AtomicBool) -> Result<()> {
    let mut ready = Ready::default();
    let mut wait = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        ready.wait(poller, wait)?;
        let mut driver = driver.lock();
        let at = now();
        driver.turns.begin(Part::Sockets, at);
        while let Some(event) = ready.next(now()) {
            driver.ready(event, at);
        }
        driver.turns.enter(Part::Timers, now());
        driver.tick(at)?;
        driver.turns.enter(Part::Hub, now());
        let more = driver.turn(at)?;
        if let Some(long) = driver.turns.end(now()) {
            long.log("main");
        }
        let due = driver.deadline().map_or(MAX_SLEEP, |due| due.saturating_sub(at));
        wait = if more { Duration::ZERO } else { due.min(MAX_SLEEP) };
        driver.main_wakes_at = at + wait;
    }
    if let Side::Mounts(clients) = &mut driver.lock().side {
        clients.shut_down(now());
    }
    Ok(())
}
