//! The node.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use utipc::{Builder, Engine, GroupRequest, LinkProperty, NodeAddr, Spin};

use crate::address::{Bindable, PortId, ServiceAddress, Target};
use crate::error::{closed, exception};
use crate::group::{Group, policy_named};
use crate::info::{Binding, Link, Peer};
use crate::listener::Listener;
use crate::socket::{Socket, kind_named, scope_named, unknown};
use crate::topology::Topology;
use crate::waiting::{Limit, wait};

/// A member of a TIPC cluster; opens sockets.
///
/// `Node()` attaches to this host's daemon (`utipcd`) if one runs, and otherwise starts a node in this process that
/// finds the other nodes of this user on this host. See `docs/python.md` for the arguments. Starting takes about a
/// second unless an `address` is given or a daemon runs. The node leaves the cluster when it and all its sockets are
/// closed.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Node {
    open: Mutex<Option<utipc::Node>>,
}

/// A string or a list of strings.
#[derive(FromPyObject)]
enum OneOrMore {
    One(String),
    Many(Vec<String>),
}

impl OneOrMore {
    fn list(values: Option<Self>) -> Vec<String> {
        match values {
            None => Vec::new(),
            Some(Self::One(one)) => vec![one],
            Some(Self::Many(many)) => many,
        }
    }
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Option<utipc::Node>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, py: Python<'_>) -> PyResult<utipc::Node> {
        self.lock().clone().ok_or_else(|| closed(py, "node"))
    }

    /// Makes a call without the GIL.
    fn query<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&utipc::Node) -> T + Send) -> PyResult<T> {
        let node = self.get(py)?;
        Ok(py.detach(|| {
            let result = call(&node);
            drop(node);
            result
        }))
    }

    /// As `query`, for a call that may fail.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&utipc::Node) -> utipc::Result<T> + Send,
    ) -> PyResult<T> {
        self.query(py, call)?.map_err(|error| exception(py, &error))
    }
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (
        *, engine = None, daemon = None, instance = None, udp = None, udp_peers = None, ethernet = None, same_host = false,
        isolated = false, address = None, identity = None, cluster = None, tolerance_ms = None, window = None, label = None,
        seed = None, spin = None, busy_poll = None, resume = None,
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        engine: Option<&str>,
        daemon: Option<PathBuf>,
        instance: Option<&str>,
        udp: Option<OneOrMore>,
        udp_peers: Option<OneOrMore>,
        ethernet: Option<OneOrMore>,
        same_host: bool,
        isolated: bool,
        address: Option<u32>,
        identity: Option<&str>,
        cluster: Option<u32>,
        tolerance_ms: Option<u32>,
        window: Option<u16>,
        label: Option<&str>,
        seed: Option<u64>,
        spin: Option<&str>,
        busy_poll: Option<f64>,
        resume: Option<bool>,
    ) -> PyResult<Self> {
        let mut builder = utipc::Node::builder();
        if let Some(name) = engine {
            let known = name.parse::<Engine>();
            builder = builder
                .engine(known.map_err(|_| unknown("engine", name, "auto, embedded, daemon or kernel"))?);
        }
        builder = set(builder, daemon, Builder::daemon_at);
        builder = set(builder, instance, Builder::instance);
        builder =
            bearers(builder, OneOrMore::list(udp), OneOrMore::list(udp_peers), OneOrMore::list(ethernet))?;
        builder = if same_host { builder.same_host() } else { builder };
        builder = if isolated { builder.isolated() } else { builder };
        builder = set(builder, address.map(NodeAddr), Builder::address);
        builder = set(builder, identity, Builder::identity);
        builder = set(builder, cluster, Builder::cluster);
        builder = set(builder, tolerance_ms, Builder::tolerance_ms);
        builder = set(builder, window, Builder::window);
        builder = set(builder, label, Builder::label);
        builder = set(builder, seed, Builder::seed);
        builder = set(builder, spin.map(spin_named).transpose()?, Builder::spin);
        let busy = Limit::from_seconds(busy_poll)?.0;
        builder = set(builder, busy, Builder::busy_poll);
        builder = set(builder, resume, Builder::resume);
        let node = py.detach(|| builder.start()).map_err(|error| exception(py, &error))?;
        Ok(Self { open: Mutex::new(Some(node)) })
    }

    /// The node's own address. TIPC shows it in hexadecimal: `f"{node.address:x}"`.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<u32> {
        self.query(py, |node| node.address().0)
    }

    /// Opens a reliable datagram socket: messages to one socket arrive once and in order.
    fn rdm(&self, py: Python<'_>) -> PyResult<Socket> {
        self.call(py, utipc::Node::rdm).map(Socket::new)
    }

    /// Opens a datagram socket: as `rdm`, but a full queue may drop its messages first.
    fn dgram(&self, py: Python<'_>) -> PyResult<Socket> {
        self.call(py, utipc::Node::dgram).map(Socket::new)
    }

    /// Opens a socket for connections that carry messages.
    fn seqpacket(&self, py: Python<'_>) -> PyResult<Socket> {
        self.call(py, utipc::Node::seqpacket).map(Socket::new)
    }

    /// Opens a socket for connections that carry a stream of bytes.
    fn stream(&self, py: Python<'_>) -> PyResult<Socket> {
        self.call(py, utipc::Node::stream).map(Socket::new)
    }

    /// Opens a socket of the kind `"rdm"`, `"dgram"`, `"seqpacket"` or `"stream"`.
    fn socket(&self, py: Python<'_>, kind: &str) -> PyResult<Socket> {
        let kind = kind_named(kind)?;
        self.call(py, |node| node.socket(kind)).map(Socket::new)
    }

    /// Opens a server's socket in one step: listens and binds it to `service` in the whole cluster.
    #[pyo3(signature = (service, kind = "seqpacket"))]
    fn listen(&self, py: Python<'_>, service: Bindable, kind: &str) -> PyResult<Listener> {
        let kind = kind_named(kind)?;
        let listener = self.call(py, |node| node.listen(kind, service))?;
        Listener::new(py, listener)
    }

    /// Opens a socket and joins a communication group: a service type of 64 or above. `instance`: the number by which
    /// other members address this one. `events`: `Group.receive` also reports members that join and leave. `loopback`:
    /// the socket receives its own messages too. `scope`: `"cluster"` or `"node"`; groups of different scope are
    /// different groups. The call does not wait for other members.
    ///
    /// `slow`: what a send does when a member does not read: `"wait"`, `"drop"` the message for this member,
    /// `"conflate"` (this member gets the newest message of each `key` later; at most `keys` messages and `bytes` bytes
    /// are kept for each member) or `"evict"` members that hold a send up for `evict_after` seconds. With any of them,
    /// sockets that are bound to the service and never join are ignored. Without it, sends wait as on Linux.
    #[pyo3(signature = (
        service, instance, *, events = false, loopback = false, scope = "cluster", slow = None, keys = 1024,
        bytes = 1_048_576, evict_after = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the call in Python")]
    fn join(
        &self,
        py: Python<'_>,
        service: u32,
        instance: u32,
        events: bool,
        loopback: bool,
        scope: &str,
        slow: Option<&str>,
        keys: u32,
        bytes: u32,
        evict_after: Option<f64>,
    ) -> PyResult<Group> {
        let policy = policy_named(slow, keys, bytes, evict_after)?;
        let scope = scope_named(scope)?;
        let request = GroupRequest { scope, events, loopback, ..GroupRequest::new(service, instance) };
        let socket = self.call(py, |node| {
            let socket = node.rdm()?;
            socket.join_with_policy(request, policy)?;
            Ok(socket)
        })?;
        Group::new(py, socket, request)
    }

    /// Opens a client's connection in one step.
    #[pyo3(signature = (to, kind = "seqpacket", *, node = None))]
    fn connect(&self, py: Python<'_>, to: Target, kind: &str, node: Option<u32>) -> PyResult<Socket> {
        let (kind, to) = (kind_named(kind)?, to.on(node)?);
        let socket = self.call(py, |node| node.socket(kind))?;
        let mut requested = false;
        let request = |slice| {
            if std::mem::replace(&mut requested, true) {
                socket.within(slice).finish_connect()
            } else {
                socket.within(slice).connect(to)
            }
        };
        wait(py, Limit(None), request, || Ok(()))?;
        Ok(Socket::new(socket))
    }

    /// Subscribes to the cluster as this node sees it, or as the node with the address `node` sees it.
    #[pyo3(signature = (node = None))]
    fn topology(&self, py: Python<'_>, node: Option<u32>) -> PyResult<Topology> {
        let topology = self.call(py, |own| own.topology_of(node.map_or_else(|| own.address(), NodeAddr)))?;
        Topology::new(py, topology)
    }

    /// Waits until every node in contact has this node's current bindings: programs that are then told of them find
    /// them. `Timeout` names the nodes that have not answered.
    #[pyo3(signature = (timeout = None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (limit, node) = (Limit::from_seconds(timeout)?, self.get(py)?);
        wait(py, limit, move |slice| node.barrier(slice), || Ok(()))
    }

    /// Waits until a socket is bound in `service`, on any node, and returns its address.
    #[pyo3(signature = (service, timeout = None))]
    fn wait_for_service(&self, py: Python<'_>, service: Bindable, timeout: Option<f64>) -> PyResult<PortId> {
        let limit = Limit::from_seconds(timeout)?;
        let mut topology = self.call(py, |node| {
            let mut topology = node.topology()?;
            topology.services(service)?;
            Ok(topology)
        })?;
        let next_binding = move |slice: Duration| {
            topology
                .events(slice)
                .find_map(|event| match event {
                    Ok(event) => event.is_up().then_some(Ok(PortId(event.port))),
                    Err(error) => Some(Err(error)),
                })
                .unwrap_or(Err(utipc::Error::TimedOut {
                    call: utipc::Call::AwaitService,
                    reason: None,
                    node: None,
                }))
        };
        wait(py, limit, next_binding, || Ok(()))
    }

    /// A description of this node in one line: engine, address, number of neighbours; without a daemon also the reason
    /// and the remedy.
    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.query(py, utipc::Node::describe)?.to_string())
    }

    /// The other nodes that this node knows.
    fn peers(&self, py: Python<'_>) -> PyResult<Vec<Peer>> {
        Ok(self.query(py, utipc::Node::peers)?.into_iter().map(Peer::from).collect())
    }

    /// The links to the peers.
    fn links(&self, py: Python<'_>) -> PyResult<Vec<Link>> {
        self.query(py, utipc::Node::links)?.into_iter().map(|link| Link::new(py, link)).collect()
    }

    /// The binding table: every service range of the cluster with the socket bound to it.
    fn bindings(&self, py: Python<'_>) -> PyResult<Vec<Binding>> {
        Ok(self.query(py, utipc::Node::bindings)?.into_iter().map(Binding::from).collect())
    }

    /// The socket that the next message to a service address would reach, if any. Several bound sockets take turns.
    fn lookup(&self, py: Python<'_>, service: ServiceAddress) -> PyResult<Option<PortId>> {
        Ok(self.query(py, |node| node.lookup(service.0))?.map(PortId))
    }

    /// Changes properties of the link with this name (see `links`).
    #[pyo3(signature = (name, *, priority = None, tolerance_ms = None, window = None))]
    fn set_link(
        &self,
        py: Python<'_>,
        name: &str,
        priority: Option<u8>,
        tolerance_ms: Option<u32>,
        window: Option<u16>,
    ) -> PyResult<()> {
        let properties = [
            priority.map(LinkProperty::Priority),
            tolerance_ms.map(LinkProperty::ToleranceMs),
            window.map(LinkProperty::Window),
        ];
        self.call(py, |node| {
            properties.into_iter().flatten().try_for_each(|property| node.set_link(name, property))
        })
    }

    /// The node's counters since it started.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.query(py, utipc::Node::counters)?;
        let dict = PyDict::new(py);
        dict.set_item("links_up", counters.links_up)?;
        dict.set_item("links_down", counters.links_down)?;
        dict.set_item("nodes_up", counters.nodes_up)?;
        dict.set_item("nodes_down", counters.nodes_down)?;
        let dropped = PyDict::new(py);
        for (reason, count) in &counters.dropped {
            dropped.set_item(reason.as_ref(), count)?;
        }
        dict.set_item("dropped", dropped)?;
        Ok(dict)
    }

    /// Releases the node. Open sockets stay open; the node leaves the cluster when the last one is closed.
    fn close(&self, py: Python<'_>) {
        let node = self.lock().take();
        py.detach(|| drop(node));
    }

    /// Whether the node is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.address(py)
            .map_or_else(|_| "<utipc.Node closed>".to_owned(), |own| format!("<utipc.Node {own:x}>"))
    }
}

/// Applies a setting to the builder if it was given.
fn set<T>(builder: Builder, value: Option<T>, put: impl FnOnce(Builder, T) -> Builder) -> Builder {
    match value {
        Some(value) => put(builder, value),
        None => builder,
    }
}

fn bearers(
    mut builder: Builder,
    udp: Vec<String>,
    peers: Vec<String>,
    ethernet: Vec<String>,
) -> PyResult<Builder> {
    let own = |text: &String| {
        text.parse::<IpAddr>().map_err(|_| {
            PyValueError::new_err(format!(
                "udp: {text:?} is not an IP address of this host (write it as 10.0.0.1)"
            ))
        })
    };
    match (udp.as_slice(), peers.as_slice()) {
        ([one], [_, ..]) => {
            let peers = peers.iter().map(|text| peer(text)).collect::<PyResult<Vec<_>>>()?;
            builder = builder.udp_peers(own(one)?, peers);
        }
        (_, [_, ..]) => {
            return Err(PyValueError::new_err(
                "udp_peers requires exactly one address of this host (udp=\"10.0.0.1\")",
            ));
        }
        (all, []) => {
            for address in all {
                builder = builder.udp(own(address)?);
            }
        }
    }
    Ok(ethernet.iter().fold(builder, |builder, interface| builder.ethernet(interface)))
}

/// A socket address, or an IP address with the default port.
fn peer(text: &str) -> PyResult<SocketAddr> {
    let bare = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    text.parse().ok().or_else(bare).ok_or_else(|| {
        PyValueError::new_err(format!(
            "udp_peers: {text:?} is not a valid address (write it as 10.0.0.2 or 10.0.0.2:6118)"
        ))
    })
}

fn spin_named(name: &str) -> PyResult<Spin> {
    match name {
        "busy" => Ok(Spin::Busy),
        "adaptive" => Ok(Spin::Adaptive),
        "parked" => Ok(Spin::Parked),
        other => Err(unknown("spin mode", other, "busy, adaptive or parked")),
    }
}
