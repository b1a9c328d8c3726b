//! `--top`: prints bindings as they appear and disappear.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{End, Event, Task, unwritten};

/// Interval in which signals are checked.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(task: Task<'_>) -> Result<End> {
    let services = task.args.services().context("--top watches services, not a socket (leave --id out)")?;
    let mut topology = task.node.topology()?;
    topology.services(services)?;
    let mut left = task.args.count;
    while left != Some(0) {
        if let Ok(Event::Signal(signal)) = task.events.try_recv() {
            return Ok(End::BySignal(signal));
        }
        let Some(event) = topology.next(LOOK)? else { continue };
        let what = if event.is_up() { "up" } else { "down" };
        let mut out = std::io::stdout().lock();
        if let Err(error) =
            writeln!(out, "{} is {what} at {}", event.found, event.port).and_then(|()| out.flush())
        {
            return match unwritten(error) {
                Event::Failed(error) => Err(error),
                Event::Signal(signal) => Ok(End::BySignal(signal)),
                _ => Ok(End::Well),
            };
        }
        left = left.map(|left| left - 1);
    }
    Ok(End::Well)
}
