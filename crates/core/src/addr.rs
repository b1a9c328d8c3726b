//! Addresses: nodes, ports, services. Spec: tipc.md §1.

use core::fmt;

/// The address ("hash") of a node, unique in its cluster. Spec: tipc.md §1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeAddr(pub u32);

impl NodeAddr {
    /// "No address yet"; as a destination, "this node".
    pub const NONE: NodeAddr = NodeAddr(0);

    /// The classic address `<zone.cluster.node>`; parts are truncated to 8, 12 and 12 bits.
    #[must_use]
    pub const fn legacy(zone: u32, cluster: u32, node: u32) -> Self {
        Self((zone & 0xff) << 24 | (cluster & 0xfff) << 12 | node & 0xfff)
    }

    /// True for [`NodeAddr::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// This address, or `own` for [`NodeAddr::NONE`].
    #[must_use]
    pub const fn or(self, own: Self) -> Self {
        if self.is_none() { own } else { self }
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The 128-bit identity of a node. Spec: tipc.md §1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub [u8; 16]);

impl NodeId {
    /// The identity whose text is `name`, zero padded; text beyond 16 bytes is truncated.
    #[must_use]
    pub fn from_text(name: &str) -> Self {
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self(id)
    }

    /// The identity of a node with an explicit address: the address in lowercase hex.
    #[must_use]
    pub fn from_legacy(addr: NodeAddr) -> Self {
        Self::from_text(&format!("{:x}", addr.0))
    }

    /// True if no identity is set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == [0; 16]
    }

    /// The trial address: the exclusive or of the identity's four words; the inclusive or if that is 0.
    #[must_use]
    pub fn trial_address(&self) -> NodeAddr {
        let words = || self.0.chunks_exact(4).map(|c| c.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)));
        let xor = words().fold(0, |a, w| a ^ w);
        NodeAddr(if xor == 0 { words().fold(0, |a, w| a | w) } else { xor })
    }
}

impl fmt::Display for NodeId {
    /// Prints text if every byte is a plain name character or NUL, else hex without trailing zeros. Spec: tipc.md §1.1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b".:_@-\0".contains(b);
        if self.0.iter().all(plain) {
            let text: String = self.0.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
            return f.pad(&text);
        }
        let hex: String = self.0.iter().map(|b| format!("{b:02x}")).collect();
        f.pad(hex.trim_end_matches('0'))
    }
}

/// The number of a cluster, 1 to 9999. Spec: tipc.md §1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u32);

impl Default for ClusterId {
    fn default() -> Self {
        Self(4711)
    }
}

/// The socket address: {port, node}, unique in the cluster ("port identity"). Spec: tipc.md §1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PortId {
    /// Port number on its node; never 0 for an open socket.
    pub port: u32,
    /// The node of the socket.
    pub node: NodeAddr,
}

impl PortId {
    /// The same socket with the node `own`, if it has none.
    #[must_use]
    pub const fn on(self, own: NodeAddr) -> Self {
        Self { node: self.node.or(own), ..self }
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

/// A service address {type, instance}. Spec: tipc.md §1.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServiceAddr {
    /// Service type; 0 to 63 are reserved.
    pub service: u32,
    /// Instance of the service.
    pub instance: u32,
}

impl ServiceAddr {
    /// The address {service, instance}.
    #[must_use]
    pub const fn new(service: u32, instance: u32) -> Self {
        Self { service, instance }
    }
}

impl fmt::Display for ServiceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{},{}}}", self.service, self.instance)
    }
}

/// A service range {type, lower, upper}; both ends are included. Spec: tipc.md §1.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServiceRange {
    /// Service type; 0 to 63 are reserved.
    pub service: u32,
    /// Lowest instance.
    pub lower: u32,
    /// Highest instance, not below `lower` in a valid range.
    pub upper: u32,
}

impl ServiceRange {
    /// The range {service, lower..=upper}.
    #[must_use]
    pub const fn new(service: u32, lower: u32, upper: u32) -> Self {
        Self { service, lower, upper }
    }

    /// True if `lower` is not above `upper`.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.lower <= self.upper
    }

    /// True if both ranges have the same type and at least one instance in common.
    #[must_use]
    pub const fn overlaps(&self, other: &ServiceRange) -> bool {
        self.service == other.service && self.lower <= other.upper && other.lower <= self.upper
    }
}

impl From<ServiceAddr> for ServiceRange {
    fn from(a: ServiceAddr) -> Self {
        Self::new(a.service, a.instance, a.instance)
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{},{},{}}}", self.service, self.lower, self.upper)
    }
}

/// The scope of a binding: the node alone, or the cluster. Spec: tipc.md §1.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Scope {
    /// On every node of the cluster.
    #[default]
    Cluster = 2,
    /// On this node only.
    Node = 3,
}

impl Scope {
    /// The number of this scope in socket addresses, message headers and management: `TIPC_CLUSTER_SCOPE` is 2,
    /// `TIPC_NODE_SCOPE` is 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The scope with this number; `None` for 1, the obsolete zone scope, and all other numbers.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Cluster),
            3 => Some(Self::Node),
            _ => None,
        }
    }
}

/// A binding of a socket to a service range, as the binding table holds it. Spec: tipc.md §1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Binding {
    /// The bound range.
    pub range: ServiceRange,
    /// The scope in which the binding is published.
    pub scope: Scope,
    /// The socket that bound it.
    pub port: PortId,
    /// Distinguishes the bindings of one socket.
    pub key: u32,
}

/// Importance of a payload message, also its user code on the wire. Spec: tipc.md §2.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Importance {
    /// 0, the default.
    #[default]
    Low = 0,
    /// 1.
    Medium = 1,
    /// 2.
    High = 2,
    /// 3.
    Critical = 3,
}

impl Importance {
    /// The importance with this number, 0 to 3.
    #[must_use]
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Low,
            1 => Self::Medium,
            2 => Self::High,
            3 => Self::Critical,
            _ => return None,
        })
    }
}
