//! The processes of a test: started so that they end with us, asked, and ended with the value that stands for them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use super::interrupt;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many of its last lines are shown when a process dies.
const LAST_WORDS: usize = 10;
/// The first argument of a process that is to become another one: `--as-child PARENT NAMESPACE|- PROGRAM ARGUMENTS`.
const AS_CHILD: &str = "--as-child";

/// The environment variable by which a process of a run is known: the id of who runs it.
const OWNER: &str = "MDIST_BENCH";

type Words = Arc<Mutex<VecDeque<String>>>;

/// One process. Dropped: it ends.
pub(super) struct Process {
    /// What it is called in tables.
    pub(super) name: String,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    words: Words,
}

/// A command for a program that ends when this process does, however that ends; in the network namespace `space` names.
pub(super) fn command(program: impl AsRef<OsStr>, space: Option<&Path>) -> Result<Command> {
    let own = std::env::current_exe().context("find the own program")?;
    let mut command = Command::new(own);
    let id = std::process::id().to_string();
    command.env(OWNER, &id).arg(AS_CHILD).arg(id);
    command.arg(space.map_or(OsStr::new("-"), Path::as_os_str)).arg(program);
    // A signal from the terminal is for us alone; we end the others in their order.
    command.process_group(0);
    Ok(command)
}

/// Becomes the program that `command` was asked for, where the arguments say so; returns only if it cannot.
#[must_use]
pub fn as_child(arguments: impl IntoIterator<Item = OsString>) -> Option<anyhow::Error> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != AS_CHILD {
        return None;
    }
    let mut become_it = || -> Result<()> {
        let parent = arguments.next().context("no parent")?;
        let is_there = || getppid().is_some_and(|id| parent == *id.as_raw_nonzero().to_string());
        ensure!(is_there(), "the parent is gone");
        set_parent_process_death_signal(Some(Signal::KILL)).context("ask to end with the parent")?;
        ensure!(is_there(), "the parent is gone");
        let space = arguments.next().context("no namespace")?;
        if space != "-" {
            utipc_netns::enter(Path::new(&space))?;
        }
        let program = arguments.next().context("no program")?;
        let why = Command::new(&program).args(arguments.by_ref()).exec();
        Err(anyhow!(why).context(format!("start {}", program.to_string_lossy())))
    };
    become_it().err()
}

/// Keeps the last lines of what a process says besides answers.
fn remember(words: &Words, line: &str) {
    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
    if words.len() == LAST_WORDS {
        words.pop_front();
    }
    words.push_back(line.chars().take(400).collect());
}

/// Reads to the end, whoever still listens: a full pipe would stop the process.
fn each_line(from: impl Read + Send + 'static, mut to: impl FnMut(String) + Send + 'static) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            to(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    });
}

impl Process {
    /// Starts it.
    pub(super) fn start(name: &str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let (send, lines) = channel();
        let words = Words::default();
        if let Some(out) = child.stdout.take() {
            let words = words.clone();
            each_line(out, move |line| {
                if !line.starts_with('{') && !line.is_empty() {
                    remember(&words, &line);
                }
                let _ = send.send(line);
            });
        }
        if let Some(errors) = child.stderr.take() {
            let words = words.clone();
            each_line(errors, move |line| {
                tracing::info!("{line}");
                remember(&words, &line);
            });
        }
        Ok(Self { name: name.to_owned(), orders: child.stdin.take(), child, lines, words })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error that says how it ended, and its last lines, if it has.
    pub(super) fn alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => bail!("{} ended by itself ({status}){}", self.name, self.last_words()),
            Err(why) => Err(why).with_context(|| format!("look after {}", self.name)),
        }
    }

    /// Whether it has come to its end by itself, and calls that a success.
    pub(super) fn has_ended_well(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    /// What it said last, a line each.
    pub(super) fn last_words(&self) -> String {
        // What it said with its last breath may still be under way.
        std::thread::sleep(Duration::from_millis(50));
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() {
            return "; it said nothing (RUST_LOG=info has more)".into();
        }
        words.iter().fold("; it said last:".into(), |text, line| text + "\n    " + line)
    }

    /// Its next line.
    pub(super) fn line(&mut self) -> Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    // Its output is closed: it ends now, or is gone.
                    std::thread::sleep(Duration::from_millis(100));
                    self.alive()?;
                    bail!("{} has closed its output{}", self.name, self.last_words());
                }
                Err(RecvTimeoutError::Timeout) => {
                    interrupt::check()?;
                    ensure!(
                        Instant::now() < end,
                        "{} says nothing for {PATIENCE:?}{}",
                        self.name,
                        self.last_words()
                    );
                }
            }
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
        let end = Instant::now() + time;
        let mut text = String::new();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => text += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => return Ok(text),
                Err(RecvTimeoutError::Timeout) => {
                    interrupt::check()?;
                    ensure!(
                        Instant::now() < end,
                        "{} does not end in {time:?}{}",
                        self.name,
                        self.last_words()
                    );
                }
            }
        }
    }

    /// Gives an order, and returns the answer.
    pub(super) fn order(&mut self, order: &str) -> Result<Value> {
        self.alive()?;
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
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program of this build is.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the own program")?;
    let path = own.with_file_name(name);
    let release = if own.components().any(|part| part.as_os_str() == "release") { " --release" } else { "" };
    ensure!(
        path.exists(),
        "{} is not built: cargo build{release} -p mdist -p mdist-load --bins && cargo build{release} -p utipc-tools --bin utipcd",
        path.display()
    );
    Ok(path)
}

/// Builds the other programs when cargo runs this one: it has built this one alone.
pub(super) fn build() -> Result<()> {
    let (Some(cargo), Ok(own)) = (std::env::var_os("CARGO"), std::env::current_exe()) else { return Ok(()) };
    // One after the other: together they would be built with other features than cargo has just used.
    for what in
        [&["-p", "mdist", "-p", "mdist-load", "--bins"][..], &["-p", "utipc-tools", "--bin", "utipcd"]]
    {
        eprintln!("building: cargo build {}", what.join(" "));
        let mut command = Command::new(&cargo);
        command.args(["build", "--quiet"]).args(what).stdout(Stdio::null());
        if own.components().any(|part| part.as_os_str() == "release") {
            command.arg("--release");
        }
        let status = command.status().context("build the other programs")?;
        ensure!(status.success(), "the other programs cannot be built");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_dies_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read order; echo 'no such thing' >&2; exit 3"]);
        let mut process = Process::start("it", command).unwrap();
        assert_eq!(process.line().unwrap(), "ready");
        let why = process.order("work").unwrap_err().to_string();
        assert!(why.contains("it ended by itself") && why.contains("no such thing"), "{why}");
    }

    #[test]
    fn only_children_become_others() {
        assert!(as_child(["mdist-bench".into(), "T1".into()]).is_none());
        let why = as_child(["mdist-bench", AS_CHILD, "0", "-", "true"].map(Into::into)).unwrap();
        assert!(why.to_string().contains("parent is gone"));
    }
}
