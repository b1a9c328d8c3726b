//! Checks that the events of topology subscribers match the binding tables.

use std::collections::BTreeMap;

use utipc_core::topology::{EventKind, FOREVER, Filter, Subscription, TopologyEvent};
use utipc_core::{Binding, PortId, ServiceRange};

use crate::check::Broken;

/// Service types that every subscriber watches.
pub(crate) const WATCHED: [u32; 4] = [0, 1000, 1001, 1002];

/// A subscription to every binding of `service`.
pub(crate) fn subscription(service: u32) -> Subscription {
    let range = ServiceRange::new(service, 0, u32::MAX);
    Subscription {
        range,
        timeout_ms: FOREVER,
        filter: Filter::PORTS,
        handle: u64::from(service).to_le_bytes(),
    }
}

/// The bindings that one subscriber has got events for. A socket may bind the same range several times.
#[derive(Debug, Default)]
pub(crate) struct ReportedBindings(BTreeMap<(ServiceRange, PortId), u32>);

impl ReportedBindings {
    pub(crate) fn apply(&mut self, event: &TopologyEvent) -> Result<(), Broken> {
        let key = (event.found, event.port);
        let count = self.0.entry(key).or_default();
        match event.kind {
            EventKind::Published => *count += 1,
            EventKind::Withdrawn if *count > 0 => {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&key);
                }
            }
            EventKind::Withdrawn => {
                return Err(Broken::Topology(format!(
                    "{} of {} was withdrawn without having been published",
                    event.found, event.port
                )));
            }
            EventKind::Timeout => return Err(Broken::Topology("unexpected timeout".into())),
        }
        Ok(())
    }

    /// Compares the bindings with the table of the node that was subscribed to.
    pub(crate) fn check(&self, table: &[Binding]) -> Result<(), Broken> {
        let mut truth: BTreeMap<(ServiceRange, PortId), u32> = BTreeMap::new();
        for binding in table.iter().filter(|b| WATCHED.contains(&b.range.service)) {
            *truth.entry((binding.range, binding.port)).or_default() += 1;
        }
        if truth == self.0 {
            return Ok(());
        }
        let differs = truth.iter().find(|(k, n)| self.0.get(k) != Some(n));
        let differs = differs.or_else(|| self.0.iter().find(|(k, n)| truth.get(k) != Some(n)));
        Err(Broken::Topology(match differs {
            Some(((range, port), _)) => format!(
                "{range} of {port}: {} events, {} bindings",
                self.0.get(&(*range, *port)).unwrap_or(&0),
                truth.get(&(*range, *port)).unwrap_or(&0)
            ),
            None => "the tables differ".into(),
        }))
    }
}
