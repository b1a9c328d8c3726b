//! Connections in the style of `std::net`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use utipc_core::socket::State;

use crate::{Destination, Error, Incoming, PortId, Received, Result, SendError, Socket};

/// A socket that accepts connections; see [`Node::listen`](crate::Node::listen).
///
/// ```
/// # use utipc::{Node, ServiceAddress, SocketKind};
/// # let node = Node::builder().isolated().start()?;
/// let echo = ServiceAddress::new(4000, 1);
/// let listener = node.listen(SocketKind::SeqPacket, echo)?;
/// let server = std::thread::spawn(move || -> utipc::Result<()> {
///     let connection = listener.accept()?;
///     let request = connection.receive()?;
///     connection.send(&request.data)?;
///     Ok(())
/// });
/// let connection = node.connect(SocketKind::SeqPacket, echo)?;
/// connection.send(b"hello")?;
/// assert_eq!(connection.receive()?.data, b"hello");
/// # server.join().unwrap()?;
/// # Ok::<(), utipc::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Makes a bound socket listen.
    ///
    /// # Errors
    /// [`Error::Listen`](crate::Error::Listen) for a kind without connections.
    pub fn new(socket: Socket) -> Result<Self> {
        socket.listen()?;
        Ok(Self { socket })
    }

    /// Waits for a client and accepts its connection.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock), [`Error::TimedOut`](crate::Error::TimedOut).
    pub fn accept(&self) -> Result<Connection> {
        Ok(Connection { socket: self.socket.accept()?.0 })
    }

    /// Iterates over accepted connections; ends at the first error.
    pub fn incoming(&self) -> impl Iterator<Item = Connection> + '_ {
        std::iter::from_fn(|| self.accept().ok())
    }

    /// The underlying socket, for timeouts, options and polling.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl From<Listener> for Socket {
    fn from(listener: Listener) -> Self {
        listener.socket
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One end of a connection. It breaks as soon as the peer is gone, for whatever reason.
///
/// Use `Read` and `Write` for streams, [`Connection::send`] and [`Connection::receive`] for messages. Dropping the
/// connection closes it; [`Connection::shutdown`] ends it in order.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    /// Connects `socket` and waits for the server's reply.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect).
    pub fn open(socket: Socket, to: impl Into<Destination>) -> Result<Self> {
        socket.connect(to)?;
        Ok(Self { socket })
    }

    /// Connects without a round trip of its own: `data` travels with the request, and the server's first reply
    /// completes the setup. The next [`Connection::send`] waits for it.
    ///
    /// ```
    /// # use utipc::{Connection, Node, ServiceAddress, SocketKind};
    /// # let node = Node::builder().isolated().start()?;
    /// let service = ServiceAddress::new(4000, 2);
    /// let listener = node.listen(SocketKind::SeqPacket, service)?;
    /// let client = Connection::open_with(node.seqpacket()?, service, b"first words")?;
    /// let server = listener.accept()?;
    /// assert_eq!(server.receive()?.data, b"first words");
    /// server.send(b"answer")?;
    /// assert_eq!(client.receive()?.data, b"answer");
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Send`](crate::Error::Send) if no socket is bound there; the first receive reports a refusal.
    pub fn open_with(socket: Socket, to: impl Into<Destination>, data: &[u8]) -> Result<Self> {
        socket.send_waiting(data, Some(to.into()), socket.send_wait())?;
        Ok(Self { socket })
    }

    /// The address of the peer's socket.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.socket.peer()
    }

    /// Sends a message; on a stream, all bytes.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send(&self, data: &[u8]) -> Result<()> {
        let mut sent = 0;
        loop {
            sent += self.send_part(&data[sent..])?;
            if sent >= data.len() {
                return Ok(());
            }
        }
    }

    /// Sends what the connection takes; while it is being set up, waits for the server's reply first.
    fn send_part(&self, data: &[u8]) -> Result<usize> {
        match self.socket.send(data) {
            Err(Error::Send { why: SendError::NotConnected, .. }) if self.is_connecting() => {
                self.socket.wait_connected_waiting(self.socket.send_wait())?;
                self.socket.send(data)
            }
            sent => sent,
        }
    }

    fn is_connecting(&self) -> bool {
        matches!(self.socket.state(), State::Connecting | State::Established)
    }

    /// Receives a message; on a stream, whatever has arrived. Empty data means that the peer has shut the connection
    /// down.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive(&self) -> Result<Incoming> {
        self.socket.receive()
    }

    /// As [`Connection::receive`], into the caller's memory.
    ///
    /// # Errors
    /// As [`Socket::receive_into`].
    #[inline]
    pub fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.socket.receive_into(buffer)
    }

    /// Shuts the connection down in order: the peer reads everything that was sent, then the end.
    ///
    /// # Errors
    /// [`Error::Shutdown`](crate::Error::Shutdown) if it has ended already.
    pub fn shutdown(&self) -> Result<()> {
        self.socket.shutdown()
    }

    /// The underlying socket, for timeouts, options and polling.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl From<Socket> for Connection {
    /// Wraps a connected socket.
    fn from(socket: Socket) -> Self {
        Self { socket }
    }
}

impl Read for &Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        Ok(self.socket.receive_into(buffer)?.len)
    }
}

impl Write for &Connection {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.send_part(data)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
