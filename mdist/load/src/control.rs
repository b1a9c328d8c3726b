//! What a load tool is told while it runs: lines on standard input, answered by lines of JSON on standard output.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Where orders come from: signals, and standard input if that was asked for.
pub struct Control {
    lines: Option<Receiver<String>>,
    signalled: Arc<AtomicBool>,
    end: Option<Instant>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A line: its first word, and the rest of it.
    Line(String, String),
    /// The time is up, a signal came, or whoever gave orders is gone.
    Stop,
    /// Nothing for so long.
    Nothing,
}

/// How often a tool without orders looks for signals.
const LOOK: Duration = Duration::from_millis(50);

impl Control {
    /// Listens to signals, and to standard input where `lines`; ends after `seconds`.
    ///
    /// # Errors
    /// The system refuses to pass signals on.
    pub fn new(lines: bool, seconds: Option<u64>) -> Result<Self> {
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, signalled.clone()).context("listen to signals")?;
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

    /// From now on it ends after `time`.
    pub fn end_after(&mut self, time: Duration) {
        self.end = Some(Instant::now() + time);
    }

    /// Waits for the next order, at most for `time`.
    pub fn next(&self, time: Duration) -> Order {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            if self.signalled.load(Ordering::Relaxed) || self.end.is_some_and(|end| end <= now) {
                return Order::Stop;
            }
            let left = until.saturating_duration_since(now);
            let ends = self.end.map_or(left, |end| end.saturating_duration_since(now)).min(left).min(LOOK);
            match &self.lines {
                None => std::thread::sleep(ends),
                Some(lines) => match lines.recv_timeout(ends) {
                    Ok(line) => {
                        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
                        return match word {
                            "" => continue,
                            "stop" => Order::Stop,
                            word => Order::Line(word.to_owned(), rest.trim().to_owned()),
                        };
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Order::Stop,
                },
            }
            if left.is_zero() {
                return Order::Nothing;
            }
        }
    }
}
