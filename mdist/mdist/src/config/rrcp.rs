//! Parameters of the vendor's reliable multicast (RRCP), accepted so that existing files can be used.

use serde::{Deserialize, Serialize};

rssl::with_defaults! {
    /// The parameters of `rmds.cnf`-style files; times in units of 100 ms. TIPC retransmits, orders and detects
    /// failures by itself, so parameters for these are kept and shown, but have no effect;
    /// docs/operating/mdist-config.md lists them.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct Rrcp {
        /// Maximum number of hops of a packet.
        pub packet_ttl: u32 = 5,
        /// Maximum number of retransmissions of an unacknowledged packet.
        pub ndata: u32 = 7,
        /// Maximum number of requests for one missing packet.
        pub nrreq: u32 = 3,
        /// Time between retransmissions.
        pub tdata: u32 = 1,
        /// Time between requests.
        pub trreq: u32 = 4,
        /// Time before a missing packet is requested.
        pub twait: u32 = 3,
        /// Time for which sent broadcasts are kept.
        pub tbchold: u32 = 3,
        /// Time for which sent point-to-point packets are kept.
        pub tpphold: u32 = 3,
        /// Maximum number of packets that wait for one application.
        pub user_q_limit: u32 = 65_535,
        /// Maximum number of missing packets of one sender.
        pub nmissing: u32 = 128,
        /// Maximum number of packets in the pool.
        pub max_pkt_pool_size: u32 = 200_000,
        /// Packets in the pool above which the application waits.
        pub pkt_pool_limit_high: u32 = 190_000,
        /// Packets in the pool below which it continues.
        pub pkt_pool_limit_low: u32 = 180_000,
        /// A gap ends the connection instead of making items stale.
        pub disconnect_on_gaps: bool = false,
        /// Port of the tool that shows counters.
        pub tcp_control_port: Option<String> = None,
        /// Further ports to try.
        pub port_roam_range: u32 = 0,
        /// Time between host status messages; 0: none.
        pub hsm_interval: u32 = 0,
        /// Interface of host status messages.
        pub hsm_interface: Option<String> = None,
        /// Address of host status messages.
        pub hsm_mult_address: Option<String> = None,
        /// Port of host status messages.
        pub hsm_port: Option<String> = None,
        /// Receivers drop packets of items that they have not requested, by a hash of the item.
        pub hash_filtering: bool = false,
    }
}
