//! One worker's mounts with their connections.

use std::io::IoSlice;

use crate::metrics::{MOUNTS, Metrics, PUBLISH_INTERVAL, Published, components};
use crate::mounts::{MountId, MountStats, Reason, Worker};
use crate::net::{Connection, Disconnected, Event, Now, Registry, Socket, now as clock};

use super::tokens::FIRST_CLIENT;
use super::turns::TurnMeter;

/// Maximum number of bytes that are read from one client before the next is served.
const READ: usize = 64 * 1024;

/// One client's connection.
#[derive(Debug)]
struct Client {
    id: MountId,
    connection: Connection,
    /// Whether the mount is in [`Clients::unwritten`].
    queued: bool,
}

/// Parts of the flush timer's period; some mounts are written in each part. Writing all at once would fill more socket
/// buffers than a processor cache holds before the first client reads.
const PARTS: u32 = 8;

/// The times at which output is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// At the end of the turn.
    AtOnce,
    /// Once a period, or earlier if much output waits (`timedWrites`).
    Timed {
        /// The period.
        every: Now,
        /// Bytes above which a mount is written at once.
        full: usize,
    },
}

impl From<Disconnected> for Reason {
    fn from(why: Disconnected) -> Self {
        match why {
            Disconnected::Closed => Self::PeerClosed,
            Disconnected::Broken(why) => Self::Lost(why.to_string()),
        }
    }
}

/// The mounts of one worker, their connections, and the output that waits to be written.
pub(super) struct Clients {
    pub(super) worker: Worker,
    /// By index of the mount.
    list: Vec<Option<Client>>,
    registry: Registry,
    writes: Writes,
    last_flush: Now,
    next_flush: Now,
    /// Mounts with output that waits to be written, each once, the longest waiting first.
    unwritten: Vec<MountId>,
    /// Scratch memory: mounts that have new output.
    dirty: Vec<MountId>,
    input: Vec<u8>,
    metrics: Metrics,
    number: u16,
    published: Published<components::Mounts>,
    /// Counts of closed mounts, and counts that belong to no single mount.
    past: components::Mounts,
    publish_at: Now,
    /// Turns of the thread, unless that is the main one.
    pub(super) turns: TurnMeter,
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
            list: Vec::new(),
            registry,
            writes,
            last_flush: Now::ZERO,
            next_flush: Now::ZERO,
            unwritten: Vec::new(),
            dirty: Vec::new(),
            input: vec![0; READ],
            number,
            published: metrics.component(&number.to_string()),
            past: components::Mounts::default(),
            publish_at: Now::ZERO,
            turns: TurnMeter::default(),
            metrics,
        }
    }

    /// Opens a mount on an accepted connection.
    pub(super) fn adopt(&mut self, socket: Socket, now: Now) {
        let id = self.worker.open(now, socket.peer().to_string());
        self.past.accepted += 1;
        let place = id.index();
        match Connection::new(socket, FIRST_CLIENT + place as u64, &self.registry) {
            Ok(connection) => {
                if self.list.len() <= place {
                    self.list.resize_with(place + 1, || None);
                }
                self.list[place] = Some(Client { id, connection, queued: false });
            }
            Err(why) => self.leave(id, Reason::Lost(why.to_string()), now),
        }
    }

    /// Handles readiness of a client.
    pub(super) fn ready(&mut self, event: Event, now: Now) {
        let place = usize::try_from(event.token - FIRST_CLIENT).unwrap_or(usize::MAX);
        let Some(client) = self.list.get_mut(place).and_then(Option::as_mut) else { return };
        let id = client.id;
        match client.connection.writable(event) {
            Ok(false) => {}
            Ok(true) => self.write(id, now),
            Err(why) => return self.leave(id, Reason::Lost(why.to_string()), now),
        }
        self.read(place, event, now);
    }

    fn read(&mut self, place: usize, event: Event, now: Now) {
        let client = self.list.get_mut(place).and_then(Option::as_mut);
        let Some(client) = client.filter(|client| client.connection.has_input(event)) else { return };
        let (id, worker) = (client.id, &mut self.worker);
        let read = client.connection.read(&mut self.input, |bytes| {
            worker.input(id, bytes, now);
            true
        });
        if let Err(why) = read {
            self.leave(id, why.into(), now);
        }
    }

    /// Ends a turn: writes output that is due, and closes the mounts that the worker has disconnected.
    pub(super) fn flush(&mut self, now: Now) {
        self.publish(now);
        self.queue_dirty();
        self.select_due(now);
        let mut due = std::mem::take(&mut self.dirty);
        for id in due.drain(..) {
            if let Some(client) = self.list.get_mut(id.index()).and_then(Option::as_mut) {
                client.queued = false;
            }
            self.write(id, now);
        }
        self.dirty = due;
        self.close_disconnected(now);
    }

    /// Queues the mounts that have new output.
    fn queue_dirty(&mut self) {
        self.worker.dirty(&mut self.dirty);
        for id in self.dirty.drain(..) {
            if let Some(client) = self.list.get_mut(id.index()).and_then(Option::as_mut)
                && !client.queued
            {
                client.queued = true;
                self.unwritten.push(id);
            }
        }
    }

    /// Moves the queued mounts whose output is due into [`Clients::dirty`].
    fn select_due(&mut self, now: Now) {
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
    }

    /// Number of the `waiting` mounts that are due by the timer.
    fn due(&mut self, now: Now, every: Now, waiting: usize) -> usize {
        if now < self.next_flush || waiting == 0 {
            return 0;
        }
        let passed = now.saturating_sub(self.last_flush).min(every);
        let all = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.last_flush = now;
        self.next_flush = now + every / all.min(PARTS);
        // Rounded up, so that the last mount waits no longer than the period.
        (passed.as_nanos() * u128::from(all)).div_ceil(every.as_nanos().max(1)) as usize
    }

    /// Publishes the counters, if that is due.
    fn publish(&mut self, now: Now) {
        if now < self.publish_at {
            return;
        }
        let mounts: Vec<_> = self.worker.mounts().filter_map(|id| self.worker.stats(id)).collect();
        // Collecting takes milliseconds with thousands of mounts, so it is done less often then.
        let pause = Now::from_millis(2) * u32::try_from(mounts.len()).unwrap_or(u32::MAX);
        self.publish_at = now + PUBLISH_INTERVAL + pause;
        let mut all = self.past;
        all.pending = self.worker.pending() as u64;
        (all.turn_longest, all.turns_long) = self.turns.counts();
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
        self.published.publish(&all);
        self.metrics.set_mounts(self.number, mounts.iter().map(|stats| figures(stats, "", now)));
    }

    /// Time at which output that waits for the timer, or a timer of the worker, is due.
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
        self.close_disconnected(now);
    }

    fn close_disconnected(&mut self, now: Now) {
        let disconnects: Vec<_> = self.worker.disconnects().collect();
        for disconnect in disconnects {
            // Final messages are written as far as the socket takes them.
            self.write(disconnect.mount, now);
            self.leave(disconnect.mount, disconnect.reason, now);
        }
    }

    fn write(&mut self, id: MountId, now: Now) {
        let Some(client) = self.list.get_mut(id.index()).and_then(Option::as_mut) else { return };
        if client.connection.is_full() || client.id != id {
            return;
        }
        let writes = &mut self.past.writes;
        let written = self.worker.write(id, now, |bytes| {
            *writes += 1;
            client.connection.write(&[IoSlice::new(bytes)])
        });
        self.worker.written(id, clock);
        match written {
            Ok(true) => {}
            Ok(false) => self.past.writes_full += 1,
            Err(why) => self.leave(id, Reason::Lost(why.to_string()), now),
        }
    }

    fn leave(&mut self, id: MountId, reason: Reason, now: Now) {
        // The socket is closed when this function returns, so the reason is recorded before the peer sees the end.
        let _socket = self.list.get_mut(id.index()).and_then(|place| place.take_if(|client| client.id == id));
        if let Some(farewell) = self.worker.closed(id, reason) {
            count(&mut self.past, &farewell.stats);
            let crowded = matches!(farewell.reason, Reason::Evicted { .. });
            self.past.crowded += u64::from(crowded);
            if crowded {
                // Without a line for each: a flood of connections must not become a flood of lines.
                if self.past.crowded == 1 {
                    tracing::warn!(
                        peer = farewell.stats.peer,
                        "connections that have not logged in are closed for newer ones; further ones are only counted (mounts_crowded_out)"
                    );
                }
                return;
            }
            self.past.refused += u64::from(matches!(farewell.reason, Reason::TooManyMounts { .. }));
            tracing::info!(
                peer = farewell.stats.peer, user = farewell.stats.user, application = farewell.stats.application,
                position = farewell.stats.position, reason = %farewell.reason,
                unread = farewell.stats.bytes_waiting, "a consumer left"
            );
            self.metrics.disconnect(
                "mount",
                farewell.reason.label(),
                figures(&farewell.stats, &farewell.reason.to_string(), now),
            );
        }
    }
}

/// Adds the mount's counters, not its gauges.
fn count(all: &mut components::Mounts, mount: &MountStats) {
    all.messages_in += mount.messages_in;
    all.bytes_in += mount.bytes_in;
    all.messages_out += mount.messages_out;
    all.bytes_out += mount.bytes_out;
}

/// A mount as `/mounts` and `/disconnects` show it; `reason` is empty while it is connected.
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
