//! Settings of the point-to-point server.

use super::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The point-to-point server: serves consumers over RSSL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct P2ps {
    /// `address:port`s for consumers.
    pub listen: Vec<String>,
    /// Threads that serve mounts; 0: one per core.
    pub workers: u16,
    /// Last values are kept and served from here, unless a service says otherwise.
    pub cache: bool,
    /// Services that are served, by name; empty: all that upstreams offer.
    pub services: Vec<String>,
    /// Output buffers of [`P2ps::max_fragment`] bytes that every mount has for itself.
    pub guaranteed_output_buffers: u32,
    /// Output buffers that one mount may hold at most, borrowed ones included; beyond it is cut.
    pub max_output_buffers: u32,
    /// Buffers that all mounts together may borrow.
    pub pool_size: u32,
    /// Output of a mount is written when the timer fires or a buffer is full, instead of after every turn.
    pub timed_writes: bool,
    /// Period of that timer in milliseconds; 0: no timer.
    pub flush_interval_ms: u32,
    /// TCP_NODELAY on the mounts' sockets.
    pub tcp_no_delay: bool,
    /// Socket send buffer of a mount in KiB; unset: the system's.
    pub send_buffer_kib: Option<u32>,
    /// Socket receive buffer of a mount in KiB; unset: the system's.
    pub receive_buffer_kib: Option<u32>,
    /// Seconds of silence after which a mount is dropped, if it does not ask for less.
    pub ping_timeout_s: u8,
    /// The least that a mount may ask for.
    pub min_ping_timeout_s: u8,
    /// Largest frame payload that is announced, in bytes.
    pub max_fragment: u16,
    /// Compression towards mounts that offer it.
    pub compression: Compression,
    /// Mounts at most.
    pub max_mounts: u32,
    /// Items that one mount may have open; announced as OpenLimit. Unset: no limit.
    pub open_limit: Option<u32>,
    /// Requests that one mount may have outstanding; announced as OpenWindow. Unset: no limit.
    pub open_window: Option<u32>,
    /// Items that are asked for again per second after a source came back, over all sources; 0: as fast as they take them.
    pub recovery_rate: u32,
    /// Milliseconds for which an item that nobody wants any more is kept.
    pub close_hold_ms: u32,
    /// Built-in latency statistics.
    pub latency_calc: LatencyCalc,
    /// Where the data come from, in order of preference for services of one name.
    pub upstream: Vec<Upstream>,
    /// Exceptions for single services, by name.
    pub service: BTreeMap<String, P2psService>,
}

impl Default for P2ps {
    fn default() -> Self {
        Self {
            listen: vec!["0.0.0.0:14002".into()],
            workers: 1,
            cache: true,
            services: Vec::new(),
            guaranteed_output_buffers: 800,
            max_output_buffers: 32_000,
            pool_size: 32_000,
            timed_writes: false,
            flush_interval_ms: 20,
            tcp_no_delay: true,
            send_buffer_kib: None,
            receive_buffer_kib: None,
            ping_timeout_s: 60,
            min_ping_timeout_s: 20,
            max_fragment: 6144,
            compression: Compression::None,
            max_mounts: 5_000,
            open_limit: None,
            open_window: None,
            recovery_rate: 50_000,
            close_hold_ms: 0,
            latency_calc: LatencyCalc::default(),
            upstream: vec![Upstream::default()],
            service: BTreeMap::new(),
        }
    }
}

/// What to do with a mount that offers compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Nothing is compressed.
    #[default]
    None,
    /// zlib, level 6.
    Zlib,
    /// LZ4.
    Lz4,
}

/// Built-in latency statistics. Off, measuring costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LatencyCalc {
    /// The time of messages in this program is measured.
    pub enabled: bool,
    /// It is kept for each connection: mounts of a p2ps, source servers of a src_dist.
    pub per_connection: bool,
}

/// Where a point-to-point server gets its data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Upstream {
    /// What is there.
    pub kind: UpstreamKind,
    /// `host:port`s of one upstream and its substitutes, tried in turn; none for the backbone.
    pub hosts: Vec<String>,
    /// Services that are taken from it, by name; empty: all.
    pub services: Vec<String>,
}

/// What a point-to-point server can get its data from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamKind {
    /// Source distributors on the backbone (a "LAN" server).
    #[default]
    Backbone,
    /// An interactive provider.
    Provider,
    /// Another point-to-point server (a "POP").
    P2ps,
}

/// What is different for one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct P2psService {
    /// Last values are kept.
    pub cache: Option<bool>,
    /// Reads of its feed that are taken in a row before other work is done.
    pub read_bias: Option<u32>,
}

impl P2ps {
    /// How long output waits for more, if it waits.
    #[must_use]
    pub fn flush_timer(&self) -> Option<Duration> {
        let wait = Duration::from_millis(self.flush_interval_ms.into());
        (self.timed_writes && !wait.is_zero()).then_some(wait)
    }

    /// Whether last values of this service are kept.
    #[must_use]
    pub fn caches(&self, service: &str) -> bool {
        self.service.get(service).and_then(|s| s.cache).unwrap_or(self.cache)
    }

    /// Reads of this service's feed in a row; 1 to 1,000.
    #[must_use]
    pub fn read_bias(&self, service: &str) -> u32 {
        self.service.get(service).and_then(|s| s.read_bias).unwrap_or(8)
    }

    /// Whether this service is served at all.
    #[must_use]
    pub fn serves(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|s| s == service)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let no =
            |what: &str, may: &str| Err(Error::Value { setting: format!("p2ps.{what}"), may: may.into() });
        if self.listen.is_empty() {
            return no("listen", "at least one address:port");
        }
        if self.upstream.is_empty() {
            return no("upstream", "at least one upstream");
        }
        for (n, upstream) in self.upstream.iter().enumerate() {
            match upstream.kind {
                UpstreamKind::Backbone if !upstream.hosts.is_empty() => {
                    return no(
                        &format!("upstream[{n}].hosts"),
                        "empty for the backbone, whose sources find themselves",
                    );
                }
                UpstreamKind::Provider | UpstreamKind::P2ps if upstream.hosts.is_empty() => {
                    return no(&format!("upstream[{n}].hosts"), "at least one host:port");
                }
                _ => {}
            }
        }
        if self.guaranteed_output_buffers == 0 || self.guaranteed_output_buffers > self.max_output_buffers {
            return no("guaranteed-output-buffers", "1 to max-output-buffers");
        }
        if !(1_024..=65_000).contains(&self.max_fragment) {
            return no("max-fragment", "1024 to 65000 bytes");
        }
        if self.min_ping_timeout_s == 0 || self.ping_timeout_s < self.min_ping_timeout_s {
            return no("ping-timeout-s", "min-ping-timeout-s (above 0) to 255 seconds");
        }
        if self.flush_interval_ms > 1_000 {
            return no("flush-interval-ms", "0 to 1000");
        }
        if self.service.values().any(|s| s.read_bias.is_some_and(|b| !(1..=1_000).contains(&b))) {
            return no("service.*.read-bias", "1 to 1000");
        }
        Ok(())
    }
}
