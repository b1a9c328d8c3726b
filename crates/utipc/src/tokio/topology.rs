//! Topology events for tasks.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::{refused, watch};
use crate::{Event, Result};

/// A [`crate::Topology`] for tokio.
#[derive(Debug)]
pub struct Topology {
    watched: AsyncFd<Watched>,
}

/// What tokio's event loop watches.
#[derive(Debug)]
struct Watched(crate::Topology);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket().as_fd().as_raw_fd()
    }
}

impl Topology {
    /// Takes a subscriber over; make its first subscriptions before.
    ///
    /// # Errors
    /// [`crate::Error::System`] if the process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime whose input and output is enabled.
    pub fn new(topology: crate::Topology) -> Result<Self> {
        topology.socket().descriptor()?;
        Ok(Self { watched: watch(Watched(topology), Interest::READABLE)? })
    }

    /// The subscriber itself, for more subscriptions.
    pub fn get_mut(&mut self) -> &mut crate::Topology {
        &mut self.watched.get_mut().0
    }

    /// The next event. Dropped while it waits, it has lost none.
    ///
    /// # Errors
    /// [`crate::Error::TopologyClosed`] if the server ended the connection.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.get_mut().next(Duration::ZERO)? {
                return Ok(event);
            }
            let mut guard = self.watched.readable_mut().await.map_err(refused)?;
            if let Some(event) = guard.get_inner_mut().0.next(Duration::ZERO)? {
                return Ok(event);
            }
            guard.clear_ready();
        }
    }
}
