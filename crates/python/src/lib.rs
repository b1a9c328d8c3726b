//! The native part of the Python package `utipc`: the classes of the crate [`utipc`] with Python conventions.
//!
//! Each call that may wait releases the GIL and waits in slices; between slices it handles signals (Ctrl-C) and notices
//! whether another thread has closed the socket (see `waiting`). Errors become exceptions of `utipc._errors`.

mod address;
mod buffer;
mod error;
mod group;
mod info;
mod listener;
mod message;
mod node;
mod socket;
mod topology;
mod waiting;

use pyo3::prelude::*;

/// The native part of `utipc`.
#[pymodule]
mod _utipc {
    use pyo3::prelude::*;

    /// Adds the version.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::address::{PortId, ServiceAddress, ServiceRange};
    #[pymodule_export]
    use super::group::{Evicted, Group, GroupMessage, Joined, Left, Member, MemberStatus};
    #[pymodule_export]
    use super::info::{Binding, Link, Peer};
    #[pymodule_export]
    use super::listener::Listener;
    #[pymodule_export]
    use super::message::{Message, Returned};
    #[pymodule_export]
    use super::node::Node;
    #[pymodule_export]
    use super::socket::Socket;
    #[pymodule_export]
    use super::topology::{Event, Topology};
}
