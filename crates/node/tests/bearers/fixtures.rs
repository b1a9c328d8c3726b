//! Bearers of each kind, on one medium.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::Rig;
use utipc_node::bearers::{
    Bearer, DEFAULT_PORT, Direction, EthernetBearer, Faults, HostBearer, HostConfig, LoopbackNetwork,
    Middleware, UdpBearer, UdpConfig, UdpMode,
};

/// Two or more bearers on one medium, or the reason why they are unavailable.
pub(crate) type Fixture = Result<Vec<Box<dyn Bearer>>, String>;

/// Runs `check` over a fixture in a separate thread, which may enter a network namespace.
pub(crate) fn run(name: &str, make: fn() -> Fixture, check: fn(Rig)) {
    let body = move || match make() {
        Ok(bearers) => {
            check(Rig::new(bearers));
            None
        }
        Err(reason) => Some(reason),
    };
    match std::thread::spawn(body).join() {
        Ok(None) => {}
        Ok(Some(reason)) => skipped(name, &reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Reports on standard error, which the test runner does not capture.
pub(crate) fn skipped(name: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: bearer {name}: {reason}");
}

/// An address of 127.0.0.0/8 that no other test of this host uses, made of the process's and a serial number.
pub(crate) fn fresh_v4() -> Ipv4Addr {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let bits = ((std::process::id() % 0x3FF) << 10) + (serial % 0x3FF);
    let [_, high, middle, low] = (bits << 2).to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, middle, low | 1)
}

pub(crate) fn network() -> Fixture {
    let network = LoopbackNetwork::new();
    let bearer = |last| {
        let address = utipc_core::wire::MediaAddr::Ethernet([2, 0, 0, 0, 0, last]);
        Box::new(network.attach(address, 1500).unwrap()) as Box<dyn Bearer>
    };
    Ok((1..=3).map(bearer).collect())
}

pub(crate) fn open(config: &UdpConfig) -> UdpBearer {
    UdpBearer::open(config).unwrap_or_else(|error| panic!("{error}"))
}

/// Bearers at `addresses`, each with all others as remotes.
fn mesh(addresses: &[SocketAddr], mtu: Option<usize>) -> Vec<Box<dyn Bearer>> {
    let bearer = |local: &SocketAddr| {
        let remotes = addresses.iter().copied().filter(|it| it != local).collect();
        let mode = UdpMode::Replicast { remotes };
        Box::new(open(&UdpConfig { name: "t".into(), local: *local, mode, mtu, offloads: true }))
            as Box<dyn Bearer>
    };
    addresses.iter().map(bearer).collect()
}

fn fresh_addresses(count: usize) -> Vec<SocketAddr> {
    (0..count).map(|_| SocketAddr::new(fresh_v4().into(), DEFAULT_PORT)).collect()
}

/// Two nodes with each other as remote, with the MTU of Ethernet.
pub(crate) fn udp_unicast() -> Fixture {
    Ok(mesh(&fresh_addresses(2), Some(1472)))
}

/// Four nodes with the default MTU.
pub(crate) fn udp_replicast() -> Fixture {
    Ok(mesh(&fresh_addresses(4), None))
}

fn group(addresses: &[IpAddr], group: IpAddr) -> Vec<Box<dyn Bearer>> {
    let bearer = |ip: &IpAddr| {
        let mode = UdpMode::Multicast { group: SocketAddr::new(group, DEFAULT_PORT) };
        let local = SocketAddr::new(*ip, DEFAULT_PORT);
        Box::new(open(&UdpConfig { name: "t".into(), local, mode, mtu: None, offloads: true }))
            as Box<dyn Bearer>
    };
    addresses.iter().map(bearer).collect()
}

pub(crate) fn udp_multicast() -> Fixture {
    let [_, high, middle, low] = fresh_v4().octets();
    let addresses: Vec<IpAddr> = (0..3).map(|_| fresh_v4().into()).collect();
    Ok(group(&addresses, Ipv4Addr::new(239, high, middle, low).into()))
}

/// IPv6 has one loopback address, so the ports differ.
pub(crate) fn udp6_unicast() -> Fixture {
    let free = |_| std::net::UdpSocket::bind("[::1]:0").map_err(|cause| format!("no IPv6 here: {cause}"));
    let held: Vec<_> = (0..3).map(free).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = held.iter().map(|socket| socket.local_addr().unwrap()).collect();
    drop(held);
    Ok(mesh(&addresses, Some(1452)))
}

/// A new network namespace for this thread with a pair of virtual Ethernet interfaces, up.
pub(crate) fn veth_pair() -> Result<(), String> {
    utipc_os::netns::unshare().map_err(|error| error.to_string())?;
    for arguments in [
        "link set lo up",
        "link add tipc0 type veth peer name tipc1",
        "link set tipc0 up",
        "link set tipc1 up",
    ] {
        let status = Command::new("ip").args(arguments.split(' ')).status();
        if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Err(format!(
                "`ip {arguments}` failed ({status:?}): it needs iproute2 and the veth module"
            ));
        }
    }
    // The kernel drops frames until it has seen both carriers.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let output =
            Command::new("ip").args(["-o", "link", "show"]).output().map_err(|cause| cause.to_string())?;
        if String::from_utf8_lossy(&output.stdout).matches(" state UP ").count() == 2 {
            return Ok(());
        }
        assert!(Instant::now() < end, "the veth pair does not come up: {output:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives `tipc0` addresses, and waits until the kernel routes to them, which may be after they can be bound.
pub(crate) fn add_addresses(addresses: &[&str]) {
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).output().unwrap();
    for address in addresses {
        let (length, nodad): (_, &[&str]) = if address.contains(':') { (64, &["nodad"]) } else { (24, &[]) };
        let output =
            ip(&[&["address", "add", &format!("{address}/{length}"), "dev", "tipc0"], nodad].concat());
        assert!(output.status.success(), "ip address add {address}: {output:?}");
    }
    let end = Instant::now() + Duration::from_secs(20);
    let is_local = |address: &&str| ip(&["route", "get", address]).stdout.starts_with(b"local");
    while !addresses.iter().all(is_local) {
        assert!(Instant::now() < end, "no route to {addresses:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn udp6_multicast() -> Fixture {
    veth_pair()?;
    let hosts = ["fd00::1", "fd00::2", "fd00::3"];
    add_addresses(&hosts);
    Ok(group(&hosts.map(|host| host.parse().unwrap()), "ff02::4711".parse().unwrap()))
}

pub(crate) fn ethernet() -> Fixture {
    veth_pair()?;
    let open = |name| EthernetBearer::open(name).map(|it| Box::new(it) as Box<dyn Bearer>);
    ["tipc0", "tipc1"].map(open).into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// A separate directory for local nodes.
pub(crate) fn node_directory() -> std::path::PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("utipc-nodes-{}-{serial}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

pub(crate) fn host_nodes() -> Fixture {
    let directory = node_directory();
    let config = HostConfig { directory: Some(directory.clone()), ..HostConfig::default() };
    let mut bearers: Vec<_> = (0..3).map(|_| HostBearer::open(&config).unwrap()).collect();
    for bearer in &mut bearers {
        // The older ones find the newer ones here.
        bearer.receive(&mut |_, _| panic!("a frame that was not sent")).unwrap();
        assert_eq!(bearer.peers().len(), 2);
    }
    // The bearers continue to work without the directory.
    std::fs::remove_dir_all(directory).unwrap();
    Ok(bearers.into_iter().map(|it| Box::new(it) as Box<dyn Bearer>).collect())
}

pub(crate) fn middleware_at_rest() -> Fixture {
    let wrap = |inner| Box::new(Middleware::new(inner, 1).unwrap()) as Box<dyn Bearer>;
    Ok(udp_replicast()?.into_iter().map(wrap).collect())
}

/// The suite also holds with a delay.
pub(crate) fn middleware_with_delay() -> Fixture {
    let wrap = |inner| {
        let wrapped = Middleware::new(inner, 1).unwrap();
        let slow = Faults { delay: Duration::from_millis(3), ..Faults::default() };
        wrapped.control().set(Direction::Send, slow);
        wrapped.control().set(Direction::Receive, slow);
        Box::new(wrapped) as Box<dyn Bearer>
    };
    Ok(udp_unicast()?.into_iter().map(wrap).collect())
}
