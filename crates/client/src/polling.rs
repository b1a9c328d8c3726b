//! Keeping the level of a socket's descriptor equal to the readiness of the socket.
//!
//! `descriptor.rs` changes a level; docs/spec/attach.md §5 divides the work between library, peers and daemon.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, Reply, Request, SocketCall};
use utipc_lanes::{Check, Receiver};
use utipc_os::lock;

use crate::Error;
use crate::descriptor::Descriptor;
use crate::looking::When;
use crate::socket::Socket;
use crate::state::SocketState;

/// Maximum number of times that a level is checked again because something has changed meanwhile.
const SYNC_MAX: u32 = 4;

impl Socket {
    /// A descriptor to poll, whose level is the readiness of the socket; made at the first call. The socket keeps its
    /// lanes.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is free; [`Failure::State`] if the program owns the descriptor, see
    /// [`Socket::keep`].
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.descriptor.get().is_none() {
            let receiver = lock(&self.state.receiver);
            if self.descriptor.get().is_none() {
                let near = self.fetch_near(&SocketCall::Descriptor.on(self.port()))?;
                let descriptor = self.descriptor.get_or_init(|| Descriptor::new(near));
                self.keep_far_end();
                self.keep_level(receiver, descriptor)?;
            }
        }
        self.descriptor.get().and_then(Descriptor::as_owned).ok_or(Error::Failed(Failure::State))
    }

    /// Fetches an end of a descriptor.
    pub(crate) fn fetch_near(&self, request: &Request) -> Result<OwnedFd, Error> {
        self.attachment.call(request, &[], |reply, extra| extra.fds.pop().filter(|_| reply == Reply::Done))
    }

    /// Makes the descriptor's level the readiness of the socket from now on.
    pub(crate) fn keep_level(
        &self,
        mut receiver: MutexGuard<'_, Receiver>,
        descriptor: &Descriptor,
    ) -> Result<(), Error> {
        receiver.tell_daemon();
        descriptor.set_polled();
        if !self.keeps_descriptor() {
            self.attachment.watch_near_end(descriptor.near());
        }
        // The daemon cannot see messages that are in lanes already.
        self.sync_level(&mut receiver, true)?;
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        self.wake_peers(to_wake)
    }

    /// After a receive: makes the descriptor readable if and only if there is more to receive. `got`: whether that
    /// receive got anything; if not, the next message makes a new edge. `drained`: the byte may have been read.
    #[inline]
    pub(crate) fn sync_readability(&self, got: bool, drained: bool) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => {
                let mut receiver = lock(&self.state.receiver);
                let when = if got { When::AfterMessage } else { When::AfterNothing };
                if descriptor.deferral.is_due() && self.defer_level_of(&mut receiver, descriptor, when) {
                    let to_wake = receiver.take_lanes_to_wake();
                    drop(receiver);
                    return self.wake_peers(to_wake);
                }
                descriptor.deferral.set_deferred(false);
                descriptor.deferral.set_flagged(true);
                if !got && descriptor.drain_to_end() {
                    self.check_daemon()?;
                }
                self.sync_level(&mut receiver, drained)?;
                let to_wake = receiver.take_lanes_to_wake();
                drop(receiver);
                self.wake_peers(to_wake)
            }
            None => Ok(()),
        }
    }

    /// Makes the descriptor's level match the receiver. `drained`: the byte that makes it readable may have been read.
    #[cold]
    pub(crate) fn sync_level(&self, receiver: &mut Receiver, mut drained: bool) -> Result<(), Error> {
        let Some(descriptor) = self.polled() else { return Ok(()) };
        let SocketState { receiver_events, ready, .. } = &*self.state;
        // The daemon adds a byte after the change that the byte announces, so the checks after the byte's removal find
        // the change.
        let mut checks = 0;
        while checks < SYNC_MAX {
            loop {
                if receiver_events.has_some() {
                    self.process_receiver_events(receiver)?;
                }
                // The end of a lane is not data: it must not make the descriptor readable.
                let Some(lane) = receiver.lane_at_end() else { break };
                self.leave_lane(receiver, lane)?;
            }
            match receiver.check(ready) {
                Check::Something if drained => return self.report_drained(true).map(drop),
                Check::Something => return Ok(()),
                // The lane has ended since. It is left before the next check, so this ends.
                Check::Ended => continue,
                Check::Nothing => {}
            }
            checks += 1;
            if receiver.node_counts(self.kind()) {
                if self.sync_with_node(receiver, descriptor)? {
                    return Ok(());
                }
                drained = true;
                continue;
            }
            descriptor.drain();
            drained = true;
            let more = match receiver.arm_all(self.kind(), ready) {
                Check::Something => true,
                Check::Nothing => false,
                Check::Ended => continue,
            };
            // Other holders of the socket poll the same byte.
            let unsure = self.state.hosted.load(Relaxed);
            if more || unsure || self.attachment.has_notices() {
                // The reply says whether the node has something.
                if self.report_drained(more)? {
                    receiver.node_is_ready();
                }
            }
            if more || !receiver_events.has_some() && !receiver.node_counts(self.kind()) {
                if !more && !unsure {
                    descriptor.deferral.set_clean();
                }
                return Ok(());
            }
        }
        // The state changes faster than it can be checked. A spurious wake-up is harmless, a missing one is not.
        self.report_drained(true).map(drop)
    }

    /// Checks whether the daemon has died, after the far end of the descriptor was closed. If it has, the call must
    /// fail now: a program that polls for edges gets no further one, and the watching thread may not have noticed yet.
    #[cold]
    fn check_daemon(&self) -> Result<(), Error> {
        match self.report_drained(true) {
            // The daemon lives and has closed the far end on purpose.
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the daemon whether the node has something to receive; if so, the daemon makes the descriptor readable.
    fn sync_with_node(&self, receiver: &mut Receiver, descriptor: &Descriptor) -> Result<bool, Error> {
        descriptor.drain();
        let more = self.report_drained(false)?;
        if !more {
            receiver.node_is_empty();
        }
        Ok(more)
    }

    /// Reports that the byte was read; returns whether the node has something to receive. In that case, or if there is
    /// `more` here, the daemon adds the byte again.
    pub(crate) fn report_drained(&self, more: bool) -> Result<bool, Error> {
        let request = SocketCall::Drained { more }.on(self.port());
        self.attachment.call(&request, &[], |reply, _| match reply {
            Reply::Number(number) => Some(number != 0),
            _ => None,
        })
    }

    /// Whether the program may be polling the descriptor.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled().is_some()
    }

    /// The descriptor, if it is polled.
    #[inline]
    pub(crate) fn polled(&self) -> Option<&Descriptor> {
        self.descriptor.get().filter(|descriptor| descriptor.is_polled())
    }

    /// After a send that would block on a lane: makes the descriptor unwritable until there is room.
    #[cold]
    pub(crate) fn note_full_lane(&self, bytes: usize) -> Result<(), Error> {
        let Some(descriptor) = self.polled() else { return Ok(()) };
        let sender = &mut lock(&self.state.sender).lanes;
        if sender.awaited_pairs().is_empty() {
            return Ok(());
        }
        if descriptor.plug() {
            self.check_daemon()?;
        }
        if sender.want_room_told(bytes) {
            self.request(&SocketCall::Rearm.on(self.port()))?;
        } else if sender.take_new_wait()
            && let Some((_, longest)) = sender.waits_left()
        {
            let millis = u8::try_from(longest.as_millis() + 1).unwrap_or(u8::MAX);
            self.request(&SocketCall::AwaitRoom { millis }.on(self.port()))?;
        }
        Ok(())
    }

    /// After an accept: makes the descriptor readable only if there is more.
    pub(crate) fn note_read(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) if descriptor.drain() => self.request(&SocketCall::Rearm.on(self.port())),
            _ => Ok(()),
        }
    }

    /// After a send that would block at the node, the start of a connection, or the join of a group: makes the
    /// descriptor unwritable until the node takes more.
    pub(crate) fn note_full_node(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => {
                descriptor.plug();
                self.request(&SocketCall::Rearm.on(self.port()))
            }
            None => Ok(()),
        }
    }
}
