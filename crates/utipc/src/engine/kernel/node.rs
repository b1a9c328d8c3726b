//! The kernel's node, which the system's own tools configure; here it is only queried.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use utipc_core::PropertyError;
use utipc_core::addr::NodeId;
use utipc_core::node::state::State as ContactState;
use utipc_manage::{Entry, Request};
use utipc_os::af_tipc;

use super::{Socket, TipcNetlink};
use crate::engine::{self, NodeEngine, entries};
use crate::{
    Binding, Engine, Error, LinkInfo, LinkProperty, NodeAddr, PeerInfo, PortId, Result, ServiceAddress,
    SocketKind,
};

/// Service type of the bindings that stand for nodes. Spec: tipc.md §10.2.
const NODES: u32 = 0;

/// A handle on the kernel's node of the current network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// An open socket to query the kernel with.
    probe: Arc<Socket>,
}

impl Node {
    pub(crate) fn open() -> Result<Self> {
        let probe = Socket::open(SocketKind::Rdm).map_err(|_| absent())?;
        Ok(Self { probe: Arc::new(probe) })
    }
}

// The kernel's node serves this host even without an address, which comes with its first bearer, and counts per link
// only.
impl NodeEngine for Node {
    fn open(&self, kind: SocketKind) -> Result<engine::Socket> {
        let opened = Socket::open(kind).map(engine::Socket::Kernel);
        opened.map_err(|error| {
            Error::System(utipc_os::OsError::new("open", "a socket of the kernel's TIPC", error))
        })
    }

    /// The node's own address; [`NodeAddr::NONE`] while the kernel's node has neither bearer nor identity.
    fn address(&self) -> NodeAddr {
        self.probe.local().node
    }

    fn barrier(&self, _limit: Duration) -> Result<Vec<NodeAddr>> {
        Err(Error::Engine {
            engine: Engine::Kernel,
            why: "the kernel does not tell which nodes have this node's bindings (use a daemon or an embedded node)"
                .into(),
        })
    }

    fn peers(&self) -> Vec<PeerInfo> {
        let own = self.address();
        let nodes = self.bindings().into_iter().filter(|b| b.range.service == NODES);
        let others = nodes.map(|b| NodeAddr(b.range.lower)).filter(|addr| *addr != own);
        let peer = |addr: NodeAddr| PeerInfo {
            addr,
            id: af_tipc::node_identity(self.probe.kernel(), addr.0).map_or(NodeId::default(), NodeId),
            up: true,
            state: ContactState::SelfUpPeerUp,
            capabilities: 0,
        };
        others.map(peer).collect()
    }

    fn links(&self) -> Vec<LinkInfo> {
        entries::links(query(&Request::Links { broadcast: false }).unwrap_or_default())
    }

    fn bindings(&self) -> Vec<Binding> {
        entries::bindings(query(&Request::Names).unwrap_or_default())
    }

    /// One of the bound sockets, not always the next receiver: the kernel does not report its round-robin order.
    fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        let own = self.address();
        let bound = |b: &Binding| {
            b.range.service == service.service && (b.range.lower..=b.range.upper).contains(&service.instance)
        };
        let mut found: Vec<PortId> = self.bindings().iter().filter(|b| bound(b)).map(|b| b.port).collect();
        // Sockets of this node come first, as in the kernel's own lookup.
        found.sort_by_key(|port| port.node != own);
        found.first().copied()
    }

    fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        if let Err(PropertyError::Range { what, range }) = property.check() {
            return Err(Error::OutOfRange { what, remedy: range });
        }
        if !self.links().iter().any(|link| link.name == name) {
            return Err(Error::NoSuchLink(name.to_owned()));
        }
        let request = entries::set_link(name, property);
        query(&request).map(drop).map_err(|error| refused(name, error))
    }
}

/// Sends a management request to the kernel; returns the entries of the reply.
fn query(request: &Request) -> io::Result<Vec<Entry>> {
    TipcNetlink::open()?.entries(request)
}

fn refused(name: &str, error: io::Error) -> Error {
    let error = utipc_os::OsError::new("change the kernel's link", name, error);
    Error::System(error.with_remedy("CAP_NET_ADMIN is required"))
}

/// The error of a host whose kernel has no TIPC.
fn absent() -> Error {
    let why =
        "this kernel has no AF_TIPC (`modprobe tipc` if the module exists, else use embedded or daemon)";
    Error::Engine { engine: Engine::Kernel, why: why.to_owned() }
}
