//! Nodes for tests of the backbone: two embedded ones on addresses of 127.0.0.0/8, or two attachments to one daemon.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use utipc::bearers::Bearer;
use utipc::daemon::{Daemon, DaemonConfig};
use utipc::{Change, Node, NodeAddr};

/// Far beyond what anything takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

const PORT: u16 = 6118;

/// A directory of the test's own, gone with the value.
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
    _home: Home,
}

impl Host {
    pub(crate) fn start() -> Self {
        let home = Home::new();
        let socket = home.0.join("d.sock");
        let mut config = DaemonConfig { socket, ..DaemonConfig::default() };
        config.node.stack.address = Some(NodeAddr(1));
        config.node.complete(None).unwrap();
        Self { daemon: Daemon::start(config).unwrap(), _home: home }
    }

    /// An attachment, as of one more process.
    pub(crate) fn attach(&self) -> Node {
        Node::builder().daemon_at(self.daemon.socket()).start().unwrap()
    }
}

pub(crate) mod chain;

type Wrap = fn(Box<dyn Bearer>) -> Box<dyn Bearer>;

/// Nodes in this process that are linked over UDP, each frame passed through `wrap`.
pub(crate) fn embedded<const N: usize>(wrap: Wrap) -> [Node; N] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = NEXT.fetch_add(N as u8, Ordering::Relaxed);
    // Other tests of the project use 127.64.0.0/10.
    let addresses: [IpAddr; N] =
        std::array::from_fn(|at| IpAddr::from(Ipv4Addr::new(127, 192 | high & 31, low, first + at as u8)));
    let nodes: [Node; N] = std::array::from_fn(|own| {
        let others = addresses.iter().filter(|address| **address != addresses[own]);
        Node::builder()
            .engine(utipc::Engine::Embedded)
            .udp_peers(addresses[own], others.map(|other| SocketAddr::new(*other, PORT)))
            .address(NodeAddr(1 + own as u32))
            .middleware(wrap)
            .start()
            .unwrap()
    });
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
        assert!(others.is_empty(), "the nodes do not meet");
    }
    nodes
}

/// No change on the wire.
pub(crate) fn plain(bearer: Box<dyn Bearer>) -> Box<dyn Bearer> {
    bearer
}

/// Calls `step` until it gives something; waits a moment between calls, as what is waited for may come by any of several
/// descriptors.
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
