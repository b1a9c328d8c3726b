//! Configuration of a node and its bearers.

use thiserror::Error;

use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::crypto::EncryptionConfig;
use crate::limits::{
    DEFAULT_PRIORITY, DEFAULT_TOLERANCE_MS, MAX_BEARERS, MAX_TOLERANCE_MS, MAX_WINDOW, MIN_BEARER_MTU,
    MIN_TOLERANCE_MS, MIN_WINDOW,
};
use crate::link::FIRST_SEQNO;
use crate::wire::MediaAddr;

/// Configuration of a node.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The 128-bit identity; if absent, derived from the first bearer's address. Spec: tipc.md §1.1.
    pub identity: Option<NodeId>,
    /// An explicit ("legacy") address; the node then skips the address trial.
    pub address: Option<NodeAddr>,
    /// The address derived from `identity` needs no trial: the media of all bearers guarantee that no other node has
    /// it.
    pub address_is_assigned: bool,
    /// The node's cluster; nodes of other clusters are ignored.
    pub cluster: ClusterId,
    /// Seed of all randomness in the node: sessions, ports, signature. Use the system's randomness unless the run must
    /// be repeatable.
    pub seed: u64,
    /// Number of the first packet on every link and on the broadcast link; 1 in production. A simulated cluster sets
    /// another value, the same on all nodes, so that sequence numbers wrap early.
    pub first_seqno: u16,
    /// Number of the first name update; 0 in production, another value makes it wrap early.
    pub first_name_seqno: u16,
    /// First session number of links; random if absent. A fixed value makes it wrap early.
    pub first_session: Option<u16>,
    /// Encryption; without a key it does nothing.
    pub encryption: EncryptionConfig,
}

impl StackConfig {
    /// The address that the node has or tries first; `None` without an address and an identity.
    #[must_use]
    pub fn first_address(&self) -> Option<NodeAddr> {
        self.address.or_else(|| self.identity.map(|id| id.trial_address()))
    }
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            identity: None,
            address: None,
            address_is_assigned: false,
            cluster: ClusterId::default(),
            seed: 0,
            first_seqno: FIRST_SEQNO,
            first_name_seqno: 0,
            first_session: None,
            encryption: EncryptionConfig::default(),
        }
    }
}

/// Configuration of a bearer. Spec: tipc.md §4.1.
#[derive(Clone, Debug)]
pub struct BearerConfig {
    /// `udp:<name>`, `eth:<interface>` or `host:<name>`: at most 31 characters, at most 15 on each side of the colon.
    pub name: String,
    /// Own address on the medium.
    pub address: MediaAddr,
    /// Largest TIPC packet that is sent, bytes, 100 to 65535.
    pub mtu: u32,
    /// Largest TIPC packet that needs no proof that the path carries it, bytes. Links prove larger ones by probes; from
    /// `mtu` on they probe nothing, as on media whose MTU is that of the path.
    pub base_mtu: u32,
    /// Largest TIPC packet that the bearer can receive, bytes, `mtu` to 65535; this size is announced to peers. If a
    /// kernel's bearer has a larger MTU than its link to this node, the kernel loses replicasts of sizes in between.
    /// Spec: tipc.md §4.7.
    pub max_receive: u32,
    /// Smallest MTU that a peer may announce, bytes.
    pub min_mtu: u32,
    /// False if a broadcast is sent as one copy per address of a list.
    pub has_broadcast: bool,
    /// Priority of its links, 0 to 31.
    pub priority: u8,
    /// Tolerance of its links, 50 to 30000 ms.
    pub tolerance_ms: u32,
    /// Smallest window of its links, packets.
    pub min_window: u16,
    /// Largest window of its links, packets, up to 8191.
    pub max_window: u16,
    /// Domain of the nodes to link with; 0 for all.
    pub domain: NodeAddr,
}

impl BearerConfig {
    /// A bearer with the defaults of tipc.md §15.
    #[must_use]
    pub fn new(name: &str, address: MediaAddr, mtu: u32) -> Self {
        let encapsulation = match address {
            MediaAddr::Ethernet(_) => 0,
            MediaAddr::Udp(at) if at.is_ipv4() => 28,
            MediaAddr::Udp(_) => 48,
        };
        Self {
            name: name.to_owned(),
            address,
            mtu,
            base_mtu: u16::MAX.into(),
            max_receive: mtu,
            min_mtu: MIN_BEARER_MTU + encapsulation,
            has_broadcast: true,
            priority: DEFAULT_PRIORITY,
            tolerance_ms: DEFAULT_TOLERANCE_MS,
            min_window: MIN_WINDOW,
            max_window: MAX_WINDOW,
            domain: NodeAddr::NONE,
        }
    }

    /// The name without the medium: the interface name that peers see.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.name.split_once(':').map_or("", |(_, interface)| interface)
    }

    /// # Errors
    /// The first property that is out of its range.
    pub fn check(&self) -> Result<(), BearerError> {
        let bad = |what| Err(BearerError::Property { bearer: self.name.clone(), what });
        let (media, interface) = self.name.split_once(':').unwrap_or_default();
        let name_fits = |part: &str| !part.is_empty() && part.len() <= 15 && !part.contains(':');
        if !name_fits(media) || !name_fits(interface) {
            return bad("name must be media:interface, at most 15 characters on each side");
        }
        if self.mtu < self.min_mtu.max(MIN_BEARER_MTU) || self.mtu > u32::from(u16::MAX) {
            return bad("MTU is below the minimum of the medium or above 65535");
        }
        if self.max_receive < self.mtu || self.max_receive > u32::from(u16::MAX) {
            return bad("largest packet to receive is below the MTU or above 65535");
        }
        if !(MIN_TOLERANCE_MS..=MAX_TOLERANCE_MS).contains(&self.tolerance_ms) {
            return bad("tolerance must be 50 to 30000 ms");
        }
        if self.priority > 31 {
            return bad("priority must be 0 to 31");
        }
        if self.min_window < MIN_WINDOW || self.max_window > MAX_WINDOW || self.min_window > self.max_window {
            return bad("window must be 50 to 8191 packets");
        }
        Ok(())
    }
}

/// Reason why a bearer was not enabled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BearerError {
    /// All three bearer numbers are in use.
    #[error("a node has at most {MAX_BEARERS} bearers (disable one first)")]
    TooMany,
    /// The name is in use.
    #[error("bearer {0} is enabled already")]
    Exists(String),
    /// A property is out of range.
    #[error("bearer {bearer}: {what}")]
    Property {
        /// Name of the bearer.
        bearer: String,
        /// The property and its range.
        what: &'static str,
    },
}
