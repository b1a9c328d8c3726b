//! Communication groups.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use utipc::{GroupIncoming, GroupPolicy, GroupRequest, SentTo, SlowMember};

use crate::address::PortId;
use crate::buffer::Outgoing;
use crate::socket::{Socket, Timeout};

/// A membership in a communication group: a set of sockets, on any nodes, that send to one another. `Node.join` opens
/// it.
///
/// A message goes to one member (`send`, `anycast`), to all members with an instance (`multicast`) or to all
/// (`broadcast`). Each member receives the messages of one sender exactly once and in the order in which they were
/// sent, over all four calls, as long as both are members. A member that does not receive blocks its senders: their
/// calls wait, and `Socket.wait_reason` names it. Iterate over it to receive until it is closed. Closing it leaves the
/// group; the other members get an event.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Group {
    socket: Py<Socket>,
    request: GroupRequest,
}

/// A member of a group.
#[pyclass(frozen, eq, ord, hash, module = "utipc", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member(utipc::Member);

/// A message of a member.
#[pyclass(frozen, module = "utipc")]
#[derive(Debug)]
pub(crate) struct GroupMessage {
    /// The payload.
    #[pyo3(get)]
    data: Py<PyBytes>,
    /// The sender.
    #[pyo3(get)]
    sender: Member,
    /// The kind of its destination: `"member"` (only this one), `"instance"` (all with this one's instance) or `"all"`;
    /// `None` on the kernel engine, which does not report it.
    #[pyo3(get)]
    sent_to: Option<&'static str>,
    /// Whether earlier messages of the sender are missing: its policy has dropped them, or replaced them by newer ones.
    /// Only if this member joined with a policy.
    #[pyo3(get)]
    after_loss: bool,
}

/// A member has joined, or was already in the group; only with `events=True`.
#[pyclass(frozen, eq, hash, module = "utipc")]
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Joined {
    /// The member.
    #[pyo3(get)]
    member: Member,
}

/// A member has left, has ended, or its node is lost; only with `events=True`. Everything that it sent and that arrived
/// comes before this event.
#[pyclass(frozen, eq, hash, module = "utipc")]
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    /// The member.
    #[pyo3(get)]
    member: Member,
}

/// A member was left out because it held others up; only with `events=True` and a policy. The eviction of this member
/// itself is always reported: sends then fail, until it leaves the group and joins again.
#[pyclass(frozen, eq, hash, module = "utipc")]
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Evicted {
    /// The member.
    #[pyo3(get)]
    member: Member,
}

/// The messages that a slow member has missed; see `Group.members`.
#[pyclass(frozen, get_all, module = "utipc")]
#[derive(Debug)]
pub(crate) struct MemberStatus {
    /// The member.
    member: Member,
    /// Its state: `"joined"`, `"active"` and so on, as in `utipc group list`.
    state: &'static str,
    /// Messages dropped.
    dropped: u64,
    /// Messages replaced by newer ones with the same key.
    conflated: u64,
    /// Messages that wait until it has room.
    kept: u32,
}

/// The policy with this name, as `Node.join` takes it.
pub(crate) fn policy_named(
    slow: Option<&str>,
    keys: u32,
    bytes: u32,
    after: Option<f64>,
) -> PyResult<GroupPolicy> {
    let wrong = |text: String| PyValueError::new_err(text);
    let slow = match (slow, after) {
        (None, None) => return Ok(GroupPolicy::LINUX),
        (Some("evict"), Some(seconds)) if seconds > 0.0 => {
            // The cast saturates; what is out of range is refused when the socket joins.
            SlowMember::Evict { after_ms: (seconds * 1000.0).ceil() as u32 }
        }
        (Some("evict"), _) => {
            return Err(wrong("evict_after must be a number of seconds above 0".to_owned()));
        }
        (_, Some(_)) => return Err(wrong("evict_after is for slow=\"evict\" only".to_owned())),
        (Some("wait"), None) => SlowMember::Wait,
        (Some("drop"), None) => SlowMember::Drop,
        (Some("conflate"), None) => SlowMember::Conflate { keys, bytes },
        (Some(other), None) => {
            return Err(wrong(format!("unknown policy {other:?} (use wait, drop, conflate or evict)")));
        }
    };
    Ok(GroupPolicy::new(slow))
}

impl Group {
    /// For a socket that has joined.
    pub(crate) fn new(py: Python<'_>, socket: utipc::Socket, request: GroupRequest) -> PyResult<Self> {
        Ok(Self { socket: Py::new(py, Socket::new(socket))?, request })
    }
}

#[pymethods]
impl Group {
    /// The group: a service type.
    #[getter]
    fn service(&self) -> u32 {
        self.request.member.service
    }

    /// This member: its socket's address and its instance.
    #[getter]
    fn member(&self, py: Python<'_>) -> PyResult<Member> {
        let PortId(port) = self.socket.get().port(py)?;
        Ok(Member(utipc::Member { port, instance: self.request.member.instance }))
    }

    /// The socket, for timeouts, options and `wait_reason`.
    #[getter]
    fn socket(&self, py: Python<'_>) -> Py<Socket> {
        self.socket.clone_ref(py)
    }

    /// The members, and what each of them did not get because it is slow.
    fn members(&self, py: Python<'_>) -> PyResult<Vec<MemberStatus>> {
        let members = self.socket.get().group_members(py)?;
        let status = |info: utipc::MemberInfo| MemberStatus {
            member: Member(utipc::Member { port: info.port, instance: info.instance }),
            state: info.state.name(),
            dropped: info.slow.dropped,
            conflated: info.slow.conflated,
            kept: info.slow.kept,
        };
        Ok(members.into_iter().map(status).collect())
    }

    /// Sends to all members; to this member only with `loopback=True`. Returns the number of bytes. `key`: for a slow
    /// member the message replaces the one with the same key, if this member joined with `slow="conflate"`.
    #[pyo3(signature = (data, *, key = 0))]
    fn broadcast(&self, py: Python<'_>, data: &Bound<'_, PyAny>, key: u64) -> PyResult<usize> {
        self.socket.get().send_bytes_keyed(py, &Outgoing::new(data)?, None, key)
    }

    /// Sends to all members with an instance; `key` as in `broadcast`.
    #[pyo3(signature = (instance, data, *, key = 0))]
    fn multicast(&self, py: Python<'_>, instance: u32, data: &Bound<'_, PyAny>, key: u64) -> PyResult<usize> {
        let to = utipc::ServiceRange::new(self.request.member.service, instance, instance);
        self.socket.get().send_bytes_keyed(py, &Outgoing::new(data)?, Some(to.into()), key)
    }

    /// Sends to one of the members with an instance, the one with the least unread; equals take turns.
    fn anycast(&self, py: Python<'_>, instance: u32, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let to = utipc::ServiceAddress::new(self.request.member.service, instance);
        self.socket.get().send_bytes_to(py, &Outgoing::new(data)?, to.into())
    }

    /// Sends to one member: a `Member`, or the `PortId` of its socket; `key` as in `broadcast`.
    #[pyo3(signature = (to, data, *, key = 0))]
    fn send(&self, py: Python<'_>, to: ToMember, data: &Bound<'_, PyAny>, key: u64) -> PyResult<usize> {
        self.socket.get().send_bytes_keyed(py, &Outgoing::new(data)?, Some(to.port().into()), key)
    }

    /// Receives the next `GroupMessage`, or with `events=True` the next `Joined`, `Left` or `Evicted`. Messages of one
    /// member arrive in order, and so do its joining and leaving among them.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn receive<'py>(&self, py: Python<'py>, timeout: Timeout) -> PyResult<Bound<'py, PyAny>> {
        let (incoming, after_loss) = self.socket.get().receive_in_group(py, timeout)?;
        match incoming {
            GroupIncoming::Message { data, from, to } => {
                let sent_to = match to {
                    SentTo::Member => Some("member"),
                    SentTo::Instance => Some("instance"),
                    SentTo::All => Some("all"),
                    SentTo::Unknown => None,
                };
                let data = PyBytes::new(py, &data).unbind();
                let message = GroupMessage { data, sender: Member(from), sent_to, after_loss };
                Ok(Bound::new(py, message)?.into_any())
            }
            GroupIncoming::Joined(member) => {
                Ok(Bound::new(py, Joined { member: Member(member) })?.into_any())
            }
            GroupIncoming::Left(member) => Ok(Bound::new(py, Left { member: Member(member) })?.into_any()),
            GroupIncoming::Evicted(member) => {
                Ok(Bound::new(py, Evicted { member: Member(member) })?.into_any())
            }
            other => Err(pyo3::exceptions::PyRuntimeError::new_err(format!("unknown event {other:?}"))),
        }
    }

    /// Leaves the group and returns the socket. Messages that have arrived can still be received from it.
    fn leave(&self, py: Python<'_>) -> PyResult<Py<Socket>> {
        self.socket.get().leave_group(py)?;
        Ok(self.socket.clone_ref(py))
    }

    /// Sets how long calls wait, in seconds; `None`: no limit, 0: do not wait.
    fn settimeout(&self, seconds: Option<f64>) -> PyResult<()> {
        self.socket.get().settimeout(seconds)
    }

    /// The timeout set by `settimeout`.
    fn gettimeout(&self) -> Option<f64> {
        self.socket.get().gettimeout()
    }

    /// A descriptor that is readable while `receive` would not wait, writable while a send would not; -1 once closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.socket.get().fileno(py)
    }

    /// Leaves the group and closes the socket.
    fn close(&self, py: Python<'_>) {
        self.socket.get().close(py);
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.socket.get().closed()
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.receive(py, Timeout::Own) {
            // Closed, possibly by another thread: end the iteration.
            Err(_) if self.closed() => Ok(None),
            received => received.map(Some),
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
        let utipc::ServiceAddress { service, instance } = self.request.member;
        format!("<utipc.Group {service}, instance {instance}, {}>", self.socket.get().describe(py))
    }
}

/// The destination of `Group.send`.
#[derive(FromPyObject)]
enum ToMember {
    Member(Member),
    Port(PortId),
}

impl ToMember {
    fn port(&self) -> utipc::PortId {
        match self {
            Self::Member(Member(member)) => member.port,
            Self::Port(PortId(port)) => *port,
        }
    }
}

#[pymethods]
impl Member {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str) = ("port", "instance");

    #[new]
    fn new(port: PortId, instance: u32) -> Self {
        Self(utipc::Member { port: port.0, instance })
    }

    /// Its socket.
    #[getter]
    fn port(&self) -> PortId {
        PortId(self.0.port)
    }

    /// Its instance, which other members may share.
    #[getter]
    fn instance(&self) -> u32 {
        self.0.instance
    }

    fn __repr__(&self) -> String {
        format!("Member(PortId({:#x}, {}), {})", self.0.port.node.0, self.0.port.port, self.0.instance)
    }

    fn __getnewargs__(&self) -> (PortId, u32) {
        (self.port(), self.0.instance)
    }
}

#[pymethods]
impl GroupMessage {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str) = ("data", "sender");

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<GroupMessage {} from {}>", self.data.bind(py).repr()?, self.sender.__repr__()))
    }
}

#[pymethods]
impl Joined {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("member",);

    fn __repr__(&self) -> String {
        format!("<Joined {}>", self.member.__repr__())
    }
}

#[pymethods]
impl Left {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("member",);

    fn __repr__(&self) -> String {
        format!("<Left {}>", self.member.__repr__())
    }
}

#[pymethods]
impl Evicted {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("member",);

    fn __repr__(&self) -> String {
        format!("<Evicted {}>", self.member.__repr__())
    }
}

#[pymethods]
impl MemberStatus {
    fn __repr__(&self) -> String {
        let Self { member, state, dropped, conflated, kept } = self;
        let member = member.__repr__();
        format!("<MemberStatus {member} {state}, dropped {dropped}, conflated {conflated}, kept {kept}>")
    }
}
