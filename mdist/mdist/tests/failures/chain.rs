//! The programs, started and killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::provider::Provider;

use crate::load_common::{sets, settled_within, until_seen_within};

/// Far beyond what anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Clients in this process that keep every field.
pub(crate) fn clients(to: SocketAddr, items: usize, change: impl FnOnce(&mut ConsumerOptions)) -> Consumer {
    let mut options = ConsumerOptions::new(to, items, Arc::new(sets()));
    options.compare = true;
    options.check = false;
    change(&mut options);
    Consumer::start(options).unwrap()
}

/// Waits for `done`, or fails with what was seen.
pub(crate) fn until(clients: &Consumer, what: &str, done: impl Fn(&Snapshot) -> bool) -> Snapshot {
    until_seen_within(LONG, clients, what, done)
}

/// The publisher rests; then all that clients hold is what it published, field by field.
pub(crate) fn settled(provider: &Provider, clients: &Consumer) {
    settled_within(LONG, provider, clients);
}

/// An address that nobody listens on, for a program that is started again on it.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A program of ours as a process; killed when dropped.
pub(crate) struct Program {
    child: Child,
    /// Where it listens, from its first lines.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where its metrics are.
    pub(crate) metrics: Option<SocketAddr>,
}

impl Program {
    /// A point-to-point server.
    pub(crate) fn p2ps(listen: SocketAddr, bus: &Backbone, arguments: &[&str]) -> Self {
        let listen = listen.to_string();
        let mut all = vec!["--listen", &listen, "--metrics", "127.0.0.1:0"];
        all.extend(arguments);
        Self::start(env!("CARGO_BIN_EXE_p2ps"), bus, &all)
    }

    /// A source distributor for one provider.
    pub(crate) fn src_dist(provider: SocketAddr, bus: &Backbone, arguments: &[&str]) -> Self {
        let provider = provider.to_string();
        let mut all = vec!["--provider", &provider, "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Self::distributor(bus, &all)
    }

    /// A source distributor as the arguments say.
    pub(crate) fn distributor(bus: &Backbone, arguments: &[&str]) -> Self {
        Self::start(env!("CARGO_BIN_EXE_src_dist"), bus, arguments)
    }

    fn start(program: &str, bus: &Backbone, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .arg("--config")
            .arg(&bus.settings)
            .env("RUST_LOG", "warn")
            .env("XDG_RUNTIME_DIR", &bus.folder)
            .envs(bus.engine())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut addresses, mut metrics) = (Vec::new(), None);
        for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, at)) = line.split_once("listening at ") {
                addresses.push(at.parse().unwrap());
            } else if let Some((_, at)) = line.split_once("http://") {
                metrics = Some(at.trim_end_matches("/metrics").parse().unwrap());
            } else if line.ends_with("ready") {
                return Self { child, addresses, metrics };
            }
        }
        panic!("{program} {arguments:?} ended before it was ready: {:?}", child.wait());
    }

    /// As a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What its metrics port says.
    pub(crate) fn page(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(self.metrics.unwrap()).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A backbone that no other test is on: service types and a runtime folder of its own.
pub(crate) struct Backbone {
    folder: PathBuf,
    settings: PathBuf,
    /// The daemon's socket, if the programs are to have one.
    daemon: Option<PathBuf>,
}

impl Backbone {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = std::process::id() % 100_000 * 16 + number;
        let folder = std::env::temp_dir().join(format!("mdist-failures-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = folder.join("mdist.toml");
        let text = format!(
            "[backbone]\nsource-type = {}\nfeed-type = {}\n",
            20_000_000 + 2 * own,
            20_000_001 + 2 * own
        );
        std::fs::write(&settings, text).unwrap();
        Self { folder, settings, daemon: None }
    }

    /// One whose programs attach to a daemon; and the socket that it has to have.
    pub(crate) fn of_a_daemon() -> (Self, PathBuf) {
        let mut bus = Self::new();
        let socket = bus.folder.join("utipcd.sock");
        bus.daemon = Some(socket.clone());
        (bus, socket)
    }

    /// Has the service types of another.
    pub(crate) fn speaks_as(&self, other: &Backbone) {
        std::fs::copy(&other.settings, &self.settings).unwrap();
    }

    fn engine(&self) -> Vec<(&str, &std::ffi::OsStr)> {
        match &self.daemon {
            None => vec![("UTIPC_ENGINE", "embedded".as_ref())],
            Some(socket) => vec![("UTIPC_ENGINE", "daemon".as_ref()), ("UTIPC_SOCKET", socket.as_os_str())],
        }
    }
}

impl Drop for Backbone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
