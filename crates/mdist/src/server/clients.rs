//! One worker's mounts with their sockets.

use crate::metrics::{Metrics, Published, components};
use crate::mounts::{MountId, MountStats, Reason, Worker};
use crate::net::{Interest, Now, Registry, Socket};

use super::shown::EVERY;

/// Tokens of clients in a poller begin here; what stands below is the driver's own.
pub(super) const FIRST_CLIENT: u64 = 1 << 32;

/// Bytes that are taken from one client before the next has its turn.
const READ: usize = 64 * 1024;

/// One client's socket.
#[derive(Debug)]
struct Client {
    id: MountId,
    socket: Socket,
    /// The kernel has no room for its output: the poller says when.
    full: bool,
}

/// When output is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// At the end of the turn that made it.
    AtOnce,
    /// When the timer fires, or when this much waits (`timedWrites`).
    Timed {
        /// Period of the timer.
        every: Now,
        /// Bytes that do not wait for it.
        full: usize,
    },
}

/// The mounts of one worker, their sockets, and what is left to write to them.
pub(super) struct Clients {
    pub(super) worker: Worker,
    sockets: Vec<Option<Client>>,
    registry: Registry,
    writes: Writes,
    next_flush: Now,
    /// Mounts with output that waits for the timer.
    unwritten: Vec<MountId>,
    input: Vec<u8>,
    metrics: Metrics,
    number: u16,
    shown: Published<components::Mounts>,
    /// Counts of mounts that left, and those that are not a mount's own.
    past: components::Mounts,
    next_show: Now,
}

impl Clients {
    pub(super) fn new(
        number: u16,
        worker: Worker,
        registry: Registry,
        writes: Writes,
        metrics: Metrics,
    ) -> Self {
        Self {
            worker,
            sockets: Vec::new(),
            registry,
            writes,
            next_flush: Now::ZERO,
            unwritten: Vec::new(),
            input: vec![0; READ],
            number,
            shown: metrics.component(&number.to_string()),
            past: components::Mounts::default(),
            next_show: Now::ZERO,
            metrics,
        }
    }

    /// Serves a connection from now on.
    pub(super) fn adopt(&mut self, socket: Socket, now: Now) {
        let id = self.worker.open(now, socket.peer().to_string());
        self.past.accepted += 1;
        let place = id.index();
        if let Err(why) = self.registry.add(&socket, FIRST_CLIENT + place as u64, Interest::Read) {
            self.leave(id, Reason::Lost(why.to_string()), now);
            return;
        }
        if self.sockets.len() <= place {
            self.sockets.resize_with(place + 1, || None);
        }
        self.sockets[place] = Some(Client { id, socket, full: false });
    }

    /// Something is ready at the client of this token.
    pub(super) fn ready(&mut self, token: u64, readable: bool, writable: bool, now: Now) {
        let place = usize::try_from(token - FIRST_CLIENT).unwrap_or(usize::MAX);
        let Some(client) = self.sockets.get_mut(place).and_then(Option::as_mut) else { return };
        let id = client.id;
        if writable && client.full {
            client.full = false;
            if let Err(why) = self.registry.change(&client.socket, token, Interest::Read) {
                return self.leave(id, Reason::Lost(why.to_string()), now);
            }
            self.write(id, now);
        }
        if readable {
            self.read(place, now);
        }
    }

    fn read(&mut self, place: usize, now: Now) {
        let Some(client) = self.sockets.get_mut(place).and_then(Option::as_mut) else { return };
        let id = client.id;
        match client.socket.read(&mut self.input) {
            Ok(None) => {}
            Ok(Some(0)) => self.leave(id, Reason::PeerClosed, now),
            Ok(Some(count)) => {
                if let Some(bytes) = self.input.get(..count) {
                    self.worker.input(id, bytes, now);
                }
            }
            Err(why) => self.leave(id, Reason::Lost(why.to_string()), now),
        }
    }

    /// Ends a turn: writes what is to be written now, closes the mounts that the worker has cut.
    pub(super) fn flush(&mut self, now: Now) {
        self.show(now);
        self.worker.dirty(&mut self.unwritten);
        if let Writes::Timed { every, full } = self.writes {
            if now < self.next_flush {
                let mut at = 0;
                while let Some(&id) = self.unwritten.get(at) {
                    if self.worker.output(id).len() >= full {
                        self.unwritten.swap_remove(at);
                        self.write(id, now);
                    } else {
                        at += 1;
                    }
                }
                return self.cut(now);
            }
            self.next_flush = now + every;
        }
        let mut due = std::mem::take(&mut self.unwritten);
        for id in due.drain(..) {
            self.write(id, now);
        }
        self.unwritten = due;
        self.cut(now);
    }

    /// Publishes what was counted, if it is time.
    fn show(&mut self, now: Now) {
        if now < self.next_show {
            return;
        }
        let mounts: Vec<_> = self.worker.mounts().filter_map(|id| self.worker.stats(id)).collect();
        // With thousands of mounts the look itself takes milliseconds, so it is taken less often.
        self.next_show = now + EVERY + Now::from_millis(2) * u32::try_from(mounts.len()).unwrap_or(u32::MAX);
        let mut all = self.past;
        for stats in &mounts {
            count(&mut all, stats);
            all.mounts += 1;
            all.streams += stats.streams as u64;
            all.waiting += stats.requests_waiting as u64;
            all.bytes_waiting += stats.bytes_waiting as u64;
            all.buffers += stats.buffers as u64;
            all.buffers_high = all.buffers_high.max(stats.buffers_high_water as u64);
        }
        self.shown.publish(&all);
        self.metrics.set_mounts(self.number, mounts.iter().map(|stats| figures(stats, "", now)));
    }

    /// When output that waits for the timer, or the worker, is due.
    pub(super) fn deadline(&self) -> Option<Now> {
        let flush = (!self.unwritten.is_empty()).then_some(self.next_flush);
        [flush, self.worker.deadline()].into_iter().flatten().min()
    }

    /// Closes all mounts.
    pub(super) fn shut_down(&mut self, now: Now) {
        let all: Vec<_> = self.worker.mounts().collect();
        for id in all {
            self.worker.force(id, Reason::ShutDown);
        }
        self.cut(now);
    }

    fn cut(&mut self, now: Now) {
        let cuts: Vec<_> = self.worker.cuts().collect();
        for cut in cuts {
            // The last words, as far as there is room for them.
            self.write(cut.mount, now);
            self.leave(cut.mount, cut.reason, now);
        }
    }

    fn write(&mut self, id: MountId, now: Now) {
        let Some(client) = self.sockets.get_mut(id.index()).and_then(Option::as_mut) else { return };
        if client.full || client.id != id {
            return;
        }
        loop {
            let output = self.worker.output(id);
            if output.is_empty() {
                return;
            }
            self.past.writes += 1;
            match client.socket.write(output) {
                Ok(Some(count)) => self.worker.written(id, count, now),
                Ok(None) => break,
                Err(why) => return self.leave(id, Reason::Lost(why.to_string()), now),
            }
        }
        client.full = true;
        self.past.writes_full += 1;
        if let Err(why) =
            self.registry.change(&client.socket, FIRST_CLIENT + id.index() as u64, Interest::Both)
        {
            self.leave(id, Reason::Lost(why.to_string()), now);
        }
    }

    fn leave(&mut self, id: MountId, reason: Reason, now: Now) {
        if let Some(place) = self.sockets.get_mut(id.index())
            && place.as_ref().is_some_and(|client| client.id == id)
        {
            *place = None;
        }
        if let Some(farewell) = self.worker.closed(id, reason) {
            count(&mut self.past, &farewell.stats);
            tracing::info!(
                peer = farewell.stats.peer, user = farewell.stats.user, application = farewell.stats.application,
                reason = %farewell.reason, "a consumer left"
            );
            self.metrics.disconnect(
                "mount",
                farewell.reason.label(),
                figures(&farewell.stats, &farewell.reason.to_string(), now),
            );
        }
    }
}

/// Adds what only grows.
fn count(all: &mut components::Mounts, mount: &MountStats) {
    all.messages_in += mount.messages_in;
    all.bytes_in += mount.bytes_in;
    all.messages_out += mount.messages_out;
    all.bytes_out += mount.bytes_out;
}

/// A mount as `/mounts` and `/disconnects` show it; `reason` is empty while it lives.
pub(super) fn figures(stats: &MountStats, reason: &str, now: Now) -> serde_json::Value {
    let ago = |then: Now| now.saturating_sub(then).as_secs_f64();
    serde_json::json!({
        "peer": stats.peer, "user": stats.user, "application": stats.application, "position": stats.position,
        "component": stats.component, "reason": reason, "connected_s": ago(stats.since),
        "bytes_in": stats.bytes_in, "bytes_out": stats.bytes_out, "messages_in": stats.messages_in,
        "messages_out": stats.messages_out, "streams": stats.streams, "requests_waiting": stats.requests_waiting,
        "buffers": stats.buffers, "buffers_high_water": stats.buffers_high_water, "buffers_max": stats.buffers_max,
        "bytes_waiting": stats.bytes_waiting, "last_write_ago_s": ago(stats.last_write), "last_read_ago_s": ago(stats.last_read),
    })
}
