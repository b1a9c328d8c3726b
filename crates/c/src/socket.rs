//! Opening, binding, connecting, closing.

use std::ffi::c_int;
use std::time::Duration;

use utipc::{Scope, ServiceRange, SocketKind, State};

use crate::address::{TipcAddr, binding_scope};
use crate::call::{Fault, guard, status};
use crate::options::limit;
use crate::{node, table};

/// `int tipc_socket(int sk_type)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_socket(sk_type: c_int) -> c_int {
    guard(-1, || {
        let kind = match sk_type & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            libc::SOCK_STREAM => SocketKind::Stream,
            libc::SOCK_SEQPACKET => SocketKind::SeqPacket,
            libc::SOCK_RDM => SocketKind::Rdm,
            libc::SOCK_DGRAM => SocketKind::Dgram,
            other => {
                let text = format!(
                    "no TIPC socket is of type {other} (SOCK_RDM, SOCK_DGRAM, SOCK_SEQPACKET or SOCK_STREAM)"
                );
                return Err(Fault::new(libc::EPROTOTYPE, text));
            }
        };
        let socket = node::open(kind)?;
        socket.set_nonblocking(sk_type & libc::SOCK_NONBLOCK != 0);
        table::add(socket)
    })
}

/// `int tipc_close(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_close(sd: c_int) -> c_int {
    status(|| table::remove(sd))
}

/// `int utipc_shutdown(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_shutdown(sd: c_int) -> c_int {
    status(|| Ok(table::get(sd)?.socket.shutdown()?))
}

/// `int tipc_bind(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_bind(sd: c_int, service: u32, lower: u32, upper: u32, scope: u32) -> c_int {
    status(|| {
        let entry = table::get(sd)?;
        let scope = binding_scope(scope, entry.socket.node().address())?;
        Ok(entry.socket.bind(ServiceRange::new(service, lower, upper), scope)?)
    })
}

/// `int utipc_bind_exclusive(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope, int timeout_ms)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_bind_exclusive(
    sd: c_int,
    service: u32,
    lower: u32,
    upper: u32,
    scope: u32,
    timeout_ms: c_int,
) -> c_int {
    status(|| {
        let entry = table::get(sd)?;
        let scope = binding_scope(scope, entry.socket.node().address())?;
        let limit = limit(timeout_ms).unwrap_or(Duration::MAX);
        Ok(entry.socket.bind_exclusive(ServiceRange::new(service, lower, upper), scope, limit)?)
    })
}

/// `int tipc_unbind(int sd, uint32_t type, uint32_t lower, uint32_t upper)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_unbind(sd: c_int, service: u32, lower: u32, upper: u32) -> c_int {
    status(|| {
        let entry = table::get(sd)?;
        let range = ServiceRange::new(service, lower, upper);
        // The call does not name the scope of the binding.
        let tried = entry.socket.unbind(range, Scope::Cluster);
        Ok(tried.or_else(|error| entry.socket.unbind(range, Scope::Node).map_err(|_| error))?)
    })
}

/// `int tipc_connect(int sd, const struct tipc_addr *dst)`
///
/// # Safety
/// `dst` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_connect(sd: c_int, dst: *const TipcAddr) -> c_int {
    status(|| {
        // SAFETY: by the contract.
        let to = unsafe { TipcAddr::read(dst) }.ok_or_else(|| Fault::null("the address to connect to"))?;
        Ok(table::get(sd)?.socket.connect(to.destination())?)
    })
}

/// `int utipc_connected(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_connected(sd: c_int) -> c_int {
    guard(-1, || {
        let entry = table::get(sd)?;
        match entry.socket.state() {
            State::Open | State::Listen => {
                Err(Fault::new(libc::ENOTCONN, "no connection was requested (call tipc_connect)"))
            }
            State::Connecting => Ok(0),
            State::Established => Ok(1),
            // A peer that accepted may have ended the connection already; what it sent can still be received.
            State::Disconnecting => Ok(entry.socket.wait_connected().map(|()| 1)?),
        }
    })
}

/// `int tipc_listen(int sd, int backlog)`: the node ignores the backlog.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_listen(sd: c_int, _backlog: c_int) -> c_int {
    status(|| Ok(table::get(sd)?.socket.listen()?))
}

/// `int tipc_accept(int sd, struct tipc_addr *src)`
///
/// # Safety
/// `src` is null or points to memory of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_accept(sd: c_int, src: *mut TipcAddr) -> c_int {
    guard(-1, || {
        let (socket, peer) = table::get(sd)?.socket.accept()?;
        let new = table::add(socket)?;
        // SAFETY: by the contract.
        unsafe { TipcAddr::from(peer).write(src) };
        Ok(new)
    })
}

/// Connects to the topology server of a node; 0 is this process's node. Spec: tipc.md §10.
pub(crate) fn topology_server(on: u32) -> Result<utipc::Socket, Fault> {
    let socket = node::open(SocketKind::SeqPacket)?;
    socket.connect(TipcAddr::new(1, 1, on).destination())?;
    Ok(socket)
}

/// The port number of a socket that is opened and closed for this call, as in `tipcc.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_own_socket() -> u32 {
    guard(0, || Ok(node::open(SocketKind::Rdm)?.port().port))
}
