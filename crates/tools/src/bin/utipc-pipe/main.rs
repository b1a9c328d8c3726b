//! `utipc-pipe`: netcat for service addresses, like `tipc-pipe`, but without loss at the end.

mod args;
mod check;
mod input;
mod pipe;
mod server;
mod watch;

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use utipc::Node;

use args::Args;

/// The exit code after SIGPIPE, as shells count it.
const SIGPIPE: i32 = 13;

/// Reason why the program, or a part of it, ends.
#[derive(Debug)]
pub(crate) enum Event {
    /// All input was sent: its bytes.
    InputEnded(u64),
    /// The peer has closed the connection in order, or enough was received.
    Ended,
    /// Nothing has arrived for a while after the end of the input.
    Quiet,
    Failed(Error),
    /// A signal, or a closed output (SIGPIPE).
    Signal(i32),
}

/// The end of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    BySignal(i32),
}

fn main() -> ExitCode {
    let args = utipc_cli::usage::parse::<Args>();
    if let Err(why) = utipc_cli::log::start_of_command("off") {
        eprintln!("utipc-pipe: {why}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = args.check() {
        eprintln!("utipc-pipe: {error}");
        return ExitCode::from(2);
    }
    match run(&args) {
        Ok(End::Well) => ExitCode::SUCCESS,
        Ok(End::BySignal(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
        Err(error) => {
            eprintln!("utipc-pipe: {}", utipc_cli::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<End> {
    let (report, events) = channel();
    forward_signals(report.clone())?;
    let node = Node::start()?;
    let task = Task { args, node: &node, report, events };
    if args.top {
        return watch::run(task);
    }
    match args.services().filter(|_| args.wait != 0 && !args.is_server()) {
        Some(services) => wait(task, services),
        None => task.start(),
    }
}

/// State that every part needs.
pub(crate) struct Task<'a> {
    pub(crate) args: &'a Args,
    pub(crate) node: &'a Node,
    pub(crate) report: Sender<Event>,
    pub(crate) events: Receiver<Event>,
}

impl Task<'_> {
    fn start(self) -> Result<End> {
        match (self.args.kind().is_connection_oriented(), self.args.listen, self.args.single) {
            (true, true, _) => server::many(self),
            (true, _, true) => server::one(self),
            (true, ..) => pipe::client(self),
            (false, ..) => pipe::datagrams(self),
        }
    }
}

/// Waits for the service, checking for signals.
fn wait(task: Task<'_>, services: utipc::ServiceRange) -> Result<End> {
    const PIECE: Duration = Duration::from_millis(200);
    let mut left = u64::try_from(task.args.wait).map(Duration::from_millis).ok();
    let mut topology = task.node.topology()?;
    topology.services(services)?;
    loop {
        if let Ok(Event::Signal(signal)) = task.events.try_recv() {
            return Ok(End::BySignal(signal));
        }
        let piece = left.map_or(PIECE, |left| left.min(PIECE));
        if topology.next(piece)?.is_some_and(|event| event.is_up()) {
            return task.start();
        }
        left = left.map(|left| left - piece);
        if left.is_some_and(|left| left.is_zero()) {
            anyhow::bail!(
                "{services} has no binding after {} ms (start the server, or wait longer: -w)",
                task.args.wait
            );
        }
    }
}

fn forward_signals(report: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if report.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// An output error as an event: a closed output counts as a signal.
pub(crate) fn unwritten(error: std::io::Error) -> Event {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Event::Signal(SIGPIPE);
    }
    Event::Failed(Error::new(error).context("cannot write to standard output"))
}
