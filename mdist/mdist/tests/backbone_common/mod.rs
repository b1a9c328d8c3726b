//! Nodes for tests of the backbone: embedded nodes on addresses of 127.0.0.0/8, or attachments to a daemon.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use utipc::bearers::{Bearer, DEFAULT_PORT, UdpBearer, UdpConfig};
use utipc::daemon::{Daemon, DaemonConfig, Plan};
use utipc::{Change, Node, NodeAddr};

/// Limit for every wait, far above what a loaded machine needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A temporary directory, removed when dropped.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mdist-test-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A host with a daemon.
pub(crate) struct Host {
    pub(crate) daemon: Daemon,
    home: Home,
}

impl Host {
    pub(crate) fn start() -> Self {
        Self::with(NodeAddr(1), Vec::new())
    }

    fn with(address: NodeAddr, bearers: Vec<Box<dyn Bearer>>) -> Self {
        let home = Home::new();
        let socket = home.0.join("d.sock");
        let mut config = DaemonConfig { socket, ..DaemonConfig::default() };
        config.node.stack.address = Some(address);
        config.node.bearers.extend(bearers.into_iter().map(Plan::new));
        config.node.complete(None).unwrap();
        Self { daemon: Daemon::start(config).unwrap(), home }
    }

    /// Starts hosts with TIPC links over UDP.
    pub(crate) fn joined<const N: usize>() -> [Self; N] {
        let addresses = addresses::<N>();
        let hosts = std::array::from_fn(|own| {
            let config = UdpConfig::replicast("UDP", addresses[own], others(&addresses, own));
            let bearer = UdpBearer::open(&config).unwrap();
            Self::with(NodeAddr(1 + own as u32), vec![Box::new(bearer)])
        });
        meet(&hosts.each_ref().map(Self::attach));
        hosts
    }

    /// Lets every user reach the daemon's socket.
    pub(crate) fn admit_all(&self) {
        std::fs::set_permissions(&self.home.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Attaches to the daemon, as another process would.
    pub(crate) fn attach(&self) -> Node {
        Node::builder().daemon_at(self.daemon.socket()).start().unwrap()
    }
}

pub(crate) mod chain;

type Wrap = fn(Box<dyn Bearer>) -> Box<dyn Bearer>;

/// Addresses that no other test uses.
fn addresses<const N: usize>() -> [IpAddr; N] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = NEXT.fetch_add(N as u8, Ordering::Relaxed);
    // Other tests of the project use 127.64.0.0/10.
    std::array::from_fn(|at| IpAddr::from(Ipv4Addr::new(127, 192 | high & 31, low, first + at as u8)))
}

/// Socket addresses of the peers of node `own`.
fn others(addresses: &[IpAddr], own: usize) -> Vec<SocketAddr> {
    let others = addresses.iter().filter(|address| **address != addresses[own]);
    others.map(|other| SocketAddr::new(*other, DEFAULT_PORT)).collect()
}

/// Waits until all nodes have contact with each other.
fn meet(nodes: &[Node]) {
    for (own, node) in nodes.iter().enumerate() {
        let mut topology = node.topology().unwrap();
        topology.nodes().unwrap();
        let mut others: Vec<_> = nodes.iter().map(Node::address).collect();
        others.remove(own);
        for event in topology.events(LIMIT) {
            others.retain(|other| event.as_ref().unwrap().change != Change::NodeUp(*other));
            if others.is_empty() {
                break;
            }
        }
        assert!(others.is_empty(), "the nodes have no contact with each other");
    }
}

/// Starts nodes in this process with TIPC links over UDP; `wrap` wraps each bearer.
pub(crate) fn embedded<const N: usize>(wrap: Wrap) -> [Node; N] {
    let addresses = addresses::<N>();
    let nodes = std::array::from_fn(|own| {
        Node::builder()
            .engine(utipc::Engine::Embedded)
            .udp_peers(addresses[own], others(&addresses, own))
            .address(NodeAddr(1 + own as u32))
            .middleware(wrap)
            .start()
            .unwrap()
    });
    meet(&nodes);
    nodes
}

/// Leaves a bearer as it is.
pub(crate) fn plain(bearer: Box<dyn Bearer>) -> Box<dyn Bearer> {
    bearer
}

/// Calls `step` every millisecond until it returns a value; polling, because the event may come by any of several
/// descriptors. Panics after [`LIMIT`].
pub(crate) fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = step() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
