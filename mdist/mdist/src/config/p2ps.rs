//! Settings of the point-to-point server.

use super::{Admission, Error, check_hosts};
use crate::net::LoginLimits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

rssl::with_defaults! {
    /// The point-to-point server: serves consumers over RSSL.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct P2ps {
        /// `address:port` of each listener for consumers.
        pub listen: Vec<String> = vec!["127.0.0.1:14002".into()],
        /// Who may connect.
        pub admission: Admission = Admission::default(),
        /// Accepts posts of consumers; otherwise they are refused.
        pub posts: bool = false,
        /// Threads that serve mounts; 0: one per core.
        pub workers: u16 = 1,
        /// Caches last values and serves images from the cache, unless configured for a service.
        pub cache: bool = true,
        /// Services to serve, by name; empty: all that upstreams offer.
        pub services: Vec<String> = Vec::new(),
        /// Output buffers of [`P2ps::max_fragment`] bytes reserved for every mount.
        pub guaranteed_output_buffers: u32 = 800,
        /// Maximum amount of output buffers of one mount, including borrowed ones. A mount that needs more is
        /// disconnected.
        pub max_output_buffers: u32 = 32_000,
        /// Buffers that all mounts together may borrow.
        pub pool_size: u32 = 32_000,
        /// Writes output of a mount when the timer fires or a buffer is full, instead of after every turn.
        pub timed_writes: bool = false,
        /// Period of that timer, ms; 0: no timer.
        pub flush_interval_ms: u32 = 20,
        /// TCP_NODELAY on the mounts' sockets.
        pub tcp_no_delay: bool = true,
        /// Socket send buffer of a mount, KiB; unset: the system's default.
        pub send_buffer_kib: Option<u32> = None,
        /// Socket receive buffer of a mount, KiB; unset: the system's default.
        pub receive_buffer_kib: Option<u32> = None,
        /// Silence after which a mount is disconnected, unless it asks for less, seconds.
        pub ping_timeout_s: u8 = 60,
        /// Least ping timeout that a mount may ask for, seconds.
        pub min_ping_timeout_s: u8 = 20,
        /// Largest frame payload that is announced, bytes.
        pub max_fragment: u16 = 6144,
        /// Compression towards mounts that offer it.
        pub compression: Compression = Compression::None,
        /// Maximum number of mounts.
        pub max_mounts: u32 = 5_000,
        /// Maximum number of open items of one mount; announced as OpenLimit. Unset: no limit.
        pub open_limit: Option<u32> = None,
        /// Maximum amount of memory for the keys and views of one mount's open items, KiB.
        pub open_kib: u32 = 64 * 1024,
        /// Maximum amount of such memory of all mounts, MiB.
        pub open_total_mib: u32 = 1024,
        /// Maximum number of mounts of one user; unset: half of [`P2ps::max_mounts`], and a quarter of them from one
        /// address.
        pub mounts_per_user: Option<u32> = None,
        /// Maximum number of mounts from one address, or from one /64 network of IPv6; unset: half of
        /// [`P2ps::max_mounts`].
        pub mounts_per_address: Option<u32> = None,
        /// Maximum number of outstanding requests of one mount; announced as OpenWindow. Unset: no limit.
        pub open_window: Option<u32> = None,
        /// Maximum number of items requested again per second after a recovery, over all upstreams; 0: no limit.
        pub recovery_rate: u32 = 50_000,
        /// Time that an item without streams stays open upstream, ms.
        pub close_hold_ms: u32 = 0,
        /// Built-in latency statistics.
        pub latency_calc: LatencyCalc = LatencyCalc::default(),
        /// The upstreams, in order of preference for services of the same name.
        pub upstream: Vec<Upstream> = vec![Upstream::default()],
        /// Settings of single services, by name.
        pub service: BTreeMap<String, P2psService> = BTreeMap::new(),
    }
}

/// Compression towards a mount that offers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// zlib, level 6.
    Zlib,
    /// LZ4.
    Lz4,
}

/// Built-in latency statistics; without cost while disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LatencyCalc {
    /// Measures how long messages stay in the program.
    pub enabled: bool,
    /// Keeps the statistics for each connection as well: mounts of a p2ps, upstreams of a src_dist.
    pub per_connection: bool,
}

/// An upstream of a point-to-point server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Upstream {
    /// Kind of the upstream.
    pub kind: UpstreamKind,
    /// `host:port` of the upstream and its substitutes, tried in turn; empty for the backbone.
    pub hosts: Vec<String>,
    /// Services to accept from it, by name; empty: all.
    pub services: Vec<String>,
}

/// The kind of an upstream.
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

/// Settings of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct P2psService {
    /// Caches last values.
    pub cache: Option<bool>,
    /// Packets of its feed that are read in a row before other work.
    pub read_bias: Option<u32>,
}

impl P2ps {
    /// Period of the flush timer, if there is one.
    #[must_use]
    pub fn flush_timer(&self) -> Option<Duration> {
        let wait = Duration::from_millis(self.flush_interval_ms.into());
        (self.timed_writes && !wait.is_zero()).then_some(wait)
    }

    /// The limits of mounts, with the default of those that are not set.
    #[must_use]
    pub fn login_limits(&self) -> LoginLimits {
        let shares = LoginLimits::shares(self.max_mounts);
        LoginLimits {
            per_user: self.mounts_per_user.or(shares.per_user),
            per_address: self.mounts_per_address.or(shares.per_address),
            // A limit that was set for a user is meant for one address, too.
            per_user_and_address: shares.per_user_and_address.filter(|_| self.mounts_per_user.is_none()),
            ..shares
        }
    }

    /// Whether last values of this service are cached.
    #[must_use]
    pub fn caches(&self, service: &str) -> bool {
        self.service.get(service).and_then(|s| s.cache).unwrap_or(self.cache)
    }

    /// Packets of this service's feed that are read in a row; 1 to 1,000.
    #[must_use]
    pub fn read_bias(&self, service: &str) -> u32 {
        self.service.get(service).and_then(|s| s.read_bias).unwrap_or(8)
    }

    /// Whether this service is served.
    #[must_use]
    pub fn serves(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|s| s == service)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let no = |what: &str, allowed: &str| {
            Err(Error::Value { setting: format!("p2ps.{what}"), allowed: allowed.into() })
        };
        self.admission.check("p2ps")?;
        if self.open_kib == 0 || self.open_total_mib == 0 {
            return no("open-kib and open-total-mib", "above 0");
        }
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
                        "empty for the backbone, whose sources are found automatically",
                    );
                }
                UpstreamKind::Provider | UpstreamKind::P2ps if upstream.hosts.is_empty() => {
                    return no(&format!("upstream[{n}].hosts"), "at least one host:port");
                }
                _ => check_hosts(&format!("p2ps.upstream[{n}].hosts"), &upstream.hosts)?,
            }
        }
        if self.guaranteed_output_buffers == 0 || self.guaranteed_output_buffers > self.max_output_buffers {
            return no("guaranteed-output-buffers", "1 to max-output-buffers");
        }
        if !(1_024..=65_000).contains(&self.max_fragment) {
            return no("max-fragment", "1024 to 65000 bytes");
        }
        if [self.mounts_per_user, self.mounts_per_address].contains(&Some(0)) {
            return no("mounts-per-user and mounts-per-address", "above 0");
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
