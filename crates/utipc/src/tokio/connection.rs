//! Connections with the traits of tokio.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Socket;
use crate::{Destination, Incoming, PortId, Received, Result};

/// Accepts connections; see [`crate::Listener`].
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Takes a listener over.
    ///
    /// # Errors
    /// As [`Socket::new`].
    ///
    /// # Panics
    /// As [`Socket::new`].
    pub fn new(listener: crate::Listener) -> Result<Self> {
        Ok(Self { socket: Socket::new(listener.into())? })
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// As [`Socket::accept`].
    pub async fn accept(&self) -> Result<Connection> {
        Ok(Connection { socket: self.socket.accept().await?.0 })
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// One end of a connection; see [`crate::Connection`]. `AsyncRead` and `AsyncWrite` are there for streams.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    /// Connects `socket` and waits for the server's answer.
    ///
    /// # Errors
    /// As [`Socket::new`] and [`Socket::connect`].
    ///
    /// # Panics
    /// As [`Socket::new`].
    pub async fn open(socket: crate::Socket, to: impl Into<Destination>) -> Result<Self> {
        let socket = Socket::new(socket)?;
        socket.connect(to).await?;
        Ok(Self { socket })
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.socket.get().peer()
    }

    /// Sends a message (on a stream: bytes, all of them). Dropped while it waits, it may have sent a part of a stream's
    /// bytes.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub async fn send(&self, data: &[u8]) -> Result<()> {
        let mut sent = 0;
        loop {
            sent += self.socket.send(&data[sent..]).await?;
            if sent >= data.len() {
                return Ok(());
            }
        }
    }

    /// Receives a message (on a stream: what is there). No data means the orderly end.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub async fn receive(&self) -> Result<Incoming> {
        self.socket.receive().await
    }

    /// [`Connection::receive`] into memory of the caller's.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub async fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.socket.receive_into(buffer).await
    }

    /// Ends the connection in good order.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`] if it has ended already.
    pub fn shutdown(&self) -> Result<()> {
        self.socket.get().shutdown()
    }

    /// The socket.
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

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        if room.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_until(cx, true, |socket| socket.receive_into(room)).map_ok(|received| {
            buffer.advance(received.len);
        })
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_until(cx, false, |socket| socket.send(data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the connection in good order; it may have ended already.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.shutdown();
        Poll::Ready(Ok(()))
    }
}
