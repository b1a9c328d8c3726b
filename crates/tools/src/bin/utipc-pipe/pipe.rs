//! One socket between standard input and standard output.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use utipc::{Destination, ErrorCode, Incoming, Method, Node, PortId, Scope, Socket};
use utipc_tools::drain;

use crate::args::Args;
use crate::check::Output;
use crate::input::Pending;
use crate::{End, Event, Task, input, unwritten};

/// Interval in which a receiver checks whether to end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The receiving part, on a separate thread.
pub(crate) struct Receiving {
    thread: Option<thread::JoinHandle<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    /// Set at the end of the input: report when nothing has arrived for a while.
    closing: AtomicBool,
}

impl Receiving {
    /// Receives until the end; calls `on` with the sender of each message.
    pub(crate) fn start(
        args: &Args,
        socket: &Arc<Socket>,
        report: Sender<Event>,
        output: Arc<Mutex<Output>>,
        on: impl Fn(PortId) + Send + 'static,
    ) -> Self {
        socket.set_receive_timeout(Some(LOOK));
        let state = Arc::new(State::default());
        let (quiet, mut left) = (Duration::from_millis(args.quit), args.count);
        let (connected, socket, own) =
            (args.kind().is_connection_oriented(), Arc::clone(socket), Arc::clone(&state));
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            let end = loop {
                if own.stop.load(Relaxed) {
                    return;
                }
                let message = match socket.receive() {
                    Ok(message) => message,
                    Err(error) if error.is_temporary() => {
                        if own.closing.load(Relaxed) && last.elapsed() >= quiet {
                            break Event::Quiet;
                        }
                        continue;
                    }
                    Err(error) => break Event::Failed(error.into()),
                };
                last = Instant::now();
                if let Some(end) = take(&message, connected, &output, &on) {
                    break end;
                }
                left = left.map(|left| left - 1);
                if left == Some(0) {
                    break Event::Ended;
                }
            };
            let _ = report.send(end);
        });
        Self { thread: Some(thread), state }
    }

    /// Records that the input has ended. [`Event::Quiet`] follows when nothing has arrived for a while.
    pub(crate) fn close(&self) {
        self.state.closing.store(true, Relaxed);
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.state.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes a message; returns the event that ends the program if it was the last one.
fn take(message: &Incoming, connected: bool, output: &Mutex<Output>, on: &impl Fn(PortId)) -> Option<Event> {
    match &message.returned {
        Some(returned) if returned.code == ErrorCode::ConnShutdown => return Some(Event::Ended),
        Some(returned) => {
            let why = match returned.code {
                ErrorCode::NoName | ErrorCode::NoPort => "its receiver is gone",
                ErrorCode::NoNode => "its node was lost",
                ErrorCode::Overload => "its queue is full (send slower: --rate)",
                _ => "it was rejected",
            };
            return Some(Event::Failed(Error::msg(format!("a message was returned: {why}"))));
        }
        None if message.data.is_empty() && connected => return Some(Event::Ended),
        None => {}
    }
    on(message.source);
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write(message.source, &message.data).err().map(unwritten)
}

/// A client of a server with connections.
pub(crate) fn client(task: Task<'_>) -> Result<End> {
    let socket = task.node.socket(task.args.kind())?;
    let to = task.args.destination();
    if let Err(error) = socket.connect(to) {
        let unknown = matches!(to, Destination::Service { .. }) && error.errno() == 113;
        let error = Error::new(error);
        return Err(if unknown { error.context("no server (start it, or wait for it: -w)") } else { error });
    }
    connection(task, socket, true)
}

/// Both directions of a connection, until it ends; with `ends_with_input` at the end of the input in any case.
pub(crate) fn connection(task: Task<'_>, socket: Socket, ends_with_input: bool) -> Result<End> {
    let Task { args, node, report, events } = task;
    let socket = Arc::new(socket);
    let output = Arc::new(Mutex::new(Output::new(args.data_check)));
    let receiving = Receiving::start(args, &socket, report.clone(), Arc::clone(&output), |_| ());
    let pending = (!args.deaf).then(|| {
        let weak = Arc::downgrade(&socket);
        input::pump(args, node, report, move |data| send_all(&weak, data))
    });
    let end = converse(&events, &receiving, &pending.unwrap_or_default(), ends_with_input);
    drop(receiving);
    let (peer, port) = (socket.peer(), socket.port().port);
    // The connection may have ended already.
    let _ = socket.shutdown();
    if let (Ok(End::Well), Some(peer)) = (&end, peer) {
        drain::wait(node, port, peer.node)?;
    }
    let end = end?;
    output.lock().unwrap_or_else(PoisonError::into_inner).verdict()?;
    Ok(end)
}

/// Handles events until one of them ends the program.
fn converse(
    events: &Receiver<Event>,
    receiving: &Receiving,
    pending: &Pending,
    ends_with_input: bool,
) -> Result<End> {
    for event in events {
        match event {
            Event::InputEnded(bytes) if ends_with_input || bytes > 0 => receiving.close(),
            Event::InputEnded(_) => {}
            Event::Ended => return after_the_peer(events, pending),
            Event::Quiet => return Ok(End::Well),
            Event::Failed(error) => return Err(error),
            Event::Signal(signal) => return Ok(End::BySignal(signal)),
        }
    }
    bail!("every source of events has ended")
}

/// Ends after the peer has closed the connection, or after enough was received. Input already read can no longer be
/// sent, which is an error; do not wait for later input.
fn after_the_peer(events: &Receiver<Event>, pending: &Pending) -> Result<End> {
    loop {
        match events.recv_timeout(LOOK) {
            Ok(Event::Failed(error)) => return Err(error),
            Ok(Event::Signal(signal)) => return Ok(End::BySignal(signal)),
            Err(RecvTimeoutError::Timeout) if pending.is_set() => {}
            _ => return Ok(End::Well),
        }
    }
}

/// Sends on a connection that may have ended.
fn send_all(socket: &Weak<Socket>, data: &[u8]) -> Result<bool> {
    let Some(socket) = socket.upgrade() else { return Ok(false) };
    write_all(&socket, data)?;
    Ok(true)
}

pub(crate) fn write_all(socket: &Socket, data: &[u8]) -> Result<()> {
    let mut sent = 0;
    while sent < data.len() {
        sent += socket.send(&data[sent..]).map_err(input::unsent)?;
    }
    Ok(())
}

/// Client or server without connections.
pub(crate) fn datagrams(task: Task<'_>) -> Result<End> {
    let Task { args, node, report, events } = task;
    let socket = Arc::new(node.socket(args.kind())?);
    let server = args.is_server();
    // A returned message means that something was lost.
    socket.set_returned(!server)?;
    let last: Arc<Mutex<Option<PortId>>> = Arc::default();
    let output = Arc::new(Mutex::new(Output::new(args.data_check)));
    let last_sender = Arc::clone(&last);
    let receiving = Receiving::start(args, &socket, report.clone(), Arc::clone(&output), move |from| {
        *last_sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
    });
    if let Some(services) = args.services().filter(|_| server) {
        socket.bind(services, Scope::Cluster)?;
    }
    let to = (!server).then(|| args.destination());
    if matches!(to, Some(Destination::Range(_))) {
        // Replicast copies use the same links as the message by which `drain` checks that they have arrived.
        socket.set_multicast_method(Method::Replicast)?;
    }
    let pending = (!args.deaf && (!server || args.replay)).then(|| {
        let weak = Arc::downgrade(&socket);
        input::pump(args, node, report, move |data| {
            let Some(to) = to.or_else(|| sender(&weak, &last)) else { return Ok(false) };
            let Some(socket) = weak.upgrade() else { return Ok(false) };
            socket.send_to(data, to).map_err(input::unsent)?;
            Ok(true)
        })
    });
    let end = converse(&events, &receiving, &pending.unwrap_or_default(), !server);
    drop(receiving);
    if matches!(end, Ok(End::Well)) {
        drain_all(node, &socket)?;
    }
    let end = end?;
    output.lock().unwrap_or_else(PoisonError::into_inner).verdict()?;
    Ok(end)
}

/// Waits until a last sender is known, and returns it.
fn sender(socket: &Weak<Socket>, last: &Mutex<Option<PortId>>) -> Option<Destination> {
    while socket.strong_count() > 0 {
        if let Some(from) = *last.lock().unwrap_or_else(PoisonError::into_inner) {
            return Some(from.into());
        }
        thread::sleep(LOOK);
    }
    None
}

/// Waits for all nodes, because datagrams may have gone to any.
fn drain_all(node: &Node, socket: &Socket) -> Result<()> {
    for peer in node.peers().iter().filter(|peer| peer.up) {
        drain::wait(node, socket.port().port, peer.addr)?;
    }
    Ok(())
}
