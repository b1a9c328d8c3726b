//! The functions of the C library that this one takes the place of. Each looks whether it is about a TIPC socket, and calls
//! the real one otherwise.

mod aliases;
mod description;
mod files;
mod options;
mod poll;
mod print;
mod receive;
mod send;
mod setup;

use libc::{c_int, ssize_t};

use crate::entry::Entry;
use crate::errno::{Code, answer};
use crate::table;

pub(crate) use description::close;
pub(crate) use receive::recv;
pub(crate) use send::{send, write};

/// Declares functions that replace the C library's. Unit tests keep the C library's.
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

/// A call that names a place, which a socket does not have: `own` if it is about a TIPC socket and names none, else `other`.
fn without_place(
    fd: c_int,
    no_place: bool,
    own: impl FnOnce(&Entry) -> Result<ssize_t, Code>,
    other: impl FnOnce() -> ssize_t,
) -> ssize_t {
    match table::get(fd).filter(|_| no_place) {
        Some(entry) => answer(own(&entry)),
        None => other(),
    }
}
