//! Where measurements happen: two network namespaces joined by a virtual cable, or this host.

use std::cell::OnceCell;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use utipc_netns::Namespace;

use super::daemon::{self, Daemons};
use super::job::{Job, Meet, Part, Role, Said, Site};
use super::party::{Engine, Scope};
use super::peer::GO;
use super::{library, traffic};
use crate::namespaces::{self, CABLE};

/// A place; it vanishes with this value, or with this process.
pub(super) struct Place {
    /// The two namespaces, server's first; none on this host.
    namespaces: Option<[Namespace; 2]>,
    engine: Engine,
    daemons: Option<Daemons>,
    /// Why the kernel has no nodes in the namespaces, once it was asked for some.
    kernel: OnceCell<Option<String>>,
}

/// A process that does a job; it ends with this value.
pub(super) struct Peer {
    child: Child,
    what: &'static str,
    orders: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Place {
    /// The place for `scope`, with daemons if the nodes are to live in such.
    pub(super) fn new(scope: Scope, engine: Engine) -> Result<Self> {
        let namespaces = match scope {
            Scope::Intra => None,
            Scope::Inter => Some(CABLE.join().context("make two namespaces (--scope intra needs none)")?),
        };
        let daemons = match engine {
            Engine::Embedded | Engine::Kernel => None,
            Engine::Daemon if namespaces.is_none() && daemon::is_named() => None,
            Engine::Daemon => Some(Daemons::start(namespaces.as_ref())?),
        };
        Ok(Self { namespaces, engine, daemons, kernel: OnceCell::new() })
    }

    pub(super) fn scope(&self) -> Scope {
        if self.namespaces.is_some() { Scope::Inter } else { Scope::Intra }
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    /// Makes the kernel's nodes in the namespaces, joined by the cable. Why there are none, if so; on this host the kernel has
    /// its node anyway.
    pub(super) fn kernel_obstacle(&self) -> Option<String> {
        let pair = self.namespaces.as_ref()?;
        let make = || {
            let made =
                (1..).zip(pair).try_for_each(|(number, it)| namespaces::enable_kernel_node(it, number));
            if made.is_ok() {
                eprintln!(
                    "kernel-tipc: both namespaces are one kernel's, which hands messages from socket to socket: no packet \
                     crosses the cable"
                );
            }
            made.err().map(|why| format!("{why:#}"))
        };
        self.kernel.get_or_init(make).clone()
    }

    /// Switches the segmentation and coalescing of the cable off, at both ends.
    pub(super) fn offloads_off(&self, job: &Job) -> Result<()> {
        ensure!(self.namespaces.is_some(), "offloads are those of the cable between two namespaces");
        for role in [Role::Serve, Role::Drive] {
            let mut job = job.clone();
            (job.test, job.role) = (super::job::Test::OffloadsOff, role);
            self.start(&job)?.finish().context("switch the offloads off")?;
        }
        Ok(())
    }

    /// Processor time that the daemons have used so far, seconds.
    pub(super) fn daemons_cpu_s(&self) -> f64 {
        self.daemons.as_ref().map_or(0.0, Daemons::cpu_s)
    }

    /// The process numbers of the daemons.
    pub(super) fn daemons(&self) -> Vec<u32> {
        self.daemons.as_ref().map_or_else(Vec::new, Daemons::ids)
    }

    /// Where a process of this role is.
    fn site(&self, role: Role) -> Site {
        match &self.namespaces {
            Some(_) => {
                let (own, other) = if role == Role::Serve { (0, 1) } else { (1, 0) };
                let (local, remote) = (CABLE.addresses[own].into(), CABLE.addresses[other].into());
                Site { local, remote, private: true }
            }
            None => {
                // Of our own among those that run on this host now.
                let [_, a, b, c] = std::process::id().to_be_bytes();
                let local = IpAddr::from([127, 64 | a & 63, b, c]);
                Site { local, remote: local, private: false }
            }
        }
    }

    /// Starts a process for `job`, at its end of the place.
    pub(super) fn start(&self, job: &Job) -> Result<Peer> {
        let mut job = job.clone();
        (job.site, job.engine) = (self.site(job.role), self.engine);
        let side = usize::from(job.role == Role::Drive);
        let program = std::env::current_exe().context("find the own program")?;
        let mut command = match &self.namespaces {
            Some(pair) => pair[side].command(&program),
            None => Command::new(&program),
        };
        command.args(["bench", "peer", &job.to_argument()?]);
        command.envs(library::environment(&job));
        match &self.daemons {
            Some(daemons) => daemons.lead(side, &mut command),
            // A daemon that was there before leads by the environment too.
            None => _ = command.env("UTIPC_ENGINE", self.engine.name()),
        }
        let what = if job.role == Role::Serve { "server" } else { "client" };
        Peer::spawn(command, what)
    }
}

impl Peer {
    fn spawn(mut command: Command, what: &'static str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start the {what} process"))?;
        let orders = child.stdin.take();
        let out = child.stdout.take().context("read from a peer process: it has no output")?;
        Ok(Self { child, what, orders, lines: BufReader::new(out) })
    }

    fn hear(&mut self) -> Result<Said> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).with_context(|| format!("read from the {}", self.what))?;
        ensure!(read > 0, "{}: it ended without a result", self.what);
        match serde_json::from_str(&line)
            .with_context(|| format!("read what the {} says: {line:?}", self.what))?
        {
            Said::Failed(error) => bail!("{}: {error}", self.what),
            said => Ok(said),
        }
    }

    /// Waits until the process is ready for the other end.
    pub(super) fn wait_ready(&mut self) -> Result<Meet> {
        match self.hear()? {
            Said::Ready(meet) => Ok(meet),
            _ => bail!("{}: it has a result before it was called", self.what),
        }
    }

    /// Lets a process begin that has said that it is ready to.
    pub(super) fn go(&mut self) -> Result<()> {
        let orders = self.orders.as_mut().context("the process has been told to end")?;
        writeln!(orders, "{GO}").with_context(|| format!("start the {}", self.what))
    }

    /// Waits for the result; the process stays until this value goes, so that the other end can finish.
    pub(super) fn result(&mut self) -> Result<Part> {
        match self.hear()? {
            Said::Done(part) => Ok(*part),
            _ => bail!("{}: it is ready again, without a result", self.what),
        }
    }

    /// Waits for the result and the end of the process.
    pub(super) fn finish(mut self) -> Result<Part> {
        let part = self.result()?;
        drop(self.orders.take());
        self.child.wait().context("wait for the end of a peer process")?;
        Ok(part)
    }
}

impl Peer {
    /// Its process number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process as a crash does; returns when that was done, nanoseconds of the monotonic clock.
    pub(super) fn kill(&mut self) -> Result<u64> {
        self.child.kill().context("kill a peer process")?;
        Ok(traffic::now_ns())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
