//! The border between C and Rust: pointers are checked, panics stop here, errors become `errno` and a text.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    errno: c_int,
    text: String,
}

impl Fault {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// A pointer that must not be null is.
    pub(crate) fn null(what: &str) -> Self {
        Self::new(libc::EFAULT, format!("{what} is a null pointer (give the address of one)"))
    }
}

impl From<utipc::Error> for Fault {
    fn from(error: utipc::Error) -> Self {
        let errno = match &error {
            // The request is on its way, and the socket becomes writable with the answer.
            utipc::Error::WouldBlock { call: "connect", .. } => libc::EINPROGRESS,
            other => other.errno(),
        };
        Self::new(errno, error.to_string())
    }
}

thread_local! {
    /// What `utipc_strerror` says.
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn report(fault: Fault) {
    // A text with a zero in it does not occur; it would be left out.
    let text = CString::new(fault.text).unwrap_or_default();
    // While a thread ends, its memory of the last text is gone already.
    let _ = LAST.try_with(|last| last.replace(text));
    set_errno(fault.errno);
}

/// Runs a call of the API: its result, or `failed` with errno set. A panic is a fault of the library: EIO.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, Fault>) -> T {
    // Whatever a panic leaves behind is behind locks that heed it, or not used any more.
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => return result,
        Ok(Err(fault)) => fault,
        Err(_) => Fault::new(
            libc::EIO,
            "a fault of the library (its message is on standard error; please report it)",
        ),
    };
    report(fault);
    failed
}

/// [`guard`] for the calls that yield 0 or -1.
pub(crate) fn status(call: impl FnOnce() -> Result<(), Fault>) -> c_int {
    guard(-1, || call().map(|()| 0))
}

/// Bytes as the API counts them.
pub(crate) fn count(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// `const char *utipc_strerror(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_strerror() -> *const c_char {
    // The text stays until the thread's next failure.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
