//! Connections with tokio's traits.

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
    /// Wraps a listener.
    ///
    /// # Errors
    /// As [`Socket::new`].
    ///
    /// # Panics
    /// As [`Socket::new`].
    pub fn new(listener: crate::Listener) -> Result<Self> {
        Ok(Self { socket: Socket::new(listener.into())? })
    }

    /// Waits for a client and accepts its connection.
    ///
    /// # Errors
    /// As [`Socket::accept`].
    pub async fn accept(&self) -> Result<Connection> {
        Ok(Connection { socket: self.socket.accept().await?.0 })
    }

    /// The underlying socket.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// One end of a connection; see [`crate::Connection`]. Use `AsyncRead` and `AsyncWrite` for streams.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    /// Connects `socket` and waits for the server's reply.
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

    /// The address of the peer's socket.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.socket.get().peer()
    }

    /// Sends a message; on a stream, all bytes. If the future is dropped, a part of a stream's bytes may have been
    /// sent.
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

    /// Receives a message; on a stream, whatever has arrived. Empty data means that the peer has shut the connection
    /// down.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub async fn receive(&self) -> Result<Incoming> {
        self.socket.receive().await
    }

    /// As [`Connection::receive`], into the caller's memory.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub async fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.socket.receive_into(buffer).await
    }

    /// Shuts the connection down in order.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`] if it has ended already.
    pub fn shutdown(&self) -> Result<()> {
        self.socket.get().shutdown()
    }

    /// The underlying socket.
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
        let space = buffer.initialize_unfilled();
        if space.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_until(cx, true, |socket| socket.receive_into(space)).map_ok(|received| {
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

    /// Shuts the connection down in order; an already ended connection is not an error.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.shutdown();
        Poll::Ready(Ok(()))
    }
}
