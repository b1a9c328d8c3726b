//! Calls with a time limit of their own.

use std::time::Duration;

use crate::engine::Wait;
use crate::{Destination, GroupIncoming, Incoming, PortId, Received, RecvOptions, Result, Socket};

/// A socket whose calls wait at most for a given time, whatever its timeouts are and whether or not it is non-blocking;
/// see [`Socket::within`]. Threads that share a socket do not affect each other's limits.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    socket: &'a Socket,
    limit: Duration,
}

impl Socket {
    /// Limits the calls made through the returned value to `limit`; zero: do not wait. A call that runs out of time
    /// returns [`Error::TimedOut`](crate::Error::TimedOut), or with a zero limit
    /// [`Error::WouldBlock`](crate::Error::WouldBlock).
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

    /// As [`Socket::send_to`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::send_to`].
    pub fn send_to(self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        self.socket.send_to_waiting(data, to.into(), self.wait())
    }

    /// As [`Socket::send`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send(self, data: &[u8]) -> Result<usize> {
        self.socket.send_waiting(data, None, self.wait())
    }

    /// As [`Socket::send_keyed`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::send_to`].
    pub fn send_keyed(self, data: &[u8], to: Option<Destination>, key: u64) -> Result<usize> {
        self.socket.send_keyed_waiting(data, to, key, self.wait())
    }

    /// As [`Socket::receive`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive(self) -> Result<Incoming> {
        self.socket.receive_waiting(self.wait())
    }

    /// As [`Group::receive`](crate::Group::receive), with the limit; for a socket in a group.
    ///
    /// # Errors
    /// As [`Group::receive`](crate::Group::receive).
    pub fn receive_in_group(self) -> Result<GroupIncoming> {
        self.socket.receive_in_group(self.wait())
    }

    /// As [`Group::receive_with_loss`](crate::Group::receive_with_loss), with the limit.
    ///
    /// # Errors
    /// As [`Group::receive`](crate::Group::receive).
    pub fn receive_in_group_with_loss(self) -> Result<(GroupIncoming, bool)> {
        self.socket.receive_in_group_with_loss(self.wait())
    }

    /// As [`Socket::receive_with`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::receive_with`].
    pub fn receive_with(self, buffer: &mut [u8], options: RecvOptions) -> Result<Received> {
        self.socket.receive_with_waiting(buffer, options, self.wait())
    }

    /// As [`Socket::accept`], with the limit.
    ///
    /// # Errors
    /// As [`Socket::accept`].
    pub fn accept(self) -> Result<(Socket, PortId)> {
        self.socket.accept_waiting(self.wait())
    }

    /// As [`Socket::connect`], with the limit. A request that is not answered in time stays pending: wait with
    /// [`Within::finish_connect`].
    ///
    /// # Errors
    /// As [`Socket::connect`].
    pub fn connect(self, to: impl Into<Destination>) -> Result<()> {
        self.socket.request(to.into())?;
        self.finish_connect()
    }

    /// Waits for the reply to a connection request that an earlier call sent.
    ///
    /// # Errors
    /// As [`Socket::connect`].
    pub fn finish_connect(self) -> Result<()> {
        self.socket.wait_connected_waiting(self.wait())
    }
}
