//! Information about peers, links and bindings.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::address::{PortId, ServiceRange};

/// Another node that this node knows.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address.
    address: u32,
    /// Its 128-bit identity, as text or hexadecimal.
    identity: String,
    /// Whether it is reachable.
    up: bool,
}

/// A link to a peer.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Link {
    /// `<self>:<interface>-<peer>:<interface>`.
    name: String,
    /// The peer's node address.
    peer: u32,
    /// Whether it can carry traffic.
    up: bool,
    /// Whether it carries traffic; of several links to a peer, those of lower priority do not.
    active: bool,
    /// Packet size in bytes.
    mtu: u16,
    /// Priority, 0 to 31.
    priority: u8,
    /// Tolerance in milliseconds.
    tolerance_ms: u32,
    /// Current window in packets.
    window: u16,
    /// Counters by name.
    stats: Py<PyDict>,
}

/// An entry of the binding table.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Binding {
    /// The service range.
    range: ServiceRange,
    /// `"cluster"` or `"node"`.
    scope: &'static str,
    /// The socket that bound it.
    port: PortId,
}

impl From<utipc::PeerInfo> for Peer {
    fn from(peer: utipc::PeerInfo) -> Self {
        Self { address: peer.addr.0, identity: peer.id.to_string(), up: peer.up }
    }
}

impl From<utipc::Binding> for Binding {
    fn from(binding: utipc::Binding) -> Self {
        let scope = match binding.scope {
            utipc::Scope::Cluster => "cluster",
            utipc::Scope::Node => "node",
        };
        Self { range: ServiceRange(binding.range), scope, port: PortId(binding.port) }
    }
}

impl Link {
    pub(crate) fn new(py: Python<'_>, link: utipc::LinkInfo) -> PyResult<Self> {
        let stats = PyDict::new(py);
        let s = link.stats;
        let all = [
            ("rx_packets", s.rx_packets),
            ("rx_fragments", s.rx_fragments),
            ("rx_fragmented", s.rx_fragmented),
            ("rx_bundles", s.rx_bundles),
            ("rx_bundled", s.rx_bundled),
            ("rx_states", s.rx_states),
            ("rx_probes", s.rx_probes),
            ("rx_nacks", s.rx_nacks),
            ("rx_deferred", s.rx_deferred),
            ("rx_duplicates", s.rx_duplicates),
            ("tx_packets", s.tx_packets),
            ("tx_fragments", s.tx_fragments),
            ("tx_fragmented", s.tx_fragmented),
            ("tx_bundles", s.tx_bundles),
            ("tx_bundled", s.tx_bundled),
            ("tx_states", s.tx_states),
            ("tx_probes", s.tx_probes),
            ("tx_nacks", s.tx_nacks),
            ("tx_acks", s.tx_acks),
            ("retransmitted", s.retransmitted),
            ("congestions", s.congestions),
            ("queue_max", s.queue_max),
        ];
        for (name, count) in all {
            stats.set_item(name, count)?;
        }
        Ok(Self {
            name: link.name,
            peer: link.peer.0,
            up: link.up,
            active: link.active,
            mtu: link.mtu,
            priority: link.priority,
            tolerance_ms: link.tolerance_ms,
            window: link.window,
            stats: stats.unbind(),
        })
    }
}

#[pymethods]
impl Peer {
    fn __repr__(&self) -> String {
        format!("<Peer {:x} {} {}>", self.address, self.identity, if self.up { "up" } else { "down" })
    }
}

#[pymethods]
impl Link {
    fn __repr__(&self) -> String {
        format!("<Link {} {}>", self.name, if self.up { "up" } else { "down" })
    }
}

#[pymethods]
impl Binding {
    fn __repr__(&self) -> String {
        format!("<Binding {} by {} ({})>", self.range.0, self.port.0, self.scope)
    }
}
