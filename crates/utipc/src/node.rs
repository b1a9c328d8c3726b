//! The node: opens sockets and reports what it knows about its cluster.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::engine;
use crate::origin::{self, Origin};
use crate::{
    Binding, Builder, Call, Connection, Counters, Description, Destination, Error, LinkInfo, LinkProperty,
    Listener, NodeAddr, PeerInfo, PortId, Result, Scope, ServiceAddress, ServiceRange, Socket, SocketKind,
    Topology,
};

/// Shortest time-out that is explained by a description of the node. Programs poll with shorter ones.
const EXPLAINED: Duration = Duration::from_millis(100);

/// A member of a TIPC cluster, in this process.
///
/// Clones are handles on the same node, and its sockets hold it as well: when the last of them is dropped, the node
/// leaves the cluster and notifies its peers. Several nodes in one process are as independent as nodes on different
/// hosts.
///
/// ```
/// # fn main() -> utipc::Result<()> {
/// let node = utipc::Node::start()?;
/// println!("node {} has {} neighbours", node.address(), node.peers().len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    engine: engine::Node,
    origin: Arc<Origin>,
    /// See [`Builder::exact_hang_up`].
    exact_hang_up: bool,
}

impl Node {
    /// Starts a node that finds the other nodes of this user on this host. It needs no configuration and no privileges.
    ///
    /// # Errors
    /// [`Error::Start`] if the system has no socket, descriptor or thread left for it.
    pub fn start() -> Result<Node> {
        Node::builder().start()
    }

    /// Configures a node: engine, bearers, identity, cluster.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_engine(engine: engine::Node, origin: Origin, exact_hang_up: bool) -> Self {
        Self { engine, origin: Arc::new(origin), exact_hang_up }
    }

    /// Whether new sockets hang up at once; false with the kernel engine, which does nothing else.
    pub(crate) fn sets_exact_hang_up(&self) -> bool {
        self.exact_hang_up && !matches!(self.engine, engine::Node::Kernel(_))
    }

    /// What this node is: engine, address, number of neighbours, and if no daemon is used, why not and what would help.
    ///
    /// ```
    /// # fn main() -> utipc::Result<()> {
    /// let node = utipc::Node::builder().isolated().start()?;
    /// assert_eq!(node.describe().neighbours, 0);
    /// println!("this program is {}", node.describe());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn describe(&self) -> Description {
        let neighbours = self.peers().iter().filter(|peer| peer.up).count();
        self.origin.describe(self.address(), neighbours)
    }

    pub(crate) fn warn_if_alone(&self) {
        if self.origin.is_alone() {
            let description = self.describe();
            if description.neighbours == 0 {
                origin::warn_once(&description);
            }
        }
    }

    /// What explains a time-out after `limit`; `None` if that is too short to conclude anything.
    pub(crate) fn explain_timeout(&self, limit: Duration) -> Option<Box<Description>> {
        (limit >= EXPLAINED).then(|| Box::new(self.describe()))
    }

    pub(crate) fn engine(&self) -> &engine::Node {
        &self.engine
    }

    /// Opens a reliable datagram socket. It is connectionless; messages to one socket arrive once and in order as long
    /// as that socket and a path to it exist. After [`Socket::set_returned`], undeliverable messages are returned.
    ///
    /// # Errors
    /// [`Error::Open`] if the node has no port left. All kinds of sockets share this error.
    pub fn rdm(&self) -> Result<Socket> {
        self.socket(SocketKind::Rdm)
    }

    /// Opens a datagram socket: as [`Node::rdm`], but a full queue may drop its messages first.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn dgram(&self) -> Result<Socket> {
        self.socket(SocketKind::Dgram)
    }

    /// Opens a socket for connections that carry messages.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn seqpacket(&self) -> Result<Socket> {
        self.socket(SocketKind::SeqPacket)
    }

    /// Opens a socket for connections that carry a stream of bytes.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn stream(&self) -> Result<Socket> {
        self.socket(SocketKind::Stream)
    }

    /// Opens a socket of the given kind.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn socket(&self, kind: SocketKind) -> Result<Socket> {
        Socket::open(self, kind)
    }

    /// Opens a server's socket in one step: opens it, listens, and binds it to `service` in the whole cluster.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Listen`] for a kind without connections.
    pub fn listen(&self, kind: SocketKind, service: impl Into<ServiceRange>) -> Result<Listener> {
        // Listen before the service becomes visible, so that no early client is refused.
        let listener = Listener::new(self.socket(kind)?)?;
        listener.socket().bind(service, Scope::Cluster)?;
        Ok(listener)
    }

    /// Opens a client's connection in one step.
    ///
    /// # Errors
    /// [`Error::Connect`] if no socket is bound to the service or the server refuses, [`Error::TimedOut`].
    pub fn connect(&self, kind: SocketKind, to: impl Into<Destination>) -> Result<Connection> {
        Connection::open(self.socket(kind)?, to)
    }

    /// Subscribes to this node's view of the cluster.
    ///
    /// # Errors
    /// [`Error::Connect`] if the topology server cannot be reached.
    pub fn topology(&self) -> Result<Topology> {
        Topology::open(self, self.address())
    }

    /// Subscribes to another node's view of the cluster.
    ///
    /// # Errors
    /// [`Error::Connect`] if that node cannot be reached.
    pub fn topology_of(&self, node: NodeAddr) -> Result<Topology> {
        Topology::open(self, node)
    }

    /// The node's own address; [`NodeAddr::NONE`] in a forked child of an embedded node.
    #[must_use]
    pub fn address(&self) -> NodeAddr {
        self.engine.address()
    }

    /// The peers: the other nodes that this node knows.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.engine.peers()
    }

    /// The links to the peers.
    #[must_use]
    pub fn links(&self) -> Vec<LinkInfo> {
        self.engine.links()
    }

    /// The binding table: every service range of the cluster with the socket bound to it.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        self.engine.bindings()
    }

    /// The socket that the next message to this service address would reach. Several bound sockets take turns.
    #[must_use]
    pub fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        self.engine.lookup(service)
    }

    /// Changes a property of the link with this name (see [`Node::links`]).
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], [`Error::OutOfRange`].
    pub fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        self.engine.set_link(name, property)
    }

    /// The node's counters since it started.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Processes pending input and due timers without waiting, and returns how long the caller may wait until the next
    /// call; `None`: no limit.
    ///
    /// For a program with an event loop of its own: it polls [`Node::descriptor`] instead of the descriptors of
    /// sockets, calls this, then tries its non-blocking sockets. Messages arrive without any other thread.
    ///
    /// With a daemon or the kernel there is nothing to do: returns `None`.
    pub fn poll(&self) -> Option<Duration> {
        self.engine.poll()
    }

    /// As [`Node::poll`], but waits up to `limit` until something happens to one of the node's sockets; returns whether
    /// it did. For a program with one such thread and non-blocking sockets.
    ///
    /// With a daemon or the kernel it returns `false` at once.
    pub fn drive(&self, limit: Duration) -> bool {
        self.engine.drive(limit)
    }

    /// A descriptor that is readable while [`Node::poll`] has input to process; `None` with a daemon or the kernel,
    /// whose sockets have descriptors of their own.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>> {
        self.engine.descriptor()
    }

    /// Waits until every other node in contact has all bindings of cluster scope that this node had at the call. What
    /// any program is told from then on, on any path, finds these bindings. (A message of this node to a socket needs
    /// no barrier: it does not overtake the bindings and withdrawals that precede it, up to 4096 of them.)
    ///
    /// The call does not wait for a node that goes down meanwhile. A node that comes up or comes back gets all bindings
    /// again, and the call waits for it. Without neighbours it returns at once.
    ///
    /// A node has the bindings when it has acknowledged all that was sent to it, so nodes of the Linux kernel take part
    /// too. The kernel applies a publication right after it has queued the acknowledgement, on the same processor:
    /// a lookup on another one can be microseconds too early.
    ///
    /// ```
    /// # fn main() -> utipc::Result<()> {
    /// # use std::time::Duration;
    /// use utipc::{Node, Scope, ServiceAddress};
    /// let node = Node::builder().isolated().start()?;
    /// let server = node.rdm()?;
    /// server.bind(ServiceAddress::new(2002, 1), Scope::Cluster)?;
    /// node.barrier(Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Awaited`] names the nodes that have not answered within `limit`. [`Error::Engine`] with the kernel
    /// engine.
    pub fn barrier(&self, limit: Duration) -> Result<()> {
        let nodes = self.engine.barrier(limit)?;
        if nodes.is_empty() { Ok(()) } else { Err(Error::Awaited { nodes }) }
    }

    /// Waits until a socket is bound in `service`, on any node, and returns its address.
    ///
    /// ```
    /// # fn main() -> utipc::Result<()> {
    /// # use std::time::Duration;
    /// use utipc::{Node, Scope, ServiceAddress};
    /// let node = Node::builder().isolated().start()?;
    /// let clock = ServiceAddress::new(2001, 1);
    /// let server = node.rdm()?;
    /// server.bind(clock, Scope::Cluster)?;
    /// assert_eq!(node.wait_for_service(clock, Duration::from_secs(5))?, server.port());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn wait_for_service(&self, service: impl Into<ServiceRange>, limit: Duration) -> Result<PortId> {
        let mut topology = self.topology()?;
        topology.services(service)?;
        let up = topology.events(limit).find_map(|event| match event {
            Ok(event) => event.is_up().then_some(Ok(event.port)),
            Err(error) => Some(Err(error)),
        });
        up.unwrap_or_else(|| {
            let node = self.explain_timeout(limit);
            Err(Error::TimedOut { call: Call::AwaitService, reason: None, node })
        })
    }
}
