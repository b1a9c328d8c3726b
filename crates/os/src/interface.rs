//! Network interfaces, found by name or by local address, and path MTUs.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::sockaddr::SockAddr;
use crate::{OsError, Result};

/// A network interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its index in this network namespace.
    pub index: u32,
    /// Its MTU: maximum number of bytes of a frame after the link-layer header.
    pub mtu: usize,
    /// Its hardware address, if that has six bytes.
    pub mac: Option<[u8; 6]>,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it is a loopback device, which owns all of 127.0.0.0/8.
    pub loopback: bool,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// All interfaces of this network namespace, in the kernel's order.
    pub fn all() -> Result<Vec<Interface>> {
        let mut found: Vec<Interface> = Vec::new();
        for entry in addresses()? {
            if !found.iter().any(|it| it.name == entry.name) {
                found.push(describe(&entry)?);
            }
            let Some(interface) = found.iter_mut().find(|it| it.name == entry.name) else { continue };
            match entry.address {
                Some(Address::Ip(ip)) => interface.addresses.push(ip),
                Some(Address::Mac(mac)) => interface.mac = Some(mac),
                None => {}
            }
        }
        Ok(found)
    }

    /// The interface called `name`.
    pub fn by_name(name: &str) -> Result<Interface> {
        Interface::all()?.into_iter().find(|it| it.name == name).ok_or_else(|| {
            OsError::new("find interface", name, io::Error::from_raw_os_error(libc::ENODEV))
                .with_remedy("`ip link` lists the interfaces")
        })
    }

    /// The interface that owns the local address `ip`.
    pub fn by_address(ip: IpAddr) -> Result<Interface> {
        let all = Interface::all()?;
        let owner = all
            .iter()
            .find(|it| it.addresses.contains(&ip))
            .or_else(|| all.iter().find(|it| it.loopback && ip.is_loopback() && ip.is_ipv4()));
        owner.cloned().ok_or_else(|| {
            OsError::new("find the interface of", ip, io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
                .with_remedy("give an address of this host; `ip address` lists them")
        })
    }
}

/// The MTU of the path from `local` to `remote` as far as this host knows it, in bytes including the IP
/// header: the MTU of the route or the interface, or the value that a router has reported.
pub fn path_mtu(local: SocketAddr, remote: SocketAddr) -> Result<usize> {
    let failed = |errno: rustix::io::Errno| OsError::new("find the path MTU to", remote, errno);
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let any_port = SocketAddr::new(local.ip(), 0);
    rustix::net::bind(&fd, &any_port).map_err(failed)?;
    connect(&fd, &remote).map_err(failed)?;
    let mtu = if remote.is_ipv4() { sockopt::ip_mtu(&fd) } else { sockopt::ipv6_mtu(&fd) };
    mtu.map(|mtu| mtu as usize).map_err(failed)
}

enum Address {
    Ip(IpAddr),
    Mac([u8; 6]),
}

struct Entry {
    name: String,
    flags: u32,
    address: Option<Address>,
}

/// The kernel's list of (interface, address) pairs.
fn addresses() -> Result<Vec<Entry>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a live pointer for the result.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(OsError::new("list", "the network interfaces", io::Error::last_os_error()));
    }
    let mut entries = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: getifaddrs returned a linked list whose nodes stay valid until freeifaddrs.
        let node = unsafe { &*next };
        // SAFETY: ifa_name is a NUL-terminated string of that list.
        let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
        entries.push(Entry { name, flags: node.ifa_flags, address: read_address(node.ifa_addr) });
        next = node.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, is freed once, and nothing borrowed from it remains.
    unsafe { libc::freeifaddrs(list) };
    Ok(entries)
}

fn read_address(address: *const libc::sockaddr) -> Option<Address> {
    if address.is_null() {
        return None;
    }
    // SAFETY: a non-null ifa_addr points to a socket address, which begins with its family.
    let family = i32::from(unsafe { (*address).sa_family });
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        libc::AF_PACKET => size_of::<libc::sockaddr_ll>(),
        _ => return None,
    };
    // SAFETY: an address of that family is as long as its structure.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
    let address = SockAddr::from_kernel(bytes);
    match family {
        libc::AF_PACKET if bytes.get(11) == Some(&6) => address.to_link().map(|link| Address::Mac(link.mac)),
        libc::AF_PACKET => None,
        _ => address.to_ip().map(|ip| Address::Ip(ip.ip())),
    }
}

fn describe(entry: &Entry) -> Result<Interface> {
    let failed = |errno: rustix::io::Errno| OsError::new("query interface", &entry.name, errno);
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).map_err(failed)?;
    let index = rustix::net::netdevice::name_to_index(&fd, &entry.name).map_err(failed)?;
    let mtu = mtu_of(&fd, &entry.name)
        .map_err(|cause| OsError::new("read the MTU of interface", &entry.name, cause))?;
    Ok(Interface {
        name: entry.name.clone(),
        index,
        mtu,
        mac: None,
        up: entry.flags & libc::IFF_UP as u32 != 0,
        loopback: entry.flags & libc::IFF_LOOPBACK as u32 != 0,
        addresses: Vec::new(),
    })
}

fn mtu_of(fd: impl AsFd, name: &str) -> io::Result<usize> {
    // SAFETY: ifreq is integers and arrays of them; all zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, which ends the name.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU takes an ifreq with a terminated name and fills its union.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU succeeded, so the union holds the MTU; every bit pattern is an int.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_owns_its_network() {
        let lo = Interface::by_address("127.0.0.1".parse().unwrap()).unwrap();
        assert!(lo.loopback && lo.up && lo.index > 0 && lo.mtu >= 1280, "{lo:?}");
        assert_eq!(Interface::by_address("127.77.3.4".parse().unwrap()).unwrap().index, lo.index);
        assert_eq!(Interface::by_name(&lo.name).unwrap(), lo);
        let path = path_mtu("127.0.0.1:0".parse().unwrap(), "127.0.0.9:6118".parse().unwrap()).unwrap();
        // No IP packet is larger than 65,535 bytes, whatever the interface.
        assert_eq!(path, lo.mtu.min(65_535));
    }

    #[test]
    fn unknown_interface_is_refused_with_a_remedy() {
        let error = Interface::by_name("no-such-if").unwrap_err().to_string();
        assert!(error.contains("no-such-if") && error.contains("ip link"), "{error}");
        let error = Interface::by_address("203.0.113.77".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("203.0.113.77") && error.contains("ip address"), "{error}");
    }
}
