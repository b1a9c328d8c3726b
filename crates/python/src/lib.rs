//! The native part of the Python package `utipc`: its classes are those of the crate [`utipc`], with Python's habits.
//!
//! Every call that may wait lets other Python threads run, and waits in slices, between which signals (Ctrl-C) are
//! handled and a socket that another thread has closed is noticed (`waiting`). Errors become the exceptions of
//! `utipc._errors`.

mod address;
mod data;
mod error;
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
    #[pymodule_export]
    use super::address::{PortId, ServiceAddress, ServiceRange};
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
