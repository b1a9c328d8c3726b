//! The honest processes during an attack, seen from the run that starts them.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bystander::Window;

/// This program, usable also by users who may not enter its folder.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// The user number of honest processes. The user need not exist.
const HONEST_USER: u32 = 64_100;

/// Makes a command run as another user, if this process may.
pub(crate) fn as_user(command: &mut Command, user: u32) {
    if rustix::process::geteuid().is_root() {
        command.uid(user).gid(user);
    }
}

/// An honest process.
pub(crate) struct Honest {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Honest {
    pub(crate) fn start(socket: &Path, role: &str) -> Result<Self> {
        let mut command = Command::new(OWN_PROGRAM);
        command.args(["bystander", "--role", role, "--socket"]).arg(socket);
        as_user(&mut command, HONEST_USER);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a process")?;
        let said = BufReader::new(child.stdout.take().context("it has no output")?).lines();
        let mut honest = Self { child, said };
        let ready = honest.line()?;
        ensure!(ready == "ready", "an honest process says {ready}");
        Ok(honest)
    }

    fn line(&mut self) -> Result<String> {
        self.said
            .next()
            .context("an honest process has failed (its error is above)")?
            .context("read what it says")
    }

    /// The times measured since the last call.
    pub(crate) fn window(&mut self) -> Result<Window> {
        self.child.stdin.as_mut().context("it has no input")?.write_all(b"\n").context("ask a process")?;
        serde_json::from_str(&self.line()?).context("read what a process has measured")
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
