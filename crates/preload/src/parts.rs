//! Lists of buffers (`struct iovec`).

use std::slice;

use libc::{c_int, iovec};

use crate::errno::Code;

/// Maximum number of buffers in one call, as in the kernel (UIO_MAXIOV).
const MAX_PARTS: usize = 1024;

/// The buffers that a program passes.
///
/// # Safety
/// `count` entries at `parts` are readable, and live as long as the result is used.
pub(crate) unsafe fn list<'a>(parts: *const iovec, count: usize) -> Result<&'a [iovec], Code> {
    if count > MAX_PARTS {
        return Err(libc::EMSGSIZE);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if parts.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { slice::from_raw_parts(parts, count) })
}

/// As [`list`], for `readv` and `writev`, whose count is an `int`.
///
/// # Safety
/// As [`list`].
pub(crate) unsafe fn counted<'a>(parts: *const iovec, count: c_int) -> Result<&'a [iovec], Code> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_PARTS).ok_or(libc::EINVAL)?;
    // SAFETY: by the caller's promise.
    unsafe { list(parts, count) }
}

/// Total length of all buffers in bytes.
pub(crate) fn total(parts: &[iovec]) -> Result<usize, Code> {
    let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    sum.filter(|sum| isize::try_from(*sum).is_ok()).ok_or(libc::EINVAL)
}

/// A buffer of the program to read from.
///
/// # Safety
/// `len` bytes at `at` are readable, and nothing writes them while the result is used.
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], Code> {
    if len == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: by the caller's promise; no buffer is larger than half of the address space.
    Ok(unsafe { slice::from_raw_parts(at, len.min(isize::MAX.cast_unsigned())) })
}

/// A buffer of the program to write to; it is not read before it is written.
///
/// # Safety
/// `len` bytes at `at` are writable, and nothing else uses them while the result is used.
pub(crate) unsafe fn buffer<'a>(at: *mut u8, len: usize) -> Result<&'a mut [u8], Code> {
    if len == 0 {
        return Ok(&mut []);
    }
    if at.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(at, len.min(isize::MAX.cast_unsigned())) })
}

/// Concatenates all buffers.
///
/// # Safety
/// All of them are readable.
pub(crate) unsafe fn gather(parts: &[iovec]) -> Result<Vec<u8>, Code> {
    let mut all = Vec::with_capacity(total(parts)?);
    for part in parts {
        // SAFETY: by the caller's promise.
        all.extend_from_slice(unsafe { bytes(part.iov_base.cast(), part.iov_len) }?);
    }
    Ok(all)
}

/// Distributes data over all buffers.
///
/// # Safety
/// All of them are writable.
pub(crate) unsafe fn scatter(mut data: &[u8], parts: &[iovec]) -> Result<(), Code> {
    for part in parts {
        // SAFETY: by the caller's promise.
        let buffer = unsafe { buffer(part.iov_base.cast(), part.iov_len) }?;
        let (now, rest) = data.split_at(data.len().min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        data = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_and_scatter_cross_buffers() {
        let (mut one, mut two) = ([1_u8, 2], [3_u8, 4, 5]);
        let parts = [
            iovec { iov_base: one.as_mut_ptr().cast(), iov_len: 2 },
            iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            iovec { iov_base: two.as_mut_ptr().cast(), iov_len: 3 },
        ];
        // SAFETY: the buffers are those of this function.
        unsafe {
            assert_eq!(gather(&parts).unwrap(), [1, 2, 3, 4, 5]);
            scatter(&[9, 8, 7], &parts).unwrap();
        }
        assert_eq!((one, two), ([9, 8], [7, 4, 5]));
        let huge = iovec { iov_base: std::ptr::null_mut(), iov_len: usize::MAX };
        assert_eq!(total(&[huge, huge]), Err(libc::EINVAL));
        let missing = [iovec { iov_base: std::ptr::null_mut(), iov_len: 1 }];
        // SAFETY: nothing is read at the null pointer.
        let gathered = unsafe { gather(&missing) };
        assert_eq!(gathered, Err(libc::EFAULT));
    }
}
