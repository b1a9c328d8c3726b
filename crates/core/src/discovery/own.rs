//! This node's identity and address. Spec: tipc.md §1.1, §4.4.

use super::KnownNodes;
use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::limits::{CAPABILITIES, MAX_PEERS};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::MediaAddr;

/// Length of the trial period, milliseconds. Spec: tipc.md §4.4.
pub(super) const TRIAL_MS: u64 = 1000;

/// Progress of the address trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Not started: there is no bearer yet.
    Idle,
    /// Neighbours may object; the address must not be used before `until`.
    Trial {
        /// End of the trial period.
        until: Time,
    },
    /// The address is final.
    Final,
}

/// Identity, address and other properties that a node announces in discovery.
#[derive(Clone, Debug)]
pub struct OwnAddress {
    identity: NodeId,
    address: NodeAddr,
    state: AddressState,
    legacy: bool,
    cluster: ClusterId,
    capabilities: u16,
    random: u32,
    net_hash: u32,
}

impl OwnAddress {
    /// A node with a 128-bit identity: its address is derived from the identity and tried. `rng` gives the random
    /// values of this run.
    #[must_use]
    pub fn from_identity(identity: NodeId, cluster: ClusterId, rng: &mut Rng) -> Self {
        let address = identity.trial_address();
        Self::new(identity, address, AddressState::Idle, cluster, rng)
    }

    /// A node with an explicit address `<Z.C.N>`: no trial; the identity is the address as text.
    #[must_use]
    pub fn explicit(address: NodeAddr, cluster: ClusterId, rng: &mut Rng) -> Self {
        let identity = NodeId::from_legacy(address);
        Self::new(identity, address, AddressState::Final, cluster, rng)
    }

    fn new(
        identity: NodeId,
        address: NodeAddr,
        state: AddressState,
        cluster: ClusterId,
        rng: &mut Rng,
    ) -> Self {
        Self {
            identity,
            address,
            state,
            legacy: state == AddressState::Final,
            cluster,
            capabilities: CAPABILITIES,
            random: rng.next_u32(),
            net_hash: rng.next_u32() | 1,
        }
    }

    /// A node with a 128-bit identity whose address needs no trial.
    #[must_use]
    pub fn with_final_address(identity: NodeId, cluster: ClusterId, rng: &mut Rng) -> Self {
        let mut own = Self::from_identity(identity, cluster, rng);
        own.state = AddressState::Final;
        own
    }

    /// The same node in another cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: ClusterId) -> Self {
        self.cluster = cluster;
        self
    }

    /// Identity of a node without a configured one: derived from the address of its first bearer. Spec: tipc.md §1.1.
    #[must_use]
    pub fn identity_of_bearer(media: &MediaAddr) -> NodeId {
        let bytes = match media {
            MediaAddr::Ethernet(mac) => mac.to_vec(),
            MediaAddr::Udp(at) => match at.ip() {
                core::net::IpAddr::V4(ip) => ip.octets().to_vec(),
                core::net::IpAddr::V6(ip) => ip.octets().to_vec(),
            },
        };
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(bytes) {
            *to = from;
        }
        NodeId(id)
    }

    /// The same node with other capability bits (13 bits).
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: u16) -> Self {
        self.capabilities = capabilities & 0x1fff;
        self
    }

    /// The node's identity.
    #[must_use]
    pub fn identity(&self) -> NodeId {
        self.identity
    }

    /// The node's address; [`NodeAddr::NONE`] before it is final.
    #[must_use]
    pub fn address(&self) -> NodeAddr {
        if self.is_final() { self.address } else { NodeAddr::NONE }
    }

    /// The address that the node has or is trying.
    #[must_use]
    pub fn trial_address(&self) -> NodeAddr {
        self.address
    }

    /// Progress of the address trial.
    #[must_use]
    pub fn state(&self) -> AddressState {
        self.state
    }

    /// True once the address is final.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.state == AddressState::Final
    }

    /// True if the address is an explicit `<Z.C.N>`; domains may then be masks. Spec: tipc.md §1.4.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// The cluster the node belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Capability bits that the node announces.
    #[must_use]
    pub fn capabilities(&self) -> u16 {
        self.capabilities
    }

    /// Signature of this run as neighbours see it: capability bit 0 overwrites bit 15.
    #[must_use]
    pub fn signature(&self) -> u16 {
        (self.random as u16 & 0x7fff) | self.capabilities << 15
    }

    /// Random number of this node's network namespace.
    #[must_use]
    pub fn net_hash(&self) -> u32 {
        self.net_hash
    }

    /// Starts or restarts the trial period, unless the address is final.
    pub(super) fn start_trial(&mut self, now: Time) {
        if !self.is_final() {
            self.state = AddressState::Trial { until: now.plus_millis(TRIAL_MS) };
        }
    }

    /// True during the trial period, while neighbours may object.
    pub(super) fn in_trial(&self, now: Time) -> bool {
        matches!(self.state, AddressState::Trial { until } if now < until)
    }

    /// Makes the address final if its trial is over; true when that happens.
    pub(super) fn conclude(&mut self, now: Time) -> bool {
        let over = matches!(self.state, AddressState::Trial { until } if now >= until);
        if over {
            self.state = AddressState::Final;
        }
        over
    }

    /// A neighbour refused `tried` and suggests another address. Returns true if that starts a new trial.
    pub(super) fn refused(&mut self, now: Time, tried: NodeAddr, suggestion: NodeAddr) -> bool {
        // If another suggestion was already taken, this one is about an earlier address.
        let taken = self.in_trial(now) && tried == self.address && !suggestion.is_none();
        if taken {
            self.address = suggestion;
            self.start_trial(now);
        }
        taken
    }

    /// Checks an address that a neighbour tries: `None` if it is free, otherwise the address to suggest. Spec: tipc.md
    /// §4.4.
    #[must_use]
    pub fn object_to(&self, id: &NodeId, addr: NodeAddr, known: &dyn KnownNodes) -> Option<NodeAddr> {
        if let Some(owner) = known.identity_of(addr) {
            return (owner != *id).then(|| self.suggest(addr, known));
        }
        known.address_of(id).or_else(|| (addr == self.address).then(|| self.suggest(addr, known)))
    }

    /// An address near `addr XOR random` that no known node uses.
    fn suggest(&self, addr: NodeAddr, known: &dyn KnownNodes) -> NodeAddr {
        let first = addr.0 ^ self.random;
        let free = |a: &NodeAddr| !a.is_none() && *a != self.address && known.identity_of(*a).is_none();
        // Among more addresses than there can be nodes, at least one is free.
        let mut candidates = (0..MAX_PEERS as u32 + 3).map(|n| NodeAddr(first.wrapping_add(n)));
        candidates.find(free).unwrap_or(NodeAddr(first))
    }
}
