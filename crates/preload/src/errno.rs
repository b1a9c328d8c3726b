//! The errno of each error.

use libc::c_int;
use utipc_client::{Error, Failure, Wait};

use crate::node;

/// An errno.
pub(crate) type Code = c_int;

/// The errno of an error, equal to the kernel's where the kernel has the error. Spec: tipc.md §8.
pub(crate) fn code(error: &Error) -> Code {
    match error {
        Error::Failed(failure) => failed(failure),
        Error::Interrupted => libc::EINTR,
        // As when the node of a connection's peer is lost, and as in the other libraries.
        Error::Died(_) | Error::Nonsense(_) => libc::ECONNRESET,
        Error::Silent(_) => {
            node::report(error);
            libc::ETIMEDOUT
        }
        Error::Resumed(_) => libc::ENETRESET,
        Error::Absent(_) => libc::EAFNOSUPPORT,
        Error::Refused { .. } => libc::EACCES,
        Error::System(error) => error.cause().raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
    }
}

/// [`code`] for a call that waits as `wait` says: one that must not wait may be tried again.
pub(crate) fn code_of_wait(error: &Error, wait: Wait) -> Code {
    match code(error) {
        libc::ETIMEDOUT if wait == Wait::Never => libc::EAGAIN,
        code => code,
    }
}

fn failed(failure: &Failure) -> Code {
    let errno = match failure {
        Failure::Bind(why) => why.errno(),
        Failure::Call(why) => why.errno(),
        Failure::Connect(why) => why.errno(),
        Failure::Accept(why) => why.errno(),
        Failure::Option(why) => why.errno(),
        Failure::Send(why) => why.errno(),
        Failure::Receive(why) => why.errno(),
        Failure::Join(why) => why.errno(),
        Failure::Leave(why) => why.errno(),
        Failure::NoSocket(_) => return libc::ENOTCONN,
        Failure::NotAllowed { .. } => return libc::EACCES,
        Failure::Limit(_) => return libc::ENFILE,
        Failure::Overload => return libc::ENOBUFS,
        _ => return libc::EINVAL,
    };
    errno.number()
}

/// Sets `errno`; returns the error value of a C function.
pub(crate) fn fail<T: From<i8>>(code: Code) -> T {
    // SAFETY: the C library's place for this thread's errno, which is always there.
    unsafe { *libc::__errno_location() = code };
    T::from(-1)
}

/// The return value of a C function; sets `errno` on failure.
pub(crate) fn c_result<T: From<i8>>(result: Result<T, Code>) -> T {
    result.unwrap_or_else(fail)
}
