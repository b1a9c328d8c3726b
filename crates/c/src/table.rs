//! Maps the `int` of a C program to its socket.
//!
//! The number is a separate descriptor, a duplicate of the one that shows the socket's readiness. If a program closes
//! it with `close` instead of `tipc_close`, the socket stays open until the number is used again; that is the only
//! consequence.

use std::ffi::c_int;
use std::mem::take;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use utipc::Socket;
use utipc_os::fork::generation;

use crate::call::Fault;

/// An open socket of the program.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) socket: Socket,
    /// The fork generation of the process that made its descriptor.
    generation: AtomicU32,
    /// The file behind the descriptor. If the number refers to another file, the program has closed the socket's
    /// descriptor.
    file: Mutex<Option<File>>,
}

/// Device and inode, unique for each socket.
type File = (libc::dev_t, libc::ino_t);

/// Sockets by descriptor number.
type Sockets = Vec<Option<Arc<Entry>>>;

static TABLE: RwLock<Sockets> = RwLock::new(Vec::new());

/// The lock, as held during a fork.
pub(crate) type Held = RwLockWriteGuard<'static, Sockets>;

pub(crate) fn hold() -> Held {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a socket into the table; returns its descriptor number.
pub(crate) fn add(socket: Socket) -> Result<c_int, Fault> {
    let descriptor = socket.descriptor()?.try_clone_to_owned().map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
        Fault::new(
            errno,
            format!("no descriptor for the socket: {error} (close some, or raise RLIMIT_NOFILE)"),
        )
    })?;
    let sd = descriptor.into_raw_fd();
    let entry =
        Arc::new(Entry { socket, generation: AtomicU32::new(generation()), file: Mutex::new(file(sd)) });
    let at = usize::try_from(sd).unwrap_or_default();
    let mut table = hold();
    if table.len() <= at {
        table.resize(at + 1, None);
    }
    let stale = table[at].replace(entry);
    drop(table);
    // Drop it without the lock: closing a socket calls the node.
    drop(stale);
    Ok(sd)
}

/// The socket with this descriptor number.
pub(crate) fn get(sd: c_int) -> Result<Arc<Entry>, Fault> {
    let at = usize::try_from(sd).unwrap_or(usize::MAX);
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let entry = table.get(at).and_then(Clone::clone);
    drop(table);
    let entry = entry.ok_or_else(|| unknown(sd))?;
    if entry.generation.load(Relaxed) != generation() {
        inherit(sd, &entry);
    }
    Ok(entry)
}

/// Removes a socket and closes its descriptor. The socket closes when the last call on it returns.
pub(crate) fn remove(sd: c_int) -> Result<(), Fault> {
    let at = usize::try_from(sd).unwrap_or(usize::MAX);
    let entry = hold().get_mut(at).and_then(Option::take).ok_or_else(|| unknown(sd))?;
    let still_there = entry.is_at(sd);
    drop(entry);
    if !still_there {
        return Err(unknown(sd));
    }
    // SAFETY: the number was handed out by `add` and is still the socket's; it is in the table no more.
    drop(unsafe { OwnedFd::from_raw_fd(sd) });
    Ok(())
}

/// Closes all sockets at the end of the program.
pub(crate) fn clear() {
    let all = take(&mut *hold());
    drop(all);
}

fn unknown(sd: c_int) -> Fault {
    if is_open(sd) {
        let text = format!(
            "descriptor {sd} is not a socket of this library (tipc_socket and tipc_accept make them)"
        );
        return Fault::new(libc::ENOTSOCK, text);
    }
    Fault::new(libc::EBADF, format!("descriptor {sd} is not open"))
}

fn is_open(sd: c_int) -> bool {
    // SAFETY: asks for flags by number; no memory is involved.
    unsafe { libc::fcntl(sd, libc::F_GETFD) >= 0 }
}

fn file(fd: c_int) -> Option<File> {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live, and the call fills it.
    (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
}

impl Entry {
    /// Whether the number still refers to the file that `add` entered.
    fn is_at(&self, sd: c_int) -> bool {
        let file = file(sd);
        file.is_some() && file == *self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an inherited socket in a forked child its new descriptor, under the same number.
fn inherit(sd: c_int, entry: &Entry) {
    if entry.generation.swap(generation(), Relaxed) == generation() {
        return;
    }
    // An embedded node's socket stays with the parent; the call itself reports that.
    let Ok(own) = entry.socket.descriptor() else { return };
    if entry.is_at(sd) {
        // SAFETY: the number belongs to this library; the child has inherited it, and cannot use the parent's socket.
        unsafe { libc::dup3(own.as_raw_fd(), sd, libc::O_CLOEXEC) };
        *entry.file.lock().unwrap_or_else(PoisonError::into_inner) = file(sd);
    }
}
