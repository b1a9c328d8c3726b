//! Settings of the source distributor.

use super::{Error, LatencyCalc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source distributor: connects sources and puts their data on the backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SrcDist {
    /// `address:port`s for publishers that dial us (non-interactive providers).
    pub listen: Vec<String>,
    /// Providers that we dial.
    pub provider: Vec<Provider>,
    /// Services that are announced, by name; empty: all that sources offer.
    pub services: Vec<String>,
    /// TCP_NODELAY on the sockets of sources.
    pub tcp_no_delay: bool,
    /// Seconds of silence after which a source is dropped.
    pub ping_timeout_s: u8,
    /// Items that are asked for again per second after a source came back; 0: as fast as it takes them.
    pub recovery_rate: u32,
    /// Milliseconds for which an item that no sink wants any more is kept.
    pub close_hold_ms: u32,
    /// Items of one service that consumers may wait for before a publisher publishes them; further requests are refused.
    pub max_unpublished: u32,
    /// Where posts for items of publishers go.
    pub posts: Posts,
    /// Built-in latency statistics.
    pub latency_calc: LatencyCalc,
    /// What holds for services that have no entry, or no such setting, in `service`.
    pub defaults: SourceServiceSettings,
    /// Exceptions for single services, by name.
    pub service: BTreeMap<String, SourceService>,
}

impl Default for SrcDist {
    fn default() -> Self {
        Self {
            listen: vec!["0.0.0.0:14003".into()],
            provider: Vec::new(),
            services: Vec::new(),
            tcp_no_delay: true,
            ping_timeout_s: 60,
            recovery_rate: 50_000,
            close_hold_ms: 0,
            max_unpublished: 1_000_000,
            posts: Posts::default(),
            latency_calc: LatencyCalc::default(),
            defaults: SourceServiceSettings::default(),
            service: BTreeMap::new(),
        }
    }
}

/// An interactive provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Provider {
    /// `host:port`s of it and its substitutes, tried in turn.
    pub hosts: Vec<String>,
    /// Services that are taken from it, by name; empty: all.
    pub services: Vec<String>,
}

/// Where posts for items of publishers go; providers that were dialled always get theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Posts {
    /// Into the distributor's cache, and from there to all who have the item; it acknowledges them. Spec: rssl.md §6.1
    #[default]
    Cache,
    /// To the publisher, on its login stream; it has to acknowledge them and to publish what becomes of them.
    Publisher,
}

/// What a source distributor does when the window of one sink is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// The feed waits for at most the hold time, then the sink is cut.
    #[default]
    Hold,
    /// The sink is cut at once.
    Cut,
}

/// How a service is put on the backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceServiceSettings {
    /// Last values are kept.
    pub cache: bool,
    /// Longest time that a message waits to be packed with others, in milliseconds; 0: sent at the end of the turn.
    pub flush_interval_ms: u32,
    /// What happens when a sink does not keep up.
    pub on_full: OnFull,
    /// The longest that all wait for one sink, in milliseconds.
    pub hold_ms: u32,
    /// KiB on their way to one sink before its window is full.
    pub window_kib: u32,
}

impl Default for SourceServiceSettings {
    fn default() -> Self {
        Self { cache: true, flush_interval_ms: 0, on_full: OnFull::Hold, hold_ms: 200, window_kib: 8 * 1024 }
    }
}

/// What is different for one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceService {
    /// See [`SourceServiceSettings::cache`].
    pub cache: Option<bool>,
    /// See [`SourceServiceSettings::flush_interval_ms`].
    pub flush_interval_ms: Option<u32>,
    /// See [`SourceServiceSettings::on_full`].
    pub on_full: Option<OnFull>,
    /// See [`SourceServiceSettings::hold_ms`].
    pub hold_ms: Option<u32>,
    /// See [`SourceServiceSettings::window_kib`].
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
        let no = |what: &str, may: &str| {
            Err(Error::Value { setting: format!("src-dist.{what}"), may: may.into() })
        };
        if let Some(n) = self.provider.iter().position(|p| p.hosts.is_empty()) {
            return no(&format!("provider[{n}].hosts"), "at least one host:port");
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
