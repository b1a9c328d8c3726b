//! Topology events for tasks.

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use futures_core::Stream;

use super::{event_loop_error, register};
use crate::{Event, Result};

/// A [`crate::Topology`] for tokio: call [`Topology::next`], or use it as an endless [`Stream`], which ends after an
/// error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> utipc::Result<()> {
/// use std::{future::poll_fn, pin::Pin};
///
/// use futures_core::Stream;
/// use utipc::tokio::Topology;
/// use utipc::{Change, Node};
///
/// let node = Node::builder().isolated().start()?;
/// let mut topology = node.topology()?;
/// topology.nodes()?;
/// let mut events = Topology::new(topology)?;
/// // With the crate futures or tokio-stream: `events.next().await`.
/// let event = poll_fn(|cx| Pin::new(&mut events).poll_next(cx)).await.expect("it is endless")?;
/// assert_eq!(event.change, Change::NodeUp(node.address()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Topology {
    watched: AsyncFd<Watched>,
    /// The stream has returned an error.
    is_over: bool,
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
        Ok(Self { watched: register(Watched(topology), Interest::READABLE)?, is_over: false })
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
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event>> {
        loop {
            if let Some(event) = self.get_mut().next(Duration::ZERO)? {
                return Poll::Ready(Ok(event));
            }
            let mut guard = ready!(self.watched.poll_read_ready_mut(cx)).map_err(event_loop_error)?;
            if let Some(event) = guard.get_inner_mut().0.next(Duration::ZERO)? {
                return Poll::Ready(Ok(event));
            }
            guard.clear_ready();
        }
    }
}

impl Stream for Topology {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let event = ready!(self.poll_event(cx));
        self.is_over = event.is_err();
        Poll::Ready(Some(event))
    }
}
