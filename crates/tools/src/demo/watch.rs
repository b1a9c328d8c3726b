//! A topology subscriber that prints its events.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use utipc::{Change, Event, Topology};

use super::narrator::Narrator;

/// A subscriber, and the node whose view it sees.
pub(super) struct Watch {
    who: String,
    pub(super) topology: Topology,
}

impl Watch {
    pub(super) fn new(who: &str, topology: Topology) -> Self {
        Self { who: format!("({who})"), topology }
    }

    /// Prints events until each of `expected` has arrived, as many times as it is listed.
    pub(super) fn until(&mut self, out: &Narrator, limit: Duration, expected: &[Change]) -> Result<()> {
        let mut missing = expected.to_vec();
        for event in self.topology.events(limit) {
            let event = event.with_context(|| format!("watch the topology, {}", self.who))?;
            tell(out, &self.who, &event);
            if let Some(at) = missing.iter().position(|change| *change == event.change) {
                missing.swap_remove(at);
            }
            if missing.is_empty() {
                return Ok(());
            }
        }
        bail!(
            "watch the topology, {}: not seen within {limit:?}: {missing:?} (is the machine overloaded?)",
            self.who
        )
    }

    /// Prints events up to the first service that comes up.
    pub(super) fn until_service_up(&mut self, out: &Narrator, limit: Duration) -> Result<Event> {
        for event in self.topology.events(limit) {
            let event = event.with_context(|| format!("watch the topology, {}", self.who))?;
            tell(out, &self.who, &event);
            if event.change == Change::ServiceUp {
                return Ok(event);
            }
        }
        bail!(
            "watch the topology, {}: no service came up within {limit:?} (is the machine overloaded?)",
            self.who
        )
    }
}

fn tell(out: &Narrator, who: &str, event: &Event) {
    let (found, port) = (event.found, event.port);
    match event.change {
        Change::ServiceUp => out.say(who, format_args!("service {found} is up, at socket {port}")),
        Change::ServiceDown => out.say(who, format_args!("service {found} is down, it was at socket {port}")),
        Change::NodeUp(node) => out.say(who, format_args!("node {node} is up")),
        Change::NodeDown(node) => out.say(who, format_args!("node {node} is down")),
        Change::LinkUp(node) => out.say(who, format_args!("a link to node {node} is up")),
        Change::LinkDown(node) => out.say(who, format_args!("the link to node {node} is down")),
        other => out.say(who, format_args!("{other:?}")),
    }
}
