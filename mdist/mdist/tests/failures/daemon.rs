//! The daemon under the chain dies, or the network between two of them does.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use utipc::bearers::{UdpBearer, UdpConfig};
use utipc::daemon::{Daemon, DaemonConfig, Plan};
use utipc::{Node, NodeAddr};

use crate::chain::{Backbone, LONG, Program, clients, settled, until};
use crate::load_common::publisher;

const ITEMS: usize = 10_000;
/// Set for a process that is to be a daemon: its socket, its number, and where its UDP bearer is and leads to.
const SOCKET: &str = "MDIST_TEST_DAEMON";
const NUMBER: &str = "MDIST_TEST_DAEMON_NUMBER";
const CABLE: &str = "MDIST_TEST_DAEMON_CABLE";

/// Not a test of its own: a daemon until it is killed.
#[test]
fn a_daemon_to_be_killed() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut config = DaemonConfig { socket: socket.into(), ..DaemonConfig::default() };
    config.node.stack.address = Some(NodeAddr(std::env::var(NUMBER).unwrap().parse().unwrap()));
    if let Ok(cable) = std::env::var(CABLE) {
        let (local, remote) = cable.split_once(' ').unwrap();
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

/// A daemon as a process; killed when dropped.
struct Running(Child);

impl Running {
    fn start(socket: &Path) -> Self {
        Self::with(Command::new(std::env::current_exe().unwrap()), socket, 1)
    }

    fn with(mut command: Command, socket: &Path, number: u32) -> Self {
        command.args(["--exact", "daemon::a_daemon_to_be_killed"]).env(SOCKET, socket);
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_chain_outlives_its_daemon_and_waits_for_one() {
    let (bus, socket) = Backbone::of_a_daemon();
    let provider = publisher(20_000);
    // There is none yet.
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &bus, &[]);
    let _distributor = Program::src_dist(provider.address().unwrap(), &bus, &[]);
    let daemon = Running::start(&socket);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    drop(daemon);
    until(&clients, "all are suspect", |seen| seen.loaded == 0);
    // The page is renewed once a second.
    until(&clients, "the page says so", |_| {
        let page = server.page("/metrics");
        page.lines().any(|line| line.starts_with("mdist_backbone_away{") && line.ends_with(" 1"))
    });
    let _daemon = Running::start(&socket);
    let seen = clients.loaded(LONG).unwrap();
    assert_eq!(seen.counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    let before = seen.counts.updates;
    until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    settled(&provider, &clients);
}

/// Two network namespaces, joined by a cable.
struct Spaces(Vec<String>);

const ADDRESSES: [&str; 2] = ["198.18.79.1", "198.18.79.2"];

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().map_err(|why| why.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

impl Spaces {
    fn joined() -> Result<Self, String> {
        let (id, mut spaces) = (std::process::id(), Self(Vec::new()));
        for side in 0..2 {
            let name = format!("mdist-cut-{id}-{side}");
            ip(&format!("netns add {name}"))?;
            spaces.0.push(name);
        }
        ip(&format!("link add cut0 netns {} type veth peer name cut1 netns {}", spaces.0[0], spaces.0[1]))?;
        for (side, (name, address)) in spaces.0.iter().zip(ADDRESSES).enumerate() {
            ip(&format!("-n {name} addr add {address}/24 dev cut{side}"))?;
            ip(&format!("-n {name} link set cut{side} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(spaces)
    }

    fn daemon(&self, side: usize, socket: &Path) -> Running {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[side]]).arg(std::env::current_exe().unwrap());
        command.env(CABLE, format!("{} {}", ADDRESSES[side], ADDRESSES[1 - side]));
        Running::with(command, socket, 1 + side as u32)
    }

    fn cable(&self, state: &str) {
        ip(&format!("-n {} link set cut0 {state}", self.0[0])).unwrap();
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

#[test]
fn a_node_that_is_cut_off_is_waited_for() {
    let spaces = match Spaces::joined() {
        Ok(spaces) => spaces,
        Err(why) => {
            use std::io::Write as _;
            // Past the test runner's capture.
            let _ =
                writeln!(std::io::stderr(), "skipped: backbone node cut off: namespaces need root: {why}");
            return;
        }
    };
    let sides: [(Backbone, PathBuf); 2] = std::array::from_fn(|_| Backbone::of_a_daemon());
    let _daemons: [Running; 2] = std::array::from_fn(|side| spaces.daemon(side, &sides[side].1));
    let provider = publisher(20_000);
    let (source, sink) = (&sides[0].0, &sides[1].0);
    sink.speaks_as(source);
    let _distributor = Program::src_dist(provider.address().unwrap(), source, &[]);
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), sink, &[]);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    for round in 0..2 {
        spaces.cable("down");
        // Longer than the link tolerates silence: then all is suspect.
        until(&clients, "all are suspect", |seen| seen.loaded == 0);
        spaces.cable("up");
        let seen = clients.loaded(LONG).unwrap();
        assert_eq!(seen.counts.cuts, 0, "round {round}: {:?}", clients.disconnect_reasons());
        let before = seen.counts.updates;
        until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    }
    settled(&provider, &clients);
}
