//! Conversion of errors to exceptions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// EAGAIN, EBADF and ETIMEDOUT.
const AGAIN: i32 = 11;
const BAD_DESCRIPTOR: i32 = 9;
const TIMED_OUT: i32 = 110;

/// The exception for an error of the library, a subclass of `OSError`.
pub(crate) fn exception(py: Python<'_>, error: &utipc::Error) -> PyErr {
    let errno = match error {
        utipc::Error::WouldBlock { .. } => AGAIN,
        utipc::Error::TimedOut { .. } => TIMED_OUT,
        other => other.errno(),
    };
    make(py, errno, &error.to_string())
}

/// The exception for a call on a closed object.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    make(py, BAD_DESCRIPTOR, &format!("the {what} is closed (open another one)"))
}

fn make(py: Python<'_>, errno: i32, text: &str) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "utipc._errors", "make").and_then(|make| make.call1((errno, text)));
    match make {
        Ok(exception) => PyErr::from_value(exception),
        Err(why) => why,
    }
}
