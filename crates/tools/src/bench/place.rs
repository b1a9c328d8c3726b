//! Where measurements happen: two network namespaces joined by a virtual cable, or this host.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::daemon::{self, Daemons};
use super::job::{Job, Meet, Part, Role, Said, Site};
use super::party::{Engine, Scope};
use super::peer::GO;
use super::{library, traffic};

/// Addresses of the two ends between namespaces, server first.
const INTER: [[u8; 4]; 2] = [[10, 96, 17, 1], [10, 96, 17, 2]];
/// The interface at either end of the cable.
pub(super) const INTERFACE: &str = "utipc0";

/// A place; it vanishes with this value, or with this process.
pub(super) struct Place {
    /// The two namespaces, server's first; none on this host.
    rooms: Option<[Room; 2]>,
    engine: Engine,
    daemons: Option<Daemons>,
}

/// A network namespace that lives as long as a process in it: one that reads from us until we are gone.
pub(super) struct Room {
    keeper: Child,
    /// Made by a user without privileges, in a user namespace of its own.
    own_user: bool,
    _life_line: Option<ChildStdin>,
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
        let rooms = match scope {
            Scope::Intra => None,
            Scope::Inter => Some(namespaces()?),
        };
        let daemons = match engine {
            Engine::Embedded => None,
            Engine::Daemon if rooms.is_none() && daemon::is_named() => None,
            Engine::Daemon => Some(Daemons::start(rooms.as_ref(), INTER)?),
        };
        Ok(Self { rooms, engine, daemons })
    }

    pub(super) fn scope(&self) -> Scope {
        if self.rooms.is_some() { Scope::Inter } else { Scope::Intra }
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    /// Switches the segmentation and coalescing of the cable off, at both ends.
    pub(super) fn offloads_off(&self, job: &Job) -> Result<()> {
        ensure!(self.rooms.is_some(), "offloads are those of the cable between two namespaces");
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
        match &self.rooms {
            Some(_) => {
                let (own, other) = if role == Role::Serve { (0, 1) } else { (1, 0) };
                let (local, remote) = (INTER[own].into(), INTER[other].into());
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
        let mut command = match &self.rooms {
            Some(rooms) => rooms[side].enter(&program),
            None => Command::new(&program),
        };
        command.args(["bench", "peer", &job.to_argument()?]);
        command.envs(library::environment(&job));
        match &self.daemons {
            Some(daemons) => daemons.lead(side, &mut command),
            // One that was there before leads by the environment too.
            None if self.engine == Engine::Daemon => _ = command.env("UTIPC_ENGINE", "daemon"),
            None => _ = command.env("UTIPC_ENGINE", "embedded"),
        }
        let what = if job.role == Role::Serve { "server" } else { "client" };
        Peer::spawn(command, what)
    }
}

fn namespaces() -> Result<[Room; 2]> {
    let server = Room::new(None)?;
    let client = Room::new(Some(&server))?;
    let rooms = [server, client];
    let [server, client] = &rooms;
    let (a, b) = (server.keeper.id().to_string(), client.keeper.id().to_string());
    let cable =
        ["link", "add", INTERFACE, "mtu", "1500", "type", "veth", "peer", "name", INTERFACE, "netns", &b];
    server.run("ip", &cable).with_context(|| format!("join the namespaces of processes {a} and {b}"))?;
    for (room, address) in rooms.iter().zip(INTER) {
        let address = format!("{}/24", IpAddr::from(address));
        room.run("ip", &["addr", "add", &address, "dev", INTERFACE])?;
        room.run("ip", &["link", "set", INTERFACE, "mtu", "1500", "up"])?;
        room.run("ip", &["link", "set", "lo", "up"])?;
    }
    Ok(rooms)
}

impl Room {
    /// A namespace; `beside`: one whose owner may join a cable to it.
    fn new(beside: Option<&Self>) -> Result<Self> {
        // Ends at end of file, that is when we do, however we end.
        let keep = ["--net", "sh", "-c", "echo; exec cat >/dev/null"];
        let with_privileges = || {
            let mut command = beside.map_or_else(|| Command::new("unshare"), |room| room.enter("unshare"));
            command.args(keep);
            command
        };
        if let Some(room) = Self::keep(with_privileges(), beside.is_some_and(|room| room.own_user))? {
            return Ok(room);
        }
        // A user without them may have a user namespace in which they hold.
        let mut command = Command::new("unshare");
        command.arg("--map-root-user").args(keep);
        let room = if beside.is_none() { Self::keep(command, true)? } else { None };
        room.context("create a network namespace: not permitted (run as root, or use --scope intra)")
    }

    fn keep(mut command: Command, own_user: bool) -> Result<Option<Self>> {
        let mut keeper =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context(
                "create a network namespace: start `unshare` (install util-linux, or use --scope intra)",
            )?;
        let life_line = keeper.stdin.take();
        let out = keeper.stdout.take().context("create a network namespace: `unshare` has no output")?;
        let mut room = Self { keeper, own_user, _life_line: life_line };
        let mut line = String::new();
        if BufReader::new(out).read_line(&mut line).is_ok_and(|n| n > 0) {
            return Ok(Some(room));
        }
        let _ = room.keeper.wait();
        Ok(None)
    }

    /// A command that runs `program` in the namespace.
    pub(super) fn enter(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let id = self.keeper.id();
        if self.own_user {
            command.arg("--preserve-credentials").arg(format!("--user=/proc/{id}/ns/user"));
        }
        command.arg(format!("--net=/proc/{id}/ns/net")).arg(program);
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let what = || format!("run `{program} {}` in a network namespace", arguments.join(" "));
        let output = self.enter(program).args(arguments).output().with_context(what)?;
        ensure!(output.status.success(), "{}: {}", what(), String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
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
