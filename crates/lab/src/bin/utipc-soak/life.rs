//! The life of one process.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use utipc::{Engine, Node};

use crate::actor::{Actor, Life, Manner};
use crate::roles;

/// Interval between two reports to the run.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Runs until the end of its life.
pub(crate) fn live(life: &Life) -> Result<()> {
    // The run has the other end of the input: if it ends, this process ends too.
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
    let client = std::thread::spawn(move || roles::run_client(&crowd));
    while Instant::now() < end {
        std::thread::sleep(REPORT_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        actor.book.report();
    }
    match life.manner {
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
