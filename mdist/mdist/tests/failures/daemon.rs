//! The chain recovers after the death of its daemon, and after a failure of the network between two daemons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use utipc::bearers::{UdpBearer, UdpConfig};
use utipc::daemon::{Daemon, DaemonConfig, Plan};
use utipc::{Node, NodeAddr};
use utipc_netns::{Cable, Namespace};

use crate::chain::{Backbone, LONG, Program, clients, settled, until};
use crate::load_common::publisher;

const ITEMS: usize = 10_000;
/// Environment variables of a process that runs a daemon: its socket, its number, and the local and remote address of
/// its UDP bearer.
const SOCKET: &str = "MDIST_TEST_DAEMON";
const NUMBER: &str = "MDIST_TEST_DAEMON_NUMBER";
const UDP: &str = "MDIST_TEST_DAEMON_UDP";

/// Not a test: runs a daemon until it is killed, in a process that other tests start.
#[test]
fn daemon_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut config = DaemonConfig { socket: socket.into(), ..DaemonConfig::default() };
    config.node.stack.address = Some(NodeAddr(std::env::var(NUMBER).unwrap().parse().unwrap()));
    if let Ok(addresses) = std::env::var(UDP) {
        let (local, remote) = addresses.split_once(' ').unwrap();
        let (local, remote): (IpAddr, IpAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let udp = UdpConfig::replicast("UDP", local, vec![SocketAddr::new(remote, 6118)]);
        config.node.bearers.push(Plan::new(Box::new(UdpBearer::open(&udp).unwrap())));
    }
    config.node.complete(None).unwrap();
    let _daemon = Daemon::start(config).unwrap();
    loop {
        std::thread::park();
    }
}

/// A daemon in a process of its own; killed when dropped.
pub(crate) struct DaemonProcess(Child);

impl DaemonProcess {
    pub(crate) fn start(socket: &Path) -> Self {
        Self::with(Command::new(std::env::current_exe().unwrap()), socket, 1)
    }

    fn with(mut command: Command, socket: &Path, number: u32) -> Self {
        command.args(["--exact", "daemon::daemon_process"]).env(SOCKET, socket);
        command.env(NUMBER, number.to_string()).stdout(Stdio::null());
        let running = Self(command.spawn().unwrap());
        let start = Instant::now();
        while Node::builder().daemon_at(socket).start().is_err() {
            assert!(start.elapsed() < LONG, "no daemon at {}", socket.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn chain_survives_its_daemon_and_waits_for_one() {
    let (backbone, socket) = Backbone::with_daemon();
    let provider = publisher(20_000);
    // The daemon starts after the programs.
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]);
    let _distributor = Program::src_dist(provider.address().unwrap(), &backbone, &[]);
    let daemon = DaemonProcess::start(&socket);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    drop(daemon);
    until(&clients, "all are suspect", |seen| seen.loaded == 0);
    // Metrics are published once a second.
    until(&clients, "the metrics show the absence", |_| {
        let page = server.page("/metrics");
        page.lines().any(|line| line.starts_with("mdist_backbone_away{") && line.ends_with(" 1"))
    });
    let _daemon = DaemonProcess::start(&socket);
    let seen = clients.loaded(LONG).unwrap();
    assert_eq!(seen.counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    let before = seen.counts.updates;
    until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    settled(&provider, &clients);
}

/// The cable between the namespaces of two daemons.
const CABLE: Cable =
    Cable { interface: "cut0", addresses: [Ipv4Addr::new(198, 18, 79, 1), Ipv4Addr::new(198, 18, 79, 2)] };

/// Starts the daemon of one end of the cable, in its namespace.
fn daemon_in(namespaces: &[Namespace; 2], side: usize, socket: &Path) -> DaemonProcess {
    let mut command = namespaces[side].command(std::env::current_exe().unwrap());
    command.env(UDP, format!("{} {}", CABLE.addresses[side], CABLE.addresses[1 - side]));
    DaemonProcess::with(command, socket, 1 + side as u32)
}

#[test]
fn chain_recovers_after_the_network_between_its_nodes_is_down() {
    let namespaces = match CABLE.join() {
        Ok(namespaces) => namespaces,
        Err(why) => {
            use std::io::Write as _;
            // Written directly, because the test runner captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: network between two nodes down: {why:#}");
            return;
        }
    };
    let set_cable = |state| namespaces[0].ip(&["link", "set", CABLE.interface, state]).unwrap();
    let sides: [(Backbone, PathBuf); 2] = std::array::from_fn(|_| Backbone::with_daemon());
    let _daemons: [DaemonProcess; 2] =
        std::array::from_fn(|side| daemon_in(&namespaces, side, &sides[side].1));
    let provider = publisher(20_000);
    let (source, sink) = (&sides[0].0, &sides[1].0);
    sink.copy_settings(source);
    let _distributor = Program::src_dist(provider.address().unwrap(), source, &[]);
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), sink, &[]);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    for round in 0..2 {
        set_cable("down");
        // After the link tolerance all items are suspect.
        until(&clients, "all are suspect", |seen| seen.loaded == 0);
        set_cable("up");
        let seen = clients.loaded(LONG).unwrap();
        assert_eq!(seen.counts.cuts, 0, "round {round}: {:?}", clients.disconnect_reasons());
        let before = seen.counts.updates;
        until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    }
    settled(&provider, &clients);
}
