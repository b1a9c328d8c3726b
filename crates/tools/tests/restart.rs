//! A daemon that restarts is the same node for its cluster, with the same identity. This test needs root.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use utipc::{Engine, Node};
use utipc_netns::{Cable, Namespace};

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
const CABLE: Cable =
    Cable { interface: "restart", addresses: [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)] };

/// A directory that is removed after the test.
struct Home(PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The place of one daemon.
struct Host<'a> {
    home: PathBuf,
    namespace: &'a Namespace,
}

impl<'a> Host<'a> {
    /// `state`: the value of `node.state`.
    fn new(home: &Home, name: &str, namespace: &'a Namespace, local: Ipv4Addr, state: &str) -> Self {
        let home = home.0.join(name);
        fs::create_dir_all(&home).unwrap();
        let config = format!(
            "[node]\nstate = \"{state}\"\n[[bearer]]\nmedia = \"udp\"\nname = \"lan\"\nlocal = \"{local}\"\n\
             tolerance_ms = 500\n"
        );
        fs::write(home.join("utipcd.toml"), config).unwrap();
        Self { home, namespace }
    }

    fn node(&self) -> Option<Node> {
        Node::builder().engine(Engine::Daemon).daemon_at(self.home.join("sock")).start().ok()
    }

    /// Starts the daemon; returns when it has a link to the other.
    fn start(&self) -> Daemon {
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_utipcd"));
        command
            .arg("--config")
            .arg(self.home.join("utipcd.toml"))
            .arg("--socket")
            .arg(self.home.join("sock"));
        Daemon(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until this node reaches another, and returns the number of nodes that it knows.
    fn wait_for_link(&self) -> usize {
        let begun = Instant::now();
        loop {
            let peers = self.node().map(|node| node.peers()).unwrap_or_default();
            if peers.iter().any(|peer| peer.up) {
                return peers.len();
            }
            assert!(begun.elapsed() < LIMIT, "no link: {peers:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Daemon(Child);

impl Daemon {
    fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of nodes that a neighbour lists after each restart of a daemon that is ended by these signals.
fn nodes_after_restarts(name: &str, state: Option<&str>, signals: &[Signal]) -> Vec<usize> {
    let home = Home(std::env::temp_dir().join(format!("utipcd-restart-{name}-{}", std::process::id())));
    let [here, there] = CABLE.join().unwrap();
    let state = state.map_or_else(String::new, |state| home.0.join(state).display().to_string());
    let [first, second] = CABLE.addresses;
    let neighbour = Host::new(&home, "neighbour", &there, second, "");
    let host = Host::new(&home, "host", &here, first, &state);
    let (_observer, mut daemon) = (neighbour.start(), host.start());
    assert_eq!((host.wait_for_link(), neighbour.wait_for_link()), (1, 1));
    let restarted = |signal: &Signal| {
        std::mem::replace(&mut daemon, Daemon(Command::new("true").spawn().unwrap())).end(*signal);
        daemon = host.start();
        // A fresh daemon knows no nodes until it has a link.
        host.wait_for_link();
        neighbour.wait_for_link()
    };
    signals.iter().map(restarted).collect()
}

#[test]
fn cluster_sees_a_restart_and_not_a_new_node() {
    if !geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let signals = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL];
    assert_eq!(nodes_after_restarts("kept", Some("state"), &signals), [1, 1, 1]);
    // The effect that the state prevents.
    assert_eq!(nodes_after_restarts("new", None, &[Signal::SIGTERM]), [2]);
}
