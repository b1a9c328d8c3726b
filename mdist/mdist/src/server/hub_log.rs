//! The log of what changes at the hub: services that are up or down, items that are current again, and a full cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hub::{Directory, Hub};
use crate::net::Now;

/// Time without a further recovered item after which the count is logged.
const QUIET: Now = Now::from_secs(1);

/// What was logged so far.
#[derive(Debug, Default)]
pub(super) struct HubLog {
    directory: Option<Arc<Directory>>,
    /// Whether each known service is up.
    services: BTreeMap<String, bool>,
    /// Recovered items at the last call, and those of them that were logged.
    recovered: u64,
    logged: u64,
    /// Time of the last change of `recovered`.
    changed_at: Now,
    /// Whether the log has that the cache is full.
    cache_is_full: bool,
}

impl HubLog {
    /// Logs what has changed since the last call.
    pub(super) fn report(&mut self, now: Now, hub: &Hub) {
        let directory = hub.services();
        if !self.directory.as_ref().is_some_and(|last| Arc::ptr_eq(last, directory)) {
            self.directory = Some(directory.clone());
            self.report_services(directory);
        }
        if hub.stats().evictions > 0 && !std::mem::replace(&mut self.cache_is_full, true) {
            tracing::warn!(
                "the cache exceeds cache.total-mib: values of items that nobody has open are dropped, the least recently used first; further ones are only counted (hub_cache_evictions)"
            );
        }
        let recovered = hub.recovered();
        if recovered != self.recovered {
            (self.recovered, self.changed_at) = (recovered, now);
        } else if recovered > self.logged && now.saturating_sub(self.changed_at) >= QUIET {
            tracing::info!(items = recovered - self.logged, "suspect items are current again");
            self.logged = recovered;
        }
    }

    fn report_services(&mut self, directory: &Directory) {
        let services = directory.services.iter().filter_map(|service| {
            let up = service.state.as_ref().is_some_and(|state| state.up);
            Some((service.info.as_ref()?.name.clone(), up))
        });
        let services: BTreeMap<String, bool> = services.collect();
        for (service, up) in &services {
            match (self.services.get(service), up) {
                (None | Some(false), true) => tracing::info!(service, "the service is up"),
                (Some(true), false) => tracing::warn!(service, "the service is down"),
                _ => {}
            }
        }
        for service in self.services.keys().filter(|name| !services.contains_key(*name)) {
            tracing::warn!(service, "the service is gone");
        }
        self.services = services;
    }
}
