//! The kernel engine: sockets and node are those of the kernel's TIPC.

mod connect_setup;
mod errors;
mod netlink;
mod node;
mod socket;
mod transfer;

use utipc_os::af_tipc::Address;

use crate::{Destination, NodeAddr, PortId, ServiceRange};

pub(crate) use netlink::TipcNetlink;
pub(crate) use node::Node;
pub(crate) use socket::Socket;

/// The kernel's form of a destination.
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

/// The socket that an address names; the default for other addresses.
fn port(address: Option<Address>) -> PortId {
    match address {
        Some(Address::Port { port, node }) => PortId { port, node: NodeAddr(node) },
        _ => PortId::default(),
    }
}
