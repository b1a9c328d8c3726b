//! Checked access to the program's memory.

use std::ffi::c_void;
use std::slice;

use crate::call::Fault;

fn check(is_null: bool, len: usize, what: &str) -> Result<(), Fault> {
    if is_null && len > 0 {
        return Err(Fault::null(what));
    }
    if isize::try_from(len).is_err() {
        return Err(Fault::new(
            libc::EINVAL,
            format!("{what} has {len} bytes, more than an object can have"),
        ));
    }
    Ok(())
}

/// The bytes that a program sends.
///
/// # Safety
/// `data` is null or points to `len` bytes that do not change during the call.
pub(crate) unsafe fn data<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Fault> {
    check(data.is_null(), len, "the message")?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: by the contract; not null and of a possible length, as just checked.
    Ok(unsafe { slice::from_raw_parts(data.cast(), len) })
}

/// A program's receive buffer.
///
/// # Safety
/// `buffer` is null or points to `len` bytes that nothing else uses during the call.
pub(crate) unsafe fn buffer<'a>(buffer: *mut c_void, len: usize) -> Result<&'a mut [u8], Fault> {
    check(buffer.is_null(), len, "the buffer")?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: by the contract; not null and of a possible length, as just checked. It is written before it is read.
    Ok(unsafe { slice::from_raw_parts_mut(buffer.cast(), len) })
}

/// Writes a result to memory of the program.
///
/// # Safety
/// `to` is null or points to memory for a `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: by the contract.
        unsafe { to.write(value) };
    }
}
