//! Received messages.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::address::{PortId, ServiceRange};

/// A received message.
#[pyclass(frozen, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Message {
    /// The payload. On a connection, empty data means that the peer has shut it down.
    #[pyo3(get)]
    data: Py<PyBytes>,
    /// The sender's socket: the destination of a reply.
    #[pyo3(get)]
    source: PortId,
    /// The services that the sender addressed, if any; for a service address both ends are equal.
    #[pyo3(get)]
    destination: Option<ServiceRange>,
    /// Set if this is an undeliverable message of this socket.
    #[pyo3(get)]
    returned: Option<Py<Returned>>,
    /// `"low"`, `"medium"`, `"high"` or `"critical"`.
    #[pyo3(get)]
    importance: &'static str,
}

/// The reason and data of a returned message.
#[pyclass(frozen, module = "utipc")]
#[derive(Debug)]
pub(crate) struct Returned {
    /// TIPC's number for the reason.
    #[pyo3(get)]
    code: u8,
    /// The reason as text.
    #[pyo3(get)]
    reason: String,
    /// The start of the message's data, at most 1024 bytes.
    #[pyo3(get)]
    data: Py<PyBytes>,
}

impl Message {
    pub(crate) fn new(py: Python<'_>, incoming: utipc::Incoming) -> PyResult<Self> {
        let returned = incoming.returned.map(|returned| Py::new(py, Returned::new(py, &returned)));
        Ok(Self {
            data: PyBytes::new(py, &incoming.data).unbind(),
            source: PortId(incoming.source),
            destination: incoming.destination.map(ServiceRange),
            returned: returned.transpose()?,
            importance: importance_name(incoming.importance),
        })
    }
}

impl Returned {
    fn new(py: Python<'_>, returned: &utipc::Returned) -> Self {
        use utipc::ErrorCode;
        let reason = match returned.code {
            ErrorCode::Ok => "no error",
            ErrorCode::NoName => "no socket is bound to the service",
            ErrorCode::NoPort => "there is no such socket",
            ErrorCode::NoNode => "contact with the node was lost",
            ErrorCode::Overload => "the receiver's queue is full",
            ErrorCode::ConnShutdown => "the peer shut the connection down",
            ErrorCode::Other(code) => {
                return Self::of(py, code, format!("error {code}, which has no name"), &returned.data);
            }
        };
        Self::of(py, returned.code.into(), reason.to_owned(), &returned.data)
    }

    fn of(py: Python<'_>, code: u8, reason: String, data: &[u8]) -> Self {
        Self { code, reason, data: PyBytes::new(py, data).unbind() }
    }
}

#[pymethods]
impl Message {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let data = self.data.bind(py).repr()?;
        let mut text = format!("<Message {data} from {}", self.source.0);
        if let Some(destination) = self.destination {
            text += &format!(" to {}", destination.0);
        }
        if let Some(returned) = &self.returned {
            text += &format!(", came back: {}", returned.get().reason);
        }
        Ok(text + ">")
    }
}

#[pymethods]
impl Returned {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Returned {} ({}): {}>", self.code, self.reason, self.data.bind(py).repr()?))
    }
}

/// Names of importance levels, by number.
const IMPORTANCE: [&str; 4] = ["low", "medium", "high", "critical"];

fn importance_name(importance: utipc::Importance) -> &'static str {
    IMPORTANCE[importance as usize]
}

/// The importance with this name.
pub(crate) fn importance(name: &str) -> Option<utipc::Importance> {
    let number = IMPORTANCE.iter().position(|known| *known == name)?;
    utipc::Importance::from_number(u32::try_from(number).ok()?)
}
