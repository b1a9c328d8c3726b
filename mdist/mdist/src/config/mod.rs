//! Settings of the programs: every setting has a default; TOML files and files in the style of `rmds.cnf` ([`cnf`])
//! change them. Reference: docs/operating/mdist-config.md.

mod admission;
mod backbone;
pub mod cnf;
mod load;
mod own_node;
mod p2ps;
mod rrcp;
mod src_dist;

pub use admission::Admission;
pub use backbone::{Backbone, Carrier, Tipc};
pub use load::{Args, Error, Loaded, check_hosts};
pub use own_node::OwnNode;
pub use p2ps::{Compression, LatencyCalc, P2ps, P2psService, Upstream, UpstreamKind};
pub use rrcp::Rrcp;
pub use src_dist::{OnFull, Posts, Provider, SourceService, SourceServiceSettings, SrcDist};

use crate::net::ThreadSettings;
use serde::{Deserialize, Serialize};

/// All settings. Both programs read the same file and use their own parts of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The point-to-point server.
    pub p2ps: P2ps,
    /// The source distributor.
    pub src_dist: SrcDist,
    /// The backbone between the two.
    pub backbone: Backbone,
    /// Field and enumeration dictionaries.
    pub dictionary: Dictionary,
    /// Logins towards upstreams.
    pub login: Login,
    /// Limits of the cache.
    pub cache: CacheLimits,
    /// Cores and schedulers of threads by role.
    pub threads: Threads,
    /// Metrics and statistics.
    pub metrics: Metrics,
}

/// Files of field types and enumerated values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dictionary {
    /// File in the format of RDMFieldDictionary; unset: the built-in small dictionary.
    pub fields: Option<String>,
    /// File in the format of enumtype.def; unset: the built-in small dictionary.
    pub enums: Option<String>,
}

rssl::with_defaults! {
    /// Contents of logins towards providers and other servers.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct Login {
        /// User name.
        pub user: String = "mdist".into(),
        /// Position, `address/host name`; unset: 127.0.0.1 and this host's name.
        pub position: Option<String> = None,
        /// Application id, a number in text form.
        pub application_id: String = "256".into(),
        /// Application name; unset: the program's name.
        pub application_name: Option<String> = None,
    }
}

rssl::with_defaults! {
    /// Limits of the cache. An item that exceeds those of one item is passed through uncached.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct CacheLimits {
        /// Memory of one item, tables included, KiB.
        pub item_kib: u32 = 8 * 1024,
        /// Entries of one item's maps, vectors and similar containers.
        pub item_entries: u32 = 1 << 18,
        /// Memory of all items of the program, MiB; above it, the values of items that nobody has open are dropped, the
        /// least recently used first. 0: no limit.
        pub total_mib: u32 = 4096,
    }
}

impl CacheLimits {
    /// The limits in the cache's units.
    #[must_use]
    pub fn limits(&self) -> crate::cache::Limits {
        crate::cache::Limits { bytes: self.item_kib as usize * 1024, entries: self.item_entries as usize }
    }

    /// The limit of all items, bytes; `None`: no limit.
    #[must_use]
    pub fn budget(&self) -> Option<usize> {
        (self.total_mib > 0).then_some((self.total_mib as usize) << 20)
    }
}

/// Settings of threads by role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Threads {
    /// The thread that accepts connections, reads requests, connects to upstreams and runs timers.
    pub main: ThreadSettings,
    /// The thread that receives the backbone's feeds.
    pub feed: ThreadSettings,
    /// The threads that serve mounts; the entries are used in rotation.
    pub mounts: Vec<ThreadSettings>,
}

impl Threads {
    /// The settings of thread `number` that serves mounts.
    #[must_use]
    pub fn mounts(&self, number: u16) -> ThreadSettings {
        let index = usize::from(number).checked_rem(self.mounts.len()).unwrap_or(0);
        self.mounts.get(index).cloned().unwrap_or_default()
    }
}

/// Metrics and statistics of a running program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metrics {
    /// `address:port` of the HTTP server for metrics, mounts and disconnects; unset: none.
    pub listen: Option<String>,
    /// Names by which browsers may request the web page, beside addresses, `localhost` and the name of this host.
    pub hosts: Vec<String>,
    /// Seconds between two lines of statistics on standard output; 0: none.
    pub stats_interval_s: u32,
}

impl Config {
    /// All settings as a TOML file.
    #[must_use]
    pub fn print(&self) -> String {
        toml::to_string(self).unwrap_or_else(|why| format!("# cannot encode the settings: {why}\n"))
    }

    /// The settings that differ from their defaults and have no effect, each with the reason.
    #[must_use]
    pub fn without_effect(&self) -> Vec<String> {
        let mut list = Vec::new();
        let mut note = |set: bool, what: &str, why: &str| {
            if set {
                list.push(format!("{what}: {why}"));
            }
        };
        const ALONE: &str = "per-connection has an effect only if latency-calc.enabled is set as well";
        let alone = |set: &LatencyCalc| set.per_connection && !set.enabled;
        note(alone(&self.p2ps.latency_calc), "p2ps.latency-calc", ALONE);
        note(alone(&self.src_dist.latency_calc), "src-dist.latency-calc", ALONE);
        note(
            self.backbone.tipc.send_buffer_kib.is_some(),
            "backbone.tipc.send-buffer-kib (udpSendBufSize)",
            "the socket that sends is the UDP bearer's, which belongs to the TIPC node; a feed goes by TIPC's window",
        );
        let (rrcp, usual) = (&self.backbone.rrcp, Rrcp::default());
        let pool = |rrcp: &Rrcp| (rrcp.max_pkt_pool_size, rrcp.pkt_pool_limit_high, rrcp.pkt_pool_limit_low);
        note(
            pool(rrcp) != pool(&usual),
            "backbone.rrcp (maxPktPoolSize, pktPoolLimitHigh, pktPoolLimitLow)",
            "no packets wait to be sent: the distributor stops reading its publishers as soon as one has to wait (window-kib, on-full, hold-ms)",
        );
        let (max_pkt_pool_size, pkt_pool_limit_high, pkt_pool_limit_low) = pool(&usual);
        let others = Rrcp { max_pkt_pool_size, pkt_pool_limit_high, pkt_pool_limit_low, ..rrcp.clone() };
        note(
            others != usual,
            "backbone.rrcp",
            "TIPC, which carries the backbone, replaces the mechanisms that these parameters control",
        );
        list
    }

    /// Advice on settings that weaken the protection of the backbone, for the log.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let found = self.backbone.tipc.source_type;
        let reserved = utipc::daemon::Policy::RESERVED;
        let unprotected = !reserved.contains(&found);
        unprotected
            .then(|| {
                format!(
                    "backbone.tipc.source-type = {found}: every user who may attach to a utipcd of the cluster can announce \
                     sources of market data, unless its configuration has \"{found}\" below [policy.bind]; type {} is \
                     reserved without configuration",
                    reserved.start()
                )
            })
            .into_iter()
            .collect()
    }

    /// Checks values and combinations of settings.
    ///
    /// # Errors
    /// [`Error::Value`] for the first setting that is not allowed.
    pub fn check(&self) -> Result<(), Error> {
        self.p2ps.check()?;
        self.src_dist.check()?;
        self.backbone.tipc.node.as_ref().map_or(Ok(()), OwnNode::check)?;
        let no =
            |what: &str, allowed: &str| Err(Error::Value { setting: what.into(), allowed: allowed.into() });
        if self.cache.item_kib == 0 || self.cache.item_entries == 0 {
            return no("cache.item-kib and cache.item-entries", "above 0");
        }
        if self.login.user.is_empty() {
            return no("login.user", "a name");
        }
        Ok(())
    }
}
