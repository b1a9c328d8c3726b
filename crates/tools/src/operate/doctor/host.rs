//! Observations of the host: the evidence for the checks of `host_checks.rs`. Tests fill it with what they like.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{getsockopt, sockopt};
use procfs::{Current as _, Meminfo, net};

use crate::operate::snapshot::Snapshot;

/// The port of TIPC over UDP.
pub(crate) const PORT: u16 = 6118;

/// Time that a multicast may take to come back on its host. Far above what any host needs.
const PROBE: Duration = Duration::from_secs(2);

/// Size of the shared memory that is tried, bytes.
const TRIED: u64 = 1 << 20;

/// A UDP socket on the port of TIPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) address: SocketAddr,
    /// The process that holds it, if it can be seen.
    pub(crate) process: Option<(u32, String)>,
}

/// The process of the daemon, as far as this user may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) has_net_raw: bool,
    pub(crate) open_files: Option<u64>,
    pub(crate) memlock: Option<u64>,
    /// Locked memory, bytes.
    pub(crate) locked: u64,
    /// Its program was replaced since it started.
    pub(crate) is_replaced: bool,
}

/// A multicast group with the result of a message to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) bearer: String,
    pub(crate) group: String,
    pub(crate) failed: Option<String>,
}

/// A peer with the largest packet on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) link: String,
    /// Bytes of the largest IP packet.
    pub(crate) mtu: u32,
    /// Bytes of the largest packet of the bearer, with IP and UDP headers.
    pub(crate) needed: u32,
}

/// Observations of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// This process may see the descriptors of all processes.
    pub(crate) is_root: bool,
    pub(crate) holders: Vec<Holder>,
    /// The kernel's TIPC is loaded.
    pub(crate) has_module: bool,
    /// Why shared memory cannot be had.
    pub(crate) memory_refused: Option<String>,
    /// Bytes of memory, and of those available.
    pub(crate) memory: Option<(u64, u64)>,
    pub(crate) daemon: Option<Process>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) routes: Vec<Route>,
}

impl Host {
    /// Looks at what does not depend on a daemon.
    pub(crate) fn look() -> Self {
        Self {
            is_root: nix::unistd::geteuid().is_root(),
            holders: holders(),
            has_module: std::path::Path::new("/proc/net/tipc").exists()
                || std::fs::read_to_string("/proc/modules")
                    .is_ok_and(|all| all.lines().any(|line| line.starts_with("tipc "))),
            memory_refused: try_memory().err(),
            memory: Meminfo::current().ok().and_then(|info| Some((info.mem_total, info.mem_available?))),
            ..Self::default()
        }
    }

    /// Looks at the daemon, its groups and its peers too.
    pub(crate) fn look_at(shot: &Snapshot) -> Self {
        let daemon = shot.daemon.as_ref().and_then(|daemon| process(daemon.pid));
        Self { daemon, probes: probes(shot), routes: routes(shot), ..Self::look() }
    }
}

/// The sockets on the port of TIPC, with their processes.
fn holders() -> Vec<Holder> {
    let all = [net::udp(), net::udp6()].into_iter().flatten().flatten();
    let mut found: Vec<(u64, SocketAddr)> = all
        .filter(|entry| entry.local_address.port() == PORT)
        .map(|entry| (entry.inode, entry.local_address))
        .collect();
    found.sort();
    if found.is_empty() {
        return Vec::new();
    }
    let mut holders: Vec<Holder> =
        found.iter().map(|(_, address)| Holder { address: *address, process: None }).collect();
    for process in procfs::process::all_processes().into_iter().flatten().flatten() {
        let Ok(descriptors) = process.fd() else { continue };
        for descriptor in descriptors.flatten() {
            let procfs::process::FDTarget::Socket(inode) = descriptor.target else { continue };
            for (holder, _) in holders.iter_mut().zip(&found).filter(|(_, (found, _))| *found == inode) {
                let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
                holder.process = Some((process.pid.unsigned_abs(), name));
            }
        }
    }
    holders
}

/// Makes shared memory as the daemon does.
fn try_memory() -> Result<(), String> {
    let refused = |what: &str, error: nix::Error| format!("{what}: {error}");
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd = memfd_create(c"utipc-doctor", flags).map_err(|error| refused("memfd_create", error))?;
    let size = i64::try_from(TRIED).unwrap_or(i64::MAX);
    nix::unistd::ftruncate(&fd, size).map_err(|error| refused("ftruncate", error))?;
    // Memory is taken when it is written.
    nix::unistd::write(&fd, &[1; 4096]).map_err(|error| refused("write to shared memory", error))?;
    Ok(())
}

fn process(pid: u32) -> Option<Process> {
    const CAP_NET_RAW: u32 = 13;
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    let status = process.status().ok()?;
    let limits = process.limits().ok();
    let number = |limit: procfs::process::LimitValue| match limit {
        procfs::process::LimitValue::Value(value) => value,
        procfs::process::LimitValue::Unlimited => u64::MAX,
    };
    Some(Process {
        pid,
        has_net_raw: status.capeff >> CAP_NET_RAW & 1 != 0,
        open_files: limits.as_ref().map(|limits| number(limits.max_open_files.soft_limit)),
        memlock: limits.as_ref().map(|limits| number(limits.max_locked_memory.soft_limit)),
        locked: status.vmlck.unwrap_or(0) * 1024,
        is_replaced: process.exe().is_ok_and(|exe| exe.to_string_lossy().ends_with(" (deleted)")),
    })
}

/// Sends a message to the group of each bearer, from a separate port.
fn probes(shot: &Snapshot) -> Vec<Probe> {
    let groups = shot.bearers.iter().filter_map(|bearer| {
        let local: SocketAddr = bearer.local.as_ref()?.parse().ok()?;
        let group: SocketAddr = bearer.group.as_ref()?.parse().ok()?;
        Some((bearer, local.ip(), group.ip()))
    });
    groups
        .map(|(bearer, local, group)| Probe {
            bearer: bearer.name.clone(),
            group: group.to_string(),
            failed: probe(local, group, PROBE).err(),
        })
        .collect()
}

/// Sends a message to a group through the interface of `local`, and waits until it comes back.
pub(super) fn probe(local: IpAddr, group: IpAddr, patience: Duration) -> Result<(), String> {
    let named = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let any: IpAddr =
        if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let receiver = UdpSocket::bind((any, 0)).map_err(named("cannot open a socket"))?;
    let sender = UdpSocket::bind((local, 0)).map_err(named("cannot use the bearer's address"))?;
    match (local, group) {
        (IpAddr::V4(local), IpAddr::V4(group)) => {
            receiver.join_multicast_v4(&group, &local).map_err(named("cannot join the group"))?;
            rustix::net::sockopt::set_ip_multicast_if(&sender, &local)
                .map_err(|error| format!("cannot send through the interface: {error}"))?;
        }
        (IpAddr::V6(_), IpAddr::V6(group)) => {
            receiver.join_multicast_v6(&group, 0).map_err(named("cannot join the group"))?;
        }
        _ => return Err("address and group are of different kinds".to_owned()),
    }
    let port = receiver.local_addr().map_err(named("cannot open a socket"))?.port();
    let token = format!("utipc-doctor-{}", std::process::id());
    sender.send_to(token.as_bytes(), (group, port)).map_err(named("cannot send"))?;
    let begun = std::time::Instant::now();
    let mut buffer = [0; 64];
    loop {
        let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        receiver.set_read_timeout(Some(left)).map_err(named("cannot wait"))?;
        match receiver.recv_from(&mut buffer) {
            Ok((len, _)) if buffer.get(..len) == Some(token.as_bytes()) => return Ok(()),
            // Another message, or a signal.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err("no answer: a message to the group does not come back".to_owned()),
        }
        if begun.elapsed() >= patience {
            return Err("no answer: a message to the group does not come back".to_owned());
        }
    }
}

/// The largest packet on the way to the peer of each UDP link.
fn routes(shot: &Snapshot) -> Vec<Route> {
    let routes = shot.links.iter().filter(|link| link.up).filter_map(|link| {
        let bearer = shot.bearers.iter().find(|bearer| bearer.name == link.bearer)?;
        let local: SocketAddr = bearer.local.as_ref()?.parse().ok()?;
        let peer: SocketAddr = link.peer_media.parse().ok()?;
        let headers = if peer.is_ipv4() { 28 } else { 48 };
        let socket = UdpSocket::bind((local.ip(), 0)).ok()?;
        socket.connect(peer).ok()?;
        let mtu = getsockopt(&socket.as_fd(), sockopt::IpMtu).ok()?;
        Some(Route {
            link: link.name.clone(),
            mtu: u32::try_from(mtu).ok()?,
            needed: bearer.mtu?.min(link.mtu) + headers,
        })
    });
    routes.collect()
}
