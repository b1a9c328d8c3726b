//! A socket of the daemon's node: what there is to do with it beside sending and receiving.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, OnceLock};

use utipc_attach::{Failure, LaneId, Reply, Request, SocketView};
use utipc_core::addr::{PortId, Scope, ServiceRange};
use utipc_core::limits::MESSAGE_OVERHEAD;
use utipc_core::socket::{
    AcceptError, ConnectError, Destination, EndpointStats, OptionValue, RecvError, SendError, SocketKind,
    SocketOption, State, WaitReason,
};
use utipc_os::Left;
use utipc_os::spin::{Mode, Spin};

use crate::attachment::{Attachment, lock};
use crate::descriptor::Descriptor;
use crate::fork::known;
use crate::lanes::receive::{Own, Receiver};
use crate::shared::{Half, Letter, Shared};
use crate::{Error, Wait};

/// One socket of the daemon's node; closed when dropped.
#[derive(Debug)]
pub struct Socket {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) shared: Arc<Shared>,
    /// [`SocketOption::ReceiveLowWater`]: how much a blocking receive of a stream collects.
    pub(crate) low_water: AtomicU32,
    pub(crate) descriptor: OnceLock<Descriptor>,
    /// In a forked child: the same socket as the child holds it. Set while nobody forks only.
    pub(crate) heir: OnceLock<Box<Socket>>,
}

/// Times that a descriptor's state is looked at again because something has happened meanwhile.
const SETTLE_MAX: u32 = 4;

/// What a would-block is among the failures of a command.
fn would_block(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Send(SendError::WouldBlock)
            | Failure::Receive(RecvError::WouldBlock)
            | Failure::Accept(AcceptError::WouldBlock)
    )
}

/// `None` if the call has to wait.
pub(crate) fn unless_blocked<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Failed(failure)) if would_block(&failure) => Ok(None),
        result => result.map(Some),
    }
}

impl Socket {
    pub(crate) fn new(
        attachment: Arc<Attachment>,
        port: u32,
        kind: SocketKind,
        accepted: bool,
        mode: Mode,
    ) -> Self {
        let shared = Arc::new(Shared::new(port, kind, accepted, mode));
        attachment.enter(&shared);
        Self {
            attachment,
            shared,
            low_water: AtomicU32::new(1),
            descriptor: OnceLock::new(),
            heir: OnceLock::new(),
        }
    }

    /// The socket as this process holds it: itself, unless the process is a child that has inherited it by a fork. Every
    /// call on a socket begins with this one.
    ///
    /// # Errors
    /// [`Error::Died`], [`Error::NotShared`].
    #[inline]
    pub fn live(&self) -> Result<&Self, Error> {
        if self.attachment.is_own() { Ok(self) } else { self.inherited(true) }
    }

    /// `used`: it is more than let go of.
    #[cold]
    fn inherited(&self, used: bool) -> Result<&Self, Error> {
        if let Some(heir) = self.heir.get() {
            return heir.live();
        }
        let mut known = known();
        let attachment = self.attachment.claim(&mut known)?;
        let heir = self.heir.get_or_init(|| {
            let shared = Arc::new(self.shared.inherited());
            attachment.enter(&shared);
            let descriptor = OnceLock::new();
            if let Some(copy) = self.descriptor.get().and_then(Descriptor::inherited) {
                if copy.is_polled() {
                    shared.shared.store(false, Relaxed);
                }
                drop(descriptor.set(copy));
            }
            let low_water = AtomicU32::new(self.low_water.load(Relaxed));
            Box::new(Self { attachment, shared, low_water, descriptor, heir: OnceLock::new() })
        });
        drop(known);
        match heir.look() {
            Err(Error::Failed(Failure::NoSocket(_))) => {
                Err(Error::NotShared(self.attachment.path().to_owned()))
            }
            Err(error) => Err(error),
            Ok(_) => {
                if used {
                    // The parent may have let go of it before, and nobody was there to be told.
                    heir.attachment.unshare(&heir.shared)?;
                }
                Ok(heir)
            }
        }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.shared.port
    }

    pub(crate) fn own(&self) -> Own {
        Own { node: self.attachment.address(), port: self.port(), kind: self.kind() }
    }

    pub(crate) fn kind(&self) -> SocketKind {
        self.shared.kind
    }

    /// How its calls wait from now on.
    pub fn set_spin(&self, mode: Mode) {
        for spin in [&self.shared.receive_spin, &self.shared.send_spin] {
            *lock(spin) = Spin::new(mode);
        }
    }

    /// State, peer, readiness, counters, as the node sees them.
    ///
    /// # Errors
    /// [`Error::Died`]; so for all calls.
    pub fn look(&self) -> Result<SocketView, Error> {
        self.attachment.call(&Request::Look { port: self.port() }, &[], |reply, _| match reply {
            Reply::Socket(view) => Some(*view),
            _ => None,
        })
    }

    /// Counters, with what went by lanes.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn stats(&self) -> Result<EndpointStats, Error> {
        let mut stats = self.look()?.stats;
        let sender = lock(&self.shared.sender);
        stats.sent_messages += sender.messages;
        stats.sent_bytes += sender.bytes;
        stats.window_waits += sender.window_waits;
        stats.link_waits += sender.link_waits;
        stats.overloads += sender.overloads;
        drop(sender);
        let receiver = lock(&self.shared.receiver);
        stats.received_messages += receiver.messages;
        stats.received_bytes += receiver.bytes;
        Ok(stats)
    }

    /// Why the last call would have blocked, if it still would.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn wait_reason(&self) -> Result<Option<WaitReason>, Error> {
        if self.shared.waits(Half::Send) {
            let reason = lock(&self.shared.sender).wait_reason(self.attachment.address());
            if reason.is_some() {
                return Ok(reason);
            }
        }
        if self.shared.waits(Half::Receive) && lock(&self.shared.receiver).has_lanes() {
            return Ok(Some(WaitReason::NothingReceived));
        }
        Ok(self.look()?.wait)
    }

    /// Binds to a range.
    ///
    /// # Errors
    /// [`Failure::Bind`], [`Failure::NotAllowed`].
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Error> {
        self.command(&Request::Bind { port: self.port(), range, scope })
    }

    /// Withdraws one binding, or all.
    ///
    /// # Errors
    /// [`Failure::Bind`].
    pub fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<(), Error> {
        self.command(&Request::Unbind { port: self.port(), which })
    }

    /// Makes it a listener.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn listen(&self) -> Result<(), Error> {
        self.command(&Request::Listen { port: self.port() })
    }

    /// The next connection request: a socket for it, and who asked; `None` if there is none within `wait`.
    ///
    /// # Errors
    /// [`Failure::Accept`].
    pub fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        let request = Request::Accept { port: self.port() };
        let accepted = self.poll(wait, || {
            let accepted = self.attachment.call(&request, &[], |reply, _| match reply {
                Reply::Accepted { port, peer } => Some((port, peer)),
                _ => None,
            });
            self.was_read()?;
            unless_blocked(accepted)
        })?;
        let mode = lock(&self.shared.receive_spin).mode();
        let socket = |port| Self::new(Arc::clone(&self.attachment), port, self.kind(), true, mode);
        Ok(accepted.map(|(port, peer)| (socket(port), peer)))
    }

    /// Begins a connection, or sets the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub fn connect(&self, to: Option<Destination>) -> Result<(), Error> {
        let begun = self.command(&Request::Connect { port: self.port(), to });
        if self.kind().is_connection_oriented() {
            if begun.is_ok() {
                self.connects_to(to);
            }
            self.was_filled()?;
        } else if begun.is_ok() {
            lock(&self.shared.sender).default_to = to;
        }
        begun
    }

    /// A connection was requested.
    pub(crate) fn connects_to(&self, to: Option<Destination>) {
        if let Some(Destination::Service { addr, .. }) = to {
            *lock(&self.shared.service) = Some(addr.into());
        }
    }

    /// Waits until the connection is set up; `None` if it is not within `wait`.
    ///
    /// # Errors
    /// [`Failure::Connect`] if it never will be.
    pub fn wait_connected(&self, wait: Wait) -> Result<Option<()>, Error> {
        self.poll(wait, || match self.look()?.state {
            State::Connecting => Ok(None),
            State::Established => Ok(Some(())),
            _ => {
                let why = self.take_error()?.unwrap_or(ConnectError::Refused);
                Err(Error::Failed(Failure::Connect(why)))
            }
        })
    }

    /// The error that ended the connection, once.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn take_error(&self) -> Result<Option<ConnectError>, Error> {
        self.attachment.call(&Request::TakeError { port: self.port() }, &[], |reply, _| match reply {
            Reply::Error(error) => Some(error),
            _ => None,
        })
    }

    /// Ends the connection in good order.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn shutdown(&self) -> Result<(), Error> {
        // The daemon ends the lanes; what was not read is lost.
        self.command(&Request::Shutdown { port: self.port() })?;
        let mut receiver = lock(&self.shared.receiver);
        // Nor is a lane opened that nobody has looked at yet: its reader would wait for an end that does not come.
        drop(self.shared.to_receiver.take());
        for lane in receiver.ids() {
            drop(receiver.remove(lane));
        }
        receiver.node_is_ready();
        drop(receiver);
        // A thread that waits for the peer waits in vain.
        self.attachment.ring();
        Ok(())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<(), Error> {
        self.command(&Request::SetOption { port: self.port(), option, value })?;
        let mut style = self.shared.style();
        style.set(option, value);
        self.shared.set_style(style);
        if let (SocketOption::ReceiveLowWater, OptionValue::Number(bytes)) = (option, value) {
            self.low_water.store(bytes.max(1), Relaxed);
        }
        Ok(())
    }

    /// Reads an option. What counts messages that wait counts those in lanes too.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn option(&self, option: SocketOption) -> Result<u32, Error> {
        let at_node = self.option_at_node(option)?;
        let in_lanes = match option {
            SocketOption::ReceiveQueueDepth => self.waiting()?.0,
            SocketOption::ReceiveQueueUsed => {
                let (messages, bytes) = self.waiting()?;
                u32::try_from(bytes + u64::from(messages) * MESSAGE_OVERHEAD as u64).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        Ok(at_node.saturating_add(in_lanes))
    }

    fn option_at_node(&self, option: SocketOption) -> Result<u32, Error> {
        self.attachment.call(&Request::GetOption { port: self.port(), option }, &[], |reply, _| match reply {
            Reply::Number(value) => Some(value),
            _ => None,
        })
    }

    /// A descriptor whose level is the readiness of the socket; made at the first call. The socket keeps its lanes.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is free, or the program has the descriptor already.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.descriptor.get().is_none() {
            let receiver = self.receiver_to_poll()?;
            if self.descriptor.get().is_none() {
                let near = self.fetch_near(&Request::Descriptor { port: self.port() })?;
                let descriptor = self.descriptor.get_or_init(|| Descriptor::new(near));
                self.keep_level(receiver, descriptor)?;
            }
        }
        self.descriptor.get().and_then(Descriptor::as_owned).ok_or(Error::Failed(Failure::State))
    }

    pub(crate) fn fetch_near(&self, request: &Request) -> Result<OwnedFd, Error> {
        self.attachment.call(request, &[], |reply, extra| extra.fds.pop().filter(|_| reply == Reply::Done))
    }

    pub(crate) fn receiver_to_poll(&self) -> Result<MutexGuard<'_, Receiver>, Error> {
        if !self.attachment.settles {
            self.attachment.host(&self.shared)?;
        }
        Ok(lock(&self.shared.receiver))
    }

    pub(crate) fn keep_level(
        &self,
        mut receiver: MutexGuard<'_, Receiver>,
        descriptor: &Descriptor,
    ) -> Result<(), Error> {
        receiver.tell_daemon();
        descriptor.set_polled();
        // The daemon knows nothing of what is in lanes already.
        self.settle_on(&mut receiver, true)?;
        let tell = receiver.take_tell();
        drop(receiver);
        self.tell(tell)
    }

    /// After a receive that has got something or not: the descriptor is readable if and only if there is more, and becomes
    /// so anew for who was told that there is nothing.
    #[inline]
    pub(crate) fn settle(&self, got: bool) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => {
                let mut receiver = lock(&self.shared.receiver);
                if !got && descriptor.drain_to_end() {
                    self.look_for_daemon()?;
                }
                self.settle_on(&mut receiver, !got)?;
                let tell = receiver.take_tell();
                drop(receiver);
                self.tell(tell)
            }
            None => Ok(()),
        }
    }

    /// `drained`: the descriptor may lack the byte that it should have.
    #[cold]
    fn settle_on(&self, receiver: &mut Receiver, mut drained: bool) -> Result<(), Error> {
        let Some(descriptor) = self.polled() else { return Ok(()) };
        let Shared { to_receiver, ready, .. } = &*self.shared;
        // Whoever adds a byte has done before what the looks after its removal find.
        for _ in 0..SETTLE_MAX {
            loop {
                if to_receiver.has_some() {
                    self.read_letters_to_receiver(receiver)?;
                }
                // Who is told of an end as of something to read may read for ever.
                let Some(lane) = receiver.lane_at_end() else { break };
                self.leave(receiver, lane)?;
            }
            if receiver.has_something_here(ready) {
                if drained {
                    self.ask_settled(true)?;
                }
                return Ok(());
            }
            if receiver.node_counts(self.kind()) {
                if self.settle_node(receiver, descriptor)? {
                    return Ok(());
                }
                drained = true;
                continue;
            }
            descriptor.drain();
            drained = true;
            let more = receiver.arm_all(self.kind(), ready);
            // Others who hold the socket too are told by the same byte.
            let unsure = self.shared.hosted.load(Relaxed) || !self.attachment.settles;
            if more || unsure || self.attachment.has_news() {
                // The answer brings what there is to know.
                if self.ask_settled(more)? {
                    receiver.node_is_ready();
                }
            }
            if more || !to_receiver.has_some() && !receiver.node_counts(self.kind()) {
                return Ok(());
            }
        }
        // Things change faster than they can be settled: readable too often is better than too seldom.
        self.ask_settled(true).map(drop)
    }

    /// The daemon has let go of its end of the descriptor. If it has died a call has to say so now: who waits for edges
    /// gets no other one, and the thread that watches the connection may not have seen it yet.
    #[cold]
    fn look_for_daemon(&self) -> Result<(), Error> {
        match self.ask_settled(true) {
            // It lives and has its reasons.
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the node has something; then the descriptor is readable.
    fn settle_node(&self, receiver: &mut Receiver, descriptor: &Descriptor) -> Result<bool, Error> {
        descriptor.drain();
        let more = self.ask_settled(false)?;
        if !more {
            receiver.node_is_empty();
        }
        Ok(more)
    }

    /// The byte is gone: whether the node has something to receive. Then it is there again, as it is if there is `more`.
    fn ask_settled(&self, more: bool) -> Result<bool, Error> {
        if !self.attachment.settles {
            // Whether there is more shows when it is asked for.
            return self.command(&Request::Rearm { port: self.port() }).map(|()| true);
        }
        let request = Request::Settle { port: self.port(), more };
        self.attachment.call(&request, &[], |reply, _| match reply {
            Reply::Number(number) => Some(number != 0),
            _ => None,
        })
    }

    /// Somebody may wait for its descriptor.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled().is_some()
    }

    /// The descriptor, if its level is kept.
    #[inline]
    fn polled(&self) -> Option<&Descriptor> {
        self.descriptor.get().filter(|descriptor| descriptor.is_polled())
    }

    /// A send would block: the descriptor becomes unwritable until there is room in the lane that it waits for.
    #[cold]
    pub(crate) fn was_blocked(&self, bytes: usize) -> Result<(), Error> {
        let Some(descriptor) = self.polled() else { return Ok(()) };
        let mut sender = lock(&self.shared.sender);
        if sender.awaited_pair().is_none() {
            return Ok(());
        }
        if descriptor.plug() {
            self.look_for_daemon()?;
        }
        if sender.want_room_told(bytes) {
            self.command(&Request::Rearm { port: self.port() })?;
        }
        Ok(())
    }

    /// Something was taken, or there was nothing: the descriptor is readable only if there is more.
    pub(crate) fn was_read(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) if descriptor.drain() => self.command(&Request::Rearm { port: self.port() }),
            _ => Ok(()),
        }
    }

    /// A send would block: the descriptor is writable only if that has changed already.
    pub(crate) fn was_filled(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => {
                descriptor.plug();
                self.command(&Request::Rearm { port: self.port() })
            }
            None => Ok(()),
        }
    }

    /// Lets the daemon wake processes that wait for a descriptor.
    pub(crate) fn tell(&self, lanes: Vec<LaneId>) -> Result<(), Error> {
        lanes.into_iter().try_for_each(|lane| match self.command(&Request::Wake { lane }) {
            // It is gone meanwhile.
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        })
    }

    pub(crate) fn command(&self, request: &Request) -> Result<(), Error> {
        self.attachment.command(request, &[])
    }

    /// Tries until `attempt`, a command, yields something, and again whenever the bell was rung.
    fn poll<T>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut end = None;
        loop {
            let sleeper = self.attachment.bell().enter();
            if let Some(done) = attempt()? {
                return Ok(Some(done));
            }
            match end.get_or_insert_with(|| wait.start()).left() {
                Left::Nothing => return Ok(None),
                Left::Time(limit) => self.heed_signal(sleeper.sleep(&[], limit)?)?,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.attachment.is_own() {
            // What the child has of it, if anything, is claimed, and let go with `heir`; the parent's is left alone.
            let _ = self.inherited(false);
            return;
        }
        let written = lock(&self.shared.sender).take_all();
        for lane in written {
            // Its memory is free when the reader has read to the end.
            lane.pair.keep(lane.id.slot, lane.writer);
        }
        let mut receiver = lock(&self.shared.receiver);
        for lane in receiver.ids() {
            drop(receiver.remove(lane));
        }
        drop(receiver);
        // From now on the attachment answers the ends of lanes; what was told before is answered by it too.
        self.attachment.leave(self.port());
        for letter in self.shared.to_sender.take() {
            if let Letter::Over(lane) = letter {
                self.attachment.lane_is_over(lane);
            }
        }
        // A daemon that is gone has closed it already.
        let _ = self.command(&Request::Close { port: self.port() });
        if self.attachment.has_chores() {
            let _ = self.attachment.fetch_news();
        }
    }
}
