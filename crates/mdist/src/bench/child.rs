//! The processes of a test: started, asked, and ended with the value that stands for them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// One process. Dropped: it ends.
pub(super) struct Process {
    /// What it is called in tables.
    pub(super) name: String,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it; its standard error is ours.
    pub(super) fn start(name: &str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("start {name} ({program})"))?;
        let out = child.stdout.take().context("a process without output")?;
        let (send, lines) = channel();
        // Read to the end, whoever still listens: a full pipe would stop the process.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                let _ = send.send(line);
            }
        });
        Ok(Self { name: name.to_owned(), orders: child.stdin.take(), child, lines })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its next line.
    pub(super) fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(_) => match self.child.try_wait() {
                Ok(Some(status)) => bail!("{} ended: {status}", self.name),
                _ => bail!("{} says nothing for {PATIENCE:?}", self.name),
            },
        }
    }

    /// What follows `mark` in the first line that has it, up to the next space: the address in a greeting.
    pub(super) fn after(&mut self, mark: &str) -> Result<String> {
        loop {
            let line = self.line()?;
            if let Some((_, rest)) = line.split_once(mark) {
                return Ok(rest.split_whitespace().next().unwrap_or_default().to_owned());
            }
        }
    }

    /// All its lines until it ends.
    pub(super) fn rest(&mut self, time: Duration) -> Result<String> {
        let end = std::time::Instant::now() + time;
        let mut text = String::new();
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => text += &(line + "\n"),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(text),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => bail!("{} does not end", self.name),
            }
        }
    }

    /// Gives an order, and returns the answer.
    pub(super) fn order(&mut self, order: &str) -> Result<Value> {
        let orders = self.orders.as_mut().context("a process that takes no orders")?;
        writeln!(orders, "{order}").with_context(|| format!("tell {} '{order}'", self.name))?;
        let line = self.line()?;
        let value: Value =
            serde_json::from_str(&line).with_context(|| format!("{} says '{line}'", self.name))?;
        ensure!(value.get("error").is_none(), "{} says {}", self.name, value["error"]);
        Ok(value)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.orders.take());
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while std::time::Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program of this build is; what `cargo run` has not built is built now.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the own program")?;
    let path = own.with_file_name(name);
    ensure!(
        path.exists(),
        "{} is not built (cargo build --release -p mdist -p utipc-tools --bins)",
        path.display()
    );
    Ok(path)
}

/// Builds the other programs when cargo runs this one: it has built this one alone.
pub(super) fn build() -> Result<()> {
    let (Some(cargo), Ok(own)) = (std::env::var_os("CARGO"), std::env::current_exe()) else { return Ok(()) };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "mdist", "-p", "utipc-tools", "--bins"]).stdout(Stdio::null());
    if own.components().any(|part| part.as_os_str() == "release") {
        command.arg("--release");
    }
    let status = command.status().context("build the other programs")?;
    ensure!(status.success(), "the other programs cannot be built");
    Ok(())
}
