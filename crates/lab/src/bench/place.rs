//! The environment of a measurement: two network namespaces joined by a virtual cable, or this host.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use utipc_bench_kit::process::Process;
use utipc_bench_kit::{Named as _, cpu, daemon, place};
use utipc_netns::Namespace;
use utipc_tools::companion;
use utipc_tools::namespaces::{CABLE, enable_kernel_node};

use super::job::{EndResult, Job, PeerMessage, Role, ServerAddress, Site, Test};
use super::parent::GO;
use super::variant::{Engine, Scope, Transport, Variant};
use super::{library, traffic};

/// The key of encrypted clusters: 32 bytes of AES key and 4 of salt. Its secrecy does not matter.
const KEY: &[u8] = b"0xa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3\n";

/// The namespaces and daemons of a measurement. Dropped: they are removed.
pub(super) struct Place {
    /// The server's side is 0, the client's 1.
    inner: place::Place,
    engine: Engine,
    /// Where the embedded nodes of this host find each other. Not the user's directory, where benchmarks that run at
    /// the same time would be one cluster.
    directory: Option<PathBuf>,
    /// Reason why the kernel has no nodes in the namespaces, if that was tried and failed.
    kernel_obstacle: OnceCell<Option<String>>,
}

/// A process that does a job. Dropped: it ends.
pub(super) struct Peer {
    process: Process,
    /// Where the other end finds it, once it is ready.
    pub(super) address: ServerAddress,
}

fn enable_kernel_nodes(pair: &[Namespace; 2]) -> Result<()> {
    let utipc =
        companion::beside("utipc").context("the program utipc is not here (cargo build -p utipc-tools)")?;
    (1..).zip(pair).try_for_each(|(number, namespace)| enable_kernel_node(&utipc, namespace, number))
}

/// Whether the environment names a running daemon: it is measured on this host. Its CPU time is not counted, because it
/// may serve other programs too.
fn is_daemon_given() -> bool {
    std::env::var_os("UTIPC_SOCKET").is_some_and(|socket| !socket.is_empty())
}

impl Place {
    /// The place for `scope`, with daemons if `engine` needs them.
    pub(super) fn new(scope: Scope, engine: Engine) -> Result<Self> {
        let cable = (scope == Scope::Inter).then_some(CABLE);
        let mut inner = place::Place::new("utipc-bench-", cable)
            .context("make two namespaces (--scope intra needs none)")?;
        if engine == Engine::Daemon && (scope == Scope::Inter || !is_daemon_given()) {
            let program = std::env::current_exe().context("find this program's own path")?;
            inner.start_daemons(&[program.as_os_str(), OsStr::new("daemon")], library::CLUSTER)?;
        }
        let mut directory = None;
        if engine == Engine::Embedded && scope == Scope::Intra {
            match inner.folder() {
                Ok(folder) => directory = Some(folder.join("nodes")),
                Err(why) => eprintln!("utipc bench: no shared memory between nodes, they use UDP: {why:#}"),
            }
        }
        Ok(Self { inner, engine, directory, kernel_obstacle: OnceCell::new() })
    }

    pub(super) fn scope(&self) -> Scope {
        if self.inner.namespaces().is_some() { Scope::Inter } else { Scope::Intra }
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    /// Makes the kernel's nodes in the namespaces, joined by the cable; returns why that fails. On this host the kernel
    /// always has its node.
    pub(super) fn kernel_obstacle(&self) -> Option<String> {
        let pair = self.inner.namespaces()?;
        let enable = || {
            let enabled = enable_kernel_nodes(pair);
            if enabled.is_ok() {
                eprintln!(
                    "kernel-tipc: one kernel has both namespaces and hands messages from socket to socket: no packet crosses \
                     the cable"
                );
            }
            enabled.err().map(|why| format!("{why:#}"))
        };
        self.kernel_obstacle.get_or_init(enable).clone()
    }

    /// Switches segmentation and coalescing off at both ends of the cable.
    pub(super) fn offloads_off(&self) -> Result<()> {
        ensure!(
            self.scope() == Scope::Inter,
            "only a cable between two namespaces has offloads (add --scope inter)"
        );
        for role in [Role::Serve, Role::Drive] {
            let job = Job { role, ..Job::new(Test::OffloadsOff, Variant::TCP, 1) };
            self.start(&job)?.finish().context("switch the offloads off")?;
        }
        Ok(())
    }

    /// CPU time that the daemons have used so far, seconds.
    pub(super) fn daemons_cpu_s(&self) -> f64 {
        self.daemons().into_iter().map(cpu::seconds_of).sum()
    }

    /// The process ids of the daemons.
    pub(super) fn daemons(&self) -> Vec<u32> {
        self.inner.daemons().iter().map(daemon::Daemon::id).collect()
    }

    /// The folder of the run.
    pub(super) fn folder(&self) -> Result<&Path> {
        self.inner.folder().map(PathBuf::as_path)
    }

    /// Lets a command use the daemon of the server's side.
    pub(super) fn attach(&self, command: &mut Command) -> Result<()> {
        match self.inner.daemon_of(0) {
            Some(daemon) => daemon.serve(command),
            // The environment names a daemon that is not ours.
            None => ensure!(is_daemon_given(), "there is no daemon"),
        }
        Ok(())
    }

    /// The site of a process with this role.
    fn site(&self, role: Role) -> Site {
        if self.scope() == Scope::Inter {
            let [server, client] = CABLE.addresses.map(IpAddr::from);
            let (local, remote) = if role == Role::Serve { (server, client) } else { (client, server) };
            return Site { local, remote, private: true, directory: None, key: None };
        }
        // An address that no other benchmark on this host uses now.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let local = IpAddr::from([127, 64 | a & 63, b, c]);
        Site { local, remote: local, private: false, directory: self.directory.clone(), key: None }
    }

    /// The file with the key of encrypted clusters.
    fn key(&self) -> Result<PathBuf> {
        let path = self.folder()?.join("key");
        if !path.exists() {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(KEY))
                .with_context(|| format!("write {}", path.display()))?;
        }
        Ok(path)
    }

    /// Starts a process for `job`, at the end of its role.
    pub(super) fn start(&self, job: &Job) -> Result<Peer> {
        let mut job = job.clone();
        (job.site, job.engine) = (self.site(job.role), self.engine);
        if job.variant.transport == Transport::UtipcEncrypted {
            job.site.key = Some(self.key()?);
        }
        let side = usize::from(job.role == Role::Drive);
        let program = std::env::current_exe().context("find this program's own path")?;
        let mut command = match self.inner.namespaces() {
            Some(pair) => pair[side].command(&program),
            None => Command::new(&program),
        };
        command.args(["bench", "peer", &serde_json::to_string(&job)?]);
        command.envs(library::environment(&job));
        match self.inner.daemon_of(side) {
            Some(daemon) => daemon.serve(&mut command),
            // The environment also names a daemon that is not ours.
            None => _ = command.env("UTIPC_ENGINE", self.engine.name()),
        }
        let name = if job.role == Role::Serve { "server" } else { "client" };
        let process = Process::start_patiently(name, command)?;
        Ok(Peer { process, address: ServerAddress::default() })
    }

    /// Starts a process for `job` and waits until it is ready for the other end.
    pub(super) fn ready(&self, job: &Job) -> Result<Peer> {
        let mut peer = self.start(job)?;
        peer.wait_ready()?;
        Ok(peer)
    }

    /// The driver's result of a job for all its servers and one driver.
    pub(super) fn run(&self, job: &Job) -> Result<EndResult> {
        let serve = |index| self.ready(&Job { role: Role::Serve, index, ..job.clone() });
        let _servers = (0..job.servers).map(serve).collect::<Result<Vec<Peer>>>()?;
        let mut driver = self.ready(job)?;
        driver.go()?;
        driver.finish()
    }
}

impl Peer {
    fn receive(&mut self) -> Result<PeerMessage> {
        let line = self.process.line()?;
        let name = &self.process.name;
        match serde_json::from_str(&line)
            .with_context(|| format!("read a message of the {name}: {line:?}"))?
        {
            PeerMessage::Failed(error) => bail!("{name}: {error}"),
            message => Ok(message),
        }
    }

    /// Waits until the process is ready for the other end.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        match self.receive()? {
            PeerMessage::Ready(address) => self.address = address,
            _ => bail!("{}: a result before it was ready", self.process.name),
        }
        Ok(())
    }

    /// Lets a process begin that is ready.
    pub(super) fn go(&mut self) -> Result<()> {
        self.process.send(GO)
    }

    /// Waits for the result. The process lives until this value is dropped, so that the other end can finish.
    pub(super) fn result(&mut self) -> Result<EndResult> {
        match self.receive()? {
            PeerMessage::Done(result) => Ok(*result),
            _ => bail!("{}: ready again, without a result", self.process.name),
        }
    }

    /// Waits for the result and the end of the process.
    pub(super) fn finish(mut self) -> Result<EndResult> {
        let result = self.result()?;
        self.process.close_and_wait()?;
        Ok(result)
    }

    /// The process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process; returns when that was done, nanoseconds of the monotonic clock.
    pub(super) fn kill(&mut self) -> Result<u64> {
        self.process.kill()?;
        Ok(traffic::now_ns())
    }
}
