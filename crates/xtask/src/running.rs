//! Programs that run while a chore looks at them: daemons, and examples whose lines are compared.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::process::{lines, wait};

/// Limit of the wait for a line, far above the normal time on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of lines of a log that an error shows.
const SHOWN: usize = 30;

/// The output that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Standard,
    Error,
}

/// A running program. It is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts a program. Its lines are read as it prints them, so that it never waits for space in the pipe.
    pub(crate) fn start(command: &mut Command, output: Output) -> Result<Self> {
        Self::spawn(command.stdin(Stdio::null()), output)
    }

    /// Starts a program whose input stays open.
    pub(crate) fn start_with_input(command: &mut Command) -> Result<Self> {
        Self::spawn(command.stdin(Stdio::piped()), Output::Standard)
    }

    fn spawn(command: &mut Command, output: Output) -> Result<Self> {
        let name = command.get_program().display().to_string();
        match output {
            Output::Standard => command.stdout(Stdio::piped()),
            Output::Error => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let lines = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), _) => lines(out),
            (None, Some(error)) => lines(error),
            (None, None) => bail!("{name} has no output"),
        };
        Ok(Self { name, child, lines, seen: Vec::new() })
    }

    /// Starts a `utipcd`, and waits until programs may attach. `command` names its socket or its configuration.
    pub(crate) fn daemon(command: &mut Command) -> Result<Self> {
        // Its socket's file exists a moment before the daemon writes this line.
        let mut daemon = Self::start(command.env("UTIPC_LOG", "info"), Output::Error)?;
        daemon.line_with("programs may attach")?;
        Ok(daemon)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line; nothing if it has ended.
    fn next(&mut self, deadline: Instant) -> Result<Option<String>> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.seen.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.error("prints no more lines")),
        }
    }

    /// An error with its name and its last lines.
    fn error(&mut self, what: &str) -> anyhow::Error {
        let tail = self.tail();
        anyhow!("{} {what}; it printed\n{tail}", self.name)
    }

    /// Its last lines.
    pub(crate) fn tail(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        let from = self.seen.len().saturating_sub(SHOWN);
        self.seen.get(from..).unwrap_or_default().join("\n")
    }

    /// Waits for the next line that `is` accepts.
    fn line(&mut self, what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.next(deadline).with_context(|| format!("no {what:?}"))? {
                Some(line) if is(&line) => return Ok(line),
                Some(_) => {}
                None => return Err(self.error(&format!("ended without {what:?}"))),
            }
        }
    }

    /// Waits for a line with this text.
    pub(crate) fn line_with(&mut self, text: &str) -> Result<String> {
        self.line(text, |line| line.contains(text))
    }

    /// Waits for the next `count` lines.
    pub(crate) fn lines(&mut self, count: usize) -> Result<Vec<String>> {
        (0..count).map(|_| self.line("a line", |_| true)).collect()
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        self.child.wait().with_context(|| format!("reap {}", self.name)).map(drop)
    }

    /// Waits until it exits successfully; returns the lines that it has printed since the last wait.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<Vec<String>> {
        let (deadline, first) = (Instant::now() + limit, self.seen.len());
        while self.next(deadline)?.is_some() {}
        match wait(&mut self.child, deadline.saturating_duration_since(Instant::now()))? {
            end if end.is_good() => {}
            end => return Err(self.error(&end.to_string())),
        }
        Ok(self.seen.split_off(first))
    }

    /// [`Self::finish`] within the usual limit.
    pub(crate) fn rest(self) -> Result<Vec<String>> {
        self.finish(LIMIT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
