//! One socket whose calls let the task wait instead of the thread.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::{refused, watch};
use crate::{Destination, Error, Incoming, PortId, Received, Result};

/// What tokio's event loop watches.
#[derive(Debug)]
struct Watched(crate::Socket);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A [`crate::Socket`] for tokio. Every call can be made by several tasks at once; one that is dropped while it waits has
/// done nothing.
#[derive(Debug)]
pub struct Socket {
    watched: AsyncFd<Watched>,
}

impl Socket {
    /// Takes a socket over, which becomes non-blocking.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime whose input and output is enabled.
    pub fn new(socket: crate::Socket) -> Result<Self> {
        socket.set_nonblocking(true);
        socket.descriptor()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self { watched: watch(Watched(socket), both)? })
    }

    /// The socket itself, for addresses, bindings, options and counters.
    #[must_use]
    pub fn get(&self) -> &crate::Socket {
        &self.watched.get_ref().0
    }

    /// Repeats a call until it would not block.
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
            let mut guard = self.watched.ready(interest).await.map_err(refused)?;
            // Forgets the readiness only if nothing new has shown since it was seen.
            match call(self.get()) {
                Err(Error::WouldBlock { .. }) => guard.clear_ready(),
                done => return done,
            }
        }
    }

    /// [`Socket::until`] for the traits that poll; `readable`: for a read.
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

    /// Sends on a connection or to the default destination; on a stream perhaps a part.
    ///
    /// # Errors
    /// [`Error::Send`].
    pub async fn send(&self, data: &[u8]) -> Result<usize> {
        self.until(Interest::WRITABLE, |socket| socket.send(data)).await
    }

    /// Receives a message with its origin.
    ///
    /// # Errors
    /// [`Error::Receive`].
    pub async fn receive(&self) -> Result<Incoming> {
        self.until(Interest::READABLE, crate::Socket::receive).await
    }

    /// Receives into memory of the caller's.
    ///
    /// # Errors
    /// [`Error::Receive`].
    pub async fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.until(Interest::READABLE, |socket| socket.receive_into(buffer)).await
    }

    /// Accepts a connection: a socket for it, and who asked.
    ///
    /// # Errors
    /// [`Error::Accept`].
    pub async fn accept(&self) -> Result<(Self, PortId)> {
        let (socket, peer) = self.until(Interest::READABLE, crate::Socket::accept).await?;
        Ok((Self::new(socket)?, peer))
    }

    /// Connects to a server and waits for its answer; on a connectionless socket sets the default destination.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn connect(&self, to: impl Into<Destination>) -> Result<()> {
        match self.get().connect(to) {
            Err(Error::WouldBlock { .. }) => {}
            done => return done,
        }
        // A refusal makes it readable, the answer writable.
        let both = Interest::READABLE | Interest::WRITABLE;
        self.until(both, crate::Socket::wait_connected).await
    }
}
