//! One process of the run: servers of every kind, a subscriber, and a client of all other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use utipc::Node;

use crate::message::Random;
use crate::tally::Book;

/// The way in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manner {
    /// By itself: every socket closed, every thread ended.
    Orderly,
    /// By itself, in the middle of its work.
    Exit,
    /// By kill -9, from the run.
    Killed,
}

/// The arguments of a process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Life {
    /// The daemon's socket
    #[arg(long)]
    pub(crate) socket: PathBuf,
    /// Its number among the processes, which is the instance that it serves
    #[arg(long)]
    pub(crate) place: u32,
    /// Number of processes
    #[arg(long)]
    pub(crate) places: u32,
    /// Number of this life, unique in the run
    #[arg(long)]
    pub(crate) number: u64,
    /// Duration, milliseconds
    #[arg(long)]
    pub(crate) lasts: u64,
    /// The way in which it ends
    #[arg(long)]
    pub(crate) manner: Manner,
}

/// State shared by the threads of a process.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) life: Life,
    pub(crate) node: Node,
    pub(crate) book: Arc<Book>,
    /// Set when the process is to end.
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) flows: Arc<AtomicU64>,
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
        Random(crate::message::mixed(self.flow()))
    }
}
