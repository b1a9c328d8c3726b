//! Embedded nodes on one host: shared memory carries their link, and the death of a process is known at once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use utipc::bearers::{Bearer, HostBearer, HostConfig};
use utipc::daemon::{Daemon, DaemonConfig, NodeConfig, Plan};
use utipc::{Change, Engine, Node, ServiceAddress, SocketKind};

const SERVICE: ServiceAddress = ServiceAddress::new(9300, 1);

/// Set for the process that serves until it is killed: the directory of the nodes.
const SERVER: &str = "UTIPC_TEST_HOST_SERVER";

/// Set beside it: the server moves to a network namespace of its own.
const CONTAINED: &str = "UTIPC_TEST_HOST_CONTAINED";

/// Far beyond the link tolerance.
const LIMIT: Duration = Duration::from_secs(60);

/// A new directory, removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("utipc-host-{}-{serial}", std::process::id())))
    }

    fn node(&self) -> Node {
        start(&self.0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node whose tolerance is the longest there is: silence never ends its links during a test.
fn start(directory: &Path) -> Node {
    let builder = Node::builder().engine(Engine::Embedded).tolerance_ms(30_000);
    builder.same_host_in(directory).start().unwrap()
}

struct Server(Child);

impl Server {
    fn start(directory: &Directory, contained: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server", "--nocapture"]).env(SERVER, &directory.0);
        if contained {
            command.env(CONTAINED, "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.ends_with("ready"));
        assert!(ready, "the server has ended");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: echoes until it is killed.
#[test]
fn server() {
    let Some(directory) = std::env::var_os(SERVER) else { return };
    if std::env::var_os(CONTAINED).is_some() {
        utipc_os::netns::unshare().unwrap();
    }
    let node = start(Path::new(&directory));
    let listener = node.listen(SocketKind::SeqPacket, SERVICE).unwrap();
    println!("\nready");
    loop {
        let connection = listener.accept().unwrap();
        while let Ok(message) = connection.receive() {
            if message.data.is_empty() || connection.send(&message.data).is_err() {
                break;
            }
        }
    }
}

fn echoes(node: &Node) {
    // On a loaded machine a node may start before it knows all services.
    node.wait_for_service(SERVICE, LIMIT).unwrap();
    let connection = node.connect(SocketKind::SeqPacket, SERVICE).unwrap();
    connection.socket().set_receive_timeout(Some(LIMIT));
    for size in [1, 64, 1400, 20_000, 65_000, 66_000] {
        let message: Vec<u8> = (0..size).map(|at| at as u8).collect();
        connection.send(&message).unwrap();
        assert_eq!(connection.receive().unwrap().data, message);
    }
}

#[test]
fn embedded_nodes_exchange_messages_of_all_sizes() {
    let directory = Directory::new();
    let _server = Server::start(&directory, false);
    echoes(&directory.node());
}

#[test]
fn killed_process_is_known_by_its_connection() {
    let directory = Directory::new();
    let server = Server::start(&directory, false);
    let node = directory.node();
    let mut topology = node.topology().unwrap();
    topology.services(SERVICE).unwrap();
    node.wait_for_service(SERVICE, LIMIT).unwrap();
    let connection = node.connect(SocketKind::SeqPacket, SERVICE).unwrap();
    connection.socket().set_receive_timeout(Some(LIMIT));
    drop(server);
    // Ten times the tolerance would have to pass without the report of the bearer.
    let mut events = topology.events(Duration::from_secs(20));
    assert!(events.any(|event| event.unwrap().change == Change::ServiceDown));
    let error = connection.receive().unwrap_err();
    assert!(!error.is_temporary(), "{error}");
    assert!(node.peers().iter().all(|peer| !peer.up));
}

#[test]
fn node_that_was_dropped_is_known_at_once() {
    let directory = Directory::new();
    let (one, other) = (directory.node(), directory.node());
    assert!(one.address() != other.address());
    let mut topology = one.topology().unwrap();
    topology.nodes().unwrap();
    let gone = other.address();
    let mut events = topology.events(Duration::from_secs(20));
    assert!(events.any(|event| event.unwrap().change == Change::NodeUp(gone)));
    assert_eq!(one.peers().len(), 1);
    drop(other);
    assert!(events.any(|event| event.unwrap().change == Change::NodeDown(gone)));
}

#[test]
fn embedded_node_reaches_the_programs_of_a_daemon_beside_it() {
    let directory = Directory::new();
    let mut node = NodeConfig::default();
    node.choose_identity().unwrap();
    let (path, address) = (Some(directory.0.clone()), node.stack.first_address());
    let bearer = HostBearer::open(&HostConfig { directory: path, address, ..HostConfig::default() }).unwrap();
    assert!(bearer.owns_address());
    node.bearers.push(Plan::new(Box::new(bearer)));
    node.complete(None).unwrap();
    let socket = directory.0.join("utipcd.sock");
    let daemon = Daemon::start(DaemonConfig { node, socket, ..DaemonConfig::default() }).unwrap();
    let hosted = Node::builder().daemon_at(daemon.socket()).start().unwrap();
    let listener = hosted.listen(SocketKind::SeqPacket, SERVICE).unwrap();
    let echo = std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        while let Ok(message) = connection.receive() {
            if message.data.is_empty() || connection.send(&message.data).is_err() {
                break;
            }
        }
    });
    echoes(&directory.node());
    echo.join().unwrap();
}

#[test]
fn containers_that_share_a_directory_are_one_cluster() {
    if let Err(error) = std::thread::spawn(utipc_os::netns::unshare).join().unwrap() {
        eprintln!("skipped: {error}");
        return;
    }
    let directory = Directory::new();
    let _server = Server::start(&directory, true);
    echoes(&directory.node());
}
