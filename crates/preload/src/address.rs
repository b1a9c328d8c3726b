//! Conversion of `struct sockaddr_tipc`. Spec: tipc.md §8.1.

use std::mem::offset_of;

use libc::{c_int, sockaddr, socklen_t};
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::socket::Destination;

use crate::errno::Code;

/// The address family.
pub(crate) const AF_TIPC: c_int = 30;

/// Kinds of address.
const SERVICE_RANGE: u8 = 1;
const SERVICE_ADDR: u8 = 2;
const SOCKET_ADDR: u8 = 3;

/// Service types below this are reserved for the node itself.
pub(crate) const RESERVED_TYPES: u32 = 64;

/// `struct sockaddr_tipc` of `linux/tipc.h`: 16 bytes in host byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SockaddrTipc {
    family: u16,
    kind: u8,
    scope: i8,
    words: [u32; 3],
}

const _: () = assert!(size_of::<SockaddrTipc>() == 16 && offset_of!(SockaddrTipc, words) == 4);

/// The longest address of any family that the kernel accepts.
const LONGEST: socklen_t = size_of::<libc::sockaddr_storage>() as socklen_t;

/// Length of an address in bytes.
pub(crate) const LEN: socklen_t = size_of::<SockaddrTipc>() as socklen_t;

/// The operation that `bind` requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Bind(ServiceRange, Scope),
    Unbind(ServiceRange, Scope),
    UnbindAll,
}

/// The operation that `connect` requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connect {
    To(Destination),
    /// Clear the default destination (AF_UNSPEC).
    Clear,
}

impl SockaddrTipc {
    /// The address that a program passes; `None` if its length is invalid.
    ///
    /// # Safety
    /// `len` bytes at `at` are readable.
    unsafe fn read(at: *const sockaddr, len: socklen_t) -> Option<Self> {
        if at.is_null() || !(LEN..=LONGEST).contains(&len) {
            return None;
        }
        // SAFETY: 16 bytes are readable by the caller's promise and the check above; every bit pattern is a value, and
        // the read needs no alignment.
        Some(unsafe { at.cast::<Self>().read_unaligned() })
    }

    fn range(&self) -> ServiceRange {
        let [service, lower, upper] = self.words;
        let upper = if self.kind == SERVICE_ADDR { lower } else { upper };
        ServiceRange { service, lower, upper }
    }

    /// Whether family and kind are known and a range is in order.
    fn is_valid(&self) -> bool {
        c_int::from(self.family) == AF_TIPC
            && match self.kind {
                SERVICE_ADDR | SOCKET_ADDR => true,
                SERVICE_RANGE => self.range().is_valid(),
                _ => false,
            }
    }

    fn destination(&self) -> Destination {
        let [first, second, third] = self.words;
        match self.kind {
            SERVICE_ADDR => Destination::Service {
                addr: ServiceAddr { service: first, instance: second },
                domain: domain(third),
            },
            SERVICE_RANGE => Destination::Range(self.range()),
            _ => Destination::Port(PortId { port: first, node: NodeAddr(second) }),
        }
    }
}

/// The address of a socket.
impl From<PortId> for SockaddrTipc {
    fn from(port: PortId) -> Self {
        Self { family: AF_TIPC as u16, kind: SOCKET_ADDR, scope: 0, words: [port.port, port.node.0, 0] }
    }
}

/// A member of a group, without a scope, as the kernel gives it.
impl From<ServiceAddr> for SockaddrTipc {
    fn from(member: ServiceAddr) -> Self {
        let words = [member.service, member.instance, 0];
        Self { family: AF_TIPC as u16, kind: SERVICE_ADDR, scope: 0, words }
    }
}

/// The lookup domain of a service. ZeroMQ asks for zone 1, `<1.0.0>`, by default; today's clusters have no zones, so it
/// stands for the whole cluster. Any other number is a node, because addresses derived from an identity may end in
/// zeros.
fn domain(requested: u32) -> NodeAddr {
    const ZONE_1: u32 = 0x0100_0000;
    NodeAddr(if requested == ZONE_1 { 0 } else { requested })
}

/// The error for an address that cannot be read.
fn unreadable(at: *const sockaddr) -> Code {
    if at.is_null() { libc::EFAULT } else { libc::EINVAL }
}

/// Decodes the address of a `bind`.
///
/// # Safety
/// `len` bytes at `at` are readable.
pub(crate) unsafe fn binding(at: *const sockaddr, len: socklen_t) -> Result<Binding, Code> {
    if len == 0 {
        return Ok(Binding::UnbindAll);
    }
    // SAFETY: by the caller's promise.
    let addr = unsafe { SockaddrTipc::read(at, len) }.ok_or(unreadable(at))?;
    if !addr.is_valid() {
        return Err(libc::EINVAL);
    }
    if addr.kind == SOCKET_ADDR {
        return Err(libc::EAFNOSUPPORT);
    }
    let range = addr.range();
    if range.service < RESERVED_TYPES {
        return Err(libc::EACCES);
    }
    // As in the kernel, any number but that of the node scope stands for the cluster.
    let scope = Scope::from_number(addr.scope.unsigned_abs()).unwrap_or_default();
    Ok(if addr.scope < 0 { Binding::Unbind(range, scope) } else { Binding::Bind(range, scope) })
}

/// Decodes the address of a `connect`.
///
/// # Safety
/// `len` bytes at `at` are readable.
pub(crate) unsafe fn connect(at: *const sockaddr, len: socklen_t) -> Result<Connect, Code> {
    if len != LEN {
        return Err(libc::EINVAL);
    }
    // SAFETY: by the caller's promise.
    let addr = unsafe { SockaddrTipc::read(at, len) }.ok_or(libc::EFAULT)?;
    if c_int::from(addr.family) == libc::AF_UNSPEC {
        return Ok(Connect::Clear);
    }
    if addr.is_valid() { Ok(Connect::To(addr.destination())) } else { Err(libc::EINVAL) }
}

/// The destination of a message; `None` if no address was given.
///
/// # Safety
/// `len` bytes at `at` are readable.
pub(crate) unsafe fn destination(at: *const sockaddr, len: socklen_t) -> Result<Option<Destination>, Code> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    let addr = unsafe { SockaddrTipc::read(at, len) }.ok_or(libc::EINVAL)?;
    if addr.is_valid() { Ok(Some(addr.destination())) } else { Err(libc::EINVAL) }
}

/// Writes an address to the program's buffer, truncated to its length, and stores the full length.
///
/// # Safety
/// `at` and `len` are null or writable, `at` for `*len` bytes.
pub(crate) unsafe fn store(addr: SockaddrTipc, at: *mut sockaddr, len: *mut socklen_t) -> Result<(), Code> {
    // SAFETY: by the caller's promise.
    unsafe { store_all(&[addr], at, len) }
}

/// [`store`] for the addresses of a message, which has two in a group: the sender's socket, and the sender as a member.
///
/// # Safety
/// As for [`store`].
pub(crate) unsafe fn store_all(
    all: &[SockaddrTipc],
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Code> {
    if at.is_null() || len.is_null() {
        return Ok(());
    }
    // SAFETY: `len` is readable by the caller's promise.
    let capacity = unsafe { len.read() };
    if capacity > i32::MAX.cast_unsigned() {
        return Err(libc::EINVAL);
    }
    let bytes = size_of_val(all);
    // SAFETY: at most `capacity` bytes are written, to where the caller promises as many; addresses are plain bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(all.as_ptr().cast::<u8>(), at.cast(), bytes.min(capacity as usize));
        len.write(bytes as socklen_t);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(kind: u8, scope: i8, words: [u32; 3]) -> Result<Binding, Code> {
        let addr = SockaddrTipc { family: 30, kind, scope, words };
        // SAFETY: the address is as long as it says.
        unsafe { binding((&raw const addr).cast(), LEN) }
    }

    #[test]
    fn bind_decodes_scope_and_type() {
        let range = ServiceRange { service: 100, lower: 1, upper: 9 };
        assert_eq!(bound(1, 2, [100, 1, 9]), Ok(Binding::Bind(range, Scope::Cluster)));
        assert_eq!(bound(1, 3, [100, 1, 9]), Ok(Binding::Bind(range, Scope::Node)));
        assert_eq!(bound(1, -3, [100, 1, 9]), Ok(Binding::Unbind(range, Scope::Node)));
        let one = ServiceRange { service: 100, lower: 7, upper: 7 };
        assert_eq!(bound(2, 0, [100, 7, 0]), Ok(Binding::Bind(one, Scope::Cluster)));
        assert_eq!(bound(1, 2, [100, 9, 1]), Err(libc::EINVAL));
        assert_eq!(bound(3, 2, [100, 9, 1]), Err(libc::EAFNOSUPPORT));
        assert_eq!(bound(1, 2, [63, 1, 9]), Err(libc::EACCES));
        assert_eq!(bound(4, 2, [100, 1, 9]), Err(libc::EINVAL));
    }

    #[test]
    fn zone_1_means_the_cluster_and_a_node_itself() {
        assert_eq!(domain(0x0100_0000), NodeAddr::NONE);
        assert_eq!(domain(0x020a_0000), NodeAddr(0x020a_0000));
        assert_eq!(domain(0x0100_1001), NodeAddr(0x0100_1001));
    }

    #[test]
    fn stored_address_is_truncated_with_its_full_length() {
        let addr = SockaddrTipc::from(PortId { port: 7, node: NodeAddr(9) });
        let mut room = [0xff_u8; 16];
        let mut len: socklen_t = 8;
        // SAFETY: 8 bytes of the 16 are offered.
        unsafe { store(addr, room.as_mut_ptr().cast(), &raw mut len) }.unwrap();
        assert_eq!((len, &room[4..12]), (16, &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..]));
    }

    #[test]
    fn pair_of_addresses_is_stored_as_the_kernel_lays_it_out() {
        let member = ServiceAddr { service: 4300, instance: 7 };
        let port = PortId { port: 5, node: NodeAddr(9) };
        let mut room = [0xff_u8; 40];
        let mut len: socklen_t = 40;
        // SAFETY: 40 bytes are offered.
        unsafe { store_all(&[port.into(), member.into()], room.as_mut_ptr().cast(), &raw mut len) }.unwrap();
        assert_eq!(len, 32);
        assert_eq!(room[..4], [30, 0, 3, 0]);
        assert_eq!(room[16..20], [30, 0, 2, 0]);
        assert_eq!(room[20..28], [4300_u32, 7].map(u32::to_ne_bytes).concat());
        assert_eq!(room[28..33], [0, 0, 0, 0, 0xff]);
    }
}
