//! Descriptors become TIPC sockets and cease to be: their entries in the table, and the program's standard streams.
//!
//! This file and `stdio.rs` need each other: a descriptor that becomes standard input or output gets a stream, and the
//! stream's functions are the calls that this file serves.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use libc::c_int;
use utipc_client::Socket;
use utipc_core::socket::{OptionValue, SocketKind, SocketOption};
use utipc_os::reentry::Gap;

use crate::entry::{Entry, flags};
use crate::errno::{Code, code};
use crate::handlers::Inside;
use crate::node::{exact_hang_up, node};
use crate::{real, stdio, table};

/// Opens a socket of the daemon's node; returns its descriptor.
pub(crate) fn open(kind: SocketKind, flags: c_int) -> Result<RawFd, Code> {
    let (socket, near) = node()?.open_kept(kind).map_err(|error| code(&error))?;
    if kind.is_connection_oriented() && exact_hang_up() {
        let set = socket.set_option(SocketOption::ExactHangUp, OptionValue::Number(1));
        set.map_err(|error| code(&error))?;
    }
    Ok(enter(socket, near, flags))
}

/// Enters a new socket into the table; returns its descriptor, with SOCK_NONBLOCK and SOCK_CLOEXEC as requested.
pub(crate) fn enter(socket: Socket, near: OwnedFd, flags: c_int) -> RawFd {
    let fd = near.into_raw_fd();
    if flags & libc::SOCK_CLOEXEC == 0 {
        // SAFETY: no pointers; the descriptor is open.
        unsafe { real::fcntl.get()(fd, libc::F_SETFD, 0) };
    }
    socket.set_interruptible(true);
    socket.renumber(Some(fd));
    let entry = Arc::new(Entry::opened(fd, socket));
    if flags & libc::SOCK_NONBLOCK != 0 {
        set_nonblocking(fd);
        entry.set_nonblocking(true);
    }
    is_own_memory();
    let before = table::set(fd, entry);
    {
        // No lock is held here.
        let _gap = Gap::open();
        drop(before);
    }
    stdio::became_tipc(fd);
    fd
}

fn set_nonblocking(fd: RawFd) {
    let flags = flags(fd) | libc::O_NONBLOCK;
    // SAFETY: no pointers; the descriptor is open.
    unsafe { real::fcntl.get()(fd, libc::F_SETFL, flags as usize) };
}

/// Enters a descriptor that exec or another process has passed on into the table, if it is a TIPC socket.
pub(crate) fn receive(fd: RawFd) {
    // SAFETY: the program owns the descriptor and is in the call that has just returned it.
    let found = unsafe { BorrowedFd::borrow_raw(fd) };
    if table::get(fd).is_none() && utipc_client::may_be_claimed(found) {
        is_own_memory();
        // It may be a copy of a known descriptor; all numbers of a socket share one entry.
        let same = table::all().find(|(_, other)| other.is_same_file(fd)).map(|(_, other)| other);
        let entry = same.unwrap_or_else(|| Arc::new(Entry::unclaimed(fd)));
        drop(table::set(fd, entry));
        stdio::became_tipc(fd);
    }
}

/// Removes `fd`, which is about to be closed or replaced. Drop the result after that.
#[must_use = "dropping it closes the socket, which must happen after the descriptor is closed"]
pub(crate) fn leave(fd: RawFd) -> Option<Arc<Entry>> {
    if table::get(fd).is_none() || !is_own_memory() {
        return None;
    }
    let (entry, last) = table::take(fd)?;
    let Some(_inside) = Inside::enter() else {
        // A signal handler, or its child, that closes all descriptors: as if they were closed unnoticed.
        std::mem::forget(entry);
        return None;
    };
    stdio::ceased_to_be_tipc(fd);
    let other = || {
        let other = || {
            // The search may drop the last references to other sockets; no lock is held here.
            let _gap = Gap::open();
            table::other_number(&entry)
        };
        let other = if last { None } else { other() };
        // Other references are those of calls in progress: a closed number is not looked up any more.
        other.or_else(|| if Arc::strong_count(&entry) > 1 { entry.keep(fd) } else { None })
    };
    let is_left = |number| {
        let _gap = Gap::open();
        table::get(number).is_none()
    };
    entry.renumber(fd, other, is_left);
    Some(entry)
}

/// Whether this process owns the table: a child of `vfork` runs in its parent's memory but closes its own descriptors.
pub(crate) fn is_own_memory() -> bool {
    static OWNER: AtomicI32 = AtomicI32::new(0);
    static GENERATION: AtomicI32 = AtomicI32::new(-1);
    let generation = utipc_os::fork::generation().cast_signed();
    // SAFETY: no requirements.
    let pid = unsafe { libc::getpid() };
    if GENERATION.swap(generation, Relaxed) != generation {
        OWNER.store(pid, Relaxed);
    }
    OWNER.load(Relaxed) == pid
}
