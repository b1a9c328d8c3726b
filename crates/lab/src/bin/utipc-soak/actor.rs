//! One process of the run: servers of every kind, a subscriber, and a client of all other processes.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use utipc::Node;
use utipc_bench_kit::numbered::{Random, mixed};

use crate::daemon::attach;
use crate::roles;
use crate::tally::Book;

/// Interval between two reports to the run.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// The way in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    /// By itself: every socket closed, every thread ended.
    Orderly,
    /// By itself, in the middle of its work.
    Exit,
    /// By kill -9, from the run.
    Killed,
}

/// The task of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Life {
    /// The daemon's socket.
    pub(crate) socket: PathBuf,
    /// Its number among the processes, which is the instance that it serves.
    pub(crate) place: u32,
    /// Number of processes.
    pub(crate) places: u32,
    /// Number of this life, unique in the run.
    pub(crate) number: u64,
    pub(crate) lasts: Duration,
    pub(crate) manner: Manner,
}

/// State shared by the threads of a process.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) life: Life,
    pub(crate) node: Node,
    pub(crate) book: Arc<Book>,
    /// Set when the process is to end.
    over: Arc<AtomicBool>,
    flows: Arc<AtomicU64>,
}

impl Actor {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A flow that no other process uses.
    pub(crate) fn flow(&self) -> u64 {
        self.life.number << 24 | self.flows.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn random(&self) -> Random {
        Random(mixed(self.flow()))
    }
}

/// Runs until the end of its life.
pub(crate) fn live(life: Life) -> Result<()> {
    // The run has the other end of the input: if it ends, this process ends too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
    let node = attach(&life.socket)?;
    let actor = Actor { life, node, book: Arc::default(), over: Arc::default(), flows: Arc::default() };
    let end = Instant::now() + actor.life.lasts;
    let crowd = actor.clone();
    let servers = roles::serve(&crowd)?;
    let client = std::thread::spawn(move || roles::run_client(&crowd));
    while Instant::now() < end {
        std::thread::sleep(REPORT_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        actor.book.report();
    }
    match actor.life.manner {
        // A process that is to be killed runs until then.
        Manner::Killed => loop {
            std::thread::sleep(REPORT_INTERVAL);
            actor.book.report();
        },
        Manner::Exit => std::process::exit(0),
        Manner::Orderly => {}
    }
    actor.over.store(true, Ordering::SeqCst);
    if client.join().is_err() {
        actor.book.violation("the client's thread panicked".to_owned());
    }
    for server in servers {
        server.end(&actor)?;
    }
    actor.book.report();
    Ok(())
}
