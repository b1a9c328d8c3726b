//! A running example, whose output is read line by line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Limit of every wait, far above its normal time on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A running program. It is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let out = child.stdout.take().context("it has an output")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits for the next `count` lines of output.
    pub(super) fn lines(&self, count: usize) -> Result<Vec<String>> {
        let end = Instant::now() + LIMIT;
        let mut lines = Vec::new();
        while lines.len() < count {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("nothing more for {} s after {lines:?}", LIMIT.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("it ended after {lines:?}"),
            }
        }
        Ok(lines)
    }

    /// The remaining output of a program that ends successfully.
    pub(super) fn rest(mut self) -> Result<Vec<String>> {
        let end = Instant::now() + LIMIT;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("it does not end; it has printed {lines:?}"),
            }
        }
        let status = self.child.wait().context("wait for a program")?;
        if !status.success() {
            bail!("{status}; it has printed {lines:?}");
        }
        Ok(lines)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
