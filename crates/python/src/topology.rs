//! Subscriptions to the services, nodes and links of the cluster.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::{Change, Filter, SubscriptionId};

use crate::address::{Bindable, PortId, ServiceRange};
use crate::error::{closed, exception};
use crate::waiting::{Clock, Limit};

/// A connection to the topology server of a node, which reports services, nodes and links as that node sees them.
///
/// Each subscription first yields an event for everything that already exists, then the changes in order. Iterate
/// over it for events until it is closed.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Topology {
    open: Mutex<Option<Arc<Shared>>>,
}

struct Shared {
    topology: Mutex<Subscriber>,
    /// The descriptor of its socket, which lives as long as this value.
    descriptor: RawFd,
}

struct Subscriber {
    topology: utipc::Topology,
    /// Subscriptions by their number in Python, which is the position in this list, counted from 1.
    ids: Vec<SubscriptionId>,
}

/// One event of a subscription.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Event {
    /// The change: `"service_up"`, `"service_down"`, `"node_up"`, `"node_down"`, `"link_up"`, `"link_down"` or
    /// `"expired"`.
    change: &'static str,
    /// The range that was bound or withdrawn.
    found: ServiceRange,
    /// The socket that bound it; for a link, `port.port` is the link's number.
    port: PortId,
    /// The node that came or went, or the peer of the link.
    node: Option<u32>,
    /// The subscription: the number returned by `services`, `nodes` and the like.
    subscription: usize,
}

#[pymethods]
impl Event {
    /// True if something became available.
    #[getter]
    fn is_up(&self) -> bool {
        matches!(self.change, "service_up" | "node_up" | "link_up")
    }

    fn __repr__(&self) -> String {
        match self.node {
            Some(node) => format!("<Event {} {node:x}>", self.change),
            None => format!("<Event {} {} at {}>", self.change, self.found.0, self.port.0),
        }
    }
}

impl Subscriber {
    fn event(&self, event: utipc::Event) -> Event {
        let (change, node) = match event.change {
            Change::ServiceUp => ("service_up", None),
            Change::ServiceDown => ("service_down", None),
            Change::NodeUp(node) => ("node_up", Some(node.0)),
            Change::NodeDown(node) => ("node_down", Some(node.0)),
            Change::LinkUp(node) => ("link_up", Some(node.0)),
            Change::LinkDown(node) => ("link_down", Some(node.0)),
            _ => ("expired", None),
        };
        let place = self.ids.iter().position(|id| *id == event.subscription);
        Event {
            change,
            found: ServiceRange(event.found),
            port: PortId(event.port),
            node,
            subscription: place.map_or(0, |place| place + 1),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Subscriber> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be an event, a signal has arrived, or the time is over.
    fn sleep(&self, limit: Duration) {
        // SAFETY: the descriptor belongs to the socket in `self.topology`, which keeps it open, and `self` is live.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        let limit = Timespec::try_from(limit).ok();
        // The caller checks again, whatever the reason to return.
        let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], limit.as_ref());
    }
}

impl Topology {
    pub(crate) fn new(py: Python<'_>, topology: utipc::Topology) -> PyResult<Self> {
        let descriptor = topology.socket().descriptor().map_err(|error| exception(py, &error))?.as_raw_fd();
        let topology = Mutex::new(Subscriber { topology, ids: Vec::new() });
        Ok(Self { open: Mutex::new(Some(Arc::new(Shared { topology, descriptor }))) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<Shared>> {
        self.lock().clone().ok_or_else(|| closed(py, "topology"))
    }

    fn add(
        &self,
        py: Python<'_>,
        subscribe: impl FnOnce(&mut utipc::Topology) -> utipc::Result<SubscriptionId> + Send,
    ) -> PyResult<usize> {
        let shared = self.get(py)?;
        let added = py.detach(|| {
            let mut subscriber = shared.lock();
            let id = subscribe(&mut subscriber.topology)?;
            subscriber.ids.push(id);
            Ok(subscriber.ids.len())
        });
        added.map_err(|error| exception(py, &error))
    }

    fn wait(&self, py: Python<'_>, limit: Limit) -> PyResult<Option<Event>> {
        let shared = self.get(py)?;
        let clock = Clock::start(limit);
        loop {
            let next = || {
                let mut subscriber = shared.lock();
                let event = subscriber.topology.next(Duration::ZERO)?;
                Ok(event.map(|event| subscriber.event(event)))
            };
            if let Some(event) = py.detach(next).map_err(|error| exception(py, &error))? {
                return Ok(Some(event));
            }
            let Some(slice) = clock.slice() else { return Ok(None) };
            py.detach(|| shared.sleep(slice));
            py.check_signals()?;
            if self.closed() {
                return Err(closed(py, "topology"));
            }
        }
    }
}

#[pymethods]
impl Topology {
    /// Reports every binding in a service range; several sockets bound to one address give one event each. Returns the
    /// number of the subscription, like all subscriptions.
    fn services(&self, py: Python<'_>, service: Bindable) -> PyResult<usize> {
        self.add(py, |topology| topology.services(service))
    }

    /// Reports whether a service is available at all: its first binding and the withdrawal of its last one.
    fn availability(&self, py: Python<'_>, service: Bindable) -> PyResult<usize> {
        self.add(py, |topology| topology.availability(service))
    }

    /// Reports the nodes of the cluster, including the node itself.
    fn nodes(&self, py: Python<'_>) -> PyResult<usize> {
        self.add(py, utipc::Topology::nodes)
    }

    /// Reports the links of the node.
    fn links(&self, py: Python<'_>) -> PyResult<usize> {
        self.add(py, utipc::Topology::links)
    }

    /// Subscribes to a service range: to each binding (`ports`) or to its availability. After `limit` seconds the
    /// subscription ends with an event `"expired"`.
    #[pyo3(signature = (service, *, ports = true, limit = None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        service: Bindable,
        ports: bool,
        limit: Option<f64>,
    ) -> PyResult<usize> {
        let limit = Limit::from_seconds(limit)?.0;
        let filter = if ports { Filter::PORTS } else { Filter::SERVICE };
        self.add(py, |topology| topology.subscribe(service, filter, limit))
    }

    /// Cancels a subscription. Events already in flight may still arrive.
    fn cancel(&self, py: Python<'_>, subscription: usize) -> PyResult<()> {
        let shared = self.get(py)?;
        let cancel = || {
            let mut subscriber = shared.lock();
            let id = subscription.checked_sub(1).and_then(|place| subscriber.ids.get(place)).copied();
            id.map_or(Ok(()), |id| subscriber.topology.cancel(id))
        };
        py.detach(cancel).map_err(|error| exception(py, &error))
    }

    /// The next event, or `None` if none arrives within `timeout` seconds; without a timeout, no limit.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        self.wait(py, Limit::from_seconds(timeout)?)
    }

    /// The address of the node whose topology server this is.
    #[getter]
    fn server(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.lock().topology.server().0)
    }

    /// A descriptor that is readable while an event waits; -1 once closed.
    fn fileno(&self) -> RawFd {
        self.lock().as_ref().map_or(-1, |shared| shared.descriptor)
    }

    /// Closes the connection, which ends all subscriptions.
    fn close(&self, py: Python<'_>) {
        let shared = self.lock().take();
        py.detach(|| drop(shared));
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        match self.wait(py, Limit(None)) {
            // It was closed, possibly by another thread: end the iteration.
            Err(_) if self.closed() => Ok(None),
            event => event,
        }
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
        self.server(py).map_or_else(
            |_| "<utipc.Topology closed>".to_owned(),
            |server| format!("<utipc.Topology of node {server:x}>"),
        )
    }
}
