//! Calls with a limit of their own.

use std::time::Duration;

use crate::engine::Wait;
use crate::{Destination, Incoming, PortId, Received, RecvOptions, Result, Socket};

/// A socket whose calls wait at most so long, whatever its timeouts are, non-blocking or not; see
/// [`Socket::within`]. What several threads ask of one socket at once stays apart.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    socket: &'a Socket,
    limit: Duration,
}

impl Socket {
    /// The same socket, for calls that wait at most `limit`; zero: not at all. A call that was not done in time returns
    /// [`Error::TimedOut`](crate::Error::TimedOut), or [`Error::WouldBlock`](crate::Error::WouldBlock) if it may not wait.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let node = utipc::Node::builder().isolated().start()?;
    /// let socket = node.rdm()?;
    /// let error = socket.within(Duration::from_millis(1)).receive().unwrap_err();
    /// assert!(error.is_temporary());
    /// # Ok::<(), utipc::Error>(())
    /// ```
    #[must_use]
    pub fn within(&self, limit: Duration) -> Within<'_> {
        Within { socket: self, limit }
    }
}

impl Within<'_> {
    fn wait(self) -> Wait {
        if self.limit.is_zero() { Wait::Never } else { Wait::AtMost(self.limit) }
    }

    /// [`Socket::send_to`].
    ///
    /// # Errors
    /// As there; so for all calls.
    pub fn send_to(self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        self.socket.send_waiting(data, Some(to.into()), self.wait())
    }

    /// [`Socket::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(self, data: &[u8]) -> Result<usize> {
        self.socket.send_waiting(data, None, self.wait())
    }

    /// [`Socket::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(self) -> Result<Incoming> {
        self.socket.receive_waiting(self.wait())
    }

    /// [`Socket::receive_with`].
    ///
    /// # Errors
    /// As there.
    pub fn receive_with(self, buffer: &mut [u8], options: RecvOptions) -> Result<Received> {
        self.socket.receive_with_waiting(buffer, options, self.wait())
    }

    /// [`Socket::accept`].
    ///
    /// # Errors
    /// As there.
    pub fn accept(self) -> Result<(Socket, PortId)> {
        self.socket.accept_waiting(self.wait())
    }

    /// [`Socket::connect`]. A request that is not answered in time stays under way: [`Within::finish_connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(self, to: impl Into<Destination>) -> Result<()> {
        self.socket.request(to.into())?;
        self.finish_connect()
    }

    /// Waits for the answer to a connection request that an earlier call sent.
    ///
    /// # Errors
    /// As [`Socket::connect`].
    pub fn finish_connect(self) -> Result<()> {
        self.socket.wait_connected_waiting(self.wait())
    }
}
