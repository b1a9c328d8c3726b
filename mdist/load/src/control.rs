//! Commands to a running load tool: lines on standard input, answered by lines of JSON on standard output.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use utipc_bench_kit::{interrupt, process};
use utipc_cli::say;

/// Source of commands: signals, the end of a time, and standard input if that is requested.
pub struct Control {
    lines: Option<Receiver<String>>,
    end: Option<Instant>,
}

/// A command, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line: its first word, and its rest.
    Line(String, String),
    /// Stop: the time is over, a signal came, or standard input ended.
    Stop,
    /// No command within the time waited.
    None,
}

/// Prints the answer to a command, or its error.
///
/// # Errors
/// Standard output is closed.
pub fn answer(done: Result<Value>) -> Result<()> {
    let line = done.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
    Ok(say!("{line}")?)
}

/// Time between two checks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

impl Control {
    /// Handles signals, and reads standard input if `lines`; stops after `seconds`.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub fn new(lines: bool, seconds: Option<u64>) -> Result<Self> {
        interrupt::listen()?;
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Ok(Self { lines: lines.then(process::input), end })
    }

    /// Stops `time` from now.
    pub fn end_after(&mut self, time: Duration) {
        self.end = Some(Instant::now() + time);
    }

    /// Waits for the next command, at most for `time`.
    pub fn next(&self, time: Duration) -> Command {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            if interrupt::came() || self.end.is_some_and(|end| end <= now) {
                return Command::Stop;
            }
            let left = until.saturating_duration_since(now);
            let ends =
                self.end.map_or(left, |end| end.saturating_duration_since(now)).min(left).min(SIGNAL_CHECK);
            match &self.lines {
                None => std::thread::sleep(ends),
                Some(lines) => match lines.recv_timeout(ends) {
                    Ok(line) => {
                        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
                        return match word {
                            "" => continue,
                            "stop" => Command::Stop,
                            word => Command::Line(word.to_owned(), rest.trim().to_owned()),
                        };
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Command::Stop,
                },
            }
            if left.is_zero() {
                return Command::None;
            }
        }
    }
}
