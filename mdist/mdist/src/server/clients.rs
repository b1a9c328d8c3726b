//! One worker's mounts with their sockets.

use crate::metrics::{MOUNTS, Metrics, Published, components};
use crate::mounts::{MountId, MountStats, Reason, Worker};
use crate::net::{Interest, Now, Registry, Socket, now as clock};

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
    /// Among those with output that waits to be written.
    queued: bool,
}

/// Parts of the flush timer's period: in each of them some mounts are written. All at once would fill more memory in the
/// kernel than any cache holds before a client has read of it.
const PARTS: u32 = 8;

/// When output is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// At the end of the turn that made it.
    AtOnce,
    /// Once in a period, or when this much waits (`timedWrites`).
    Timed {
        /// The period.
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
    last_flush: Now,
    next_flush: Now,
    /// Mounts with output that waits to be written, each once, the longest first.
    unwritten: Vec<MountId>,
    /// Memory for mounts that have new output.
    dirty: Vec<MountId>,
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
            last_flush: Now::ZERO,
            next_flush: Now::ZERO,
            unwritten: Vec::new(),
            dirty: Vec::new(),
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
        self.sockets[place] = Some(Client { id, socket, full: false, queued: false });
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
        self.worker.dirty(&mut self.dirty);
        for id in self.dirty.drain(..) {
            if let Some(client) = self.sockets.get_mut(id.index()).and_then(Option::as_mut)
                && !client.queued
            {
                client.queued = true;
                self.unwritten.push(id);
            }
        }
        let mut waiting = std::mem::take(&mut self.unwritten);
        if let Writes::Timed { every, full } = self.writes {
            let due = self.due(now, every, waiting.len());
            let mut at = 0;
            waiting.retain(|&id| {
                at += 1;
                let now_or_full = at <= due || self.worker.waiting(id) >= full;
                if now_or_full {
                    self.dirty.push(id);
                }
                !now_or_full
            });
        } else {
            self.dirty.append(&mut waiting);
        }
        self.unwritten = waiting;
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(client) = self.sockets.get_mut(id.index()).and_then(Option::as_mut) {
                client.queued = false;
            }
            self.write(id, now);
        }
        self.dirty = dirty;
        self.cut(now);
    }

    /// How many of the waiting mounts the timer has come for.
    fn due(&mut self, now: Now, every: Now, waiting: usize) -> usize {
        if now < self.next_flush || waiting == 0 {
            return 0;
        }
        let passed = now.saturating_sub(self.last_flush).min(every);
        let all = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.last_flush = now;
        self.next_flush = now + every / all.min(PARTS);
        // Rounded up: who comes last must not wait for longer than the period.
        (passed.as_nanos() * u128::from(all)).div_ceil(every.as_nanos().max(1)) as usize
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
        if let Some(whole) = self.worker.latency() {
            let each = mounts.iter().filter_map(|stats| Some((stats.peer.clone(), stats.latency?)));
            self.metrics.set_latency(&MOUNTS, &self.number.to_string(), *whole, each);
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
            self.worker.log_out_and_disconnect(id, Reason::ShutDown);
        }
        self.cut(now);
    }

    fn cut(&mut self, now: Now) {
        let cuts: Vec<_> = self.worker.disconnects().collect();
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
        let socket = &mut client.socket;
        let writes = &mut self.past.writes;
        let written = self.worker.write(id, now, |bytes| {
            *writes += 1;
            socket.write(bytes)
        });
        self.worker.written(id, clock);
        match written {
            Ok(true) => return,
            Ok(false) => {}
            Err(why) => return self.leave(id, Reason::Lost(why.to_string()), now),
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
        // Closed at the end of this: who sees the end of the connection finds the reason recorded.
        let _socket =
            self.sockets.get_mut(id.index()).and_then(|place| place.take_if(|client| client.id == id));
        if let Some(farewell) = self.worker.closed(id, reason) {
            count(&mut self.past, &farewell.stats);
            self.past.refused += u64::from(matches!(farewell.reason, Reason::TooManyMounts { .. }));
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
    let mut figures = serde_json::json!({
        "peer": stats.peer, "user": stats.user, "application": stats.application, "position": stats.position,
        "component": stats.component, "reason": reason, "connected_s": ago(stats.since),
        "bytes_in": stats.bytes_in, "bytes_out": stats.bytes_out, "messages_in": stats.messages_in,
        "messages_out": stats.messages_out, "streams": stats.streams, "requests_waiting": stats.requests_waiting,
        "buffers": stats.buffers, "buffers_high_water": stats.buffers_high_water, "buffers_max": stats.buffers_max,
        "bytes_waiting": stats.bytes_waiting, "last_write_ago_s": ago(stats.last_write), "last_read_ago_s": ago(stats.last_read),
    });
    if let (Some(latency), Some(figures)) = (&stats.latency, figures.as_object_mut()) {
        figures.insert("latency_us".into(), latency.figures().into());
    }
    figures
}
