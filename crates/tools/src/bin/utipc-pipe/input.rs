//! Data to send: standard input, or numbered lines.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use utipc::Node;

use crate::Event;
use crate::args::Args;

/// A source of data.
enum Source {
    Stdin,
    Lines { next: u64, count: u64, size: usize, suffix: String },
}

impl Source {
    fn new(args: &Args, node: &Node) -> Self {
        if args.data_num == 0 {
            return Self::Stdin;
        }
        let suffix = format!("{} {}", node.address(), std::process::id());
        Self::Lines { next: 0, count: args.data_num, size: args.data_size, suffix }
    }

    /// The next piece; 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let (next, size, suffix) = match self {
            Self::Stdin => return read_input(buffer),
            Self::Lines { next, count, .. } if next == count => return Ok(0),
            Self::Lines { next, size, suffix, .. } => (next, *size, suffix),
        };
        let mut line = format!("message {next} {suffix} ");
        *next += 1;
        line.extend(std::iter::repeat_n('0', size.saturating_sub(line.len() + 1)));
        line.push('\n');
        let len = line.len().min(buffer.len());
        buffer[..len].copy_from_slice(&line.as_bytes()[..len]);
        Ok(len)
    }
}

fn read_input(buffer: &mut [u8]) -> Result<usize> {
    loop {
        match std::io::stdin().lock().read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done.context("cannot read standard input"),
        }
    }
}

/// Whether some input is not sent yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Arc<AtomicBool>);

impl Pending {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Reads the input on a thread and passes it to `send`, until `send` returns false.
pub(crate) fn pump(
    args: &Args,
    node: &Node,
    report: Sender<Event>,
    mut send: impl FnMut(&[u8]) -> Result<bool> + Send + 'static,
) -> Pending {
    let mut source = Source::new(args, node);
    let pending = Pending::default();
    let set = pending.clone();
    let mut buffer = vec![0; args.buf_size];
    let pause = args.pause();
    thread::spawn(move || {
        let mut total = 0;
        let mut due = Instant::now();
        let end = loop {
            let len = match source.read(&mut buffer) {
                Ok(0) => break Event::InputEnded(total),
                Ok(len) => len,
                Err(error) => break Event::Failed(error),
            };
            set.0.store(true, Relaxed);
            let sent = send(&buffer[..len]);
            // There is always a next numbered line.
            set.0.store(!matches!((&sent, &source), (Ok(_), Source::Stdin)), Relaxed);
            match sent {
                Ok(true) => total += len as u64,
                Ok(false) => return,
                Err(error) => break Event::Failed(error),
            }
            if pause > Duration::ZERO {
                due = (due + pause).max(Instant::now());
                thread::sleep(due - Instant::now());
            }
        };
        let _ = report.send(end);
    });
    pending
}

/// Adds context to an error of sending.
pub(crate) fn unsent(error: utipc::Error) -> Error {
    let lost = matches!(&error, utipc::Error::Send { .. });
    let error = Error::new(error);
    if lost { error.context("not all of the input was sent") } else { error }
}
