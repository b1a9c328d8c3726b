//! Nodes for tests, on each engine, at addresses of 127.0.0.0/8 that no other test uses.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(unused_macros, reason = "each test binary uses a part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use utipc::bearers::{Bearer, Control, EthernetBearer, Middleware, UdpBearer, UdpConfig};
use utipc::{
    Change, Connection, Error, LinkProperty, Node, NodeAddr, NodeId, ServiceAddress, Socket, SocketKind,
};
use utipc_core::config::StackConfig;
use utipc_node::daemon::{Daemon, DaemonConfig};
use utipc_node::{NodeConfig, Plan};

/// Far longer than anything takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const PORT: u16 = 6118;

/// The engine of a test's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// A node in the test's own process.
    Embedded,
    /// A daemon's node. The daemon runs in the test's process, but is only used through its socket.
    Daemon,
}

/// Makes each function a test, once for each engine.
macro_rules! on_each_engine {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { super::$name(crate::common::Engine::Embedded); })+
        }
        mod daemon {
            $(#[test] fn $name() { super::$name(crate::common::Engine::Daemon); })+
        }
    };
}
#[allow(unused_imports, reason = "each test binary uses a part")]
pub(crate) use on_each_engine;

/// A directory of the test's own, removed when dropped.
#[derive(Debug)]
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("utipc-test-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon without a network.
pub(crate) fn start_daemon(socket: &Path, change: impl FnOnce(&mut DaemonConfig)) -> Daemon {
    let stack = StackConfig { address: Some(NodeAddr(5)), ..StackConfig::default() };
    let node = NodeConfig { stack, ..NodeConfig::default() };
    let mut config = DaemonConfig { node, socket: socket.to_owned(), ..DaemonConfig::default() };
    change(&mut config);
    Daemon::start(config).unwrap()
}

/// A node of a test, with the daemon that hosts it.
#[derive(Debug)]
pub(crate) struct TestNode {
    node: Node,
    hosted: Option<(Daemon, Home)>,
}

impl Deref for TestNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl TestNode {
    /// The same node as another process sees it: a new attachment, if there is a daemon.
    pub(crate) fn again(&self) -> Node {
        match &self.hosted {
            Some((daemon, _)) => Node::builder().daemon_at(daemon.socket()).start().unwrap(),
            None => self.node.clone(),
        }
    }

    /// The counters of its daemon.
    pub(crate) fn daemon_counters(&self) -> utipc_node::daemon::DaemonCounters {
        self.hosted.as_ref().map(|(daemon, _)| daemon.counters()).unwrap_or_default()
    }

    /// The daemon's socket.
    pub(crate) fn daemon_socket(&self) -> Option<&std::path::Path> {
        self.hosted.as_ref().map(|(daemon, _)| daemon.socket())
    }
}

type Wrap = Box<dyn FnMut(Box<dyn Bearer>) -> Box<dyn Bearer> + Send>;

/// A node that is not started yet.
pub(crate) struct Maker {
    engine: Engine,
    /// Its own UDP address, and those of the other nodes.
    wire: Option<(IpAddr, Vec<SocketAddr>)>,
    address: Option<NodeAddr>,
    wrap: Option<Wrap>,
    /// Instead of UDP.
    bearer: Option<Box<dyn Bearer>>,
}

impl Maker {
    /// Sets an explicit address, which needs no trial period.
    pub(crate) fn address(mut self, address: u32) -> Self {
        self.address = Some(NodeAddr(address));
        self
    }

    pub(crate) fn middleware(
        mut self,
        wrap: impl FnMut(Box<dyn Bearer>) -> Box<dyn Bearer> + Send + 'static,
    ) -> Self {
        self.wrap = Some(Box::new(wrap));
        self
    }

    pub(crate) fn start(self) -> TestNode {
        match self.engine {
            Engine::Embedded => TestNode { node: self.embedded(), hosted: None },
            Engine::Daemon => self.hosted(),
        }
    }

    fn embedded(self) -> Node {
        let mut builder = Node::builder().engine(utipc::Engine::Embedded);
        builder = match (self.bearer, self.wire) {
            (Some(bearer), _) => builder.bearer(bearer),
            (None, Some((own, others))) => builder.udp_peers(own, others),
            (None, None) => builder.isolated(),
        };
        if let Some(address) = self.address {
            builder = builder.address(address);
        }
        if let Some(wrap) = self.wrap {
            builder = builder.middleware(wrap);
        }
        builder.start().unwrap()
    }

    fn hosted(mut self) -> TestNode {
        let home = Home::new();
        let udp = |(own, others)| -> Box<dyn Bearer> {
            Box::new(UdpBearer::open(&UdpConfig::replicast("UDP", own, others)).unwrap())
        };
        let bearers = self.bearer.or_else(|| self.wire.map(udp)).map(|bearer| {
            Plan::new(match &mut self.wrap {
                Some(wrap) => wrap(bearer),
                None => bearer,
            })
        });
        let name = home.0.file_name().unwrap().to_string_lossy().into_owned();
        let identity = NodeId::from_text(name.trim_start_matches("utipc-test-"));
        let stack = StackConfig {
            identity: Some(identity),
            address: self.address,
            seed: u64::from(std::process::id()),
            ..StackConfig::default()
        };
        let node = NodeConfig {
            stack,
            bearers: bearers.into_iter().collect(),
            label: name,
            ..NodeConfig::default()
        };
        let socket = home.0.join("d.sock");
        let daemon = Daemon::start(DaemonConfig { node, socket, ..DaemonConfig::default() }).unwrap();
        let node = Node::builder().daemon_at(daemon.socket()).start().unwrap();
        TestNode { node, hosted: Some((daemon, home)) }
    }
}

/// A node without a bearer.
pub(crate) fn alone(engine: Engine) -> TestNode {
    Maker { engine, wire: None, address: Some(NodeAddr(1)), wrap: None, bearer: None }.start()
}

/// Two unstarted nodes that know each other's UDP address.
pub(crate) fn makers(engine: Engine) -> [Maker; 2] {
    makers_of(engine)
}

/// `N` unstarted nodes that know each other's UDP addresses.
pub(crate) fn makers_of<const N: usize>(engine: Engine) -> [Maker; N] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = NEXT.fetch_add(N as u8, Ordering::Relaxed);
    // 127.64.0.0/10, which the real services of a host do not use.
    let addresses: [IpAddr; N] =
        std::array::from_fn(|at| IpAddr::from(Ipv4Addr::new(127, 64 | high & 63, low, first + at as u8)));
    std::array::from_fn(|own| {
        let others = addresses.iter().filter(|address| **address != addresses[own]);
        let wire = Some((addresses[own], others.map(|other| SocketAddr::new(*other, PORT)).collect()));
        Maker { engine, wire, address: None, wrap: None, bearer: None }
    })
}

/// Two linked nodes with the explicit addresses 1 and 2, which need no trial period.
pub(crate) fn pair(engine: Engine) -> [TestNode; 2] {
    let [red, blue] = makers(engine);
    join([red.address(1), blue.address(2)])
}

/// Three linked daemons with the explicit addresses 1 to 3.
pub(crate) fn three_daemons() -> [TestNode; 3] {
    let mut address = 0;
    let nodes = makers_of::<3>(Engine::Daemon).map(|maker| {
        address += 1;
        maker.address(address).start()
    });
    for (node, other) in [(0, 1), (0, 2), (1, 2)] {
        meet(&nodes[node], &nodes[other]);
        meet(&nodes[other], &nodes[node]);
    }
    nodes
}

/// Two linked nodes at the ends of a virtual Ethernet cable, in a new network namespace of this thread; or why there
/// are none.
pub(crate) fn ethernet_pair(engine: Engine) -> Result<[TestNode; 2], String> {
    utipc_os::netns::unshare().map_err(|error| error.to_string())?;
    let cable = ["tipc0", "tipc1"];
    for arguments in ["add tipc0 type veth peer name tipc1", "set tipc0 up", "set tipc1 up"] {
        let status = Command::new("ip").arg("link").args(arguments.split(' ')).status();
        if !status.as_ref().is_ok_and(ExitStatus::success) {
            return Err(format!("`ip link {arguments}` failed ({status:?})"));
        }
    }
    let mut makers = cable.map(|name| {
        let bearer: Box<dyn Bearer> = Box::new(EthernetBearer::open(name).unwrap());
        Maker { engine, wire: None, address: None, wrap: None, bearer: Some(bearer) }
    });
    for (number, maker) in (1..).zip(&mut makers) {
        maker.address = Some(NodeAddr(number));
    }
    Ok(join(makers))
}

/// Starts two nodes and waits for their link.
pub(crate) fn join(makers: [Maker; 2]) -> [TestNode; 2] {
    let nodes = makers.map(Maker::start);
    meet(&nodes[0], &nodes[1]);
    meet(&nodes[1], &nodes[0]);
    nodes
}

/// Two linked nodes, and control over what the second one receives.
pub(crate) fn interrupted(engine: Engine) -> ([TestNode; 2], Control) {
    let [red, blue] = makers(engine);
    let (send, receive) = mpsc::channel();
    let blue = blue.address(2).middleware(move |bearer| {
        let wire = Middleware::new(bearer, 1).unwrap();
        let _ = send.send(wire.control());
        Box::new(wire)
    });
    let nodes = join([red.address(1), blue]);
    for link in nodes[0].links() {
        nodes[0].set_link(&link.name, LinkProperty::ToleranceMs(30_000)).unwrap();
    }
    (nodes, receive.recv().unwrap())
}

/// Waits until `node` sees `other`.
pub(crate) fn meet(node: &Node, other: &Node) {
    let mut topology = node.topology().unwrap();
    topology.nodes().unwrap();
    let wanted = Change::NodeUp(other.address());
    assert!(
        topology.events(LIMIT).any(|event| event.unwrap().change == wanted),
        "the nodes do not see each other"
    );
}

/// A connection between the nodes: the client's end and the server's.
pub(crate) fn connected(
    kind: SocketKind,
    service: ServiceAddress,
    client: &Node,
    server: &Node,
) -> [Connection; 2] {
    let listener = server.listen(kind, service).unwrap();
    client.wait_for_service(service, LIMIT).unwrap();
    let acceptor = std::thread::spawn(move || listener.accept().unwrap());
    let ends = [client.connect(kind, service).unwrap(), acceptor.join().unwrap()];
    for end in &ends {
        end.socket().set_receive_timeout(Some(LIMIT));
        end.socket().set_send_timeout(Some(LIMIT));
    }
    ends
}

/// Exchanges `rounds` requests and replies.
pub(crate) fn exchange([client, server]: &[Connection; 2], rounds: u32) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                let request = server.receive().unwrap();
                server.send(&request.data).unwrap();
            }
        });
        for round in 0..rounds {
            client.send(&round.to_be_bytes()).unwrap();
            assert_eq!(client.receive().unwrap().data, round.to_be_bytes());
        }
    });
}

/// Sends until a send fails; returns the number of messages sent and the error.
pub(crate) fn fill(connection: &Connection, message: &[u8]) -> (u32, Error) {
    for sent in 0..10_000 {
        if let Err(error) = connection.send(message) {
            return (sent, error);
        }
    }
    panic!("the sender is never blocked");
}

/// Reads until a sender that [`fill`] has blocked may go on: nothing is lost, and sending works again.
pub(crate) fn unblock(client: &Connection, server: &Connection, (sent, message): (u32, &[u8])) {
    for _ in 0..sent {
        assert!(server.receive().unwrap().data == message);
    }
    client.socket().set_send_timeout(Some(LIMIT));
    client.send(b"continued").unwrap();
    assert_eq!(server.receive().unwrap().data, b"continued");
}

/// Bytes of a stream of which each tells its place.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 253) as u8).collect()
}

/// Reads a stream that is a [`pattern`].
pub(crate) fn read_pattern(end: &Connection, bytes: usize) {
    let (mut at, mut buffer) = (0, vec![0; 30_000]);
    while at < bytes {
        let count = end.receive_into(&mut buffer).unwrap().len;
        assert!(count > 0, "the stream ends at byte {at}");
        assert!(buffer[..count].iter().enumerate().all(|(i, b)| *b == ((at + i) % 253) as u8));
        at += count;
    }
}

/// Sends this number of requests back to their senders.
pub(crate) fn echo(server: &Socket, rounds: u32) {
    for _ in 0..rounds {
        let request = server.receive().unwrap();
        server.send_to(&request.data, request.source).unwrap();
    }
}
