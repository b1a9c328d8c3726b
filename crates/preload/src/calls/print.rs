//! Formatted output to a descriptor: `dprintf` and its variants, which the C library writes without calling `write`.
//!
//! Rust cannot define functions with variable arguments. The assembly here is what a C compiler generates at the start
//! of one: it builds the argument list (`va_list`) of the System V ABI for x86-64. On other processors only `vdprintf`
//! is replaced, which takes such a list.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::{c_char, c_int};

use super::{replace, write};
use crate::{real, table};

/// Writes the text that `format` allocates, and frees it.
///
/// # Safety
/// `format` returns the length of a text and stores memory of `malloc` in its argument, or returns less than 0.
unsafe fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = null_mut();
    let length = format(&raw mut text);
    let Ok(whole) = usize::try_from(length) else { return length };
    let mut done = 0;
    // SAFETY: the text has that many bytes; it is freed once.
    unsafe {
        while done < whole {
            match usize::try_from(write(fd, text.add(done).cast(), whole - done)) {
                Ok(written) if written > 0 => done += written,
                // The number of bytes written before an error is not reported.
                _ => break,
            }
        }
        libc::free(text.cast());
    }
    if done == whole { length } else { -1 }
}

replace! {
    /// Formats into a descriptor, with an argument list.
    fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if table::get(fd).is_none() {
                return real::vdprintf.get()(fd, format, list);
            }
            print(fd, |text| real::vasprintf.get()(text, format, list))
        }
    }

    /// `vdprintf` of a program compiled with format checks (fortify).
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if table::get(fd).is_none() {
                return real::__vdprintf_chk.get()(fd, flag, format, list);
            }
            print(fd, |text| real::__vasprintf_chk.get()(text, flag, format, list))
        }
    }
}

/// The body of a variadic function whose named integer arguments take `$fixed` bytes: stores the register arguments and
/// the argument list on the stack, and calls `$next` with the list in register `$list`.
#[cfg(target_arch = "x86_64")]
macro_rules! with_list {
    ($next:path, $list:literal, $fixed:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 216",
            ".cfi_adjust_cfa_offset 216",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            // Vector registers are used if al is not 0.
            "test al, al",
            "je 2f",
            "movaps [rsp + 48], xmm0",
            "movaps [rsp + 64], xmm1",
            "movaps [rsp + 80], xmm2",
            "movaps [rsp + 96], xmm3",
            "movaps [rsp + 112], xmm4",
            "movaps [rsp + 128], xmm5",
            "movaps [rsp + 144], xmm6",
            "movaps [rsp + 160], xmm7",
            "2:",
            concat!("mov dword ptr [rsp + 176], ", $fixed),
            "mov dword ptr [rsp + 180], 48",
            "lea rax, [rsp + 224]",
            "mov [rsp + 184], rax",
            "mov [rsp + 192], rsp",
            concat!("lea ", $list, ", [rsp + 176]"),
            "call {next}",
            "add rsp, 216",
            ".cfi_adjust_cfa_offset -216",
            "ret",
            ".cfi_endproc",
            next = sym $next,
        )
    };
}

/// Formats into a descriptor: `int dprintf(int fd, const char *format, ...)`.
///
/// # Safety
/// As for the C library's function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "tested_dprintf"))]
// SAFETY: the body passes on what the caller has passed, as the ABI requires.
unsafe extern "C" fn dprintf() {
    with_list!(vdprintf, "rdx", "16")
}

/// `dprintf` of a program compiled with format checks: `int __dprintf_chk(int fd, int flag, const char *format, ...)`.
///
/// # Safety
/// As for the C library's function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "tested___dprintf_chk"))]
// SAFETY: the body passes on what the caller has passed, as the ABI requires.
unsafe extern "C" fn __dprintf_chk() {
    with_list!(__vdprintf_chk, "rcx", "24")
}
