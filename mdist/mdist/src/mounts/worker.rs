//! One worker: its mounts and their streams, and the calls for the driver of the sockets.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rssl::rwf::Message;
use rssl::transport::{Channel, Pulled, Received, Tick};

use super::announce::Announcements;
use super::config::{Config, Shared, refusal_text};
use super::delivery::Subject;
use super::dictionary::GivenOut;
use super::directory::Services;
use super::latency::MountLatencies;
use super::mount::{Mount, MountId, MountStats, Stream};
use super::output::Output;
use super::outputs::Outputs;
use super::permissions::Permissions;
use super::reason::Reason;
use super::slots::{Slots, Ticket};
use super::subscribers::{Item, Subscriber};
use super::tasks::Tasks;
use crate::dictionaries::Dictionaries;
use crate::hub::{HubRequest, MAX_FRAMED, Now, SideId};
use crate::net::{LoginRefusal, Pending};

/// Interval at which time-outs are checked.
const TICK: Duration = Duration::from_secs(1);

/// A mount that is to be disconnected: the driver writes what it can of the output, closes the socket and calls
/// [`Worker::closed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The mount.
    pub mount: MountId,
    /// The reason.
    pub reason: Reason,
}

/// A mount that is closed, with the cause and its last statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedMount {
    /// Reason why it was closed: the first reason that was given.
    pub reason: Reason,
    /// Its statistics at the end.
    pub stats: MountStats,
}

/// The mounts of one worker: no sockets, no clock, no threads.
///
/// The driver calls these methods:
///
/// | Method | When |
/// |---|---|
/// | `open` | a connection was accepted |
/// | `input` | bytes were received |
/// | `apply` | the hub has a batch |
/// | `tick` | at the time that `deadline` returns |
///
/// Any of them may produce requests, output and mounts to disconnect. So the driver then passes `hub_requests`
/// to the hub, calls `write` for the mounts that `dirty` returns, and closes the mounts that `disconnects`
/// returns.
pub struct Worker {
    pub(super) side: SideId,
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
    pub(super) given_out: GivenOut,
    pub(super) permissions: Box<dyn Permissions>,
    pub(super) services: Services,
    pub(super) announcements: Announcements,
    pub(super) mounts: Slots<Mount>,
    /// Mounts that have not logged in.
    pub(super) pending: Pending<Ticket>,
    pub(super) outputs: Outputs,
    pub(super) streams: Slots<Stream>,
    /// Subscribers of items, by item id.
    pub(super) items: Vec<Item>,
    pub(super) hub_requests: Vec<HubRequest>,
    /// Work on many streams that goes on in later turns.
    pub(super) tasks: Tasks,
    /// Mounts whose queued requests may be sent.
    pub(super) resumable: Vec<Ticket>,
    pub(super) pending_disconnects: Vec<Disconnect>,
    /// Moving average of an image's length, in bytes.
    pub(super) image_bytes: usize,
    pub(super) memory: Memory,
    next_tick: Now,
    /// Latency of messages in the server; `None`: not measured.
    pub(super) latency: Option<Box<MountLatencies>>,
}

/// Memory that is used again and again.
#[derive(Default)]
pub(super) struct Memory {
    /// Subscribers that do not get the frame of the message that is being fanned out: it has to be edited or
    /// checked for each of them.
    pub(super) individual: Vec<Subscriber>,
    /// The copy of a message for one stream.
    pub(super) copy: Vec<u8>,
    /// A message that was received.
    message: Vec<u8>,
}

impl Worker {
    /// Creates a worker without mounts; `side` is its id at the hub.
    pub fn new(
        side: SideId,
        config: Arc<Config>,
        shared: Arc<Shared>,
        dictionaries: Arc<Dictionaries>,
        permissions: Box<dyn Permissions>,
    ) -> Self {
        let pending = Pending::new(config.pending);
        let latency = config.latency.map(|each| Box::new(MountLatencies::new(each)));
        Self {
            side,
            latency,
            config,
            shared,
            given_out: GivenOut::new(dictionaries),
            permissions,
            services: Services::default(),
            announcements: Announcements::default(),
            mounts: Slots::default(),
            pending,
            outputs: Outputs::default(),
            streams: Slots::default(),
            items: Vec::new(),
            hub_requests: Vec::new(),
            tasks: Tasks::default(),
            resumable: Vec::new(),
            pending_disconnects: Vec::new(),
            image_bytes: 512,
            memory: Memory::default(),
            next_tick: Now::ZERO,
        }
    }

    /// Adds a mount for a connection that was accepted from `peer`. If there are too many mounts, its handshake is
    /// refused; if too many connections have not logged in, the oldest of them is disconnected.
    pub fn open(&mut self, now: Now, peer: String) -> MountId {
        let mut transport = self.config.transport.clone();
        let most = self.config.max_mounts;
        let refused = self.shared.logins.len() >= most;
        if refused {
            transport.refuse = Some(refusal_text(LoginRefusal::Total(most), &self.config.application));
        }
        let mut channel = Channel::server(transport);
        channel.received(now);
        channel.sent(now);
        let ticket = self.mounts.insert(Mount::new(peer, channel, refused, now));
        self.outputs.open(ticket, self.config.output);
        self.await_login(ticket);
        MountId(ticket)
    }

    /// Puts a mount among those that have not logged in; the oldest of them may have to go.
    pub(super) fn await_login(&mut self, id: Ticket) {
        let Some(mount) = self.mounts.get_mut(id) else { return };
        let (entry, oldest) = self.pending.add(id, mount.from);
        mount.pending = Some(entry);
        if let Some(oldest) = oldest {
            self.disconnect(oldest, Reason::Evicted { newer: self.pending.len() });
        }
    }

    /// Number of mounts that have not logged in.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Handles bytes received from the mount's consumer.
    pub fn input(&mut self, id: MountId, bytes: &[u8], now: Now) {
        let Some(mount) = self.mounts.get_mut(id.0).filter(|mount| mount.disconnecting.is_none()) else {
            return;
        };
        mount.channel.received(now);
        mount.tally.last_read = now;
        mount.tally.bytes_in += bytes.len() as u64;
        self.handle_input(id.0, bytes);
    }

    /// Handles the input that has waited for a task of the mount.
    pub(super) fn resume_input(&mut self, id: Ticket) {
        if self.mounts.get(id).is_some_and(|mount| mount.disconnecting.is_none()) {
            self.handle_input(id, &[]);
        }
    }

    fn handle_input(&mut self, id: Ticket, bytes: &[u8]) {
        let Some(mount) = self.mounts.get_mut(id) else { return };
        let mut input = mem::take(&mut mount.input);
        let mut scratch = mem::take(&mut self.memory.message);
        input.receive(bytes, |received| self.process_frames(id, received, &mut scratch));
        self.memory.message = scratch;
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.input = input;
        }
        self.send_requests(id);
        self.resume_queues();
    }

    /// Processes the complete frames in `received`.
    fn process_frames(&mut self, id: Ticket, received: &mut Received<'_>, message: &mut Vec<u8>) {
        let goes_on = |mount: &&mut Mount| mount.disconnecting.is_none() && mount.tasks == 0 && !mount.ending;
        while let Some(mount) = self.mounts.get_mut(id).filter(goes_on) {
            let mut end = None;
            match received.pull(&mut mount.channel) {
                Err(error) => end = Some(Reason::Protocol(error.to_string())),
                Ok(Pulled::NeedMore) => break,
                Ok(Pulled::Ping) => continue,
                Ok(Pulled::Message(bytes)) => {
                    message.clear();
                    message.extend_from_slice(bytes);
                    mount.tally.messages_in += 1;
                    if let Err(reason) = self.message(id, message) {
                        self.disconnect(id, reason);
                    }
                    continue;
                }
                Ok(Pulled::Opened(opened)) => {
                    let plain = !opened.compress_sent && usize::from(opened.max_message) >= MAX_FRAMED;
                    self.outputs.set_plain(id, plain);
                }
                Ok(Pulled::Handshake) => {}
                Ok(Pulled::Refused { .. }) if mount.refused => {
                    end = Some(Reason::TooManyMounts { most: self.config.max_mounts });
                }
                Ok(Pulled::Refused { text }) => end = Some(Reason::Refused(text.to_owned())),
            }
            self.append_output(id, Subject::Transport, |channel, out| channel.take_output(out));
            if let Some(reason) = end {
                self.disconnect(id, reason);
            }
        }
    }

    /// Handles one message of a consumer; the error is the reason to disconnect it.
    fn message(&mut self, id: Ticket, bytes: &[u8]) -> Result<(), Reason> {
        let message = Message::decode(bytes).map_err(|error| {
            let front = bytes.get(..bytes.len().min(64)).unwrap_or_default();
            Reason::Protocol(format!("{error}; the message begins with {front:02x?}"))
        })?;
        match message {
            Message::Request(request) => self.request(id, &request),
            Message::Close(close) => self.close(id, &close),
            Message::Post(post) => {
                self.post(id, &post, bytes);
                Ok(())
            }
            Message::Generic(generic) => {
                self.generic(id, &generic, bytes);
                Ok(())
            }
            // This server sends nothing that requests an acknowledgement; an unexpected one has no effect.
            Message::Ack(_) => Ok(()),
            Message::Refresh(_) | Message::Status(_) | Message::Update(_) => Err(Reason::Protocol(format!(
                "{:?} on domain {} from a consumer: this port serves consumers; a publisher has to connect to the port for publishers",
                message.head().class,
                message.head().domain,
            ))),
        }
    }

    /// Adds the mounts that have had output since the last call, each once.
    pub fn dirty(&mut self, into: &mut Vec<MountId>) {
        self.outputs.take_dirty(into);
    }

    /// Takes the requests for the hub, in order.
    pub fn hub_requests(&mut self) -> std::vec::Drain<'_, HubRequest> {
        self.hub_requests.drain(..)
    }

    /// Takes the mounts to disconnect.
    pub fn disconnects(&mut self) -> std::vec::Drain<'_, Disconnect> {
        self.pending_disconnects.drain(..)
    }

    /// Number of bytes that wait for the mount's socket.
    pub fn waiting(&self, id: MountId) -> usize {
        self.outputs.get(id.0).map_or(0, Output::waiting)
    }

    /// Writes the mount's waiting bytes with `put`, which returns how many its socket took, or `None` if it can take
    /// none now. Returns whether all were written; if not, call it again when the socket is writable.
    ///
    /// # Errors
    /// The error of `put`.
    pub fn write<E>(
        &mut self,
        id: MountId,
        now: Now,
        put: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
    ) -> Result<bool, E> {
        let Some(mount) = self.mounts.get_mut(id.0) else { return Ok(true) };
        let Some((count, result)) = self.outputs.write(id.0, &self.shared.pool, put) else { return Ok(true) };
        if count > 0 {
            mount.channel.sent(now);
            mount.tally.last_write = now;
            mount.tally.bytes_out += count as u64;
        }
        if !mount.queue.is_empty() {
            self.grant_images(id.0, count);
            self.send_requests(id.0);
            self.resume_queues();
        }
        result
    }

    /// Removes a mount whose socket is closed: by the consumer, by an error, or after a disconnect. `None`: it was
    /// removed before.
    pub fn closed(&mut self, id: MountId, reason: Reason) -> Option<ClosedMount> {
        self.disconnect(id.0, reason);
        self.pending_disconnects.retain(|disconnect| disconnect.mount != id);
        let stats = self.stats(id)?;
        let mount = self.mounts.get_mut(id.0)?;
        mount.closed = true;
        let reason = mount.disconnecting.clone().unwrap_or(Reason::PeerClosed);
        if !mount.ending {
            self.mounts.remove(id.0);
        }
        self.outputs.release(id.0, &self.shared.pool);
        Some(ClosedMount { reason, stats })
    }

    /// Notifies consumers of dictionaries that were replaced, and performs a portion of the work that is left of
    /// earlier turns; once a second sends pings, and disconnects consumers that are silent or do not log in.
    pub fn tick(&mut self, now: Now) {
        self.report_dictionaries();
        self.work();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        let all: Vec<Ticket> = self.mounts.iter().map(|(ticket, _)| ticket).collect();
        for id in all {
            let Some(mount) = self.mounts.get_mut(id).filter(|mount| mount.disconnecting.is_none()) else {
                continue;
            };
            let timeout = self.config.login_timeout;
            if mount.login.is_none() && now.saturating_sub(mount.since_login) >= timeout {
                self.disconnect(id, Reason::NoLogin { seconds: timeout.as_secs() });
                continue;
            }
            match mount.channel.tick(now) {
                Tick::None => {}
                Tick::SendPing => {
                    // Bytes that wait will show the consumer that this server is alive, as a ping would.
                    if self.outputs.get(id).is_some_and(|output| output.waiting() == 0) {
                        self.append_output(id, Subject::Transport, Channel::ping);
                    }
                }
                Tick::PeerSilent => {
                    let seconds = mount.channel.opened().map_or(0, |opened| opened.ping_timeout.as_secs());
                    self.disconnect(id, Reason::Silent { seconds });
                }
            }
        }
        self.resume_queues();
    }

    /// Time when [`Worker::tick`] is due next; `None` without mounts.
    pub fn deadline(&self) -> Option<Now> {
        if !self.tasks.is_empty() {
            return Some(Now::ZERO);
        }
        (self.mounts.len() > 0).then_some(self.next_tick)
    }

    /// Logs a mount out and disconnects it, by order of the driver.
    pub fn log_out_and_disconnect(&mut self, id: MountId, reason: Reason) {
        self.log_out(id.0, &reason);
        self.disconnect(id.0, reason);
        self.resume_queues();
    }

    /// All mounts.
    pub fn mounts(&self) -> impl Iterator<Item = MountId> {
        self.mounts.iter().filter(|(_, mount)| !mount.closed).map(|(ticket, _)| MountId(ticket))
    }

    /// The statistics of a mount; `None`: it is closed.
    pub fn stats(&self, id: MountId) -> Option<MountStats> {
        let mount = self.mounts.get(id.0).filter(|mount| !mount.closed)?;
        let output = self.outputs.get(id.0)?;
        let login = mount.login.as_ref().or(mount.past_login.as_ref());
        Some(MountStats {
            peer: mount.peer.clone(),
            user: login.map(|login| String::from_utf8_lossy(&login.user).into_owned()).unwrap_or_default(),
            application: login.map(|login| login.application.clone()).unwrap_or_default(),
            position: login.map(|login| login.position.clone()).unwrap_or_default(),
            component: mount.channel.opened().map(|opened| opened.component.clone()).unwrap_or_default(),
            since: mount.since,
            bytes_in: mount.tally.bytes_in,
            bytes_out: mount.tally.bytes_out,
            messages_in: mount.tally.messages_in,
            messages_out: output.messages,
            streams: mount.ids.len(),
            requests_waiting: mount.queue.len(),
            buffers: output.buffers(),
            buffers_high_water: output.high_water(),
            buffers_max: output.limits().max,
            bytes_waiting: output.waiting(),
            last_write: mount.tally.last_write,
            last_read: mount.tally.last_read,
            latency: self.latency.as_ref().and_then(|latency| latency.of(id.0)),
        })
    }
}
