//! Socket options.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use utipc::Importance;

use crate::call::{Fault, guard, status};
use crate::table;

/// `int tipc_sock_non_block(int sd)`: returns the socket, as the original does.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_sock_non_block(sd: c_int) -> c_int {
    guard(-1, || {
        table::get(sd)?.socket.set_nonblocking(true);
        Ok(sd)
    })
}

/// `int tipc_sock_rejectable(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_sock_rejectable(sd: c_int) -> c_int {
    status(|| Ok(table::get(sd)?.socket.set_returned(true)?))
}

/// `int tipc_sock_importance(int sd, uint32_t priority)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_sock_importance(sd: c_int, priority: u32) -> c_int {
    status(|| {
        let importance = Importance::from_number(priority).ok_or_else(|| {
            Fault::new(libc::EINVAL, format!("importance {priority} is out of range (0 low to 3 critical)"))
        })?;
        Ok(table::get(sd)?.socket.set_importance(importance)?)
    })
}

/// Milliseconds as a time limit; negative means none.
pub(crate) fn limit(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// `int utipc_sock_timeout(int sd, int receive_ms, int send_ms)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_sock_timeout(sd: c_int, receive_ms: c_int, send_ms: c_int) -> c_int {
    status(|| {
        let entry = table::get(sd)?;
        entry.socket.set_receive_timeout(limit(receive_ms));
        entry.socket.set_send_timeout(limit(send_ms));
        Ok(())
    })
}

/// `int utipc_sock_connect_timeout(int sd, int ms)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_sock_connect_timeout(sd: c_int, ms: c_int) -> c_int {
    status(|| {
        let limit = u16::try_from(ms).ok().filter(|ms| *ms > 0).ok_or_else(|| {
            Fault::new(libc::EINVAL, format!("a connect timeout of {ms} ms is out of range (1 to 65535 ms)"))
        })?;
        Ok(table::get(sd)?.socket.set_connect_timeout(Duration::from_millis(limit.into()))?)
    })
}

/// `int utipc_sock_nodelay(int sd, bool nodelay)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_sock_nodelay(sd: c_int, nodelay: bool) -> c_int {
    status(|| Ok(table::get(sd)?.socket.set_nodelay(nodelay)?))
}

/// `const char *utipc_version(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
