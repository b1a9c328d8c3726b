//! One worker: its mounts and their streams, and what the driver of the sockets calls.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rssl::rwf::{Domain, Message, State, Status, StatusFlags};
use rssl::transport::{Channel, Pulled, Received, Tick};
use rssl::wire::to_vec;

use super::arena::Arena;
use super::config::{Config, Shared};
use super::directory::Services;
use super::latency::MountLatencies;
use super::mount::{Mount, MountId, MountStats, Role, Stream};
use super::output::{CHUNK, Output, Overflow};
use super::permissions::Permissions;
use super::reason::Reason;
use super::slots::{Slots, Ticket};
use super::subscribers::{Item, Subscriber};
use crate::dictionaries::Dictionaries;
use crate::hub::{HubRequest, ItemId, MAX_FRAMED, Now, SideId};

/// How often time-outs are looked at.
const TICK: Duration = Duration::from_secs(1);

/// A mount that the worker wants to be closed: the driver writes what it can of its output, closes the socket and calls
/// [`Worker::closed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The mount.
    pub mount: MountId,
    /// Why.
    pub reason: Reason,
}

/// The last that is known of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedMount {
    /// Why it went: the first reason there was.
    pub reason: Reason,
    /// Its figures at the end.
    pub stats: MountStats,
}

/// The mounts of one worker: no sockets, no clock, no threads.
///
/// The driver calls `open` for an accepted connection and `input` for received bytes, hands `hub_requests` to the hub and the hub's
/// batches to `apply`, calls `write` for the mounts that `dirty` lists, calls `tick` when `deadline` has come, and acts on
/// `disconnects`. Any call may produce hub_requests, dirty mounts and disconnects.
pub struct Worker {
    pub(super) side: SideId,
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
    pub(super) dictionaries: Arc<Dictionaries>,
    pub(super) permissions: Box<dyn Permissions>,
    pub(super) services: Services,
    pub(super) mounts: Slots<Mount>,
    /// Of the mounts, by place.
    pub(super) outputs: Vec<Output>,
    /// Messages that the outputs list.
    pub(super) arena: Arena,
    pub(super) streams: Slots<Stream>,
    /// By item id.
    pub(super) items: Vec<Item>,
    pub(super) hub_requests: Vec<HubRequest>,
    /// Mounts whose queue may go on.
    pub(super) eager: Vec<Ticket>,
    pub(super) dirty: Vec<MountId>,
    disconnects: Vec<Disconnect>,
    /// Subscribers of the entry in work that need more than a copy.
    pub(super) individual: Vec<Subscriber>,
    pub(super) failed: Vec<(Ticket, Overflow)>,
    /// Bytes of an image, on average.
    pub(super) image_bytes: usize,
    /// Memory for a message with a stream id of its own.
    pub(super) own: Vec<u8>,
    /// Memory for a message that was received.
    scratch: Vec<u8>,
    /// Memory for listed messages on their way to a socket.
    chunk: Vec<u8>,
    next_tick: Now,
    /// If it is measured.
    pub(super) latency: Option<Box<MountLatencies>>,
}

impl Worker {
    /// A worker without mounts; `side` is its name at the hub.
    pub fn new(
        side: SideId,
        config: Arc<Config>,
        shared: Arc<Shared>,
        dictionaries: Arc<Dictionaries>,
        permissions: Box<dyn Permissions>,
    ) -> Self {
        let latency = config.latency.map(|each| Box::new(MountLatencies::new(each)));
        Self {
            side,
            latency,
            config,
            shared,
            dictionaries,
            permissions,
            services: Services::default(),
            mounts: Slots::default(),
            outputs: Vec::new(),
            arena: Arena::default(),
            streams: Slots::default(),
            items: Vec::new(),
            hub_requests: Vec::new(),
            eager: Vec::new(),
            dirty: Vec::new(),
            disconnects: Vec::new(),
            individual: Vec::new(),
            failed: Vec::new(),
            image_bytes: 512,
            own: Vec::new(),
            scratch: Vec::new(),
            chunk: vec![0; CHUNK],
            next_tick: Now::ZERO,
        }
    }

    /// A connection was accepted from `peer`.
    pub fn open(&mut self, now: Now, peer: String) -> MountId {
        let mut transport = self.config.transport.clone();
        let (name, most) = (&self.config.application, self.config.max_mounts);
        let admitted = self.shared.admit(most);
        if !admitted {
            transport.refuse = Some(format!(
                "{name} has {most} connections, the most it takes (max-mounts); try again later"
            ));
        }
        let mut channel = Channel::server(transport);
        channel.received(now);
        channel.sent(now);
        let ticket = self.mounts.insert(Mount::new(peer, channel, admitted, now));
        let output = Output::new(ticket, self.config.output);
        match self.outputs.get_mut(ticket.index() as usize) {
            Some(place) => *place = output,
            None => self.outputs.push(output),
        }
        MountId(ticket)
    }

    /// Bytes were received from the mount's client.
    pub fn input(&mut self, id: MountId, bytes: &[u8], now: Now) {
        let Some(mount) = self.mounts.get_mut(id.0).filter(|mount| mount.cut.is_none()) else { return };
        mount.channel.received(now);
        mount.tally.last_read = now;
        mount.tally.bytes_in += bytes.len() as u64;
        let mut input = mem::take(&mut mount.input);
        let mut scratch = mem::take(&mut self.scratch);
        input.receive(bytes, |received| self.handle(id.0, received, &mut scratch));
        self.scratch = scratch;
        if let Some(mount) = self.mounts.get_mut(id.0) {
            mount.input = input;
        }
        self.pump(id.0);
        self.resume_queues();
    }

    /// Handles every whole message in `received`.
    fn handle(&mut self, id: Ticket, received: &mut Received<'_>, message: &mut Vec<u8>) {
        while let Some(mount) = self.mounts.get_mut(id).filter(|mount| mount.cut.is_none()) {
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
                    if let Some(output) = self.outputs.get_mut(id.index() as usize) {
                        output.plain = plain;
                    }
                }
                Ok(Pulled::Handshake) => {}
                Ok(Pulled::Refused { .. }) if !mount.admitted => {
                    end = Some(Reason::TooManyMounts { most: self.config.max_mounts });
                }
                Ok(Pulled::Refused { text }) => end = Some(Reason::Refused(text.to_owned())),
            }
            self.transport(id, |channel, out| channel.take_output(out));
            if let Some(reason) = end {
                self.disconnect(id, reason);
            }
        }
    }

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
            // A client acknowledges nothing that this server sends; harmless.
            Message::Ack(_) => Ok(()),
            Message::Refresh(_) | Message::Status(_) | Message::Update(_) => Err(Reason::Protocol(format!(
                "{:?} on domain {} from a client: this port serves consumers; a publisher has to connect to the port for publishers",
                message.head().class,
                message.head().domain,
            ))),
        }
    }

    /// Mounts with something to write since the last call, each once.
    pub fn dirty(&mut self, into: &mut Vec<MountId>) {
        for id in self.dirty.drain(..) {
            if let Some(output) = self.outputs.get_mut(id.index()).filter(|output| output.mount == id.0) {
                output.dirty = false;
                into.push(id);
            }
        }
    }

    /// What the hub has to be asked, in this order.
    pub fn hub_requests(&mut self) -> std::vec::Drain<'_, HubRequest> {
        self.hub_requests.drain(..)
    }

    /// Mounts that must go.
    pub fn disconnects(&mut self) -> std::vec::Drain<'_, Disconnect> {
        self.disconnects.drain(..)
    }

    /// Bytes that wait to be written to the mount's socket.
    pub fn waiting(&self, id: MountId) -> usize {
        self.outputs.get(id.index()).filter(|output| output.mount == id.0).map_or(0, Output::waiting)
    }

    /// Writes what waits for the mount by `put`, which says how many of the bytes its socket took, `None` if it has no room.
    /// Whether all was written; if not, it is to be called again when the socket has room.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn write<E>(
        &mut self,
        id: MountId,
        now: Now,
        put: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
    ) -> Result<bool, E> {
        let Some(mount) = self.mounts.get_mut(id.0) else { return Ok(true) };
        let Some(output) = self.outputs.get_mut(id.index()) else { return Ok(true) };
        let (count, result) = output.write(&mut self.arena, &self.shared.pool, &mut self.chunk, put);
        if count > 0 {
            mount.channel.sent(now);
            mount.tally.last_write = now;
            mount.tally.bytes_out += count as u64;
        }
        if !mount.queue.is_empty() {
            self.pump(id.0);
            self.resume_queues();
        }
        result
    }

    /// The mount's socket is closed: by the client, by an error, or after a cut. Tells what there was, once.
    pub fn closed(&mut self, id: MountId, reason: Reason) -> Option<ClosedMount> {
        self.disconnect(id.0, reason);
        self.disconnects.retain(|cut| cut.mount != id);
        let stats = self.stats(id)?;
        let mount = self.mounts.remove(id.0)?;
        if mount.admitted {
            self.shared.dismiss();
        }
        if let Some(output) = self.outputs.get_mut(id.index()) {
            output.release(&mut self.arena, &self.shared.pool);
        }
        Some(ClosedMount { reason: mount.cut.unwrap_or(Reason::PeerClosed), stats })
    }

    /// Looks after pings, silent clients and logins that do not come.
    pub fn tick(&mut self, now: Now) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        let all: Vec<Ticket> = self.mounts.iter().map(|(ticket, _)| ticket).collect();
        for id in all {
            let Some(mount) = self.mounts.get_mut(id).filter(|mount| mount.cut.is_none()) else { continue };
            let timeout = self.config.login_timeout;
            if mount.login.is_none() && now.saturating_sub(mount.since_login) >= timeout {
                self.disconnect(id, Reason::NoLogin { seconds: timeout.as_secs() });
                continue;
            }
            match mount.channel.tick(now) {
                Tick::None => {}
                Tick::SendPing => {
                    // A mount that does not read has enough in its socket to keep it from thinking us dead.
                    if self.outputs.get(id.index() as usize).is_some_and(|output| output.waiting() == 0) {
                        self.transport(id, Channel::ping);
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

    /// When `tick` is due next; `None` without mounts.
    pub fn deadline(&self) -> Option<Now> {
        (self.mounts.len() > 0).then_some(self.next_tick)
    }

    /// Cuts a mount by order.
    pub fn log_out_and_disconnect(&mut self, id: MountId, reason: Reason) {
        self.log_out(id.0, &reason);
        self.disconnect(id.0, reason);
        self.resume_queues();
    }

    /// All mounts there are.
    pub fn mounts(&self) -> impl Iterator<Item = MountId> {
        self.mounts.iter().map(|(ticket, _)| MountId(ticket))
    }

    /// Figures of a mount.
    pub fn stats(&self, id: MountId) -> Option<MountStats> {
        let mount = self.mounts.get(id.0)?;
        let output = self.outputs.get(id.index())?;
        let login = mount.login.as_ref();
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

    /// Appends what the mount's channel writes; too much disconnects the mount.
    pub(super) fn transport<T>(
        &mut self,
        id: Ticket,
        write: impl FnOnce(&mut Channel, &mut Vec<u8>) -> T,
    ) -> Option<T> {
        let mount = self.mounts.get_mut(id).filter(|mount| mount.cut.is_none())?;
        let output = self.outputs.get_mut(id.index() as usize)?;
        match output.append(&mut self.arena, &self.shared.pool, |out| write(&mut mount.channel, out)) {
            Ok(result) => {
                if !output.dirty && output.waiting() > 0 {
                    output.dirty = true;
                    self.dirty.push(MountId(id));
                }
                Some(result)
            }
            Err(overflow) => {
                self.disconnect(id, overflow.into());
                None
            }
        }
    }

    /// Sends one message to a mount.
    pub(super) fn send(&mut self, id: Ticket, message: &[u8]) {
        match self.transport(id, |channel, out| channel.write(message, out)) {
            Some(Ok(())) => {
                if let Some(output) = self.outputs.get_mut(id.index() as usize) {
                    output.messages += 1;
                }
            }
            Some(Err(error)) => self.disconnect(id, Reason::Protocol(error.to_string())),
            None => {}
        }
    }

    /// Sends a status without anything but a state.
    pub(super) fn status(
        &mut self,
        id: Ticket,
        domain: Domain,
        stream: i32,
        private: bool,
        state: State<'_>,
    ) {
        let flags = if private { StatusFlags::PRIVATE } else { StatusFlags::NONE };
        let status = Status { domain, stream, flags, state: Some(state), ..Status::default() };
        if let Ok(message) = to_vec(|w| status.encode(w)) {
            self.send(id, &message);
        }
    }

    /// The mount must go: its streams end at once, and nothing more is put out for it.
    pub(super) fn disconnect(&mut self, id: Ticket, reason: Reason) {
        let Some(mount) = self.mounts.get_mut(id).filter(|mount| mount.cut.is_none()) else { return };
        mount.cut = Some(reason.clone());
        mount.queue.clear();
        mount.input.clear();
        if let Some(login) = &mount.login {
            self.shared.dismiss_user(&login.user);
        }
        let streams: Vec<Ticket> = mount.ids.values().copied().collect();
        for stream in streams {
            self.end(stream);
        }
        self.disconnects.push(Disconnect { mount: MountId(id), reason });
    }

    /// Forgets a stream, and lets go of its item with the last one.
    pub(super) fn end(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.remove(ticket) else { return };
        if let Some(mount) = self.mounts.get_mut(stream.mount) {
            mount.ids.remove(&stream.id);
            if stream.counted {
                mount.outstanding = mount.outstanding.saturating_sub(1);
                if !mount.queue.is_empty() {
                    self.eager.push(stream.mount);
                }
            }
        }
        if let Some(item) = stream.item {
            if let Some(entry) = self.items.get_mut(item.index()) {
                entry.subscribers.remove(stream.mount.index(), stream.id);
            }
            self.let_go(item);
        }
    }

    /// Gives back the holds on an item that nobody has any more.
    pub(super) fn let_go(&mut self, item: ItemId) {
        if let Some(entry) = self.items.get_mut(item.index())
            && entry.subscribers.is_empty()
            && entry.holds > 0
        {
            let holds = mem::take(&mut entry.holds);
            self.hub_requests.push(HubRequest::Close { side: self.side, item, holds });
        }
    }

    /// Sends the status that ends a stream, and ends it.
    pub(super) fn refuse(&mut self, ticket: Ticket, state: State<'_>) {
        if let Some(stream) = self.streams.get(ticket) {
            if stream.unheard_of() {
                return self.end(ticket);
            }
            let private = stream.flags.contains(rssl::rwf::RequestFlags::PRIVATE);
            let (mount, domain, id) = (stream.mount, Domain(stream.domain), stream.id);
            self.status(mount, domain, id, private, state);
            self.end(ticket);
        }
    }

    /// Adds a stream to its mount.
    pub(super) fn add(&mut self, stream: Stream) -> Option<Ticket> {
        let (mount, id) = (stream.mount, stream.id);
        self.mounts.get(mount)?;
        let ticket = self.streams.insert(stream);
        self.mounts.get_mut(mount)?.ids.insert(id, ticket);
        Some(ticket)
    }

    /// The client's stream with this id.
    pub(super) fn find(&self, id: Ticket, stream: i32) -> Option<Ticket> {
        self.mounts.get(id)?.ids.get(&stream).copied()
    }

    /// The stream that a subscriber is.
    pub(super) fn stream_of(&self, subscriber: Subscriber) -> Option<Ticket> {
        self.find(self.outputs.get(subscriber.mount())?.mount, subscriber.id)
    }

    pub(super) fn logged_in(&self, id: Ticket) -> bool {
        self.mounts.get(id).is_some_and(|mount| mount.login.is_some())
    }

    /// Streams of a mount that have this role.
    pub(super) fn streams_of(&self, id: Ticket, role: impl Fn(&Role) -> bool) -> Vec<Ticket> {
        let Some(mount) = self.mounts.get(id) else { return Vec::new() };
        let mut found: Vec<(i32, Ticket)> = mount.ids.iter().map(|(id, ticket)| (*id, *ticket)).collect();
        found.retain(|(_, ticket)| self.streams.get(*ticket).is_some_and(|stream| role(&stream.role)));
        found.sort_unstable();
        found.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Lets the queues go on that may, after whatever has happened.
    pub(super) fn resume_queues(&mut self) {
        while let Some(id) = self.eager.pop() {
            self.pump(id);
        }
    }
}
