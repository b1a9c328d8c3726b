//! Commands to a running load tool: lines on standard input, answered by lines of JSON on standard output.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Source of commands: signals, the end of a time, and standard input if that is requested.
pub struct Control {
    lines: Option<Receiver<String>>,
    signalled: Arc<AtomicBool>,
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

/// Time between two checks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

impl Control {
    /// Handles SIGINT and SIGTERM, and reads standard input if `lines`; stops after `seconds`.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub fn new(lines: bool, seconds: Option<u64>) -> Result<Self> {
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, signalled.clone()).context("install the signal handlers")?;
        }
        let lines = lines.then(|| {
            let (send, receive) = channel();
            std::thread::spawn(move || {
                for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
            receive
        });
        Ok(Self {
            lines,
            signalled,
            end: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        })
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
            if self.signalled.load(Ordering::Relaxed) || self.end.is_some_and(|end| end <= now) {
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
