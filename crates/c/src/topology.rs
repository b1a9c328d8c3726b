//! Subscriptions at the topology server. Spec: tipc.md §10.
//!
//! A connection to it is an ordinary socket: programs may send `struct tipc_subscr` and receive `struct tipc_event` of
//! `linux/tipc.h` themselves.

use std::ffi::c_int;

use utipc::Socket;

use crate::address::TipcAddr;
use crate::call::{Fault, guard, status};
use crate::message::put;
use crate::socket::topology_server;
use crate::table;

/// Service types of nodes and links.
const NODE_STATE: u32 = 0;
const LINK_STATE: u32 = 2;
/// Filters: report every binding; report the first and the last binding of a range.
const PORTS: u32 = 1;
const SERVICE: u32 = 2;
const FOREVER: u32 = u32::MAX;
/// Kinds of events.
const PUBLISHED: u32 = 1;
const TIMEOUT: u32 = 3;

/// Words of `struct tipc_subscr`, the last two of which belong to the subscriber, and of `struct tipc_event`.
const SUBSCRIPTION: usize = 7;
const EVENT: usize = 12;

/// The fields of an event that the API reports.
struct Event {
    kind: u32,
    found_lower: u32,
    port: TipcAddr,
    service: u32,
}

fn subscribe(socket: &Socket, range: [u32; 3], all: bool, expire: c_int) -> Result<(), Fault> {
    let [service, lower, upper] = range;
    let timeout = u32::try_from(expire).unwrap_or(FOREVER);
    let filter = if all { PORTS } else { SERVICE };
    let words: [u32; SUBSCRIPTION] = [service, lower, upper, timeout, filter, 0, 0];
    socket.send(words.map(u32::to_ne_bytes).as_flattened())?;
    Ok(())
}

fn next(socket: &Socket) -> Result<Event, Fault> {
    let mut bytes = [[0; 4]; EVENT];
    let received = socket.receive_into(bytes.as_flattened_mut())?;
    if received.len == 0 {
        let text = "the topology server closed the connection (an invalid subscription, too many subscriptions, unread \
                    events, or contact lost): connect again";
        return Err(Fault::new(libc::ECONNRESET, text));
    }
    if received.len != size_of_val(&bytes) || received.truncated {
        let text = format!(
            "received {} bytes, which are not an event (use a connection of tipc_topsrv_conn)",
            received.len
        );
        return Err(Fault::new(libc::EPROTO, text));
    }
    let [kind, found_lower, _, port, node, service, ..] = bytes.map(u32::from_ne_bytes);
    Ok(Event { kind, found_lower, port: TipcAddr::new(0, port, node), service })
}

/// `int tipc_topsrv_conn(uint32_t topsrv_node)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_topsrv_conn(topsrv_node: u32) -> c_int {
    guard(-1, || table::add(topology_server(topsrv_node)?))
}

/// `int tipc_srv_subscr(int sd, uint32_t type, uint32_t lower, uint32_t upper, bool all, int expire)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_srv_subscr(
    sd: c_int,
    service: u32,
    lower: u32,
    upper: u32,
    all: bool,
    expire: c_int,
) -> c_int {
    status(|| subscribe(&table::get(sd)?.socket, [service, lower, upper], all, expire))
}

/// `int tipc_srv_evt(int sd, struct tipc_addr *srv, struct tipc_addr *addr, bool *up, bool *expired)`
///
/// # Safety
/// Each pointer is null or points to memory of its type.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_srv_evt(
    sd: c_int,
    srv: *mut TipcAddr,
    addr: *mut TipcAddr,
    up: *mut bool,
    expired: *mut bool,
) -> c_int {
    status(|| {
        let event = next(&table::get(sd)?.socket)?;
        let over = event.kind == TIMEOUT;
        // SAFETY: by the contract.
        unsafe {
            put(expired, over);
            put(up, event.kind == PUBLISHED);
            if !over {
                TipcAddr::new(event.service, event.found_lower, event.port.node).write(srv);
                event.port.write(addr);
            }
        }
        Ok(())
    })
}

/// `bool tipc_srv_wait(const struct tipc_addr *srv, int expire)`
///
/// # Safety
/// `srv` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_srv_wait(srv: *const TipcAddr, expire: c_int) -> bool {
    guard(false, || {
        // SAFETY: by the contract.
        let service = unsafe { TipcAddr::read(srv) }.ok_or_else(|| Fault::null("the service to wait for"))?;
        let socket = topology_server(0)?;
        // Every binding, because the first need not be on the requested node.
        subscribe(&socket, [service.kind, service.instance, service.instance], true, expire)?;
        loop {
            let event = next(&socket)?;
            if event.kind == TIMEOUT {
                let text = format!(
                    "service {{{},{}}} was not bound within {expire} ms (start its server, or wait longer)",
                    service.kind, service.instance
                );
                return Err(Fault::new(libc::ETIMEDOUT, text));
            }
            if event.kind == PUBLISHED && (service.node == 0 || service.node == event.port.node) {
                return Ok(true);
            }
        }
    })
}

fn follow(on: u32, service: u32) -> Result<c_int, Fault> {
    let socket = topology_server(on)?;
    subscribe(&socket, [service, 0, u32::MAX], true, -1)?;
    table::add(socket)
}

/// `int tipc_neigh_subscr(uint32_t topsrv_node)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_neigh_subscr(topsrv_node: u32) -> c_int {
    guard(-1, || follow(topsrv_node, NODE_STATE))
}

/// `int tipc_neigh_evt(int sd, uint32_t *neigh_node, bool *up)`
///
/// # Safety
/// As [`tipc_srv_evt`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_neigh_evt(sd: c_int, neigh_node: *mut u32, up: *mut bool) -> c_int {
    status(|| {
        let event = next(&table::get(sd)?.socket)?;
        // SAFETY: by the contract.
        unsafe {
            put(neigh_node, event.found_lower);
            put(up, event.kind == PUBLISHED);
        }
        Ok(())
    })
}

/// `int tipc_link_subscr(uint32_t topsrv_node)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_link_subscr(topsrv_node: u32) -> c_int {
    guard(-1, || follow(topsrv_node, LINK_STATE))
}

/// `int tipc_link_evt(int sd, uint32_t *neigh_node, bool *up, int *local_bearerid, int *remote_bearerid)`
///
/// # Safety
/// As [`tipc_srv_evt`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_link_evt(
    sd: c_int,
    neigh_node: *mut u32,
    up: *mut bool,
    local_bearerid: *mut c_int,
    remote_bearerid: *mut c_int,
) -> c_int {
    status(|| {
        let event = next(&table::get(sd)?.socket)?;
        let bearers = event.port.instance;
        let number = |half: u32| c_int::try_from(half & 0xffff).unwrap_or_default();
        // SAFETY: by the contract.
        unsafe {
            put(neigh_node, event.found_lower);
            put(up, event.kind == PUBLISHED);
            put(local_bearerid, number(bearers));
            put(remote_bearerid, number(bearers >> 16));
        }
        Ok(())
    })
}
