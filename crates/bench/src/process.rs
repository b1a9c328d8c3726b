//! Child processes of a measurement. They end with this process and answer line by line; errors quote their
//! output.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use crate::interrupt;

/// Time limit of [`Process::line`] for a process that has no other limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Interval at which a wait for a line checks for signals.
const POLL: Duration = Duration::from_millis(100);
/// Number of the last lines of a process that errors quote.
const QUOTED_LINES: usize = 10;
/// The first argument of a process that executes another program: `--as-child PARENT NAMESPACE|- PROGRAM
/// ARGUMENTS`.
const AS_CHILD: &str = "--as-child";

type Lines = Arc<Mutex<VecDeque<String>>>;

/// A child that is killed when this is dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child process. Dropped: its input is closed, it gets SIGTERM, and SIGKILL five seconds later.
pub struct Process {
    /// Its name in tables and errors.
    pub name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    quoted: Lines,
    limit: Duration,
}

/// A command for a program that is killed when this process ends for any reason. The program runs in the
/// network namespace of the file `namespace`, if that is given. The main function of this program has to call
/// [`as_child`] first.
///
/// # Errors
/// The path of this program is not known.
pub fn dying_with_us(program: impl AsRef<OsStr>, namespace: Option<&Path>) -> Result<Command> {
    let own = std::env::current_exe().context("find this program's own path")?;
    let mut command = Command::new(own);
    command.arg(AS_CHILD).arg(std::process::id().to_string());
    command.arg(namespace.map_or(OsStr::new("-"), Path::as_os_str)).arg(program);
    Ok(command)
}

/// Executes the program of [`dying_with_us`] if the arguments of this process have the form of such a command.
/// Otherwise, or on an error, it returns.
#[must_use]
pub fn as_child(arguments: impl IntoIterator<Item = OsString>) -> Option<anyhow::Error> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != AS_CHILD {
        return None;
    }
    let mut execute = || -> Result<()> {
        let parent = arguments.next().context("no parent")?;
        let has_parent = || getppid().is_some_and(|id| parent == *id.as_raw_nonzero().to_string());
        ensure!(has_parent(), "the parent is gone");
        set_parent_process_death_signal(Some(Signal::KILL)).context("ask to end with the parent")?;
        ensure!(has_parent(), "the parent is gone");
        let namespace = arguments.next().context("no namespace")?;
        if namespace != "-" {
            utipc_netns::enter(Path::new(&namespace))?;
        }
        let program = arguments.next().context("no program")?;
        let why = Command::new(&program).args(arguments.by_ref()).exec();
        Err(anyhow!(why).context(format!("start {}", program.to_string_lossy())))
    };
    execute().err()
}

/// Stores a line for errors. Drops the oldest one if there are too many.
fn quote(quoted: &Lines, line: &str) {
    let mut quoted = quoted.lock().unwrap_or_else(PoisonError::into_inner);
    if quoted.len() == QUOTED_LINES {
        quoted.pop_front();
    }
    quoted.push_back(line.chars().take(400).collect());
}

/// Calls `take` with each line on a thread, until the end: a full pipe would stop the writing process.
fn each_line(from: impl Read + Send + 'static, mut take: impl FnMut(String) + Send + 'static) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            take(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    });
}

/// The lines of standard input, read on a thread.
#[must_use]
pub fn input() -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        let mut all = std::io::stdin().lock().lines().map_while(std::io::Result::ok);
        while all.next().is_some_and(|line| send.send(line).is_ok()) {}
    });
    lines
}

impl Process {
    /// Starts a process; its standard error goes to the log and is quoted in errors.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        command.stderr(Stdio::piped());
        Self::spawn(name, command, ANSWER_LIMIT)
    }

    /// Starts a process that shares our standard error and may take any time for an answer.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_patiently(name: &str, command: Command) -> Result<Self> {
        Self::spawn(name, command, Duration::MAX)
    }

    fn spawn(name: &str, mut command: Command, limit: Duration) -> Result<Self> {
        // In a process group of its own, so that Ctrl-C ends only this process, which then ends the others in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let (send, output) = channel();
        let quoted = Lines::default();
        if let Some(stdout) = child.stdout.take() {
            let quoted = quoted.clone();
            each_line(stdout, move |line| {
                if !line.starts_with('{') && !line.is_empty() {
                    quote(&quoted, &line);
                }
                let _ = send.send(line);
            });
        }
        if let Some(stderr) = child.stderr.take() {
            let quoted = quoted.clone();
            each_line(stderr, move |line| {
                tracing::info!("{line}");
                quote(&quoted, &line);
            });
        }
        Ok(Self { name: name.to_owned(), input: child.stdin.take(), child, output, quoted, limit })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended; the error has its status and its last lines.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => bail!("{} ended by itself ({status}){}", self.name, self.last_lines()),
            Err(why) => Err(why).with_context(|| format!("look after {}", self.name)),
        }
    }

    /// Whether the process has ended with success.
    pub fn has_succeeded(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    /// The last lines of the process, for the end of an error message.
    #[must_use]
    pub fn last_lines(&self) -> String {
        // The reading threads may not have read the last ones yet.
        std::thread::sleep(Duration::from_millis(50));
        let quoted = self.quoted.lock().unwrap_or_else(PoisonError::into_inner);
        if quoted.is_empty() {
            return "; it printed nothing (RUST_LOG=info has more)".into();
        }
        quoted.iter().fold("; its last output:".into(), |text, line| text + "\n    " + line)
    }

    /// The next line of standard output; `None` at its end.
    fn next_line(&mut self, limit: Duration) -> Result<Option<String>> {
        let since = Instant::now();
        loop {
            match self.output.recv_timeout(POLL) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => interrupt::check()?,
            }
            let (name, is_late) = (&self.name, since.elapsed() >= limit);
            ensure!(!is_late, "{name} has not answered for {limit:?}{}", self.last_lines());
        }
    }

    /// The next line of standard output.
    ///
    /// # Errors
    /// The process has ended or closed its output, takes too long, or a signal came.
    pub fn line(&mut self) -> Result<String> {
        if let Some(line) = self.next_line(self.limit)? {
            return Ok(line);
        }
        // The output closes shortly before the process can be waited for.
        std::thread::sleep(Duration::from_millis(100));
        self.check_alive()?;
        bail!("{} has closed its output{}", self.name, self.last_lines())
    }

    /// The word after `mark` in the next line that has it, such as the address in the first line of a server.
    ///
    /// # Errors
    /// As for [`Self::line`].
    pub fn word_after(&mut self, mark: &str) -> Result<String> {
        loop {
            if let Some((_, rest)) = self.line()?.split_once(mark) {
                return Ok(rest.split_whitespace().next().unwrap_or_default().to_owned());
            }
        }
    }

    /// All lines of standard output until the process closes it.
    ///
    /// # Errors
    /// It is still open after `time`, or a signal came.
    pub fn remaining_output(&mut self, time: Duration) -> Result<String> {
        let end = Instant::now() + time;
        let mut text = String::new();
        while let Some(line) = self.next_line(end.saturating_duration_since(Instant::now()))? {
            text += &(line + "\n");
        }
        Ok(text)
    }

    /// Writes a line to standard input.
    ///
    /// # Errors
    /// The process no longer reads.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the input of the process is closed")?;
        writeln!(input, "{line}").with_context(|| format!("send '{line}' to {}", self.name))
    }

    /// Sends a request and returns the reply, a line of JSON.
    ///
    /// # Errors
    /// The process has ended, or replies with an object that has the key `error`.
    pub fn request(&mut self, request: &str) -> Result<Value> {
        self.check_alive()?;
        self.send(request)?;
        let line = self.line()?;
        let reply: Value =
            serde_json::from_str(&line).with_context(|| format!("{} replied '{line}'", self.name))?;
        ensure!(reply.get("error").is_none(), "{} replied {}", self.name, reply["error"]);
        Ok(reply)
    }

    /// Closes standard input and waits until the process ends.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn close_and_wait(&mut self) -> Result<()> {
        drop(self.input.take());
        self.child.wait().map(|_| ()).with_context(|| format!("wait for the end of {}", self.name))
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("signal {}", self.name))
    }

    /// Kills the process.
    ///
    /// # Errors
    /// It has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("kill {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let end = Instant::now() + Duration::from_secs(5);
        let mut is_asked = false;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            if !std::mem::replace(&mut is_asked, true) {
                let _ = self.signal(Signal::TERM);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_about_a_dead_process_quotes_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read order; echo 'no such thing' >&2; exit 3"]);
        let mut process = Process::start("it", command).unwrap();
        assert_eq!(process.line().unwrap(), "ready");
        let why = process.request("work").unwrap_err().to_string();
        assert!(why.contains("it ended by itself") && why.contains("no such thing"), "{why}");
    }

    #[test]
    fn only_a_child_of_its_parent_becomes_another_program() {
        assert!(as_child(["mdist-bench".into(), "T1".into()]).is_none());
        let why = as_child(["mdist-bench", AS_CHILD, "0", "-", "true"].map(Into::into)).unwrap();
        assert!(why.to_string().contains("parent is gone"));
    }
}
