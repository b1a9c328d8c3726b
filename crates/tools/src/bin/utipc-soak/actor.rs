//! One process: servers of every kind, a subscriber, and a client of everybody, until its time has come.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use utipc::{Engine, Node};

use crate::message::Random;
use crate::roles;
use crate::tally::Book;

/// Time between two lines to the run.
const TELL: Duration = Duration::from_millis(500);

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manner {
    /// Every socket closed, every thread ended.
    Orderly,
    /// In the middle of whatever it does.
    Exit,
    /// By kill -9; the run sees to it.
    Killed,
}

/// What a process is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Life {
    /// The daemon's socket
    #[arg(long)]
    pub(crate) socket: PathBuf,
    /// Its place among the processes, which is the instance that it serves
    #[arg(long)]
    pub(crate) place: u32,
    /// Places
    #[arg(long)]
    pub(crate) places: u32,
    /// Number of this life; no other process of the run has it
    #[arg(long)]
    pub(crate) number: u64,
    /// Milliseconds that it lasts
    #[arg(long)]
    pub(crate) lasts: u64,
    /// How it ends
    #[arg(long)]
    pub(crate) manner: Manner,
}

/// What the threads of a process share.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) life: Life,
    pub(crate) node: Node,
    pub(crate) book: Arc<Book>,
    /// Set when it is to come to its end.
    over: Arc<AtomicBool>,
    flows: Arc<AtomicU64>,
}

impl Actor {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A flow that nobody else has.
    pub(crate) fn flow(&self) -> u64 {
        self.life.number << 24 | self.flows.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn random(&self) -> Random {
        Random(crate::message::mixed(self.flow()))
    }
}

/// Lives the life.
pub(crate) fn live(life: &Life) -> Result<()> {
    // The other end is the run's: nobody lives longer than it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
    let node = Node::builder().engine(Engine::Daemon).daemon_at(&life.socket).start();
    let node = node.context("attach to the daemon")?;
    let actor =
        Actor { life: life.clone(), node, book: Arc::default(), over: Arc::default(), flows: Arc::default() };
    let end = Instant::now() + Duration::from_millis(life.lasts);
    let crowd = actor.clone();
    let servers = roles::serve(&crowd)?;
    let client = std::thread::spawn(move || roles::wander(&crowd));
    while Instant::now() < end {
        std::thread::sleep(TELL.min(end.saturating_duration_since(Instant::now())));
        actor.book.tell();
    }
    match life.manner {
        // Whoever is to be killed goes on until it is.
        Manner::Killed => loop {
            std::thread::sleep(TELL);
            actor.book.tell();
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
    actor.book.tell();
    Ok(())
}
