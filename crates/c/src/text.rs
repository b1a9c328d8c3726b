//! Conversion of addresses to text and back.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;

use crate::address::TipcAddr;
use crate::call::{Fault, guard};
use crate::node;

/// Writes text into a program's buffer, truncated to fit with a final zero.
///
/// # Safety
/// `buf` is null or points to `len` bytes.
pub(crate) unsafe fn store(text: &str, buf: *mut c_char, len: usize) -> *mut c_char {
    if buf.is_null() || len == 0 {
        return buf;
    }
    let bytes = text.as_bytes();
    let bytes = &bytes[..bytes.len().min(len - 1)];
    // SAFETY: by the contract; the bytes and the zero are at most `len`. The text does not overlap the buffer.
    unsafe {
        buf.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        buf.add(bytes.len()).write(0);
    }
    buf
}

fn text(addr: TipcAddr) -> String {
    let TipcAddr { kind, instance, node, .. } = addr;
    if kind == 0 { format!("0:{instance:010}@{node:x}") } else { format!("{kind}:{instance}@{node:x}") }
}

/// Parses `type:instance`, optionally followed by `@node` in hex or as zone.cluster.node.
fn parse(text: &str) -> Option<TipcAddr> {
    let (service, on) = text.split_once('@').unwrap_or((text, "0"));
    let (kind, instance) = service.split_once(':')?;
    let number = |digits: &str| digits.parse().ok().filter(|_| !digits.starts_with('+'));
    Some(TipcAddr::new(number(kind)?, number(instance)?, domain(on)?))
}

fn domain(text: &str) -> Option<u32> {
    let digits = |part: &str, radix| {
        let plain = part.chars().all(|c| c.is_ascii_hexdigit());
        u32::from_str_radix(part, radix).ok().filter(|_| plain)
    };
    let mut parts = text.split('.');
    let parts = (parts.next()?, parts.next(), parts.next(), parts.next());
    match parts {
        (hex, None, ..) => digits(hex, 16),
        (zone, Some(cluster), Some(node), None) => {
            let part = |text, most| digits(text, 10).filter(|part| *part <= most);
            Some(part(zone, 0xff)? << 24 | part(cluster, 0xfff)? << 12 | part(node, 0xfff)?)
        }
        _ => None,
    }
}

/// `char *tipc_ntoa(const struct tipc_addr *addr, char *buf, size_t len)`
///
/// # Safety
/// `addr` is null or points to an address; `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_ntoa(
    addr: *const TipcAddr,
    buf: *mut c_char,
    len: usize,
) -> *mut c_char {
    // SAFETY: by the contract.
    let addr = unsafe { TipcAddr::read(addr) };
    // SAFETY: by the contract.
    unsafe { store(&addr.map_or_else(String::new, text), buf, len) }
}

/// `char *tipc_rtoa(uint32_t type, uint32_t lower, uint32_t upper, uint32_t node, char *buf, size_t len)`
///
/// # Safety
/// `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_rtoa(
    service: u32,
    lower: u32,
    upper: u32,
    on: u32,
    buf: *mut c_char,
    len: usize,
) -> *mut c_char {
    // SAFETY: by the contract.
    unsafe { store(&format!("{service}:{lower}:{upper}@{on:x}"), buf, len) }
}

/// `char *tipc_dtoa(tipc_domain_t domain, char *buf, size_t len)`
///
/// # Safety
/// `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_dtoa(domain: u32, buf: *mut c_char, len: usize) -> *mut c_char {
    let mut text = String::new();
    let _ = write!(text, "{}.{}.{}", domain >> 24, domain >> 12 & 0xfff, domain & 0xfff);
    // SAFETY: by the contract.
    unsafe { store(&text, buf, len) }
}

/// `int tipc_aton(const char *text, struct tipc_addr *addr)`: 1, or 0 for an invalid text.
///
/// # Safety
/// `text` is null or a string; `addr` is null or points to memory of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_aton(text: *const c_char, addr: *mut TipcAddr) -> c_int {
    guard(0, || {
        if text.is_null() {
            return Err(Fault::null("the text of an address"));
        }
        // SAFETY: by the contract.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let Some(parsed) = parse(&text) else {
            let text = format!("\"{text}\" is not a valid address (use type:instance or type:instance@node)");
            return Err(Fault::new(libc::EINVAL, text));
        };
        // SAFETY: by the contract.
        unsafe { parsed.write(addr) };
        Ok(1)
    })
}

/// `char *tipc_linkname(char *buf, size_t len, uint32_t peer, int bearerid)`
///
/// # Safety
/// `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_linkname(
    buf: *mut c_char,
    len: usize,
    peer: u32,
    bearerid: c_int,
) -> *mut c_char {
    let name = guard(String::new(), || {
        let links = node::own()?.links();
        let mut links = links.into_iter();
        let link = links.find(|link| link.peer.0 == peer && c_int::from(link.bearer) == bearerid);
        let why = || {
            Fault::new(
                libc::EADDRNOTAVAIL,
                format!("no link to node {peer:x} uses bearer {bearerid} of this node"),
            )
        };
        link.map(|link| link.name).ok_or_else(why)
    });
    // SAFETY: by the contract.
    unsafe { store(&name, buf, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_text() {
        for addr in [TipcAddr::new(18888, 17, 0), TipcAddr::new(0, 7, 0x0100_1001)] {
            assert_eq!(parse(&text(addr)), Some(addr));
        }
        assert_eq!(parse("64:7"), Some(TipcAddr::new(64, 7, 0)));
        assert_eq!(parse("64:7@1.1.1"), Some(TipcAddr::new(64, 7, 0x0100_1001)));
        for bad in [
            "",
            "64",
            "64:",
            ":7",
            "64:7@",
            "64:7@x",
            "64:7@1.1",
            "64:7@1.1.4096",
            "64:+7",
            "64:7@+1",
            "4294967296:1",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_is_truncated_to_its_buffer() {
        let addr = TipcAddr::new(18888, 17, 0);
        let mut buffer = [b'#'; 8];
        // SAFETY: the pointers are of live values, and the length is smaller than the buffer's.
        unsafe { tipc_ntoa(&raw const addr, buffer.as_mut_ptr().cast(), 7) };
        assert_eq!(&buffer, b"18888:\0#");
        // SAFETY: the length is 0.
        unsafe { tipc_ntoa(&raw const addr, buffer.as_mut_ptr().cast(), 0) };
        assert_eq!(&buffer, b"18888:\0#");
    }
}
