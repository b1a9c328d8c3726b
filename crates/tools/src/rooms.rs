//! Two network namespaces joined by a virtual cable, on one machine: hosts for the nodes of a measurement or of the demo.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Addresses of the two ends, the first one's first.
pub(crate) const ADDRESSES: [[u8; 4]; 2] = [[10, 96, 17, 1], [10, 96, 17, 2]];
/// The interface at either end of the cable.
pub(crate) const INTERFACE: &str = "utipc0";

/// A network namespace that lives as long as a process in it: one that reads from us until we are gone.
pub(crate) struct Room {
    keeper: Child,
    /// Made by a user without privileges, in a user namespace of its own.
    own_user: bool,
    _life_line: Option<ChildStdin>,
}

/// Two network namespaces with a cable between them.
pub(crate) fn joined() -> Result<[Room; 2]> {
    let server = Room::new(None)?;
    let client = Room::new(Some(&server))?;
    let rooms = [server, client];
    let [server, client] = &rooms;
    let (a, b) = (server.keeper.id().to_string(), client.keeper.id().to_string());
    let cable =
        ["link", "add", INTERFACE, "mtu", "1500", "type", "veth", "peer", "name", INTERFACE, "netns", &b];
    server.run("ip", &cable).with_context(|| format!("join the namespaces of processes {a} and {b}"))?;
    for (room, address) in rooms.iter().zip(ADDRESSES) {
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
        room.context("create a network namespace: not permitted (run as root)")
    }

    fn keep(mut command: Command, own_user: bool) -> Result<Option<Self>> {
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("create a network namespace: start `unshare` (install util-linux)")?;
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
    pub(crate) fn enter(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
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

    /// Configures the kernel's node in the namespace.
    fn kernel(&self, words: &[&str]) -> Result<()> {
        let program = std::env::current_exe().context("find the own program")?;
        let program = program.to_str().context("the own program's path is no text")?;
        self.run(program, &[&["--engine", "kernel"], words].concat())
    }

    /// Gives the kernel's node in the namespace an address and a bearer on the cable.
    pub(crate) fn kernel_node(&self, number: u32) -> Result<()> {
        self.kernel(&["node", "set", "address", &format!("1.1.{number}")])?;
        self.kernel(&["bearer", "enable", "media", "eth", "device", INTERFACE])
    }

    /// Takes the kernel's node in a namespace off the cable.
    pub(crate) fn kernel_leaves(&self) -> Result<()> {
        self.kernel(&["bearer", "disable", "media", "eth", "device", INTERFACE])
    }

    /// Calls `ask` where the kernel's node is this namespace's: the kernel goes by the thread that opens a socket.
    pub(crate) fn with<T: Send>(&self, ask: impl FnOnce() -> T + Send) -> Result<T> {
        ensure!(!self.own_user, "enter a network namespace: not permitted (run as root)");
        let space = std::fs::File::open(format!("/proc/{}/ns/net", self.keeper.id()));
        let space = space.context("find a network namespace")?;
        // A thread of its own, which takes the namespace with it when it ends.
        let answer = std::thread::scope(|threads| {
            let thread = threads.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<T, rustix::io::Errno>(ask())
            });
            thread.join()
        });
        match answer {
            Ok(answer) => answer.context("enter a network namespace"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
