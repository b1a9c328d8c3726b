//! Servers with connections.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;
use utipc::{Node, Scope, Socket};

use crate::args::Args;
use crate::check::Output;
use crate::pipe::{LOOK, Receiving, connection, write_all};
use crate::{End, Event, Task, input};

/// The connected clients, by number.
type Clients = Arc<Mutex<BTreeMap<u64, Arc<Socket>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(args: &Args, node: &Node) -> Result<Socket> {
    let socket = node.socket(args.kind())?;
    socket.set_receive_timeout(Some(LOOK));
    // Listen before binding, so that a client that sees the binding is not refused.
    socket.listen()?;
    if let Some(services) = args.services() {
        socket.bind(services, Scope::Cluster)?;
    }
    Ok(socket)
}

/// Serves one client and ends with it.
pub(crate) fn one(task: Task<'_>) -> Result<End> {
    let listener = listen(task.args, task.node)?;
    let socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(error) if error.is_temporary() => {}
            Err(error) => return Err(error.into()),
        }
        if let Ok(Event::Signal(signal)) = task.events.try_recv() {
            return Ok(End::BySignal(signal));
        }
    };
    // Do not accept any other client.
    drop(listener);
    connection(task, socket, false)
}

/// Serves any number of clients, until a signal.
pub(crate) fn many(task: Task<'_>) -> Result<End> {
    let Task { args, node, report, events } = task;
    let listener = listen(args, node)?;
    let clients = Clients::default();
    let output = Arc::new(Mutex::new(Output::new(args.data_check)));
    if !args.deaf {
        let all = Clients::clone(&clients);
        input::pump(args, node, report.clone(), move |data| Ok(send_to_all(&all, data)));
    }
    let mut parts = BTreeMap::new();
    // Ended clients, by number.
    let (gone, leaving) = channel();
    for number in 0.. {
        let socket = loop {
            for ended in leaving.try_iter() {
                lock(&clients).remove(&ended);
                parts.remove(&ended);
            }
            match events.try_recv() {
                Ok(Event::Signal(signal)) => return finish(signal, parts, &clients, &output),
                Ok(Event::Failed(error)) => return Err(error),
                _ => {}
            }
            match listener.accept() {
                Ok((socket, _)) => break Arc::new(socket),
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error.into()),
            }
        };
        lock(&clients).insert(number, Arc::clone(&socket));
        let (ended, ends) = channel();
        parts.insert(number, Receiving::start(args, &socket, ended, Arc::clone(&output), |_| ()));
        let (gone, report) = (gone.clone(), report.clone());
        thread::spawn(move || {
            match ends.recv() {
                // All clients share the output.
                Ok(Event::Signal(signal)) => drop(report.send(Event::Signal(signal))),
                Ok(Event::Failed(error)) => {
                    let peer = socket.peer().map_or_else(String::new, |peer| format!(" {peer}"));
                    eprintln!("utipc-pipe: client{peer}: {}", utipc_cli::one_line(&error));
                }
                _ => {}
            }
            let _ = socket.shutdown();
            let _ = gone.send(number);
        });
    }
    Ok(End::Well)
}

fn finish(
    signal: i32,
    parts: BTreeMap<u64, Receiving>,
    clients: &Clients,
    output: &Mutex<Output>,
) -> Result<End> {
    drop(parts);
    for socket in lock(clients).values() {
        let _ = socket.shutdown();
    }
    lock(output).verdict()?;
    Ok(End::BySignal(signal))
}

/// Sends to all clients. Errors are ignored: the receiver of a client that has left reports that.
fn send_to_all(clients: &Clients, data: &[u8]) -> bool {
    let all: Vec<_> = lock(clients).values().cloned().collect();
    for client in all {
        let _ = write_all(&client, data);
    }
    true
}
