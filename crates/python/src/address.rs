//! Addresses as Python values: immutable, comparable, hashable, picklable.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// A service address: a service type and an instance of it.
#[pyclass(frozen, eq, ord, hash, module = "utipc", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceAddress(pub(crate) utipc::ServiceAddress);

/// A service range: a service type and its instances from `lower` to `upper`, inclusive.
#[pyclass(frozen, eq, ord, hash, module = "utipc", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceRange(pub(crate) utipc::ServiceRange);

/// The address of one socket, unique in the cluster.
#[pyclass(frozen, eq, ord, hash, module = "utipc", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PortId(pub(crate) utipc::PortId);

#[pymethods]
impl ServiceAddress {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str) = ("service", "instance");

    #[new]
    fn new(service: u32, instance: u32) -> Self {
        Self(utipc::ServiceAddress::new(service, instance))
    }

    /// Parses `{18888,17}`; the braces are optional, and `:` may replace the comma.
    #[classmethod]
    fn parse(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        match numbers(text).as_deref() {
            Some([service, instance]) => Ok(Self::new(*service, *instance)),
            _ => Err(unreadable(text, "a service address", "{18888,17}")),
        }
    }

    /// The service type; 0 to 63 are reserved.
    #[getter]
    fn service(&self) -> u32 {
        self.0.service
    }

    /// The instance.
    #[getter]
    fn instance(&self) -> u32 {
        self.0.instance
    }

    fn __repr__(&self) -> String {
        format!("ServiceAddress({}, {})", self.0.service, self.0.instance)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __getnewargs__(&self) -> (u32, u32) {
        (self.0.service, self.0.instance)
    }
}

#[pymethods]
impl ServiceRange {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str, &'static str) = ("service", "lower", "upper");

    #[new]
    #[pyo3(signature = (service, lower = 0, upper = 4294967295))]
    fn new(service: u32, lower: u32, upper: u32) -> PyResult<Self> {
        let range = utipc::ServiceRange::new(service, lower, upper);
        if range.is_valid() {
            return Ok(Self(range));
        }
        Err(PyValueError::new_err(format!("{range} is inverted (give the lower instance first)")))
    }

    /// Parses `{18888,0,99}`; the braces are optional, and `:` may replace the comma.
    #[classmethod]
    fn parse(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        match numbers(text).as_deref() {
            Some([service, lower, upper]) => Self::new(*service, *lower, *upper),
            _ => Err(unreadable(text, "a service range", "{18888,0,99}")),
        }
    }

    /// The service type; 0 to 63 are reserved.
    #[getter]
    fn service(&self) -> u32 {
        self.0.service
    }

    /// The lowest instance.
    #[getter]
    fn lower(&self) -> u32 {
        self.0.lower
    }

    /// The highest instance.
    #[getter]
    fn upper(&self) -> u32 {
        self.0.upper
    }

    fn __contains__(&self, address: ServiceAddress) -> bool {
        self.0.overlaps(&address.0.into())
    }

    fn __repr__(&self) -> String {
        format!("ServiceRange({}, {}, {})", self.0.service, self.0.lower, self.0.upper)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __getnewargs__(&self) -> (u32, u32, u32) {
        (self.0.service, self.0.lower, self.0.upper)
    }
}

#[pymethods]
impl PortId {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str) = ("node", "port");

    #[new]
    fn new(node: u32, port: u32) -> Self {
        Self(utipc::PortId { port, node: utipc::NodeAddr(node) })
    }

    /// Parses `1001001:2704156721`, the node in hexadecimal.
    #[classmethod]
    fn parse(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        let read = || {
            let (node, port) = text.split_once(':')?;
            Some(Self::new(u32::from_str_radix(node, 16).ok()?, port.parse().ok()?))
        };
        read().ok_or_else(|| unreadable(text, "the address of a socket", "1001001:2704156721"))
    }

    /// The node of the socket. TIPC shows it in hexadecimal: `f"{port.node:x}"`.
    #[getter]
    fn node(&self) -> u32 {
        self.0.node.0
    }

    /// The port number on that node.
    #[getter]
    fn port(&self) -> u32 {
        self.0.port
    }

    fn __repr__(&self) -> String {
        format!("PortId({:#x}, {})", self.0.node.0, self.0.port)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __getnewargs__(&self) -> (u32, u32) {
        (self.0.node.0, self.0.port)
    }
}

/// The numbers of `{1,2,3}`, with or without braces.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    let bare = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    bare.split([',', ':']).map(|number| number.trim().parse().ok()).collect()
}

fn unreadable(text: &str, what: &str, like: &str) -> PyErr {
    PyValueError::new_err(format!("{text:?} is not {what} (write it as {like})"))
}

/// The TypeError of an argument that is not an address.
fn no_address(value: Borrowed<'_, '_, PyAny>, what: &str, accepted: &str) -> PyErr {
    let text = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
    PyTypeError::new_err(format!("{text} is not {what} (use {accepted})"))
}

/// A service address or range, for bindings and subscriptions.
pub(crate) enum Bindable {
    /// One instance.
    Address(ServiceAddress),
    /// A range of instances.
    Range(ServiceRange),
}

impl<'py> FromPyObject<'_, 'py> for Bindable {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(address) = value.extract() {
            return Ok(Self::Address(address));
        }
        let accepted = "utipc.ServiceAddress(18888, 17) or utipc.ServiceRange(18888, 0, 99)";
        value.extract().map(Self::Range).map_err(|_| no_address(value, "a service", accepted))
    }
}

impl From<Bindable> for utipc::ServiceRange {
    fn from(to: Bindable) -> Self {
        match to {
            Bindable::Address(address) => address.0.into(),
            Bindable::Range(range) => range.0,
        }
    }
}

/// The destination of a message.
pub(crate) enum Target {
    /// One of the sockets bound to the address.
    Address(ServiceAddress),
    /// All sockets bound in the range.
    Range(ServiceRange),
    /// One socket.
    Port(PortId),
}

impl<'py> FromPyObject<'_, 'py> for Target {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(address) = value.extract() {
            return Ok(Self::Address(address));
        }
        if let Ok(range) = value.extract() {
            return Ok(Self::Range(range));
        }
        let accepted = "utipc.ServiceAddress(18888, 17), utipc.ServiceRange(18888, 0, 99), or the PortId of a message's source";
        value.extract().map(Self::Port).map_err(|_| no_address(value, "a destination", accepted))
    }
}

impl Target {
    /// The destination; with `node`, a service is looked up on that node only.
    pub(crate) fn on(self, node: Option<u32>) -> PyResult<utipc::Destination> {
        match (self, node) {
            (Self::Address(address), node) => {
                Ok(utipc::Destination::from(address.0).on(utipc::NodeAddr(node.unwrap_or(0))))
            }
            (_, Some(_)) => Err(PyTypeError::new_err(
                "node= is for a ServiceAddress only (a PortId has a node, and a ServiceRange addresses all nodes)",
            )),
            (Self::Range(range), None) => Ok(range.0.into()),
            (Self::Port(port), None) => Ok(port.0.into()),
        }
    }
}
