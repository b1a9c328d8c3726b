//! Settings of the source distributor.

use super::{Admission, Error, LatencyCalc, check_hosts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

rssl::with_defaults! {
    /// The source distributor: connects to publishers and puts their data on the backbone.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct SrcDist {
        /// `address:port` of each listener for non-interactive publishers.
        pub listen: Vec<String> = vec!["127.0.0.1:14003".into()],
        /// Which publishers may connect.
        pub admission: Admission = Admission::default(),
        /// Interactive providers to connect to.
        pub provider: Vec<Provider> = Vec::new(),
        /// Services to announce, by name; empty: all that publishers offer.
        pub services: Vec<String> = Vec::new(),
        /// TCP_NODELAY on the publishers' sockets.
        pub tcp_no_delay: bool = true,
        /// Silence after which a publisher is disconnected, seconds.
        pub ping_timeout_s: u8 = 60,
        /// Maximum number of items requested again per second after a recovery; 0: no limit.
        pub recovery_rate: u32 = 50_000,
        /// Time that an item without sinks stays open upstream, ms.
        pub close_hold_ms: u32 = 0,
        /// Maximum number of unpublished items of one service that consumers may wait for; further requests are
        /// refused.
        pub max_unpublished: u32 = 1_000_000,
        /// Destination of posts for items of non-interactive publishers.
        pub posts: Posts = Posts::default(),
        /// Maximum amount of memory for packets that are kept for stalled sinks, over all services, MiB; 0: feeds wait
        /// for stalled sinks.
        pub stall_mib: u32 = 64,
        /// Built-in latency statistics.
        pub latency_calc: LatencyCalc = LatencyCalc::default(),
        /// Settings of services without an entry, or without that setting, in `service`.
        pub defaults: SourceServiceSettings = SourceServiceSettings::default(),
        /// Exceptions for single services, by name.
        pub service: BTreeMap<String, SourceService> = BTreeMap::new(),
    }
}

/// An interactive provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Provider {
    /// `host:port` of the provider and its substitutes, tried in turn.
    pub hosts: Vec<String>,
    /// Services to accept from it, by name; empty: all.
    pub services: Vec<String>,
}

/// Destination of posts for items of non-interactive publishers. Posts for items of interactive providers
/// always go to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Posts {
    /// Refused: a post changes an item for all its consumers.
    #[default]
    Refuse,
    /// Into the distributor's cache, and from there to all holders of the item; the distributor acknowledges them.
    /// Spec: rssl.md §6.1
    Cache,
    /// To the publisher, on its login stream; it has to acknowledge them and to publish the result.
    Publisher,
}

/// Reaction of a source distributor to a full window of one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// The feed waits at most the hold time, then the sink is disconnected from its feeds and has to resynchronise.
    #[default]
    Hold,
    /// The sink is disconnected from its feeds at once, and has to resynchronise.
    Cut,
}

rssl::with_defaults! {
    /// Settings for sending a service over the backbone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct SourceServiceSettings {
        /// Caches last values.
        pub cache: bool = true,
        /// Longest time that a message waits to be packed with others, ms; 0: until the end of the turn.
        pub flush_interval_ms: u32 = 0,
        /// Reaction to a full window of a sink.
        pub on_full: OnFull = OnFull::Hold,
        /// Longest time that the feed waits for one sink, ms.
        pub hold_ms: u32 = 200,
        /// Window: most data under way to one sink, KiB.
        pub window_kib: u32 = 8 * 1024,
    }
}

/// Settings of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceService {
    /// Replaces [`SourceServiceSettings::cache`].
    pub cache: Option<bool>,
    /// Replaces [`SourceServiceSettings::flush_interval_ms`].
    pub flush_interval_ms: Option<u32>,
    /// Replaces [`SourceServiceSettings::on_full`].
    pub on_full: Option<OnFull>,
    /// Replaces [`SourceServiceSettings::hold_ms`].
    pub hold_ms: Option<u32>,
    /// Replaces [`SourceServiceSettings::window_kib`].
    pub window_kib: Option<u32>,
}

impl SrcDist {
    /// The settings of a service.
    #[must_use]
    pub fn service(&self, name: &str) -> SourceServiceSettings {
        let own = self.service.get(name).copied().unwrap_or_default();
        let all = self.defaults;
        SourceServiceSettings {
            cache: own.cache.unwrap_or(all.cache),
            flush_interval_ms: own.flush_interval_ms.unwrap_or(all.flush_interval_ms),
            on_full: own.on_full.unwrap_or(all.on_full),
            hold_ms: own.hold_ms.unwrap_or(all.hold_ms),
            window_kib: own.window_kib.unwrap_or(all.window_kib),
        }
    }

    /// Whether this service is announced.
    #[must_use]
    pub fn announces(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|s| s == service)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let no = |what: &str, allowed: &str| {
            Err(Error::Value { setting: format!("src-dist.{what}"), allowed: allowed.into() })
        };
        self.admission.check("src-dist")?;
        if let Some(n) = self.provider.iter().position(|p| p.hosts.is_empty()) {
            return no(&format!("provider[{n}].hosts"), "at least one host:port");
        }
        for (n, provider) in self.provider.iter().enumerate() {
            check_hosts(&format!("src-dist.provider[{n}].hosts"), &provider.hosts)?;
        }
        if self.ping_timeout_s == 0 {
            return no("ping-timeout-s", "1 to 255 seconds");
        }
        let services = self.service.keys().map(|name| (name.as_str(), self.service(name)));
        for (name, s) in services.chain([("defaults", self.defaults)]) {
            if s.flush_interval_ms > 1_000 {
                return no(&format!("service.{name}.flush-interval-ms"), "0 to 1000");
            }
            if s.window_kib < 128 {
                return no(&format!("service.{name}.window-kib"), "128 or more: two multicasts must fit");
            }
        }
        Ok(())
    }
}
