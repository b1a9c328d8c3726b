//! What a C program sees of an error: a number.

use libc::c_int;
use utipc_client::{Error, Failure};

/// An errno.
pub(crate) type Code = c_int;

/// The number for an error, exactly the kernel's where the kernel has the error. Spec: tipc.md §8.
pub(crate) fn code(error: &Error) -> Code {
    match error {
        Error::Failed(failure) => failed(failure),
        Error::Interrupted => libc::EINTR,
        // The node, as the kernel's would be with its module, is gone.
        Error::Died(_) | Error::Nonsense(_) => libc::ENETDOWN,
        Error::Absent(_) => libc::EAFNOSUPPORT,
        Error::Refused { .. } => libc::EACCES,
        Error::System(error) => error.cause().raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
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
        Failure::NoSocket(_) => return libc::ENOTCONN,
        Failure::NotAllowed { .. } => return libc::EACCES,
        Failure::Limit(_) => return libc::ENFILE,
        Failure::Overload => return libc::ENOBUFS,
        _ => return libc::EINVAL,
    };
    errno.number()
}

/// Sets `errno` and yields what a C function returns then.
pub(crate) fn fail<T: From<i8>>(code: Code) -> T {
    // SAFETY: the C library's place for this thread's errno, which is always there.
    unsafe { *libc::__errno_location() = code };
    T::from(-1)
}

/// What a C function returns.
pub(crate) fn answer<T: From<i8>>(result: Result<T, Code>) -> T {
    result.unwrap_or_else(fail)
}
