//! The thread that reads the feeds of the backbone, if that is upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Result;

use crate::backbone::{self, feeds::Feeds};
use crate::net::{Waker, now};

use super::driver::Driver;
use super::running::MAX_SLEEP;
use super::ticket_lock::TicketLock;
use super::turns::Part;

/// Time that the thread waits for the driver before it reads ahead.
const AHEAD_AFTER: Duration = Duration::from_millis(5);

/// The feeds to read.
pub(super) struct FeedsToRead {
    /// The feeds of one endpoint after the other: the next one comes after the loss of the one before.
    pub(super) endpoints: Receiver<Feeds>,
    /// Packets that are read in a row.
    pub(super) in_a_row: usize,
}

/// The outcome of a read.
enum Outcome {
    /// The endpoint works; it may have had no packet.
    Read,
    Lost(backbone::Error),
}

/// The parts of the thread.
pub(super) struct FeedThread {
    pub(super) driver: Arc<TicketLock<Driver>>,
    pub(super) feeds: FeedsToRead,
    /// Whether packets are stamped with the time of their read.
    pub(super) timed: bool,
    /// Wakes the main thread.
    pub(super) main: Waker,
}

impl FeedThread {
    /// The loop: reads the feeds of one endpoint until it is lost, then of the next.
    ///
    /// # Errors
    /// The backbone refuses a packet.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            let mut feeds = match self.feeds.endpoints.recv_timeout(MAX_SLEEP) {
                Ok(feeds) => feeds,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            feeds.set_timed(self.timed);
            while !stop.load(Ordering::Acquire) {
                let Outcome::Lost(why) = self.read(&mut feeds)? else { continue };
                if let Some(sources) = &mut self.driver.lock().upstreams.sources {
                    sources.lose(feeds.generation(), why);
                }
                self.main.wake();
                break;
            }
        }
        Ok(())
    }

    /// Waits for packets, and passes them through the hub to the mounts' sockets.
    fn read(&self, feeds: &mut Feeds) -> Result<Outcome> {
        // With busy-poll this thread polls the socket without sleeping, and the driver stays unlocked meanwhile.
        match feeds.fetch(MAX_SLEEP) {
            Ok(true) => {}
            Ok(false) => {
                if let Some(sources) = &mut self.driver.lock().upstreams.sources {
                    sources.drained();
                }
                return Ok(Outcome::Read);
            }
            Err(why) => return Ok(Outcome::Lost(why)),
        }
        let ticket = self.driver.ticket();
        while !ticket.wait_for(AHEAD_AFTER) {
            if let Err(why) = feeds.read_ahead() {
                return Ok(Outcome::Lost(why));
            }
        }
        let mut driver = ticket.lock();
        let at = now();
        let mut outcome = Outcome::Read;
        driver.turns.begin(Part::Feeds, at);
        driver.log.begin_read(None, || feeds.read_at());
        for _ in 0..self.feeds.in_a_row {
            match feeds.next(Duration::ZERO) {
                Ok(Some(packet)) => driver.feed(packet, at),
                Ok(None) => break,
                Err(why) => {
                    outcome = Outcome::Lost(why);
                    break;
                }
            }
        }
        driver.log.end_read();
        driver.turns.enter(Part::Hub, now());
        let more = driver.turn(at)?;
        if let Some(long) = driver.turns.end(now()) {
            long.log("feeds");
        }
        // The main thread runs the timers, and sleeps until the earliest that it knew of.
        let next = if more { Some(at) } else { driver.deadline() };
        if let Some(next) = next.filter(|next| *next < driver.main_wakes_at) {
            driver.main_wakes_at = next;
            self.main.wake();
        }
        Ok(outcome)
    }
}
