//! Where measurements happen: two network namespaces joined by a virtual cable, or one loopback interface.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Scope;
use super::peer::{Job, Outcome, READY, Role};

/// Addresses of the two ends, server first.
const INTRA: [[u8; 4]; 2] = [[127, 96, 17, 1], [127, 96, 17, 2]];
const INTER: [[u8; 4]; 2] = [[10, 96, 17, 1], [10, 96, 17, 2]];

/// A place; it vanishes with this value, or with this process.
pub(super) struct Place {
    /// The two namespaces, server's first; none for the loopback interface.
    rooms: Option<[Room; 2]>,
}

/// A network namespace that lives as long as a process in it: one that reads from us until we are gone.
struct Room {
    keeper: Child,
    _life_line: Option<ChildStdin>,
}

/// A process that does a job.
pub(super) struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Place {
    /// The place for `scope`; without one, namespaces if they can be had.
    pub(super) fn new(scope: Option<Scope>) -> Result<Self> {
        match scope {
            Some(Scope::Intra) => Ok(Self { rooms: None }),
            Some(Scope::Inter) => Self::namespaces(),
            None => Ok(Self::namespaces().unwrap_or(Self { rooms: None })),
        }
    }

    fn namespaces() -> Result<Self> {
        let rooms = [Room::new()?, Room::new()?];
        let [server, client] = &rooms;
        let (a, b) = (server.keeper.id().to_string(), client.keeper.id().to_string());
        let cable =
            ["link", "add", "utipc0", "mtu", "1500", "type", "veth", "peer", "name", "utipc0", "netns", &b];
        server.run("ip", &cable).with_context(|| format!("join the namespaces of processes {a} and {b}"))?;
        for (room, address) in rooms.iter().zip(INTER) {
            let address = format!("{}/24", IpAddr::from(address));
            room.run("ip", &["addr", "add", &address, "dev", "utipc0"])?;
            room.run("ip", &["link", "set", "utipc0", "up"])?;
            room.run("ip", &["link", "set", "lo", "up"])?;
        }
        Ok(Self { rooms: Some(rooms) })
    }

    pub(super) fn scope(&self) -> Scope {
        if self.rooms.is_some() { Scope::Inter } else { Scope::Intra }
    }

    pub(super) fn describe(&self) -> &'static str {
        match self.scope() {
            Scope::Inter => "between two network namespaces (veth, MTU 1500), medians",
            Scope::Intra => {
                "over the loopback interface (run as root to measure between two namespaces), medians"
            }
        }
    }

    /// Starts a process for `job`, at its end of the place.
    pub(super) fn start(&self, job: &Job) -> Result<Peer> {
        let addresses = if self.rooms.is_some() { INTER } else { INTRA };
        let (own, other) = if job.role == Role::Serve { (0, 1) } else { (1, 0) };
        let mut job = job.clone();
        (job.local, job.remote) = (addresses[own].into(), addresses[other].into());
        let program = std::env::current_exe().context("find the own program")?;
        let mut command = match &self.rooms {
            Some(rooms) => rooms[own].enter(&program),
            None => Command::new(&program),
        };
        command.args(job.to_arguments()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let out = child.stdout.take().context("read from the peer process: it has no output")?;
        Ok(Peer { child, lines: BufReader::new(out) })
    }
}

impl Room {
    fn new() -> Result<Self> {
        // Ends at end of file, that is when we do, however we end.
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context(
                "create a network namespace: start `unshare` (install util-linux, or use --scope intra)",
            )?;
        let life_line = keeper.stdin.take();
        let out = keeper.stdout.take().context("create a network namespace: `unshare` has no output")?;
        let mut room = Self { keeper, _life_line: life_line };
        let mut line = String::new();
        if !BufReader::new(out).read_line(&mut line).is_ok_and(|n| n > 0) {
            let _ = room.keeper.wait();
            bail!("create a network namespace: not permitted (run as root, or use --scope intra)");
        }
        Ok(room)
    }

    /// A command that runs `program` in the namespace.
    fn enter(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id())).arg(program);
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
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).context("read from the peer process")?;
        ensure!(read > 0, "read from the peer process: it ended without a result");
        Ok(line.trim_end().to_owned())
    }

    /// Waits until the server says that it may be called.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        let line = self.line()?;
        if line == READY {
            return Ok(());
        }
        match Outcome::from_json(&line)? {
            Outcome::Failed { error } => bail!("server: {error}"),
            Outcome::Ok { .. } => bail!("server: it has a result before it was called"),
        }
    }

    /// Waits for the result and the end of the process.
    pub(super) fn finish(mut self) -> Result<Outcome> {
        let outcome = Outcome::from_json(&self.line()?)?;
        self.child.wait().context("wait for the end of a peer process")?;
        Ok(outcome)
    }

    /// Waits for a line of the process's own.
    pub(super) fn answer(mut self) -> Result<serde_json::Value> {
        let line = self.line()?;
        self.child.wait().context("wait for the end of a peer process")?;
        let value: serde_json::Value = serde_json::from_str(&line).context("read the result")?;
        match value["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(value),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
