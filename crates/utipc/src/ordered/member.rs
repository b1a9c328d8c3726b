//! The calls of a member.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use utipc_os::{Deadline, Left, Wait};
use utipc_vsync::{self as vsync, Class, Token};

use super::builder::Builder;
use super::driver::{self, Guarded, Shared};
use super::error::{Ended, OrderedError, Waiting};
use super::incoming::{AtomicId, Incoming, Outcome, StateRequest, View, id_of};
use super::link::Link;
use super::membership::Membership;
use super::{Limits, Stats};
use crate::socket::AtomicTimeout;
use crate::{Error, GroupRequest, Node, PortId, Result};

/// A membership in an ordered group, whose members all receive the same messages and views in one order; see
/// [the module](super).
///
/// Dropping it ends the membership at once, as a crash does: the others go on in a new view, in a group with a primary
/// component only if they have a majority without it. [`Ordered::leave`] lets them agree first.
#[derive(Debug)]
pub struct Ordered {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    port: PortId,
    patience: Duration,
    receive_limit: AtomicTimeout,
    send_limit: AtomicTimeout,
}

impl Ordered {
    /// Settings for a member of the ordered group with this service type, 64 or above.
    #[must_use]
    pub fn builder(service: u32) -> Builder {
        Builder::new(service)
    }

    pub(super) fn start(
        node: &Node,
        request: GroupRequest,
        config: vsync::Config,
        limits: Limits,
    ) -> Result<Self> {
        let socket = node.rdm()?;
        socket.join(request)?;
        let (port, patience) = (socket.port(), config.patience);
        let (shared, thread) = driver::start(socket, |socket| {
            let machine = vsync::Member::new(id_of(port), config.clone());
            let link = Link::new(socket, request.member.instance, limits.slow);
            Membership::new(machine, link, config, limits)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            port,
            patience,
            receive_limit: AtomicTimeout::none(),
            send_limit: AtomicTimeout::none(),
        })
    }

    /// The socket of this member: its address in views and messages.
    #[must_use]
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The view at the place up to which this member has received; `None` before the first one, and while the member
    /// is excluded.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.shared.is_own().then(|| self.shared.lock().membership.view()).flatten()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.shared.is_own() { self.shared.lock().membership.stats() } else { Stats::default() }
    }

    /// Sets how long [`Ordered::receive`] waits; `None`: no limit. Zero: not at all.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) {
        self.receive_limit.set(limit);
    }

    /// Sets how long the calls that send wait; `None`: no limit. Zero: not at all.
    pub fn set_send_timeout(&self, limit: Option<Duration>) {
        self.send_limit.set(limit);
    }

    /// Sends a message of at most [`MAX_MESSAGE`](super::MAX_MESSAGE) bytes to all members, this one included, in the
    /// order of the group. The call returns when the message is on its way; it waits while there is no view, and while
    /// earlier messages fill the window.
    ///
    /// # Errors
    /// [`Error::Ordered`] with [`OrderedError::TooLong`], [`OrderedError::Waiting`] or [`OrderedError::Ended`].
    pub fn multicast(&self, data: &[u8]) -> Result<()> {
        let guarded = self.lock("multicast")?;
        let class = guarded.membership.class();
        self.submit(guarded, class, data, self.send_wait().start())?;
        Ok(())
    }

    /// Sends a message that is delivered when all members of the view have it, whatever the order of the group is.
    ///
    /// # Errors
    /// As [`Ordered::multicast`].
    pub fn multicast_safe(&self, data: &[u8]) -> Result<()> {
        let guarded = self.lock("multicast")?;
        self.submit(guarded, Class::Safe, data, self.send_wait().start())?;
        Ok(())
    }

    /// Sends a message that either all members of the view deliver or none does, and waits for the outcome. What this
    /// member receives meanwhile waits for [`Ordered::receive`], up to one window.
    ///
    /// # Errors
    /// As [`Ordered::multicast`]; [`OrderedError::NeedsPrimary`]. If the call runs out of time after it has sent, the
    /// outcome is received as [`Incoming::Outcome`].
    pub fn multicast_atomic(&self, data: &[u8]) -> Result<Outcome> {
        let end = self.send_wait().start();
        let guarded = self.lock("multicast")?;
        let (mut guarded, token) = self.submit_atomic(guarded, data, end)?;
        guarded.membership.await_outcome(token);
        self.shared.finish(&mut guarded);
        loop {
            if let Some(outcome) = guarded.membership.outcome(token) {
                return Ok(outcome);
            }
            let (again, in_time) = self.shared.wait(guarded, end);
            guarded = again;
            if !in_time {
                guarded.membership.forget_outcome(token);
                return Err(self.waiting("multicast", Waiting::Outcome, self.send_limit.get()));
            }
        }
    }

    /// Sends a message as [`Ordered::multicast_atomic`] does, without waiting for the outcome: it is received as
    /// [`Incoming::Outcome`], after the message itself if that is delivered.
    ///
    /// # Errors
    /// As [`Ordered::multicast`]; [`OrderedError::NeedsPrimary`].
    pub fn begin_atomic(&self, data: &[u8]) -> Result<AtomicId> {
        let guarded = self.lock("multicast")?;
        let (mut guarded, token) = self.submit_atomic(guarded, data, self.send_wait().start())?;
        self.shared.finish_send(&mut guarded);
        Ok(AtomicId(token.0))
    }

    fn submit_atomic<'a>(
        &'a self,
        guarded: MutexGuard<'a, Guarded>,
        data: &[u8],
        end: Deadline,
    ) -> Result<(MutexGuard<'a, Guarded>, Token)> {
        let (guarded, token) = self.enqueue(guarded, Class::Atomic, data, end)?;
        // The protocol names every atomic message.
        Ok((guarded, token.unwrap_or(Token(u64::MAX))))
    }

    fn submit(
        &self,
        guarded: MutexGuard<'_, Guarded>,
        class: Class,
        data: &[u8],
        end: Deadline,
    ) -> Result<()> {
        let (mut guarded, _) = self.enqueue(guarded, class, data, end)?;
        self.shared.finish_send(&mut guarded);
        Ok(())
    }

    /// Gives a message to the protocol, once that takes it.
    fn enqueue<'a>(
        &'a self,
        mut guarded: MutexGuard<'a, Guarded>,
        class: Class,
        data: &[u8],
        end: Deadline,
    ) -> Result<(MutexGuard<'a, Guarded>, Option<Token>)> {
        loop {
            match guarded.membership.send(class, data) {
                Some(Ok(token)) => return Ok((guarded, token)),
                Some(Err(why)) => return Err(Error::Ordered { call: "multicast", why }),
                None => {}
            }
            let (again, in_time) = self.shared.wait(guarded, end);
            guarded = again;
            if !in_time {
                let reason = guarded.membership.why_sends_wait();
                return Err(self.waiting("multicast", reason, self.send_limit.get()));
            }
        }
    }

    /// Receives the next event.
    ///
    /// # Errors
    /// [`Error::Ordered`] with [`OrderedError::Waiting`], or [`OrderedError::Ended`] after the last event.
    pub fn receive(&self) -> Result<Incoming> {
        self.receive_waiting(self.receive_limit.get())
    }

    /// As [`Ordered::receive`], at most for `limit`; zero: does not wait.
    ///
    /// # Errors
    /// As [`Ordered::receive`].
    pub fn receive_within(&self, limit: Duration) -> Result<Incoming> {
        self.receive_waiting(Some(limit))
    }

    fn receive_waiting(&self, limit: Option<Duration>) -> Result<Incoming> {
        let mut guarded = self.lock("receive")?;
        let mut end = None;
        loop {
            if let Some(received) = guarded.membership.pop() {
                self.shared.finish(&mut guarded);
                return received.map_err(|why| Error::Ordered { call: "receive", why });
            }
            let end = *end.get_or_insert_with(|| wait(limit).start());
            let (again, in_time) = self.shared.wait(guarded, end);
            guarded = again;
            if !in_time {
                let reason = guarded.membership.why_receives_wait();
                return Err(self.waiting("receive", reason, limit));
            }
        }
    }

    /// Gives the state that [`Incoming::StateWanted`] asks for: the application's, after everything that was received
    /// before that event and nothing else. Returns at once; the state is sent as the joiners take it. If the view
    /// changes before they have it, it is dropped, and the event comes again if it is still needed.
    ///
    /// # Errors
    /// [`Error::Ordered`] with [`OrderedError::StateTooLong`] or [`OrderedError::Ended`].
    pub fn give_state(&self, request: StateRequest, state: impl Into<Vec<u8>>) -> Result<()> {
        let mut guarded = self.lock("give the state")?;
        let given = guarded.membership.set_state(request, state.into());
        given.map_err(|why| Error::Ordered { call: "give the state", why })?;
        self.shared.finish(&mut guarded);
        Ok(())
    }

    /// Leaves the group, and returns when the others have agreed, or after four times the patience. What has not been
    /// received is lost. The last member that has the state waits until joiners have it.
    ///
    /// # Errors
    /// [`Error::Ordered`] with [`OrderedError::Ended`] if the membership has ended otherwise.
    pub fn leave(self) -> Result<()> {
        let mut guarded = self.lock("leave")?;
        guarded.membership.leave();
        self.shared.finish(&mut guarded);
        // The protocol has a limit of its own.
        let end = Wait::AtMost(self.patience * 5).start();
        while !guarded.membership.is_over() && end.left() != Left::Nothing {
            (guarded, _) = self.shared.wait(guarded, end);
        }
        match guarded.membership.pop() {
            Some(Err(OrderedError::Ended(why))) if !matches!(why, Ended::Left) => {
                Err(Error::Ordered { call: "leave", why: OrderedError::Ended(why) })
            }
            _ => Ok(()),
        }
    }

    /// A descriptor for poll loops: POLLIN while a receive would not wait. Poll it, but do not read it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// The state of the membership, unless this process is a forked child, in which a lock of the thread may be held
    /// for ever.
    fn lock(&self, call: &'static str) -> Result<MutexGuard<'_, Guarded>> {
        if self.shared.is_own() {
            return Ok(self.shared.lock());
        }
        Err(Error::Ordered { call, why: OrderedError::Ended(Ended::Forked) })
    }

    fn send_wait(&self) -> Wait {
        wait(self.send_limit.get())
    }

    fn waiting(&self, call: &'static str, reason: Waiting, limit: Option<Duration>) -> Error {
        let limit = limit.unwrap_or(Duration::MAX);
        Error::Ordered { call, why: OrderedError::Waiting { reason, limit } }
    }
}

fn wait(limit: Option<Duration>) -> Wait {
    match limit {
        None => Wait::Forever,
        Some(limit) if limit.is_zero() => Wait::Never,
        Some(limit) => Wait::AtMost(limit),
    }
}

impl AsFd for Ordered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if self.shared.is_own() {
            self.shared.stop();
            if let Some(thread) = self.thread.take() {
                // It ends by itself if it has panicked.
                let _ = thread.join();
            }
        }
    }
}
