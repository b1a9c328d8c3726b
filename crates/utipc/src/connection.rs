//! Connections with the traits and habits of `std::net`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::{Destination, Incoming, PortId, Received, Result, Socket};

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

    /// Waits for a client.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock), [`Error::TimedOut`](crate::Error::TimedOut).
    pub fn accept(&self) -> Result<Connection> {
        Ok(Connection { socket: self.socket.accept()?.0 })
    }

    /// The clients, for ever; ends at the first error.
    pub fn incoming(&self) -> impl Iterator<Item = Connection> + '_ {
        std::iter::from_fn(|| self.accept().ok())
    }

    /// The socket, for timeouts, options and polling.
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

/// One end of a connection; it breaks as soon as the other end is gone, whatever the reason.
///
/// `Read` and `Write` are there for streams; [`Connection::send`] and [`Connection::receive`] for messages. Dropping
/// it closes it; [`Connection::shutdown`] ends it in good order.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    /// Connects `socket` and waits for the server's answer.
    ///
    /// # Errors
    /// [`Error::Connect`](crate::Error::Connect).
    pub fn open(socket: Socket, to: impl Into<Destination>) -> Result<Self> {
        socket.connect(to)?;
        Ok(Self { socket })
    }

    /// Sets the connection up *by* its first message, without a round trip of its own: `data` travels with the
    /// request, and the server's first answer completes the setup.
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
    /// [`Error::Send`](crate::Error::Send) if nobody is bound there; a refusal shows at the first receive.
    pub fn open_with(socket: Socket, to: impl Into<Destination>, data: &[u8]) -> Result<Self> {
        socket.send_to(data, to)?;
        Ok(Self { socket })
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.socket.peer()
    }

    /// Sends a message (on a stream: bytes, all of them).
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send(&self, data: &[u8]) -> Result<()> {
        let mut sent = 0;
        loop {
            sent += self.socket.send(&data[sent..])?;
            if sent >= data.len() {
                return Ok(());
            }
        }
    }

    /// Receives a message (on a stream: what is there). No data means the orderly end.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive(&self) -> Result<Incoming> {
        self.socket.receive()
    }

    /// [`Connection::receive`] into memory of the caller's.
    ///
    /// # Errors
    /// As [`Socket::receive_into`].
    #[inline]
    pub fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.socket.receive_into(buffer)
    }

    /// Ends the connection in good order.
    ///
    /// # Errors
    /// [`Error::Shutdown`](crate::Error::Shutdown) if it has ended already.
    pub fn shutdown(&self) -> Result<()> {
        self.socket.shutdown()
    }

    /// The socket, for timeouts, options and polling.
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
        Ok(self.socket.send(data)?)
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
