//! Subscriptions to what happens in the cluster.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::{Change, Filter, SubscriptionId};

use crate::address::{Bindable, PortId, ServiceRange};
use crate::error::{closed, exception};
use crate::waiting::{Clock, Limit};

/// A connection to the topology server of a node, which tells what that node sees.
///
/// Each subscription begins with what is there already; then follow the changes, in order. Iterate over it for one event
/// after the other, until it is closed.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Topology {
    open: Mutex<Option<Arc<Shared>>>,
}

struct Shared {
    topology: Mutex<Subscriber>,
    /// Of its socket, which lives as long as this value.
    descriptor: RawFd,
}

struct Subscriber {
    topology: utipc::Topology,
    /// Python's numbers of subscriptions: places in this list, from 1.
    ids: Vec<SubscriptionId>,
}

/// Something happened.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Event {
    /// What: `"service_up"`, `"service_down"`, `"node_up"`, `"node_down"`, `"link_up"`, `"link_down"` or `"expired"`.
    change: &'static str,
    /// The range that was bound or withdrawn.
    found: ServiceRange,
    /// The socket that bound it; for a link, `port.port` is the link's number.
    port: PortId,
    /// The node that came or went, or to which the link is.
    node: Option<u32>,
    /// Whose answer this is: what `services`, `nodes` and the like returned.
    subscription: usize,
}

#[pymethods]
impl Event {
    /// True if something came up.
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

    /// Waits until there may be an event, a signal has come, or the time is over.
    fn sleep(&self, limit: Duration) {
        // SAFETY: the descriptor belongs to the socket in `self.topology`, which keeps it for life, and `self` lives.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        let limit = Timespec::try_from(limit).ok();
        // Whatever the reason to return is, the caller looks anew.
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
        self.lock().clone().ok_or_else(|| closed(py, "subscriber"))
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
            let look = || {
                let mut subscriber = shared.lock();
                let event = subscriber.topology.next(Duration::ZERO)?;
                Ok(event.map(|event| subscriber.event(event)))
            };
            if let Some(event) = py.detach(look).map_err(|error| exception(py, &error))? {
                return Ok(Some(event));
            }
            let Some(slice) = clock.slice() else { return Ok(None) };
            py.detach(|| shared.sleep(slice));
            py.check_signals()?;
            if self.closed() {
                return Err(closed(py, "subscriber"));
            }
        }
    }
}

#[pymethods]
impl Topology {
    /// Follows every binding in a service range: with several sockets bound to one address, each is told. The number of the
    /// subscription, as for all of them.
    fn services(&self, py: Python<'_>, service: Bindable) -> PyResult<usize> {
        self.add(py, |topology| topology.services(service))
    }

    /// Follows whether a service is available at all: its first binding and the withdrawal of its last.
    fn availability(&self, py: Python<'_>, service: Bindable) -> PyResult<usize> {
        self.add(py, |topology| topology.availability(service))
    }

    /// Follows the nodes of the cluster, the own one included.
    fn nodes(&self, py: Python<'_>) -> PyResult<usize> {
        self.add(py, utipc::Topology::nodes)
    }

    /// Follows the links of the node.
    fn links(&self, py: Python<'_>) -> PyResult<usize> {
        self.add(py, utipc::Topology::links)
    }

    /// Follows a service range, each binding (`ports`) or its availability; with a `limit` in seconds it ends by an event
    /// `"expired"`.
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

    /// Ends a subscription. Events that are on their way may still come.
    fn cancel(&self, py: Python<'_>, subscription: usize) -> PyResult<()> {
        let shared = self.get(py)?;
        let cancel = || {
            let mut subscriber = shared.lock();
            let id = subscription.checked_sub(1).and_then(|place| subscriber.ids.get(place)).copied();
            id.map_or(Ok(()), |id| subscriber.topology.cancel(id))
        };
        py.detach(cancel).map_err(|error| exception(py, &error))
    }

    /// The next event; `None` if there is none within `timeout` seconds. Without a timeout it waits for ever.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        self.wait(py, Limit::from_seconds(timeout)?)
    }

    /// The address of the node whose view this is.
    #[getter]
    fn server(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.lock().topology.server().0)
    }

    /// A descriptor that is readable while an event waits; -1 once it is closed.
    fn fileno(&self) -> RawFd {
        self.lock().as_ref().map_or(-1, |shared| shared.descriptor)
    }

    /// Closes it, and with it all subscriptions.
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
            // Closed before or by another thread meanwhile: no more events.
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
