//! A program's threads: what starts them, what they loop over, what ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use crate::backbone::{self, feeds::Feeds};
use crate::net::{Poller, Role, ThreadSettings, Waker, now, spawn};

use super::core::Core;
use super::side::Side;
use super::turns::Turns;

/// The longest sleep: a bound on what a missed wake-up can cost.
const LONGEST: Duration = Duration::from_millis(500);

/// A program that runs in threads of this process. Dropped, it ends.
#[derive(Debug)]
pub struct Running {
    /// Where it listens, in the order of its settings.
    pub addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts the threads: one for sockets and time, and one for the feeds of the backbone if it is above.
    pub(super) fn start(
        core: Core,
        poller: Poller,
        feeds: Option<(Receiver<Feeds>, usize)>,
        addresses: Vec<SocketAddr>,
        threads: &crate::config::Threads,
    ) -> Result<Self> {
        let mut running = Self {
            addresses,
            stop: Arc::new(AtomicBool::new(false)),
            waker: poller.waker(),
            threads: Vec::new(),
        };
        let timed = core.batch.timed;
        let core = Arc::new(Turns::new(core));
        if let Some((feeds, in_a_row)) = feeds {
            let core = core.clone();
            let waker = poller.waker();
            running.spawn(Role::Feed, &threads.feed, move |stop| {
                read_feeds(&core, &feeds, (in_a_row, timed), &waker, stop)
            })?;
        }
        running.spawn(Role::Main, &threads.main, move |stop| serve(&core, &poller, stop))?;
        Ok(running)
    }

    /// Starts one more thread of the program.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(super) fn spawn(
        &mut self,
        role: Role,
        settings: &ThreadSettings,
        body: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (stop, waker) = (self.stop.clone(), self.waker.clone());
        let thread = spawn(role, settings, move || {
            if let Err(why) = body(&stop) {
                tracing::error!(%why, thread = role.name(), "the program ends");
                stop.store(true, Ordering::Release);
                waker.wake();
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends it: consumers are logged out, upstreams closed.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        for thread in self.threads.drain(..) {
            // Its panic has been printed where it happened.
            let _ = thread.join();
        }
    }

    /// Whether all of its threads still run.
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

/// When somebody else has the hub for longer, the feeds' thread reads ahead meanwhile.
const AHEAD_AFTER: Duration = Duration::from_millis(5);

/// The main thread's loop, until told to stop.
fn serve(turns: &Turns<Core>, poller: &Poller, stop: &AtomicBool) -> Result<()> {
    let mut events = Vec::new();
    let mut wait = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        poller.wait(Some(wait), &mut events)?;
        let mut core = turns.take();
        let at = now();
        for event in events.drain(..) {
            core.ready(event, at);
        }
        core.tick(at)?;
        let more = core.turn(at)?;
        let due = core.deadline().map_or(LONGEST, |due| due.saturating_sub(at));
        wait = if more { Duration::ZERO } else { due.min(LONGEST) };
        core.looks_again = at + wait;
    }
    if let Side::Mounts(clients) = &mut turns.take().side {
        clients.shut_down(now());
    }
    Ok(())
}

/// The feeds' thread: reads one end of the backbone after the other. `timed`: it notes when.
fn read_feeds(
    turns: &Turns<Core>,
    ends: &Receiver<Feeds>,
    (in_a_row, timed): (usize, bool),
    main: &Waker,
    stop: &AtomicBool,
) -> Result<()> {
    while !stop.load(Ordering::Acquire) {
        let mut feeds = match ends.recv_timeout(LONGEST) {
            Ok(feeds) => feeds,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        feeds.set_timed(timed);
        while !stop.load(Ordering::Acquire) {
            let Err(why) = read_some(turns, &mut feeds, in_a_row, main)? else { continue };
            if let Some(sources) = &mut turns.take().sources {
                sources.lose(feeds.life(), why);
            }
            main.wake();
            break;
        }
    }
    Ok(())
}

/// Waits for packets, and takes what has come all the way to the mounts' sockets. The inner error: the end is over.
fn read_some(
    turns: &Turns<Core>,
    feeds: &mut Feeds,
    in_a_row: usize,
    main: &Waker,
) -> Result<backbone::Result<()>> {
    // With busy-poll the socket itself looks without a pause, and the core stays free meanwhile.
    match feeds.fetch(LONGEST) {
        Ok(true) => {}
        Ok(false) => {
            if let Some(sources) = &mut turns.take().sources {
                sources.drained();
            }
            return Ok(Ok(()));
        }
        Err(why) => return Ok(Err(why)),
    }
    let mut place = turns.queue();
    while !place.comes_within(AHEAD_AFTER) {
        if let Err(why) = feeds.read_ahead() {
            return Ok(Err(why));
        }
    }
    let mut core = place.enter();
    let at = now();
    let mut state = Ok(());
    core.batch.begin_read(None, || feeds.read_at());
    for _ in 0..in_a_row {
        match feeds.next(Duration::ZERO) {
            Ok(Some(packet)) => core.feed(packet, at),
            Ok(None) => break,
            Err(why) => {
                state = Err(why);
                break;
            }
        }
    }
    core.batch.end_read();
    let more = core.turn(at)?;
    // The main thread keeps time, and sleeps by what was due when it looked.
    let next = if more { Some(at) } else { core.deadline() };
    if let Some(next) = next.filter(|next| *next < core.looks_again) {
        core.looks_again = next;
        main.wake();
    }
    Ok(state)
}
