//! The kernel's TIPC as an engine: sockets are the kernel's, and so is the node.

mod node;
mod reasons;
mod setup;
mod socket;
mod transfer;

use utipc_core::addr::Scope;
use utipc_os::af_tipc::Address;

use crate::{Destination, NodeAddr, PortId, ServiceRange};

pub(crate) use node::Node;
pub(crate) use socket::Socket;

/// A destination as the kernel knows it.
fn address(to: Destination) -> Address {
    match to {
        Destination::Service { addr, domain } => {
            Address::Service { service: addr.service, instance: addr.instance, domain: domain.0 }
        }
        Destination::Range(range) => range_address(range),
        Destination::Port(port) => Address::Port { port: port.port, node: port.node.0 },
    }
}

fn range_address(range: ServiceRange) -> Address {
    Address::Range { service: range.service, lower: range.lower, upper: range.upper }
}

/// The number of a scope.
fn scope_number(scope: Scope) -> i8 {
    match scope {
        Scope::Cluster => 2,
        Scope::Node => 3,
    }
}

/// The socket that an address names; none for other addresses.
fn port(address: Option<Address>) -> PortId {
    match address {
        Some(Address::Port { port, node }) => PortId { port, node: NodeAddr(node) },
        _ => PortId::default(),
    }
}
