//! Subscriptions to the services, nodes and links of the cluster. Spec: tipc.md §10.

use std::time::Duration;

use utipc_core::limits::{LINK_STATE, NODE_STATE, TOPOLOGY_SERVER};
use utipc_core::topology::{ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, Subscription, TopologyEvent};
use utipc_os::{Deadline, Left, Wait};

use crate::{
    Destination, Error, Node, NodeAddr, PortId, Result, ServiceAddress, ServiceRange, Socket, SocketKind,
};

/// Identifies one subscription of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(u64);

/// A connection to the topology server of a node, which reports services, nodes and links as that node sees them.
///
/// Each subscription first yields an event for everything that is already there, then the changes in order, until it is
/// cancelled.
///
/// ```
/// # fn main() -> utipc::Result<()> {
/// # use std::time::Duration;
/// use utipc::{Change, Node, Scope, ServiceAddress, ServiceRange};
/// let node = Node::builder().isolated().start()?;
/// let mut topology = node.topology()?;
/// topology.services(ServiceRange::new(18888, 0, 99))?;
///
/// let server = node.rdm()?;
/// server.bind(ServiceAddress::new(18888, 17), Scope::Cluster)?;
/// let event = topology.next(Duration::from_secs(5))?.expect("the server is up");
/// assert_eq!(event.change, Change::ServiceUp);
/// assert_eq!(event.found, ServiceRange::new(18888, 17, 17));
/// assert_eq!(event.port, server.port());
///
/// drop(server);
/// let event = topology.next(Duration::from_secs(5))?.expect("the server is down");
/// assert_eq!(event.change, Change::ServiceDown);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Topology {
    socket: Socket,
    server: NodeAddr,
    subscriptions: Vec<(SubscriptionId, Subscription)>,
    next_id: u64,
}

/// One event of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The change.
    pub change: Change,
    /// The service range that was bound or withdrawn. For a node its address, for a link the peer's address, as both
    /// ends of the range.
    pub found: ServiceRange,
    /// The socket that bound the range; for a link, `port.port` is the link's number.
    pub port: PortId,
    /// The subscription that the event belongs to.
    pub subscription: SubscriptionId,
}

/// A change that an [`Event`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A service is available.
    ServiceUp,
    /// A service is no longer available.
    ServiceDown,
    /// A node has joined the cluster.
    NodeUp(NodeAddr),
    /// A node has left, failed or become unreachable.
    NodeDown(NodeAddr),
    /// A link to this node is up.
    LinkUp(NodeAddr),
    /// A link to this node is down.
    LinkDown(NodeAddr),
    /// The subscription's time limit has passed.
    Expired,
}

impl Event {
    /// True if something became available.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.change, Change::ServiceUp | Change::NodeUp(_) | Change::LinkUp(_))
    }

    fn from_wire(event: &TopologyEvent) -> Self {
        let node = NodeAddr(event.found.lower);
        let change = match (event.kind, event.subscription.range.service) {
            (EventKind::Timeout, _) => Change::Expired,
            (EventKind::Published, NODE_STATE) => Change::NodeUp(node),
            (EventKind::Withdrawn, NODE_STATE) => Change::NodeDown(node),
            (EventKind::Published, LINK_STATE) => Change::LinkUp(node),
            (EventKind::Withdrawn, LINK_STATE) => Change::LinkDown(node),
            (EventKind::Published, _) => Change::ServiceUp,
            (EventKind::Withdrawn, _) => Change::ServiceDown,
        };
        let subscription = SubscriptionId(u64::from_ne_bytes(event.subscription.handle));
        Self { change, found: event.found, port: event.port, subscription }
    }
}

impl Topology {
    pub(crate) fn open(node: &Node, server: NodeAddr) -> Result<Self> {
        let socket = node.socket(SocketKind::SeqPacket)?;
        let service = ServiceAddress { service: TOPOLOGY_SERVER, instance: TOPOLOGY_SERVER };
        socket.connect(Destination::Service { addr: service, domain: server })?;
        Ok(Self { socket, server, subscriptions: Vec::new(), next_id: 1 })
    }

    /// Reports every binding in a service range; several sockets bound to one address give one event each.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an inverted range, [`Error::Send`] if the server is lost; as for all subscriptions.
    pub fn services(&mut self, range: impl Into<ServiceRange>) -> Result<SubscriptionId> {
        self.subscribe(range, Filter::PORTS, None)
    }

    /// Reports whether a service is available at all: the first binding of a range and the withdrawal of its last one.
    ///
    /// # Errors
    /// As [`Topology::services`].
    pub fn availability(&mut self, range: impl Into<ServiceRange>) -> Result<SubscriptionId> {
        self.subscribe(range, Filter::SERVICE, None)
    }

    /// Reports the nodes of the cluster, including the node itself.
    ///
    /// # Errors
    /// As [`Topology::services`].
    pub fn nodes(&mut self) -> Result<SubscriptionId> {
        self.subscribe(ServiceRange::new(NODE_STATE, 0, u32::MAX), Filter::PORTS, None)
    }

    /// Reports the links of the server's node.
    ///
    /// # Errors
    /// As [`Topology::services`].
    pub fn links(&mut self) -> Result<SubscriptionId> {
        self.subscribe(ServiceRange::new(LINK_STATE, 0, u32::MAX), Filter::PORTS, None)
    }

    /// Subscribes with every setting chosen; after `limit` the subscription ends with [`Change::Expired`].
    ///
    /// # Errors
    /// As [`Topology::services`].
    pub fn subscribe(
        &mut self,
        range: impl Into<ServiceRange>,
        filter: Filter,
        limit: Option<Duration>,
    ) -> Result<SubscriptionId> {
        let range = range.into();
        if range.lower > range.upper {
            let what = "the service range of a subscription";
            return Err(Error::OutOfRange { what, remedy: "the lower instance is not above the upper" });
        }
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let timeout_ms =
            limit.map_or(FOREVER, |limit| u32::try_from(limit.as_millis()).unwrap_or(FOREVER - 1));
        let subscription = Subscription { range, timeout_ms, filter, handle: id.0.to_ne_bytes() };
        self.socket.send(&subscription.to_bytes(ByteOrder::NATIVE))?;
        self.subscriptions.push((id, subscription));
        Ok(id)
    }

    /// Cancels a subscription. Events already in flight may still arrive.
    ///
    /// # Errors
    /// As [`Topology::services`].
    pub fn cancel(&mut self, id: SubscriptionId) -> Result<()> {
        let Some(at) = self.subscriptions.iter().position(|(known, _)| *known == id) else { return Ok(()) };
        let (_, mut subscription) = self.subscriptions.swap_remove(at);
        subscription.filter = subscription.filter.with(Filter::CANCEL);
        self.socket.send(&subscription.to_bytes(ByteOrder::NATIVE))?;
        Ok(())
    }

    /// The next event, or `None` if there is none within `limit`.
    ///
    /// # Errors
    /// [`Error::TopologyClosed`] if the server ended the connection; open a new [`Topology`] then.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Event>> {
        self.socket.set_receive_timeout(Some(limit));
        let closed = || Error::TopologyClosed { node: self.server };
        let mut buffer = [0; EVENT_LEN];
        let received = match self.socket.receive_into(&mut buffer) {
            Ok(received) => received,
            Err(error) if error.is_temporary() => return Ok(None),
            Err(Error::Receive(_)) => return Err(closed()),
            Err(error) => return Err(error),
        };
        let event =
            TopologyEvent::from_bytes(&buffer[..received.len], ByteOrder::NATIVE).map_err(|_| closed())?;
        let event = Event::from_wire(&event);
        if event.change == Change::Expired {
            self.subscriptions.retain(|(id, _)| *id != event.subscription);
        }
        Ok(Some(event))
    }

    /// The events until `limit` from now has passed; with `None` endless, as is `for event in &mut topology`. After an
    /// error the iterator ends.
    ///
    /// ```
    /// # fn main() -> utipc::Result<()> {
    /// # use utipc::{Node, Scope, Service};
    /// # let node = Node::builder().isolated().start()?;
    /// const PRINTERS: Service = Service::of_type(3000);
    /// let mut topology = node.topology()?;
    /// topology.services(PRINTERS)?;
    /// # let printer = node.rdm()?;
    /// # printer.bind(Service::new(3000, 7), Scope::Cluster)?;
    /// for event in topology.events(None) {
    ///     let event = event?;
    ///     println!("{} {:?}", event.found, event.change);
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&mut self, limit: impl Into<Option<Duration>>) -> Events<'_> {
        let end = limit.into().map_or(Wait::Forever, Wait::AtMost).start();
        Events { topology: self, end, is_over: false }
    }

    /// The node whose topology server this is.
    #[must_use]
    pub fn server(&self) -> NodeAddr {
        self.server
    }

    /// The socket, for polling.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl<'a> IntoIterator for &'a mut Topology {
    type Item = Result<Event>;
    type IntoIter = Events<'a>;

    /// All events, without a time limit.
    fn into_iter(self) -> Events<'a> {
        self.events(None)
    }
}

/// Iterates over the events of a [`Topology`], endlessly or until a deadline; see [`Topology::events`].
#[derive(Debug)]
pub struct Events<'a> {
    topology: &'a mut Topology,
    end: Deadline,
    /// An error was returned.
    is_over: bool,
}

impl Iterator for Events<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let limit = match self.end.left() {
            Left::Time(limit) => limit.unwrap_or(Duration::MAX),
            Left::Nothing => Duration::ZERO,
        };
        let next = self.topology.next(limit).transpose();
        self.is_over = matches!(next, Some(Err(_)));
        next
    }
}
