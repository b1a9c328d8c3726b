//! Listening sockets.

use pyo3::prelude::*;

use crate::address::PortId;
use crate::socket::{Socket, Timeout};

/// Accepts connections; see `Node.listen`. Iterate over it to accept clients until it is closed.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Listener {
    socket: Py<Socket>,
}

impl Listener {
    pub(crate) fn new(py: Python<'_>, listener: utipc::Listener) -> PyResult<Self> {
        Ok(Self { socket: Py::new(py, Socket::new(listener.into()))? })
    }
}

#[pymethods]
impl Listener {
    /// Makes a bound socket listen.
    #[new]
    fn from_socket(py: Python<'_>, socket: Py<Socket>) -> PyResult<Self> {
        socket.get().listen(py)?;
        Ok(Self { socket })
    }

    /// Waits for a client; returns the connection's socket.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn accept(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Socket> {
        Ok(self.socket.get().accept(py, timeout)?.0)
    }

    /// The socket, for options and further bindings.
    #[getter]
    fn socket(&self, py: Python<'_>) -> Py<Socket> {
        self.socket.clone_ref(py)
    }

    /// The address of the socket.
    #[getter]
    fn port(&self, py: Python<'_>) -> PyResult<PortId> {
        self.socket.get().port(py)
    }

    /// Sets how long `accept` waits, in seconds; `None`: no limit.
    #[pyo3(signature = (seconds))]
    fn settimeout(&self, seconds: Option<f64>) -> PyResult<()> {
        self.socket.get().settimeout(seconds)
    }

    /// The timeout set by `settimeout`.
    fn gettimeout(&self) -> Option<f64> {
        self.socket.get().gettimeout()
    }

    /// A descriptor that is readable while a client waits; -1 once closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.socket.get().fileno(py)
    }

    /// Closes the listener: waiting clients are refused, connections stay open.
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

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Socket>> {
        match self.accept(py, Timeout::Own) {
            // The listener was closed, possibly by another thread: end the iteration.
            Err(_) if self.closed() => Ok(None),
            accepted => accepted.map(Some),
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
        format!("<utipc.Listener {}>", self.socket.get().describe(py))
    }
}
