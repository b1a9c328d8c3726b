//! A consumer for load tests: many mounts, each with a connection of its own, that request items and count what they
//! receive.

mod compare;
mod counts;
mod disconnect;
mod event_loop;
mod mount;
mod mount_state;
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
pub use self::disconnect::Disconnect;
pub use self::options::ConsumerOptions;
use self::shared::Shared;
use super::message_set::Image;
use mdist::net::{Poller, Waker};

/// Messages that a mount sends besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutgoingKind {
    Post = 0,
    Generic = 1,
}

/// The last report of one thread about its mounts.
#[derive(Default)]
struct Report {
    snapshot: Snapshot,
    /// Images of all streams; `None` until the thread has answered the last request for them.
    images: Option<Vec<StreamImage>>,
    /// The last mark that the thread has processed.
    marks: u64,
    disconnects: Vec<Disconnect>,
    /// Services of the server, if the wanted one is not among them.
    services_instead: Option<Vec<String>>,
}

/// Place in the item list, whether it is loaded, and image of one item stream.
type StreamImage = (usize, bool, Image);

/// The state that one thread shares with the [`Consumer`].
struct ThreadLink {
    report: Mutex<Report>,
    /// Signalled after each report.
    reported: Condvar,
    /// Whether the next report must have images.
    want_images: AtomicBool,
    /// Marks so far: see [`Consumer::mark`].
    marks: AtomicU64,
    waker: Waker,
}

impl ThreadLink {
    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Running mounts; they stop when this is dropped.
pub struct Consumer {
    shared: Arc<Shared>,
    links: Vec<Arc<ThreadLink>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Consumer {
    /// Starts threads that connect the mounts and serve them.
    ///
    /// # Errors
    /// No mounts, fewer items than the shares need, updates without a field to check, or no thread or descriptor left.
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
        let mut all = Self { shared: shared.clone(), links: Vec::new(), threads: Vec::new() };
        for number in 0..threads {
            let numbers = (number..mounts).step_by(threads);
            let rate = (request_rate / threads as u64).max(1);
            let (send, receive) = std::sync::mpsc::channel();
            let shared = shared.clone();
            let body = move || {
                let poller = Poller::new()?;
                let link = Arc::new(ThreadLink {
                    report: Mutex::default(),
                    reported: Condvar::new(),
                    want_images: AtomicBool::new(false),
                    marks: AtomicU64::new(0),
                    waker: poller.waker(),
                });
                let _ = send.send(link.clone());
                event_loop::EventLoop::new(shared, link, poller, numbers, rate)?.run()
            };
            let thread = std::thread::Builder::new().name(format!("client-{number}")).spawn(body);
            all.threads.push(thread.context("start a client's thread")?);
            all.links.push(receive.recv().context("create the poller of a client's thread")?);
        }
        Ok(all)
    }

    /// The counts of all mounts, a few milliseconds old at most.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot { startup: Some(Duration::ZERO), ..Snapshot::default() };
        let count = self.links.len();
        let mut mounts = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            let report = link.report();
            all.counts.add(&report.snapshot.counts);
            all.wanted += report.snapshot.wanted;
            all.loaded += report.snapshot.loaded;
            all.latency.add(&report.snapshot.latency);
            all.post_latency.add(&report.snapshot.post_latency);
            all.generic_latency.add(&report.snapshot.generic_latency);
            all.startup = all.startup.zip(report.snapshot.startup).map(|(a, b)| a.max(b));
            mounts.extend(
                report.snapshot.mounts.iter().enumerate().map(|(place, n)| (place * count + number, *n)),
            );
        }
        mounts.sort_unstable();
        all.mounts = mounts.into_iter().map(|(_, updates)| updates).collect();
        all
    }

    /// Waits until all items are loaded.
    ///
    /// # Errors
    /// They are not loaded within `timeout`: the error has the counts, and the reasons of disconnects.
    pub fn loaded(&self, timeout: Duration) -> Result<Snapshot> {
        let end = mdist::net::now() + timeout;
        loop {
            let seen = self.snapshot();
            if seen.wanted > 0 && seen.loaded == seen.wanted {
                return Ok(seen);
            }
            ensure!(
                mdist::net::now() < end && !self.threads.iter().all(JoinHandle::is_finished),
                "{} of {} item streams are loaded after {timeout:?}; {:?}; disconnects: {:?}",
                seen.loaded,
                seen.wanted,
                seen.counts,
                self.disconnect_reasons()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Discards the latencies so far, so that they are measured from here on.
    pub fn mark(&self) {
        for link in &self.links {
            let mark = link.marks.fetch_add(1, Ordering::Relaxed) + 1;
            link.waker.wake();
            let mut report = link.report();
            while report.marks < mark && !self.threads.iter().all(JoinHandle::is_finished) {
                let waited = link.reported.wait_timeout(report, Duration::from_millis(100));
                report = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
    }

    /// Takes the ends of connections since the last call, the first 100 of each thread, in any order.
    #[must_use]
    pub fn disconnects(&self) -> Vec<Disconnect> {
        self.links.iter().flat_map(|link| std::mem::take(&mut link.report().disconnects)).collect()
    }

    /// Like [`Consumer::disconnects`], as text.
    #[must_use]
    pub fn disconnect_reasons(&self) -> Vec<String> {
        self.disconnects().iter().map(ToString::to_string).collect()
    }

    /// The names of the server's services, if it has told them and the wanted service is not among them.
    #[must_use]
    pub fn services_instead(&self) -> Option<Vec<String>> {
        self.links.iter().find_map(|link| link.report().services_instead.clone())
    }

    /// Stops all mounts and returns their last counts.
    ///
    /// # Errors
    /// The error that ended a thread before.
    pub fn stop(mut self) -> Result<Snapshot> {
        self.end()?;
        Ok(self.snapshot())
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.links.iter().for_each(|link| link.waker.wake());
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
