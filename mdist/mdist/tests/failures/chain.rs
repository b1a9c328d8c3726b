//! The programs in processes of their own, and consumers to check them with.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::provider::Provider;
use rustix::process::{Pid, Signal, kill_process};

use crate::load_common::{sets, settled_within, until_seen_within};

/// Limit for every wait, far above what a busy machine needs.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Starts consumers in this process that keep every field of their items.
pub(crate) fn clients(to: SocketAddr, items: usize, change: impl FnOnce(&mut ConsumerOptions)) -> Consumer {
    let mut options = ConsumerOptions::new(to, items, Arc::new(sets()));
    options.compare = true;
    options.check = false;
    change(&mut options);
    Consumer::start(options).unwrap()
}

/// Waits until `done` holds for a snapshot of the consumers; panics with the last snapshot after [`LONG`].
pub(crate) fn until(clients: &Consumer, what: &str, done: impl Fn(&Snapshot) -> bool) -> Snapshot {
    until_seen_within(LONG, clients, what, done)
}

/// Pauses the publisher, and checks that every field of the consumers is what it has published.
pub(crate) fn settled(provider: &Provider, clients: &Consumer) {
    settled_within(LONG, provider, clients);
}

/// A free address, for a program that is started again on it.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// `p2ps` or `src_dist` in a process of its own; killed when dropped.
pub(crate) struct Program {
    child: Child,
    /// Addresses of its listeners, from its first lines.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Address of its metrics server.
    pub(crate) metrics: Option<SocketAddr>,
}

impl Program {
    /// Starts a point-to-point server.
    pub(crate) fn p2ps(listen: SocketAddr, backbone: &Backbone, arguments: &[&str]) -> Self {
        let listen = listen.to_string();
        let mut all = vec!["--listen", &listen, "--metrics", "127.0.0.1:0"];
        all.extend(arguments);
        Self::start(env!("CARGO_BIN_EXE_p2ps"), backbone, &all)
    }

    /// Starts a source distributor with one provider.
    pub(crate) fn src_dist(provider: SocketAddr, backbone: &Backbone, arguments: &[&str]) -> Self {
        let provider = provider.to_string();
        let mut all = vec!["--provider", &provider, "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Self::distributor(backbone, &all)
    }

    /// Starts a source distributor with these arguments.
    pub(crate) fn distributor(backbone: &Backbone, arguments: &[&str]) -> Self {
        Self::start(env!("CARGO_BIN_EXE_src_dist"), backbone, arguments)
    }

    fn start(program: &str, backbone: &Backbone, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .arg("--config")
            .arg(&backbone.settings)
            .env("RUST_LOG", "warn")
            .env("XDG_RUNTIME_DIR", &backbone.folder)
            .envs(backbone.engine())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut addresses, mut metrics) = (Vec::new(), None);
        for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, at)) = line.split_once("listening at ") {
                addresses.push(at.parse().unwrap());
            } else if let Some((_, at)) = line.split_once("metrics at http://") {
                metrics = Some(at.trim_end_matches("/metrics").parse().unwrap());
            } else if line.ends_with("ready") {
                return Self { child, addresses, metrics };
            }
        }
        panic!("{program} {arguments:?} ended before it was ready: {:?}", child.wait());
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether a signal has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// The value of a metric without labels of its own, from the metrics page.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.page("/metrics");
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{page}"))
    }

    /// Gets a page of its metrics server.
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

/// A backbone of one test: service types and a runtime directory of its own.
pub(crate) struct Backbone {
    folder: PathBuf,
    settings: PathBuf,
    /// The daemon's socket, if the programs attach to one.
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
            "[backbone.tipc]\nsource-type = {}\nfeed-type = {}\n",
            20_000_000 + 2 * own,
            20_000_001 + 2 * own
        );
        std::fs::write(&settings, text).unwrap();
        Self { folder, settings, daemon: None }
    }

    /// A backbone whose programs attach to a daemon, and the path for the daemon's socket.
    pub(crate) fn with_daemon() -> (Self, PathBuf) {
        let mut backbone = Self::new();
        let socket = backbone.folder.join("utipcd.sock");
        backbone.daemon = Some(socket.clone());
        (backbone, socket)
    }

    /// Uses the service types of another backbone.
    pub(crate) fn copy_settings(&self, other: &Backbone) {
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
