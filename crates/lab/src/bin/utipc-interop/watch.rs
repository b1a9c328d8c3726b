//! Counts changes of other nodes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use utipc::{Change, Event, Node, NodeAddr};

use crate::args::{Args, Refusal};
use crate::{Answer, lock};

/// Changes that are kept, with their times.
const KEPT: usize = 200;

/// Interval in which a waiting request checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Counts other nodes that appeared and disappeared since the node started.
#[derive(Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    ups: u64,
    downs: u64,
    log: VecDeque<(f64, &'static str, NodeAddr)>,
}

impl Watch {
    /// Follows the topology events of `node` in a thread.
    pub(crate) fn follow(self: &Arc<Self>, node: &Node) -> Result<(), Refusal> {
        let node = node.clone();
        let mut topology = node.topology()?;
        topology.nodes()?;
        let watch = Arc::clone(self);
        std::thread::spawn(move || {
            loop {
                let (change, other) = match topology.next(Duration::from_secs(3600)) {
                    Ok(Some(Event { change: Change::NodeUp(other), .. })) => ("published", other),
                    Ok(Some(Event { change: Change::NodeDown(other), .. })) => ("withdrawn", other),
                    Ok(_) => continue,
                    Err(error) => return tracing::error!(%error, "the watch of nodes has ended"),
                };
                // The kernel's own address is set some time after its node is up.
                if other != node.address() {
                    lock(&watch.seen).note(monotonic(), change, other);
                }
            }
        });
        Ok(())
    }

    pub(crate) fn counts(&self) -> Answer {
        let seen = lock(&self.seen);
        let log: Vec<_> = seen.log.iter().map(|(at, change, node)| json!([at, change, node.0])).collect();
        Ok(json!({"ups": seen.ups, "downs": seen.downs, "log": log}))
    }

    pub(crate) fn wait_up(&self, args: &Args) -> Answer {
        let end = Instant::now() + args.milliseconds("timeout_ms", 10_000)?;
        loop {
            let (ups, downs) = {
                let seen = lock(&self.seen);
                (seen.ups, seen.downs)
            };
            if ups > downs {
                return Ok(json!({}));
            }
            if Instant::now() > end {
                return Err(Refusal::TIMED_OUT);
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// The system's monotonic clock in seconds, which the processes of a row share.
pub(crate) fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

impl Seen {
    fn note(&mut self, at: f64, change: &'static str, node: NodeAddr) {
        match change {
            "published" => self.ups += 1,
            _ => self.downs += 1,
        }
        self.log.push_back((at, change, node));
        if self.log.len() > KEPT {
            self.log.pop_front();
        }
    }
}
