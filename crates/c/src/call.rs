//! The boundary between C and Rust: checks pointers, stops panics, turns errors into `errno` and a text.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error of a failed call.
#[derive(Debug)]
pub(crate) struct Fault {
    errno: c_int,
    text: String,
}

impl Fault {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// The error for a null pointer that must not be null.
    pub(crate) fn null(what: &str) -> Self {
        Self::new(libc::EFAULT, format!("{what} is a null pointer (pass a valid address)"))
    }
}

impl From<utipc::Error> for Fault {
    fn from(error: utipc::Error) -> Self {
        let errno = match &error {
            // The request was sent; the socket becomes writable with the reply.
            utipc::Error::WouldBlock { call: utipc::Call::Connect, .. } => libc::EINPROGRESS,
            other => other.errno(),
        };
        Self::new(errno, error.to_string())
    }
}

thread_local! {
    /// The text that `utipc_strerror` returns.
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn report(fault: Fault) {
    // The texts contain no zero byte.
    let text = CString::new(fault.text).unwrap_or_default();
    // While a thread exits, its storage may be gone already.
    let _ = LAST.try_with(|last| last.replace(text));
    set_errno(fault.errno);
}

/// Runs a call of the API. Returns its result, or `failed` with errno set; a panic becomes EIO.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, Fault>) -> T {
    // Everything that a panic can leave inconsistent is protected by locks that tolerate poisoning, or is not used
    // again.
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => return result,
        Ok(Err(fault)) => fault,
        Err(_) => {
            Fault::new(libc::EIO, "a bug in the library (its message is on standard error; please report it)")
        }
    };
    report(fault);
    failed
}

/// As [`guard`], for calls that return 0 or -1.
pub(crate) fn status(call: impl FnOnce() -> Result<(), Fault>) -> c_int {
    guard(-1, || call().map(|()| 0))
}

/// A byte count as the API returns it.
pub(crate) fn count(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// `const char *utipc_strerror(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_strerror() -> *const c_char {
    // The text stays valid until the thread's next failure.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
