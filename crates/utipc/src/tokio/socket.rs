//! A socket whose calls suspend the task instead of blocking the thread.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::{event_loop_error, register};
use crate::{Destination, Error, Incoming, PortId, Received, Result};

/// The value registered with tokio's event loop.
#[derive(Debug)]
struct Watched(crate::Socket);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A [`crate::Socket`] for tokio. Several tasks may make calls at once; a call that is dropped while it waits has had
/// no effect.
#[derive(Debug)]
pub struct Socket {
    watched: AsyncFd<Watched>,
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
        socket.descriptor()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self { watched: register(Watched(socket), both)? })
    }

    /// The underlying socket, for addresses, bindings, options and counters.
    #[must_use]
    pub fn get(&self) -> &crate::Socket {
        &self.watched.get_ref().0
    }

    /// Repeats a call until it no longer would block.
    async fn until<T>(
        &self,
        interest: Interest,
        mut call: impl FnMut(&crate::Socket) -> Result<T>,
    ) -> Result<T> {
        loop {
            match call(self.get()) {
                Err(Error::WouldBlock { .. }) => {}
                done => return done,
            }
            let mut guard = self.watched.ready(interest).await.map_err(event_loop_error)?;
            // The readiness is cleared only if no new readiness has shown since it was read.
            match call(self.get()) {
                Err(Error::WouldBlock { .. }) => guard.clear_ready(),
                done => return done,
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
        loop {
            let watched = &self.watched;
            let guard = if readable { watched.poll_read_ready(cx) } else { watched.poll_write_ready(cx) };
            let mut guard = ready!(guard)?;
            match call(self.get()) {
                Err(Error::WouldBlock { .. }) => guard.clear_ready(),
                done => return Poll::Ready(done.map_err(Into::into)),
            }
        }
    }

    /// Sends a message; see [`crate::Socket::send_to`].
    ///
    /// # Errors
    /// [`Error::Send`].
    pub async fn send_to(&self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        let to = to.into();
        self.until(Interest::WRITABLE, |socket| socket.send_to(data, to)).await
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
        // A refusal makes the socket readable, acceptance makes it writable.
        let both = Interest::READABLE | Interest::WRITABLE;
        self.until(both, crate::Socket::wait_connected).await
    }
}
