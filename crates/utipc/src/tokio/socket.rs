//! A socket whose calls suspend the task instead of blocking the thread.

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::{consume_budget, yield_now};
use utipc_client::{Pollable, Polled, Readiness, TaskPoll};
use utipc_core::socket::State;

use super::{event_loop_error, register};
use crate::{Destination, Error, Incoming, PortId, Received, Result};

/// The value registered with tokio's event loop.
#[derive(Debug)]
struct Watched(crate::Socket);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        match self.0.watched_descriptor() {
            Ok(descriptor) => descriptor.as_fd().as_raw_fd(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A [`crate::Socket`] for tokio. Several tasks may make calls at once; a call that is dropped while it waits has had
/// no effect.
///
/// A task that is about to wait for a message first polls busily for one, as blocking calls spin, in short turns
/// between which the runtime serves its other tasks and descriptors. [`crate::Socket::set_spin`] and
/// [`Builder::spin`](crate::Builder::spin) control that too.
#[derive(Debug)]
pub struct Socket {
    watched: AsyncFd<Watched>,
    /// The busy poll of `poll_until`, and whether its task waits for the descriptor.
    polling: std::sync::Mutex<Polling>,
}

/// The state of a task that polls.
#[derive(Debug, Default)]
struct Polling {
    busy: TaskPoll,
    waits: bool,
}

/// A task that waits for the descriptor, which is right meanwhile.
struct Waiting<'a>(Option<&'a Readiness>);

impl<'a> Waiting<'a> {
    fn new(socket: &'a Socket) -> Self {
        let readiness = socket.get().readiness();
        if let Some(readiness) = readiness {
            readiness.begin_wait();
        }
        Self(readiness)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(readiness) = self.0 {
            readiness.end_wait();
        }
    }
}

/// Lets the runtime resume the task after it has done everything else.
fn resume_later(cx: &mut Context<'_>) -> Poll<bool> {
    match pin!(yield_now()).as_mut().poll(cx) {
        Poll::Ready(()) => cx.waker().wake_by_ref(),
        Poll::Pending => {}
    }
    Poll::Pending
}

impl Socket {
    /// Wraps a socket and makes it non-blocking.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    ///
    /// # Panics
    /// If called outside a tokio runtime with I/O enabled.
    pub fn new(socket: crate::Socket) -> Result<Self> {
        socket.set_nonblocking(true);
        socket.watched_descriptor()?;
        if let Some(readiness) = socket.readiness() {
            readiness.allow_lazy();
        }
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self { watched: register(Watched(socket), both)?, polling: std::sync::Mutex::default() })
    }

    /// The underlying socket, for addresses, bindings, options and counters. After a call of its
    /// [`descriptor`](crate::Socket::descriptor) tasks no longer poll busily before they wait.
    #[must_use]
    pub fn get(&self) -> &crate::Socket {
        &self.watched.get_ref().0
    }

    /// One turn of a busy poll. Ready with whether a receive would find something; if not, the task waits for the
    /// descriptor.
    fn poll_busily(&self, busy: &mut TaskPoll, cx: &mut Context<'_>) -> Poll<bool> {
        match busy.turn(self.get()) {
            Polled::Found => Poll::Ready(true),
            Polled::Again => resume_later(cx),
            Polled::Over => Poll::Ready(false),
        }
    }

    /// One attempt of a call; `None` if it would block.
    fn attempt<T>(&self, call: impl FnOnce(&crate::Socket) -> Result<T>) -> Option<Result<T>> {
        match call(self.get()) {
            Err(Error::WouldBlock { .. }) => None,
            done => Some(done),
        }
    }

    /// Repeats a call until it no longer would block.
    async fn until<T>(
        &self,
        interest: Interest,
        mut call: impl FnMut(&crate::Socket) -> Result<T>,
    ) -> Result<T> {
        loop {
            // A call that need not wait counts too: the other tasks get their turn.
            consume_budget().await;
            if let Some(done) = self.attempt(&mut call) {
                return done;
            }
            let mut busy = TaskPoll::default();
            if interest.is_readable() && poll_fn(|cx| self.poll_busily(&mut busy, cx)).await {
                continue;
            }
            let waiting = Waiting::new(self);
            let mut guard = self.watched.ready(interest).await.map_err(event_loop_error)?;
            drop(waiting);
            busy.slept(self.get());
            // The readiness is cleared only if no new readiness has shown since it was read.
            match self.attempt(&mut call) {
                None => guard.clear_ready(),
                Some(done) => return done,
            }
        }
    }

    /// As [`Socket::until`], for traits that poll. `readable` selects the direction to wait for.
    pub(super) fn poll_until<T>(
        &self,
        cx: &mut Context<'_>,
        readable: bool,
        mut call: impl FnMut(&crate::Socket) -> Result<T>,
    ) -> Poll<std::io::Result<T>> {
        let mut polling = readable.then(|| utipc_os::lock(&self.polling));
        loop {
            if let Some(polling) = &mut polling
                && !polling.waits
            {
                if ready!(self.poll_busily(&mut polling.busy, cx)) {
                    // The other tasks get their turn.
                    ready!(pin!(consume_budget()).as_mut().poll(cx));
                    if let Some(done) = self.attempt(&mut call) {
                        return Poll::Ready(done.map_err(Into::into));
                    }
                    continue;
                }
                polling.waits = true;
                std::mem::forget(Waiting::new(self));
            }
            let watched = &self.watched;
            let guard = if readable { watched.poll_read_ready(cx) } else { watched.poll_write_ready(cx) };
            let mut guard = ready!(guard)?;
            if let Some(polling) = &mut polling {
                polling.waits = false;
                drop(Waiting(self.get().readiness()));
                polling.busy.slept(self.get());
            }
            match self.attempt(&mut call) {
                None => guard.clear_ready(),
                Some(done) => return Poll::Ready(done.map_err(Into::into)),
            }
        }
    }

    /// Sends a message; see [`crate::Socket::send_to`].
    ///
    /// # Errors
    /// [`Error::Send`], [`Error::Connect`].
    pub async fn send_to(&self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        let to = to.into();
        let requests = self.get().kind().is_connection_oriented()
            && !data.is_empty()
            && self.get().state() == State::Open;
        let sent = self.until(Interest::WRITABLE, |socket| socket.send_to(data, to)).await?;
        if requests {
            self.connected().await?;
        }
        Ok(sent)
    }

    /// Sends on a connection or to the default destination; on a stream, possibly only a part.
    ///
    /// # Errors
    /// [`Error::Send`].
    pub async fn send(&self, data: &[u8]) -> Result<usize> {
        self.until(Interest::WRITABLE, |socket| socket.send(data)).await
    }

    /// Receives a message with its source.
    ///
    /// # Errors
    /// [`Error::Receive`].
    pub async fn receive(&self) -> Result<Incoming> {
        self.until(Interest::READABLE, crate::Socket::receive).await
    }

    /// Receives into the caller's memory.
    ///
    /// # Errors
    /// [`Error::Receive`].
    pub async fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.until(Interest::READABLE, |socket| socket.receive_into(buffer)).await
    }

    /// Accepts a connection: returns its socket and the peer's address.
    ///
    /// # Errors
    /// [`Error::Accept`].
    pub async fn accept(&self) -> Result<(Self, PortId)> {
        let (socket, peer) = self.until(Interest::READABLE, crate::Socket::accept).await?;
        Ok((Self::new(socket)?, peer))
    }

    /// Connects to a server and waits for its reply; on a connectionless socket sets the default destination.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn connect(&self, to: impl Into<Destination>) -> Result<()> {
        match self.get().connect(to) {
            Err(Error::WouldBlock { .. }) => {}
            done => return done,
        }
        self.connected().await
    }

    /// Waits for the reply to a connection request.
    async fn connected(&self) -> Result<()> {
        // A refusal makes the socket readable, acceptance makes it writable.
        let both = Interest::READABLE | Interest::WRITABLE;
        self.until(both, crate::Socket::wait_connected).await
    }
}
