//! The functions that replace those of the C library. Each checks whether the call concerns a TIPC socket, and calls
//! the real function otherwise.

mod aliases;
mod description;
mod files;
mod options;
mod poll;
mod print;
mod receive;
mod send;
mod setup;
mod splice;

use libc::{c_int, ssize_t};

use crate::entry::Entry;
use crate::errno::{Code, c_result};
use crate::table;

pub(crate) use description::close;
pub(crate) use receive::recv;
pub(crate) use send::{send, write};

/// Declares replacement functions. In unit tests they have other names, so the C library's stay in effect.
macro_rules! replace {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the C library's function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, unsafe(export_name = concat!("tested_", stringify!($name))))]
            #[expect(unreachable_pub, reason = "programs reach it by its C name")]
            // SAFETY: name and signature are the C library's, in whose place it is called.
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result $body
        )*
    };
}
pub(crate) use replace;

/// Makes a call that may have a file position, which sockets do not have: `own` for a TIPC socket without a position,
/// otherwise `other`.
fn without_position(
    fd: c_int,
    no_position: bool,
    own: impl FnOnce(&Entry) -> Result<ssize_t, Code>,
    other: impl FnOnce() -> ssize_t,
) -> ssize_t {
    match table::get(fd).filter(|_| no_position) {
        Some(entry) => c_result(own(&entry)),
        None => other(),
    }
}
