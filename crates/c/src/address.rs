//! `struct tipc_addr`: a service address, or a socket address if the type is 0.

use std::ffi::c_int;

use utipc::{Destination, NodeAddr, PortId, Scope, ServiceAddress, ServiceRange};

use crate::call::{Fault, status};
use crate::{node, table};

/// `struct tipc_addr` of `utipc.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TipcAddr {
    /// Service type; 0 in a socket address.
    pub(crate) kind: u32,
    /// Service instance, or a socket's port.
    pub(crate) instance: u32,
    /// The node, or 0 for any. In a multicast: the last instance.
    pub(crate) node: u32,
    /// Unused, and left unset by programs that know an older structure.
    scope: u32,
}

impl TipcAddr {
    pub(crate) const fn new(kind: u32, instance: u32, node: u32) -> Self {
        Self { kind, instance, node, scope: 0 }
    }

    /// Copies the address that a program passes.
    ///
    /// # Safety
    /// `from` is null or points to an address.
    pub(crate) unsafe fn read(from: *const Self) -> Option<Self> {
        if from.is_null() {
            return None;
        }
        // SAFETY: by the contract. Only the three words that every version of the structure has are read.
        Some(unsafe { Self::new((*from).kind, (*from).instance, (*from).node) })
    }

    /// Writes the address to memory of the program.
    ///
    /// # Safety
    /// `to` is null or points to memory of an address.
    pub(crate) unsafe fn write(self, to: *mut Self) {
        if to.is_null() {
            return;
        }
        // SAFETY: by the contract. Only the three words that every version of the structure has are written.
        unsafe {
            (*to).kind = self.kind;
            (*to).instance = self.instance;
            (*to).node = self.node;
        }
    }

    /// The destination of a message or connection request to this address.
    pub(crate) fn destination(self) -> Destination {
        let domain = NodeAddr(self.node);
        if self.kind == 0 {
            return PortId { port: self.instance, node: domain }.into();
        }
        Destination::Service { addr: ServiceAddress::new(self.kind, self.instance), domain }
    }

    /// The address that the sender used: a service, or for a multicast its first and last instance.
    pub(crate) fn addressed(range: ServiceRange) -> Self {
        Self::new(range.service, range.lower, if range.upper == range.lower { 0 } else { range.upper })
    }

    /// The service range of a multicast: from `instance` to `node`, as in the newer API. It is the single `instance` if
    /// `node` is less, or names this process's node or cluster, as in programs of the older API.
    pub(crate) fn multicast(self, own: NodeAddr) -> ServiceRange {
        let single = self.node < self.instance || self.node == own.0 || self.node == cluster(own.0);
        ServiceRange::new(self.kind, self.instance, if single { self.instance } else { self.node })
    }
}

impl From<PortId> for TipcAddr {
    fn from(port: PortId) -> Self {
        Self::new(0, port.port, port.node.0)
    }
}

/// The cluster part of an address of the form zone.cluster.node.
const fn cluster(node: u32) -> u32 {
    node & !0xfff
}

const fn zone(node: u32) -> u32 {
    node & !0x00ff_ffff
}

/// The scope of a binding. `scope` is a number of `linux/tipc.h`, or as in `tipcc.h` the address of this process's
/// node, cluster or zone.
pub(crate) fn binding_scope(scope: u32, own: NodeAddr) -> Result<Scope, Fault> {
    match scope {
        _ if scope == own.0 && scope != 0 => Ok(Scope::Node),
        _ if scope == u32::from(Scope::Node.number()) => Ok(Scope::Node),
        0..=2 => Ok(Scope::Cluster),
        _ if scope == cluster(own.0) || scope == zone(own.0) => Ok(Scope::Cluster),
        _ => {
            let text = format!(
                "cannot bind with scope {scope:#x}: neither the own node {own} nor its cluster (0 is the whole cluster, \
                 tipc_own_node() this node alone)"
            );
            Err(Fault::new(libc::EINVAL, text))
        }
    }
}

/// `uint32_t tipc_own_node(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_own_node() -> u32 {
    crate::call::guard(0, || Ok(node::own()?.address().0))
}

/// `tipc_domain_t tipc_own_cluster(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_own_cluster() -> u32 {
    cluster(tipc_own_node())
}

/// `tipc_domain_t tipc_own_zone(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_own_zone() -> u32 {
    zone(tipc_own_node())
}

/// `int tipc_sockaddr(int sd, struct tipc_addr *addr)`
///
/// # Safety
/// `addr` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_sockaddr(sd: c_int, addr: *mut TipcAddr) -> c_int {
    status(|| {
        if addr.is_null() {
            return Err(Fault::null("the place for the socket's address"));
        }
        let port = table::get(sd)?.socket.port();
        // SAFETY: by the contract.
        unsafe { TipcAddr::from(port).write(addr) };
        Ok(())
    })
}

/// `int tipc_sockid(int sd, struct tipc_addr *id)`: the older name of [`tipc_sockaddr`].
///
/// # Safety
/// As [`tipc_sockaddr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_sockid(sd: c_int, id: *mut TipcAddr) -> c_int {
    // SAFETY: the same contract.
    unsafe { tipc_sockaddr(sd, id) }
}

/// `int utipc_peeraddr(int sd, struct tipc_addr *addr)`
///
/// # Safety
/// As [`tipc_sockaddr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_peeraddr(sd: c_int, addr: *mut TipcAddr) -> c_int {
    status(|| {
        if addr.is_null() {
            return Err(Fault::null("the place for the peer's address"));
        }
        let peer = table::get(sd)?.socket.peer();
        let peer = peer.ok_or_else(|| Fault::new(libc::ENOTCONN, "the socket is not connected"))?;
        // SAFETY: by the contract.
        unsafe { TipcAddr::from(peer).write(addr) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_is_a_number_or_a_domain() {
        let own = NodeAddr(0x0100_1005);
        for cluster_scope in [0, 1, 2, 0x0100_1000, 0x0100_0000] {
            assert_eq!(binding_scope(cluster_scope, own).unwrap(), Scope::Cluster);
        }
        for node_scope in [3, own.0] {
            assert_eq!(binding_scope(node_scope, own).unwrap(), Scope::Node);
        }
        assert!(binding_scope(0x0100_1006, own).is_err());
    }

    #[test]
    fn multicast_range_falls_back_to_one_instance() {
        let own = NodeAddr(0x0100_1005);
        let range = |node| TipcAddr::new(1000, 10, node).multicast(own);
        assert_eq!(range(20), ServiceRange::new(1000, 10, 20));
        for single in [0, 9, 10, own.0, 0x0100_1000] {
            assert_eq!(range(single), ServiceRange::new(1000, 10, 10));
        }
    }

    #[test]
    fn type_zero_means_a_socket_address() {
        let port = PortId { port: 7, node: NodeAddr(9) };
        assert_eq!(TipcAddr::from(port).destination(), Destination::Port(port));
        let service = Destination::Service { addr: ServiceAddress::new(64, 7), domain: NodeAddr(9) };
        assert_eq!(TipcAddr::new(64, 7, 9).destination(), service);
    }
}
