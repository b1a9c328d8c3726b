//! Threads besides the main one that serve mounts: each has its own clients and reads the hub's log.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

use crate::hub::{Batch, Directory, HubRequest};
use crate::net::{Poller, Socket, Waker, now};

use super::clients::Clients;
use super::tokens::FIRST_CLIENT;
use super::turns::{Part, Ready};

/// Maximum number of turns that a worker may be behind; above this the hub waits for it, and the upstreams wait for the
/// hub.
const MAX_BEHIND: usize = 64;
/// Longest sleep.
const MAX_SLEEP: Duration = Duration::from_millis(500);
/// Maximum number of logs that are kept for reuse.
const SPARE: usize = MAX_BEHIND + 8;

/// The hub's log of one turn.
struct Turn {
    batch: Arc<Batch>,
    directory: Arc<Directory>,
}

/// The queues between a worker and the hub's driver.
#[derive(Default)]
struct Exchange {
    requests: Mutex<Vec<HubRequest>>,
    sockets: Mutex<Vec<Socket>>,
}

fn take<T>(from: &Mutex<Vec<T>>) -> Vec<T> {
    mem::take(&mut *from.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(into: &Mutex<Vec<T>>, values: impl IntoIterator<Item = T>) {
    into.lock().unwrap_or_else(PoisonError::into_inner).extend(values);
}

/// The driver's view of one worker.
struct Handle {
    turns: SyncSender<Turn>,
    exchange: Arc<Exchange>,
    waker: Waker,
}

/// All workers besides the main thread.
#[derive(Default)]
pub(super) struct Workers {
    handles: Vec<Handle>,
    /// Logs that workers may still read, oldest first.
    read: VecDeque<Arc<Batch>>,
    /// The worker that gets the next client; 0: the main thread.
    next: usize,
}

impl Workers {
    /// Adds a worker, and returns the body of its thread.
    pub(super) fn add(
        &mut self,
        clients: Clients,
        poller: Poller,
        main: Waker,
    ) -> impl FnOnce(&AtomicBool) -> Result<()> + use<> {
        let (turns, coming) = sync_channel(MAX_BEHIND);
        let exchange = Arc::new(Exchange::default());
        self.handles.push(Handle { turns, exchange: exchange.clone(), waker: poller.waker() });
        move |stop| serve(clients, &poller, &coming, &exchange, &main, stop)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Hands a new client to the next worker in round-robin order; returns it if that is the main thread.
    pub(super) fn assign(&mut self, socket: Socket) -> Option<Socket> {
        let next = self.next;
        self.next = (next + 1) % (self.handles.len() + 1);
        let Some(handle) = next.checked_sub(1).and_then(|at| self.handles.get(at)) else {
            return Some(socket);
        };
        put(&handle.exchange.sockets, [socket]);
        handle.waker.wake();
        None
    }

    /// Moves the workers' requests to the hub into `into`.
    pub(super) fn take_hub_requests(&self, into: &mut VecDeque<HubRequest>) {
        for handle in &self.handles {
            into.extend(take(&handle.exchange.requests));
        }
    }

    /// Lets all workers run a turn.
    pub(super) fn wake(&self) {
        self.handles.iter().for_each(|handle| handle.waker.wake());
    }

    /// Passes a log to all workers, and leaves an empty one in its place.
    pub(super) fn apply(&mut self, batch: &mut Batch, directory: &Arc<Directory>) {
        let spare = self.read.pop_front().and_then(|oldest| match Arc::try_unwrap(oldest) {
            Ok(mut batch) => {
                batch.clear();
                Some(batch)
            }
            Err(still_read) => {
                self.read.push_front(still_read);
                None
            }
        });
        let timed = batch.timed;
        let batch = Arc::new(mem::replace(batch, Batch { timed, ..spare.unwrap_or_default() }));
        for handle in &self.handles {
            // Fails if the worker has ended, and with it the program.
            let _ = handle.turns.send(Turn { batch: batch.clone(), directory: directory.clone() });
            handle.waker.wake();
        }
        if self.read.len() < SPARE {
            self.read.push_back(batch);
        }
    }
}

fn serve(
    mut clients: Clients,
    poller: &Poller,
    coming: &Receiver<Turn>,
    exchange: &Exchange,
    main: &Waker,
    stop: &AtomicBool,
) -> Result<()> {
    let mut ready = Ready::default();
    while !stop.load(Ordering::Acquire) {
        let due = clients.deadline().map_or(MAX_SLEEP, |due| due.saturating_sub(now()).min(MAX_SLEEP));
        ready.wait(poller, due)?;
        let at = now();
        clients.turns.begin(Part::Log, at);
        for socket in take(&exchange.sockets) {
            clients.adopt(socket, at);
        }
        for turn in coming.try_iter().take(MAX_BEHIND) {
            clients.worker.apply(&turn.batch, &turn.directory.services);
        }
        clients.turns.enter(Part::Sockets, now());
        while let Some(event) = ready.next(now()) {
            if event.token >= FIRST_CLIENT {
                clients.ready(event, at);
            }
        }
        clients.turns.enter(Part::Output, now());
        clients.worker.tick(at);
        clients.flush(at);
        let requests: Vec<_> = clients.worker.hub_requests().collect();
        if !requests.is_empty() {
            put(&exchange.requests, requests);
            main.wake();
        }
        if let Some(long) = clients.turns.end(now()) {
            long.log("worker");
        }
    }
    clients.shut_down(now());
    Ok(())
}
