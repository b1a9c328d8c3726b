//! The thread that reads the daemon's state.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use utipc::daemon::Meter;

use super::history::History;
use super::snapshot::Snapshot;

/// Interval of the rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time after its last request for which a page counts as open.
const VIEWED: Duration = Duration::from_secs(10);

/// The latest snapshot, for the threads that serve it.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    snapshot: Arc<Snapshot>,
    /// Last request of a page.
    viewed: Option<Instant>,
}

impl Latest {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    /// A page is open: list sockets too.
    pub(super) fn note_viewer(&self) {
        self.state().viewed = Some(Instant::now());
    }

    fn is_viewed(&self) -> bool {
        self.state().viewed.is_some_and(|at| at.elapsed() < VIEWED)
    }
}

/// The running thread; it ends when dropped.
pub(super) struct Collector {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(super) fn start(meter: Meter) -> Result<(Self, Latest)> {
        let latest = Latest::default();
        let (stop, stopped) = mpsc::channel();
        let rounds = Rounds { meter, latest: latest.clone(), started: SystemTime::now() };
        let mut history = History::default();
        let thread = std::thread::Builder::new().name("metrics-ask".to_owned()).spawn(move || {
            loop {
                rounds.round(&mut history);
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, latest))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Rounds {
    meter: Meter,
    latest: Latest,
    started: SystemTime,
}

impl Rounds {
    /// Replaces the snapshot, or marks it as outdated.
    fn round(&self, history: &mut History) {
        match Snapshot::take(&self.meter, self.latest.is_viewed()) {
            Ok(mut snapshot) => {
                history.update(&snapshot);
                snapshot.started = Some(self.started);
                snapshot.history = Arc::new(history.clone());
                self.latest.state().snapshot = Arc::new(snapshot);
            }
            Err(why) => {
                let mut state = self.latest.state();
                if state.snapshot.is_current || state.snapshot.taken.is_none() {
                    tracing::warn!("metrics are outdated: {why:#} (the collector tries again every second)");
                }
                let last = Snapshot { is_current: false, ..(*state.snapshot).clone() };
                state.snapshot = Arc::new(last);
            }
        }
    }
}
