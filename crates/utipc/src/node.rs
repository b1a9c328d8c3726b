//! The node: where sockets come from, and what it knows about its cluster.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::engine;
use crate::{
    Binding, Builder, Connection, Counters, Destination, Error, LinkInfo, LinkProperty, Listener, NodeAddr,
    PeerInfo, PortId, Result, Scope, ServiceAddress, ServiceRange, Socket, SocketKind, Topology,
};

/// A member of a TIPC cluster, in this process.
///
/// Clones are handles on the same node, and so are its sockets: the node leaves the cluster, and its peers are told,
/// when the last of them is dropped. Several nodes in one process are as separate as several machines.
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
}

impl Node {
    /// Starts a node that finds the other nodes of this user on this host; needs no configuration and no privileges.
    ///
    /// # Errors
    /// [`Error::Start`] if the system has no socket, descriptor or thread left for it.
    pub fn start() -> Result<Node> {
        Node::builder().start()
    }

    /// A node with bearers, an identity or a cluster of your choice.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_engine(engine: engine::Node) -> Self {
        Self { engine }
    }

    pub(crate) fn engine(&self) -> &engine::Node {
        &self.engine
    }

    /// A reliable datagram socket: connectionless; messages to one socket arrive once and in order as long as it and
    /// the way to it exist. With [`Socket::set_returned`] what cannot be delivered comes back.
    ///
    /// # Errors
    /// [`Error::Open`] if the node has no port left; so for all kinds of sockets.
    pub fn rdm(&self) -> Result<Socket> {
        self.socket(SocketKind::Rdm)
    }

    /// A datagram socket: as [`Node::rdm`], but its messages may be dropped first when a queue is full.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn dgram(&self) -> Result<Socket> {
        self.socket(SocketKind::Dgram)
    }

    /// A socket for connections that carry messages.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn seqpacket(&self) -> Result<Socket> {
        self.socket(SocketKind::SeqPacket)
    }

    /// A socket for connections that carry a stream of bytes.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn stream(&self) -> Result<Socket> {
        self.socket(SocketKind::Stream)
    }

    /// A socket of any kind.
    ///
    /// # Errors
    /// As [`Node::rdm`].
    pub fn socket(&self, kind: SocketKind) -> Result<Socket> {
        Socket::open(self, kind)
    }

    /// A server's socket in one step: open, listen, bind to `service` in the whole cluster.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Listen`] for a kind without connections.
    pub fn listen(&self, kind: SocketKind, service: impl Into<ServiceRange>) -> Result<Listener> {
        // In this order, so that nobody who sees the name is refused.
        let listener = Listener::new(self.socket(kind)?)?;
        listener.socket().bind(service, Scope::Cluster)?;
        Ok(listener)
    }

    /// A client's connection in one step.
    ///
    /// # Errors
    /// [`Error::Connect`] if nobody is bound to the service or the server refuses, [`Error::TimedOut`].
    pub fn connect(&self, kind: SocketKind, to: impl Into<Destination>) -> Result<Connection> {
        Connection::open(self.socket(kind)?, to)
    }

    /// A subscriber to this node's view of the cluster.
    ///
    /// # Errors
    /// [`Error::Connect`] if its topology server cannot be reached.
    pub fn topology(&self) -> Result<Topology> {
        Topology::open(self, self.address())
    }

    /// A subscriber to another node's view of the cluster.
    ///
    /// # Errors
    /// [`Error::Connect`] if that node cannot be reached.
    pub fn topology_of(&self, node: NodeAddr) -> Result<Topology> {
        Topology::open(self, node)
    }

    /// The own address.
    #[must_use]
    pub fn address(&self) -> NodeAddr {
        self.engine.address()
    }

    /// The nodes that this node knows, without itself.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.engine.peers()
    }

    /// The links to them.
    #[must_use]
    pub fn links(&self) -> Vec<LinkInfo> {
        self.engine.links()
    }

    /// The binding table: every service of the cluster, and who is bound to it.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        self.engine.bindings()
    }

    /// The socket that the next message to a service address would go to; several take turns.
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

    /// What the node has counted since it started.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Takes what has come and does what is due, without waiting, for a program with a loop of its own: it waits there for
    /// [`Node::descriptor`] instead of the descriptors of sockets, calls this, then asks its non-blocking sockets. No
    /// other thread has to run for a message to arrive. How long the loop may wait at most; `None`: for ever.
    ///
    /// With a daemon there is nothing to do.
    pub fn poll(&self) -> Option<Duration> {
        self.engine.poll()
    }

    /// Like [`Node::poll`], and waits until something has happened to one of the node's sockets, at most for `limit`;
    /// whether it has. For a program with one such thread and non-blocking sockets.
    ///
    /// With a daemon there is nothing to wait for, and it has not.
    pub fn drive(&self, limit: Duration) -> bool {
        self.engine.drive(limit)
    }

    /// Readable while there is something to take for [`Node::poll`]; none with a daemon, whose sockets have their own.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>> {
        self.engine.descriptor()
    }

    /// Waits until a socket is bound in `service`, here or on another node, and says which.
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
        up.unwrap_or(Err(Error::TimedOut { call: "the wait for a service", reason: None }))
    }
}
