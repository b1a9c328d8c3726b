//! Opening, binding, connecting and shutting down sockets.

use std::time::Duration;

use libc::{c_int, sockaddr, socklen_t};
use utipc_client::{Failure, Socket, Wait};
use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::socket::{BindError, Destination, SocketKind, State};
use utipc_manage::Request;

use super::replace;
use crate::address::{self, AF_TIPC, Binding, Connect};
use crate::entry::Entry;
use crate::errno::{Code, c_result, code, code_of_wait, fail};
use crate::handlers::{AGAIN, Inside};
use crate::node::{list, node};
use crate::{descriptors, netlink, real, table};

/// Socket types known to the kernel are below this; TIPC has four of them.
const TYPE_LIMIT: c_int = 11;

/// Longer than any connection setup takes.
pub(super) const LONG: Duration = Duration::from_secs(1 << 20);

/// Pause before an accept fails because the daemon has died.
const DEAD_LISTENER_PAUSE: Duration = Duration::from_millis(1);

/// Flags that can be combined with a socket's type.
const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Decodes the arguments of `socket`. Spec: tipc.md §8.1.
fn socket_kind(kind: c_int, protocol: c_int) -> Result<SocketKind, Code> {
    let kind = kind & !FLAGS;
    if !(0..TYPE_LIMIT).contains(&kind) {
        return Err(libc::EINVAL);
    }
    if protocol != 0 {
        return Err(libc::EPROTONOSUPPORT);
    }
    match kind {
        libc::SOCK_STREAM => Ok(SocketKind::Stream),
        libc::SOCK_SEQPACKET => Ok(SocketKind::SeqPacket),
        libc::SOCK_RDM => Ok(SocketKind::Rdm),
        libc::SOCK_DGRAM => Ok(SocketKind::Dgram),
        _ => Err(libc::EPROTOTYPE),
    }
}

/// Two connected sockets.
fn pair(kind: SocketKind) -> Result<(Socket, Socket), utipc_client::Error> {
    let node = node().map_err(|_| utipc_client::Error::Absent(Vec::new()))?;
    let (one, other) = (node.open(kind)?, node.open(kind)?);
    let at = |socket: &Socket| Destination::Port(PortId { port: socket.port(), node: NodeAddr::NONE });
    if !kind.is_connection_oriented() {
        one.connect(Some(at(&other)))?;
        other.connect(Some(at(&one)))?;
        return Ok((one, other));
    }
    other.listen()?;
    one.connect(Some(at(&other)))?;
    let accepted = other.accept(Wait::Forever)?;
    one.wait_connected(Wait::Forever)?;
    let (other, _) = accepted.ok_or(utipc_client::Error::Interrupted)?;
    Ok((one, other))
}

fn socket_pair(kind: c_int, protocol: c_int) -> Result<[c_int; 2], Code> {
    let kind_of_both = socket_kind(kind, protocol)?;
    let inside = Inside::enter().ok_or(AGAIN)?;
    let (one, other) = pair(kind_of_both).map_err(|error| code(&error))?;
    let near = one.keep().map_err(|error| code(&error))?;
    let far = other.keep().map_err(|error| code(&error))?;
    drop(inside);
    let peers = [other.port(), one.port()];
    let pair = [descriptors::enter(one, near, kind & FLAGS), descriptors::enter(other, far, kind & FLAGS)];
    let node = node()?.address();
    for (fd, port) in pair.into_iter().zip(peers) {
        if let Some(entry) = table::get(fd) {
            // Connection-oriented sockets get their peer from the node.
            let _ = entry.pair.set(Box::new(PortId { port, node }));
        }
    }
    Ok(pair)
}

/// Whether a socket of this node has any binding.
fn is_bound(port: u32) -> Result<bool, Code> {
    list(&Request::Bindings { port }).map(|bindings| !bindings.is_empty())
}

fn bind_to(entry: &Entry, what: Binding) -> Result<c_int, Code> {
    let socket = entry.socket()?;
    let done = match what {
        Binding::Bind(range, scope) => socket.bind(range, scope),
        Binding::Unbind(range, scope) => match socket.unbind(Some((range, scope))) {
            // Unbinding succeeds if the socket has no binding at all. Spec: tipc.md §1.3.
            Err(error) if code(&error) == libc::EINVAL && !is_bound(socket.port())? => Ok(()),
            done => done,
        },
        Binding::UnbindAll => match socket.unbind(None) {
            // Linux reports no error here.
            Err(utipc_client::Error::Failed(Failure::Bind(BindError::NotBound))) => Ok(()),
            done => done,
        },
    };
    done.map(|()| 0).map_err(|error| code(&error))
}

fn connect_to(entry: &Entry, to: Connect) -> Result<c_int, Code> {
    let socket = entry.socket()?;
    let connects = socket.kind().is_connection_oriented();
    let to = match to {
        Connect::To(Destination::Range(_)) if connects => return Err(libc::EINVAL),
        Connect::To(to) => Some(to),
        Connect::Clear if connects => return Err(libc::EINVAL),
        Connect::Clear => None,
    };
    let waits = !entry.is_nonblocking(&socket);
    if connects {
        match socket.look().map_err(|error| code(&error))?.state {
            State::Open => {}
            // A second blocking call waits for the connection that the first one requested.
            State::Connecting if waits => return wait_connected(&socket),
            State::Connecting => return Err(libc::EALREADY),
            State::Established => return Err(libc::EISCONN),
            State::Listen | State::Disconnecting => return Err(libc::EINVAL),
        }
    }
    socket.connect(to).map_err(|error| code(&error))?;
    match (connects, waits) {
        (false, _) => Ok(0),
        (true, true) => wait_connected(&socket),
        (true, false) => Err(libc::EINPROGRESS),
    }
}

fn wait_connected(socket: &Socket) -> Result<c_int, Code> {
    // The endpoint's connect timeout ends the wait, or any signal, because the call has a time limit.
    socket.wait_connected(Wait::AtMost(LONG)).map(|_| 0).map_err(|error| code(&error))
}

fn accept_at(entry: &Entry, flags: c_int) -> Result<(c_int, PortId), Code> {
    if flags & !FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    let socket = entry.socket()?;
    if !socket.kind().is_connection_oriented() {
        return Err(libc::EOPNOTSUPP);
    }
    let wait = entry.receive_wait(&socket, 0);
    let accepted = socket.accept(wait).map_err(|error| accept_code(&error, wait))?;
    let (new, peer) = accepted.ok_or(libc::EAGAIN)?;
    let near = new.keep().map_err(|error| code(&error))?;
    Ok((descriptors::enter(new, near, flags), peer))
}

/// The errno of a failed accept. After the daemon's death it is one that accept loops tolerate: libzmq aborts on
/// ECONNRESET. The listener stays readable, so a short pause keeps such a loop from occupying a processor.
fn accept_code(error: &utipc_client::Error, wait: Wait) -> Code {
    match code_of_wait(error, wait) {
        libc::ECONNRESET => {
            std::thread::sleep(DEAD_LISTENER_PAUSE);
            libc::ECONNABORTED
        }
        other => other,
    }
}

fn own_name(entry: &Entry) -> Result<PortId, Code> {
    let socket = entry.socket()?;
    Ok(PortId { port: socket.port(), node: node()?.address() })
}

fn peer_name(entry: &Entry) -> Result<PortId, Code> {
    let socket = entry.socket()?;
    if let Some(peer) = entry.pair.get().filter(|_| !socket.kind().is_connection_oriented()) {
        return Ok(*peer);
    }
    let view = socket.look().map_err(|error| code(&error))?;
    let mut peer = view.peer.filter(|_| view.state == State::Established).ok_or(libc::ENOTCONN)?;
    if peer.node.is_none() {
        peer.node = node()?.address();
    }
    Ok(peer)
}

fn shut(entry: &Entry, how: c_int) -> Result<c_int, Code> {
    if how != libc::SHUT_RDWR {
        return Err(libc::EINVAL);
    }
    entry.socket()?.shutdown().map(|()| 0).map_err(|error| code(&error))
}

replace! {
    /// Opens a socket.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if domain == AF_TIPC {
            let Some(_inside) = Inside::enter() else { return fail(AGAIN) };
            let opened = socket_kind(kind, protocol).and_then(|parsed| descriptors::open(parsed, kind & FLAGS));
            // Without a daemon, try the kernel's own TIPC.
            if opened != Err(libc::EAFNOSUPPORT) {
                return c_result(opened);
            }
        }
        netlink::opened(domain, protocol);
        // SAFETY: as the caller's.
        unsafe { real::socket.get()(domain, kind, protocol) }
    }

    /// Opens two connected sockets.
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
        if domain == AF_TIPC {
            return c_result(socket_pair(kind, protocol).map(|[one, other]| {
                // SAFETY: the caller has room for two.
                unsafe {
                    fds.write(one);
                    fds.add(1).write(other);
                }
                0
            }));
        }
        // SAFETY: as the caller's.
        unsafe { real::socketpair.get()(domain, kind, protocol, fds) }
    }

    /// Binds; with a negative scope or no address, unbinds.
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's address has that many bytes.
            let what = unsafe { address::binding(addr, len) };
            return c_result(what.and_then(|what| bind_to(&entry, what)));
        }
        // SAFETY: as the caller's.
        unsafe { real::bind.get()(fd, addr, len) }
    }

    /// Makes the socket a listener; the backlog is ignored.
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        if let Some(entry) = table::get(fd) {
            let listen = |socket: &Socket| socket.listen().map(|()| 0).map_err(|error| code(&error));
            return c_result(entry.socket().and_then(|socket| listen(&socket)));
        }
        // SAFETY: as the caller's.
        unsafe { real::listen.get()(fd, backlog) }
    }

    /// Accepts a connection.
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if table::get(fd).is_some() { accept4(fd, addr, len, 0) } else { real::accept.get()(fd, addr, len) }
        }
    }

    /// Accepts a connection, with flags for the new descriptor.
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        if let Some(entry) = table::get(fd) {
            return c_result(accept_at(&entry, flags).map(|(new, peer)| {
                // SAFETY: the caller's room for an address. An invalid length leaves it unchanged.
                let _ = unsafe { address::store(peer.into(), addr, len) };
                new
            }));
        }
        // SAFETY: as the caller's.
        unsafe { real::accept4.get()(fd, addr, len, flags) }
    }

    /// Connects, or sets the default destination.
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's address has that many bytes.
            let to = unsafe { address::connect(addr, len) };
            return c_result(to.and_then(|to| connect_to(&entry, to)));
        }
        // SAFETY: as the caller's.
        unsafe { real::connect.get()(fd, addr, len) }
    }

    /// Shuts a connection down, always in both directions.
    fn shutdown(fd: c_int, how: c_int) -> c_int {
        if let Some(entry) = table::get(fd) {
            return c_result(shut(&entry, how));
        }
        // SAFETY: as the caller's.
        unsafe { real::shutdown.get()(fd, how) }
    }

    /// The socket's own address, independent of its bindings.
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's room for an address.
            let store = |name: PortId| unsafe { address::store(name.into(), addr, len) };
            return c_result(own_name(&entry).and_then(store).map(|()| 0));
        }
        // SAFETY: as the caller's.
        unsafe { real::getsockname.get()(fd, addr, len) }
    }

    /// The address of the connection's peer.
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's room for an address.
            let store = |name: PortId| unsafe { address::store(name.into(), addr, len) };
            return c_result(peer_name(&entry).and_then(store).map(|()| 0));
        }
        // SAFETY: as the caller's.
        unsafe { real::getpeername.get()(fd, addr, len) }
    }
}
