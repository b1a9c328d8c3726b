//! Descriptors: `close`, copies, flags, `ioctl`.

use std::os::fd::RawFd;
use std::sync::Arc;

use libc::{c_int, c_uint, c_ulong};
use utipc_core::addr::NodeAddr;
use utipc_manage::{Entry as ListEntry, Request};
use utipc_os::{hidden, reentry};

use super::replace;
use crate::entry::Entry;
use crate::errno::{Code, c_result, fail};
use crate::handlers::{AGAIN, Inside};
use crate::node::{list, node};
use crate::{descriptors, handlers, real, stdio, table};

/// `ioctl`s of TIPC sockets. Spec: tipc.md §8.9.
const SIOCGETLINKNAME: c_ulong = 0x89E0;
const SIOCGETNODEID: c_ulong = 0x89E1;
/// An `ioctl` of packet sockets that TIPC sockets do not have.
const SIOCATMARK: c_ulong = 0x8905;

/// Longest name of a link in bytes, including its NUL.
const LINK_NAME: usize = 68;

/// `struct tipc_sioc_ln_req`.
#[repr(C)]
struct LinkName {
    peer: u32,
    bearer: u32,
    name: [u8; LINK_NAME],
}

/// `struct tipc_sioc_nodeid_req`.
#[repr(C)]
struct NodeId {
    peer: u32,
    id: [u8; 16],
}

/// Enters a copied descriptor into the table.
fn copied(entry: Option<Arc<Entry>>, new: c_int) -> c_int {
    if let Some(entry) = entry.filter(|_| new >= 0 && descriptors::is_own_memory()) {
        drop(table::set(new, entry));
        stdio::became_tipc(new);
    }
    new
}

/// Fails as for a descriptor that is not open.
fn not_open() -> c_int {
    fail(libc::EBADF)
}

/// The parts of a range of numbers between descriptors that are hidden from the program.
fn around_hidden(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    let mut parts = Vec::new();
    let mut from = first;
    for number in hidden::all().into_iter().filter_map(|number| c_uint::try_from(number).ok()) {
        if number < from || number > last {
            continue;
        }
        if number > from {
            parts.push((from, number - 1));
        }
        from = number + 1;
    }
    // The kernel reports an invalid range.
    if from <= last || from == first {
        parts.push((from, last));
    }
    parts
}

/// Copies a descriptor onto a number that may be in use.
fn copy_onto(old: RawFd, new: RawFd, copy: impl FnOnce() -> c_int) -> c_int {
    if hidden::is_hidden(new) {
        return not_open();
    }
    if reentry::is_inside() && table::get(new).is_some() {
        return fail(AGAIN);
    }
    let entry = table::get(old);
    // SAFETY: no pointers.
    let is_open = old != new && unsafe { real::fcntl.get()(old, libc::F_GETFD, 0) } >= 0;
    let left = if is_open { descriptors::leave(new) } else { None };
    let done = copied(entry.filter(|_| is_open), copy());
    drop(left);
    done
}

/// Removes all TIPC sockets in a range of numbers that is about to be closed.
fn leave_range(first: u32, last: u32) -> Vec<Arc<Entry>> {
    let in_range = |fd: &RawFd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
    let numbers: Vec<RawFd> = table::all().map(|(fd, _)| fd).filter(in_range).collect();
    numbers.into_iter().filter_map(descriptors::leave).collect()
}

fn link_name(request: &mut LinkName) -> Result<c_int, Code> {
    let links = list(&Request::Links { broadcast: false })?;
    let found = links.into_iter().find_map(|entry| match entry {
        ListEntry::Link(link) => {
            let (path, wide) = (link.path?, link.wide?);
            (path.peer == request.peer && wide.bearer == request.bearer & 0xffff).then_some(link.name)
        }
        _ => None,
    });
    let name = found.ok_or(libc::EADDRNOTAVAIL)?;
    request.name = [0; LINK_NAME];
    for (to, from) in request.name.iter_mut().take(LINK_NAME - 1).zip(name.bytes()) {
        *to = from;
    }
    Ok(0)
}

fn node_id(request: &mut NodeId) -> Result<c_int, Code> {
    let own = NodeAddr(request.peer) == node()?.address();
    let nodes = if request.peer != 0 && own { list(&Request::Net)? } else { list(&Request::Nodes)? };
    let found = nodes.into_iter().find_map(|entry| match entry {
        ListEntry::Net(net) => Some(net.identity),
        ListEntry::Node(node) if node.address == request.peer => node.identity,
        _ => None,
    });
    request.id = found.ok_or(libc::EADDRNOTAVAIL)?;
    Ok(0)
}

/// # Safety
/// `argument` is valid for the request.
unsafe fn control(fd: RawFd, entry: &Entry, request: c_ulong, argument: usize) -> Result<c_int, Code> {
    match request {
        SIOCGETLINKNAME | SIOCGETNODEID if argument == 0 => Err(libc::EFAULT),
        SIOCGETLINKNAME => {
            let _inside = Inside::enter().ok_or(AGAIN)?;
            // SAFETY: by the caller's promise a pointer to such a structure, which is integers and bytes.
            let place = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<LinkName>(argument) };
            link_name(place)
        }
        SIOCGETNODEID => {
            let _inside = Inside::enter().ok_or(AGAIN)?;
            // SAFETY: as above.
            let place = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<NodeId>(argument) };
            node_id(place)
        }
        libc::FIONREAD | libc::TIOCOUTQ | SIOCATMARK => Err(libc::ENOTTY),
        _ => {
            // SAFETY: by the caller's promise.
            let done = unsafe { real::ioctl.get()(fd, request, argument) };
            if done == 0 && request == libc::FIONBIO {
                // SAFETY: the kernel has just read an integer there.
                let on = unsafe { *std::ptr::with_exposed_provenance::<c_int>(argument) };
                entry.set_nonblocking(on != 0);
            } else if done == 0 && request == libc::FIOASYNC {
                // SAFETY: as above.
                let on = unsafe { *std::ptr::with_exposed_provenance::<c_int>(argument) };
                entry.set_signalling(on != 0);
            }
            Ok(done)
        }
    }
}

fn file_control(fd: c_int, command: c_int, argument: usize, real: impl FnOnce() -> c_int) -> c_int {
    let Some(entry) = table::get(fd) else { return real() };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(Some(entry), real()),
        libc::F_SETFL => {
            let done = real();
            if done == 0 {
                entry.set_nonblocking(argument & libc::O_NONBLOCK as usize != 0);
                entry.set_signalling(argument & libc::O_ASYNC as usize != 0);
            }
            done
        }
        _ => real(),
    }
}

replace! {
    /// Closes a descriptor.
    fn close(fd: c_int) -> c_int {
        if hidden::is_hidden(fd) {
            return not_open();
        }
        if reentry::is_inside() && table::get(fd).is_some() {
            return handlers::close_later(fd);
        }
        let left = descriptors::leave(fd);
        // SAFETY: as the caller's.
        let done = unsafe { real::close.get()(fd) };
        drop(left);
        done
    }

    /// Closes all descriptors in a range.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let closes = flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 && first <= last;
        let left = if closes { leave_range(first, last) } else { Vec::new() };
        let mut done = 0;
        for (first, last) in around_hidden(first, last) {
            // SAFETY: as the caller's.
            done |= unsafe { real::close_range.get()(first, last, flags) };
        }
        drop(left);
        done
    }

    /// Closes all descriptors from `first` on.
    fn closefrom(first: c_int) -> () {
        let first = first.max(0).cast_unsigned();
        let left = leave_range(first, u32::MAX);
        for (first, last) in around_hidden(first, u32::MAX) {
            // SAFETY: as the caller's.
            unsafe { real::close_range.get()(first, last, 0) };
        }
        drop(left);
    }

    /// Copies a descriptor.
    fn dup(fd: c_int) -> c_int {
        let entry = table::get(fd);
        // SAFETY: as the caller's.
        copied(entry, unsafe { real::dup.get()(fd) })
    }

    /// Copies a descriptor onto a number.
    fn dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: as the caller's.
        copy_onto(old, new, || unsafe { real::dup2.get()(old, new) })
    }

    /// Copies a descriptor onto a number, with flags.
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        copy_onto(old, new, || unsafe { real::dup3.get()(old, new, flags) })
    }

    /// Copies a descriptor of another process.
    fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
        // SAFETY: as the caller's.
        let copy = unsafe { real::pidfd_getfd.get()(process, fd, flags) };
        if copy >= 0 {
            descriptors::receive(copy);
        }
        copy
    }

    /// Reads or changes flags of a descriptor, or copies it.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as the caller's.
        file_control(fd, command, argument, || unsafe { real::fcntl.get()(fd, command, argument) })
    }

    /// `fcntl` with large-file support.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as the caller's.
        file_control(fd, command, argument, || unsafe { real::fcntl64.get()(fd, command, argument) })
    }

    /// Device requests.
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            match table::get(fd) {
                Some(entry) => c_result(control(fd, &entry, request, argument)),
                None => real::ioctl.get()(fd, request, argument),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[test]
    fn ranges_exclude_hidden_descriptors() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = hidden::raise(OwnedFd::from(one));
        let _hiding = hidden::Hiding::of(&fd);
        let number = c_uint::try_from(fd.as_raw_fd()).unwrap();
        assert_eq!(
            around_hidden(number - 2, number + 3),
            [(number - 2, number - 1), (number + 1, number + 3)]
        );
        assert_eq!(around_hidden(number, number), []);
        assert_eq!(around_hidden(9, 3), [(9, 3)]);
    }
}
