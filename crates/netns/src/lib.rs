//! Network namespaces on one machine, in pairs joined by a virtual Ethernet cable or by a path with faults, or many
//! joined by a switch. They stand for hosts in measurements, the demo and tests.
//!
//! A single thread enters a namespace by [`enter`], or makes an empty one by [`unshare`].

mod relay;
mod switch;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
pub use relay::{Faults, Passed, Relay};
pub use switch::Switch;
pub use utipc_os::netns::{enter, unshare};

/// MTU of a cable, bytes: that of an Ethernet.
const MTU: &str = "1500";

/// A pair of virtual Ethernet interfaces that joins two namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// Name of the interface at either end.
    pub interface: &'static str,
    /// IPv4 address of each end, in one /24 network.
    pub addresses: [Ipv4Addr; 2],
}

/// A network namespace. A child process keeps it alive. It ends when this value is dropped, or when this
/// process ends.
#[derive(Debug)]
pub struct Namespace {
    keeper: Child,
    /// Whether it was made without privileges, inside a user namespace of its own.
    in_user_namespace: bool,
    /// Standard input of the keeper, the child process. The keeper ends when this is closed, so also when this
    /// process ends.
    _stdin: Option<ChildStdin>,
}

impl Cable {
    /// Makes two namespaces joined by this cable, with all their interfaces up. Needs root, or a user who may create
    /// user namespaces, and the programs `unshare`, `nsenter` and `ip`.
    ///
    /// # Errors
    /// A namespace cannot be made, or `ip` failed.
    pub fn join(&self) -> Result<[Namespace; 2]> {
        let first = Namespace::new(None)?;
        let second = Namespace::new(Some(&first))?;
        let (a, b) = (first.keeper.id(), second.keeper.id());
        let (name, netns) = (self.interface, b.to_string());
        first
            .ip(&["link", "add", name, "mtu", MTU, "type", "veth", "peer", "name", name, "netns", &netns])
            .with_context(|| format!("join the namespaces of processes {a} and {b}"))?;
        let pair = [first, second];
        for (namespace, address) in pair.iter().zip(self.addresses) {
            namespace.ip(&["addr", "add", &format!("{}/24", IpAddr::from(address)), "dev", name])?;
            namespace.ip(&["link", "set", name, "mtu", MTU, "up"])?;
            namespace.ip(&["link", "set", "lo", "up"])?;
        }
        Ok(pair)
    }
}

impl Namespace {
    /// Makes a namespace. With `beside`, it belongs to the same user namespace as that one, so that a cable can
    /// join the two.
    fn new(beside: Option<&Self>) -> Result<Self> {
        let keep = ["--net", "sh", "-c", "echo; exec cat >/dev/null"];
        let mut command = beside.map_or_else(|| Command::new("unshare"), |other| other.command("unshare"));
        command.args(keep);
        if let Some(namespace) = Self::start(command, beside.is_some_and(|other| other.in_user_namespace))? {
            return Ok(namespace);
        }
        // A user without privileges gets them inside a new user namespace.
        let mut command = Command::new("unshare");
        command.arg("--map-root-user").args(keep);
        let namespace = if beside.is_none() { Self::start(command, true)? } else { None };
        namespace.context("create a network namespace: not permitted (run as root)")
    }

    /// Starts a keeper; `None`: `unshare` was not permitted.
    fn start(mut command: Command, in_user_namespace: bool) -> Result<Option<Self>> {
        // In a process group of its own, so that Ctrl-C does not end the keeper before this process has ended the rest.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper =
            command.spawn().context("create a network namespace: start `unshare` (install util-linux)")?;
        let stdin = keeper.stdin.take();
        let stdout = keeper.stdout.take().context("create a network namespace: `unshare` has no output")?;
        let mut namespace = Self { keeper, in_user_namespace, _stdin: stdin };
        let mut line = String::new();
        if BufReader::new(stdout).read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            return Ok(Some(namespace));
        }
        let _ = namespace.keeper.wait();
        Ok(None)
    }

    /// The file by which [`enter`] enters the namespace.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    /// A command that runs `program` in the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        if self.in_user_namespace {
            let user = format!("--user=/proc/{}/ns/user", self.keeper.id());
            command.arg("--preserve-credentials").arg(user);
        }
        command.arg(format!("--net={}", self.path().display())).arg(program);
        command
    }

    /// Runs `program` in the namespace until it ends.
    ///
    /// # Errors
    /// It cannot be started, or has failed; the error quotes its standard error.
    pub fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<()> {
        let name = program.as_ref().to_string_lossy();
        let action = || format!("run `{name} {}` in a network namespace", arguments.join(" "));
        let output = self.command(program.as_ref()).args(arguments).output().with_context(action)?;
        ensure!(output.status.success(), "{}: {}", action(), String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Runs `ip` of iproute2 in the namespace.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        self.run("ip", arguments)
    }

    /// Calls `work` on a thread inside the namespace: sockets that it opens belong to the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered: that needs root.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        ensure!(!self.in_user_namespace, "enter a network namespace: not permitted (run as root)");
        let path = self.path();
        // The thread need not leave the namespace, because it ends.
        let result = std::thread::scope(|threads| {
            threads
                .spawn(|| {
                    enter(&path)?;
                    Ok::<T, utipc_os::OsError>(work())
                })
                .join()
        });
        match result {
            Ok(value) => value.context("enter a network namespace"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
