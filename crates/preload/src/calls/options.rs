//! Socket options: TIPC's own, and general ones that differ between a TIPC socket and the packet socket whose
//! descriptor it has. Spec: tipc.md §8.9.

use libc::{c_int, c_void, socklen_t};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::socket::{OptionValue, SocketKind, SocketOption, State};

use super::replace;
use crate::address::AF_TIPC;
use crate::ancillary::SOL_TIPC;
use crate::entry::Entry;
use crate::errno::{Code, c_result, code};
use crate::{real, table};

/// `struct tipc_group_req` of `linux/tipc.h`: type, instance, scope and flags.
type GroupWords = [u32; 4];

fn type_number(kind: SocketKind) -> c_int {
    match kind {
        SocketKind::Stream => libc::SOCK_STREAM,
        SocketKind::SeqPacket => libc::SOCK_SEQPACKET,
        SocketKind::Rdm => libc::SOCK_RDM,
        SocketKind::Dgram => libc::SOCK_DGRAM,
    }
}

/// The value of a general option; `None` if the kernel's value for the descriptor is right.
fn general_option(entry: &Entry, name: c_int) -> Result<Option<u32>, Code> {
    let socket = entry.socket()?;
    let look = || socket.look().map_err(|error| code(&error));
    Ok(Some(match name {
        libc::SO_TYPE => type_number(socket.kind()).cast_unsigned(),
        libc::SO_DOMAIN => AF_TIPC.cast_unsigned(),
        libc::SO_PROTOCOL => 0,
        libc::SO_ACCEPTCONN => u32::from(look()?.state == State::Listen),
        libc::SO_ERROR => {
            let error = socket.take_error().map_err(|error| code(&error))?;
            error.map_or(0, |error| error.errno().number().cast_unsigned())
        }
        libc::SO_RCVBUF => match entry.receive_buffer() {
            Some(bytes) => bytes,
            None => socket.option(SocketOption::ReceiveBuffer).map_err(|error| code(&error))?,
        },
        libc::SO_SNDBUF => entry.send_buffer(),
        _ => return Ok(None),
    }))
}

fn tipc_option(entry: &Entry, name: c_int) -> Result<u32, Code> {
    let option = u32::try_from(name).ok().and_then(SocketOption::from_number).ok_or(libc::EINVAL)?;
    entry.socket()?.option(option).map_err(|error| code(&error))
}

fn set_tipc_option(entry: &Entry, name: c_int, value: *const c_void, len: socklen_t) -> Result<c_int, Code> {
    let option = u32::try_from(name).ok().and_then(SocketOption::from_number);
    let needed = match option {
        Some(
            SocketOption::Importance
            | SocketOption::SourceDroppable
            | SocketOption::DestDroppable
            | SocketOption::ConnectTimeout
            | SocketOption::NoDelay,
        ) => 4,
        Some(SocketOption::GroupJoin) => size_of::<GroupWords>() as socklen_t,
        _ => 0,
    };
    if len < needed || needed == 0 && (len > 0 || !value.is_null()) {
        return Err(libc::EINVAL);
    }
    let number = if needed == 0 {
        OptionValue::None
    } else if value.is_null() {
        return Err(libc::EFAULT);
    } else {
        // SAFETY: the caller's value has at least four bytes, by the check above.
        OptionValue::Number(unsafe { value.cast::<u32>().read_unaligned() })
    };
    let option = option.ok_or(libc::EINVAL)?;
    let socket = entry.socket()?;
    let done = if option == SocketOption::GroupJoin {
        // SAFETY: the caller's value has four words, by the check above.
        let words = unsafe { value.cast::<GroupWords>().read_unaligned() };
        let request = GroupRequest::from_words(words).map_err(|why| why.errno().number())?;
        socket.join(request, GroupPolicy::LINUX)
    } else {
        socket.set_option(option, number)
    };
    done.map(|()| 0).map_err(|error| code(&error))
}

/// Whether the process may exceed the limits of buffers. Asks the kernel by setting a buffer of the descriptor that is
/// not used.
fn may_force(fd: c_int, value: *const c_void, len: socklen_t) -> bool {
    // SAFETY: the caller's value has at least four bytes.
    unsafe { real::setsockopt.get()(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, len) == 0 }
}

/// Sets a general option; `None` if it has to be set on the descriptor.
fn set_general_option(
    fd: c_int,
    entry: &Entry,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Result<Option<c_int>, Code> {
    match name {
        libc::SO_RCVBUF
        | libc::SO_SNDBUF
        | libc::SO_RCVLOWAT
        | libc::SO_RCVBUFFORCE
        | libc::SO_SNDBUFFORCE => {}
        libc::SO_PEEK_OFF => return Err(libc::EOPNOTSUPP),
        // No filter applies to a TIPC socket's messages, but it would to bytes in the descriptor.
        libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF => return Ok(Some(0)),
        _ => return Ok(None),
    }
    if len < 4 {
        return Err(libc::EINVAL);
    }
    if value.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's value has at least four bytes, by the check above.
    let number = unsafe { value.cast::<c_int>().read_unaligned() };
    let number = u32::try_from(number).unwrap_or(u32::MAX / 2);
    let force = matches!(name, libc::SO_RCVBUFFORCE | libc::SO_SNDBUFFORCE);
    if force && !may_force(fd, value, len) {
        return Err(libc::EPERM);
    }
    let set = |option, number| {
        entry.socket()?.set_option(option, OptionValue::Number(number)).map_err(|error| code(&error))
    };
    match name {
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => entry.set_send_buffer(number, force),
        libc::SO_RCVLOWAT => {
            set(SocketOption::ReceiveLowWater, number)?;
            // The descriptor stores it for getsockopt.
            return Ok(None);
        }
        _ => {
            // Like Linux, double the size to allow for overhead.
            set(SocketOption::ReceiveBuffer, number.saturating_mul(2))?;
            entry.set_receive_buffer(number, force);
        }
    }
    Ok(Some(0))
}

/// # Safety
/// The pointers are null or writable, as for `getsockopt`.
unsafe fn store_value(value: u32, at: *mut c_void, len: *mut socklen_t, whole: bool) -> Result<c_int, Code> {
    if len.is_null() || at.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: by the caller's promise.
    let capacity = unsafe { len.read() };
    if capacity > i32::MAX.cast_unsigned() || whole && capacity < 4 {
        return Err(libc::EINVAL);
    }
    let bytes = value.to_ne_bytes();
    let fits = capacity.min(4);
    // SAFETY: at most `capacity` bytes are written.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), fits as usize);
        len.write(fits);
    }
    Ok(0)
}

/// # Safety
/// As for `getsockopt`.
unsafe fn get(
    fd: c_int,
    entry: &Entry,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> Result<c_int, Code> {
    // SAFETY: by the caller's promise.
    unsafe {
        match level {
            libc::SOL_SOCKET if name == libc::SO_PEERCRED => {
                // No credentials, as for all sockets whose peer the kernel does not know.
                let unknown = [0, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
                if at.is_null() || len.is_null() {
                    return Err(libc::EFAULT);
                }
                let fits = len.read().min(12);
                std::ptr::copy_nonoverlapping(unknown.as_ptr(), at.cast(), fits as usize);
                len.write(fits);
                Ok(0)
            }
            libc::SOL_SOCKET if matches!(name, libc::SO_PEERGROUPS | libc::SO_PEERPIDFD) => {
                Err(libc::ENODATA)
            }
            libc::SOL_SOCKET if name == libc::SO_PEEK_OFF => Err(libc::EOPNOTSUPP),
            libc::SOL_SOCKET => match general_option(entry, name)? {
                Some(value) => store_value(value, at, len, false),
                None => Ok(real::getsockopt.get()(fd, level, name, at, len)),
            },
            SOL_TIPC => {
                let value = tipc_option(entry, name)?;
                store_value(value, at, len, true)
            }
            libc::IPPROTO_TCP if entry.socket()?.kind() == SocketKind::Stream => {
                if !len.is_null() {
                    len.write(0);
                }
                Ok(0)
            }
            _ => Err(libc::ENOPROTOOPT),
        }
    }
}

/// # Safety
/// As for `setsockopt`.
unsafe fn set(
    fd: c_int,
    entry: &Entry,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Result<c_int, Code> {
    match level {
        libc::SOL_SOCKET => {
            if let Some(done) = set_general_option(fd, entry, name, value, len)? {
                return Ok(done);
            }
            // SAFETY: by the caller's promise.
            let done = unsafe { real::setsockopt.get()(fd, level, name, value, len) };
            if done == 0 && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
                entry.reload_limit(fd, name);
            }
            Ok(done)
        }
        SOL_TIPC => set_tipc_option(entry, name, value, len),
        libc::IPPROTO_TCP if entry.socket()?.kind() == SocketKind::Stream => Ok(0),
        _ => Err(libc::ENOPROTOOPT),
    }
}

replace! {
    /// Reads an option.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, at: *mut c_void, len: *mut socklen_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            match table::get(fd) {
                Some(entry) => c_result(get(fd, &entry, level, name, at, len)),
                None => real::getsockopt.get()(fd, level, name, at, len),
            }
        }
    }

    /// Sets an option.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            match table::get(fd) {
                Some(entry) => c_result(set(fd, &entry, level, name, value, len)),
                None => real::setsockopt.get()(fd, level, name, value, len),
            }
        }
    }
}
