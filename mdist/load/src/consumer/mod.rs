//! A client for load: many mounts, each with its own connection, that ask for items and count what comes.

mod compare;
mod counts;
mod drive;
mod mount;
mod options;
mod shared;
mod streams;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use self::compare::Comparison;
pub use self::counts::{Counts, Snapshot};
pub use self::options::ConsumerOptions;
use self::shared::Shared;
use super::message_set::Image;
use mdist::net::{Poller, Waker};

/// What a mount sends besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Post = 0,
    Generic = 1,
}

/// What one thread tells those who ask.
#[derive(Default)]
struct Told {
    snapshot: Snapshot,
    /// Answers to the last question; `None`: it was not answered yet.
    images: Option<Vec<Held>>,
    marks: u64,
    why_cut: Vec<String>,
}

/// One item stream: whose, whether it is loaded, and what it holds.
type Held = (usize, bool, Image);

/// The line to one thread.
struct Desk {
    told: Mutex<Told>,
    answered: Condvar,
    want_images: AtomicBool,
    marks: AtomicU64,
    waker: Waker,
}

impl Desk {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Running clients. Dropped: they stop.
pub struct Consumer {
    shared: Arc<Shared>,
    desks: Vec<Arc<Desk>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Consumer {
    /// Connects and serves on threads of its own.
    ///
    /// # Errors
    /// There is nothing to do it with, or nothing to check by.
    pub fn start(options: ConsumerOptions) -> Result<Self> {
        ensure!(options.mounts > 0, "no mounts");
        ensure!(
            options.items.len() >= options.shares.distinct(),
            "{} items are wanted, the list has {}",
            options.shares.distinct(),
            options.items.len()
        );
        let threads = options.threads.clamp(1, options.mounts);
        let (mounts, request_rate) = (options.mounts, options.request_rate);
        let shared = Arc::new(Shared::new(options)?);
        let mut all = Self { shared: shared.clone(), desks: Vec::new(), threads: Vec::new() };
        for number in 0..threads {
            let mine = (number..mounts).step_by(threads);
            let rate = (request_rate / threads as u64).max(1);
            let (tell, told) = std::sync::mpsc::channel();
            let common = shared.clone();
            let body = move || {
                let poller = Poller::new()?;
                let desk = Arc::new(Desk {
                    told: Mutex::default(),
                    answered: Condvar::new(),
                    want_images: AtomicBool::new(false),
                    marks: AtomicU64::new(0),
                    waker: poller.waker(),
                });
                let _ = tell.send(desk.clone());
                drive::Drive::new(common, desk, poller, mine, rate)?.run()
            };
            let thread = std::thread::Builder::new().name(format!("client-{number}")).spawn(body);
            all.threads.push(thread.context("start a client's thread")?);
            all.desks.push(told.recv().context("a client's thread has no descriptors")?);
        }
        Ok(all)
    }

    /// What is known until a moment ago.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot { startup: Some(Duration::ZERO), ..Snapshot::default() };
        let count = self.desks.len();
        let mut mounts = Vec::new();
        for (number, desk) in self.desks.iter().enumerate() {
            let told = desk.told();
            all.counts.add(&told.snapshot.counts);
            all.wanted += told.snapshot.wanted;
            all.loaded += told.snapshot.loaded;
            all.latency.add(&told.snapshot.latency);
            all.post_latency.add(&told.snapshot.post_latency);
            all.generic_latency.add(&told.snapshot.generic_latency);
            all.startup = all.startup.zip(told.snapshot.startup).map(|(a, b)| a.max(b));
            mounts.extend(
                told.snapshot.mounts.iter().enumerate().map(|(place, n)| (place * count + number, *n)),
            );
        }
        mounts.sort_unstable();
        all.mounts = mounts.into_iter().map(|(_, updates)| updates).collect();
        all
    }

    /// Waits until all items are loaded.
    ///
    /// # Errors
    /// They are not within `timeout`; what is missing, and why mounts were cut.
    pub fn loaded(&self, timeout: Duration) -> Result<Snapshot> {
        let end = mdist::net::now() + timeout;
        loop {
            let seen = self.snapshot();
            if seen.wanted > 0 && seen.loaded == seen.wanted {
                return Ok(seen);
            }
            ensure!(
                mdist::net::now() < end && !self.threads.iter().all(JoinHandle::is_finished),
                "{} of {} item streams are loaded after {timeout:?}; {:?}; cut: {:?}",
                seen.loaded,
                seen.wanted,
                seen.counts,
                self.why_cut()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Forgets latencies: they are measured from here on.
    pub fn mark(&self) {
        for desk in &self.desks {
            let mark = desk.marks.fetch_add(1, Ordering::Relaxed) + 1;
            desk.waker.wake();
            let mut told = desk.told();
            while told.marks < mark && !self.threads.iter().all(JoinHandle::is_finished) {
                let waited = desk.answered.wait_timeout(told, Duration::from_millis(100));
                told = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
    }

    /// Why connections ended, in no order; emptied by this.
    #[must_use]
    pub fn why_cut(&self) -> Vec<String> {
        self.desks.iter().flat_map(|desk| std::mem::take(&mut desk.told().why_cut)).collect()
    }

    /// Logs out, ends and says what happened.
    ///
    /// # Errors
    /// What ended a thread before.
    pub fn stop(mut self) -> Result<Snapshot> {
        self.end()?;
        Ok(self.snapshot())
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.desks.iter().for_each(|desk| desk.waker.wake());
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow::anyhow!("a client's thread panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
