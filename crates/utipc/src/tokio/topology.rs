//! Topology events for tasks.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::{event_loop_error, register};
use crate::{Event, Result};

/// A [`crate::Topology`] for tokio.
#[derive(Debug)]
pub struct Topology {
    watched: AsyncFd<Watched>,
}

/// The value registered with tokio's event loop.
#[derive(Debug)]
struct Watched(crate::Topology);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket().as_fd().as_raw_fd()
    }
}

impl Topology {
    /// Wraps a topology connection; make its first subscriptions before.
    ///
    /// # Errors
    /// [`crate::Error::System`] if the process has no descriptor left.
    ///
    /// # Panics
    /// If called outside a tokio runtime with I/O enabled.
    pub fn new(topology: crate::Topology) -> Result<Self> {
        topology.socket().descriptor()?;
        Ok(Self { watched: register(Watched(topology), Interest::READABLE)? })
    }

    /// The underlying topology connection, for more subscriptions.
    pub fn get_mut(&mut self) -> &mut crate::Topology {
        &mut self.watched.get_mut().0
    }

    /// The next event. A call that is dropped while it waits loses none.
    ///
    /// # Errors
    /// [`crate::Error::TopologyClosed`] if the server ended the connection.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.get_mut().next(Duration::ZERO)? {
                return Ok(event);
            }
            let mut guard = self.watched.readable_mut().await.map_err(event_loop_error)?;
            if let Some(event) = guard.get_inner_mut().0.next(Duration::ZERO)? {
                return Ok(event);
            }
            guard.clear_ready();
        }
    }
}
