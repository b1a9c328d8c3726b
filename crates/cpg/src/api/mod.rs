//! The functions of `cpg.h`: check pointers, stop panics, return Corosync's error codes.

mod dispatch;
mod groups;
mod handle;
mod iteration;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::name::{MAX_NAME, Name};
use crate::types::{CpgName, CsError};

/// Runs a call of the API; a panic becomes `CS_ERR_LIBRARY`.
fn guard(call: impl FnOnce() -> Result<(), CsError>) -> CsError {
    // Everything that a panic can leave inconsistent is protected by locks that tolerate poisoning.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => CsError::Ok,
        Ok(Err(error)) => error,
        Err(_) => CsError::Library,
    }
}

/// Stores a result where the program wants it.
///
/// # Safety
/// `to` is null or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), CsError> {
    if to.is_null() {
        return Err(CsError::InvalidParam);
    }
    // SAFETY: it is not null, and valid as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a group's name.
///
/// # Safety
/// `name` is null or points to a valid name.
unsafe fn name_at(name: *const CpgName) -> Result<Name, CsError> {
    if name.is_null() {
        return Err(CsError::InvalidParam);
    }
    // SAFETY: it is not null, and valid as the caller promises.
    let name = unsafe { name.read() };
    if name.length as usize > MAX_NAME {
        return Err(CsError::NameTooLong);
    }
    Name::from_c(&name).ok_or(CsError::NameTooLong)
}
