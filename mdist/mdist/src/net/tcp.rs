//! Non-blocking TCP connections.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

/// Connections that may wait to be accepted. While the queue is full, the system drops attempts, and a client tries
/// again only after a second; so a flood must not fill it. The system's own limit is usually the same.
const BACKLOG: i32 = 4096;

/// Options of a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Sends small writes at once (`tcpNoDelay`).
    pub no_delay: bool,
    /// Receive buffer, bytes; `None`: the system's default.
    pub receive_buffer: Option<usize>,
    /// Send buffer, bytes; `None`: the system's default.
    pub send_buffer: Option<usize>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { no_delay: true, receive_buffer: None, send_buffer: None }
    }
}

impl SocketOptions {
    fn set(self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(self.no_delay)?;
        if let Some(size) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(stream, size)?;
        }
        if let Some(size) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(stream, size)?;
        }
        Ok(())
    }
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Socket {
    /// Accepts a connection that waits at `listener`; `None`: none waits.
    ///
    /// # Errors
    /// The system refuses it, usually because it is out of descriptors.
    pub fn accept(listener: &TcpListener, options: SocketOptions) -> io::Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, peer)) => {
                options.set(&stream)?;
                Ok(Some(Self { stream, peer }))
            }
            // The peer has closed the waiting connection; the next one may be fine.
            Err(why) if matches!(why.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The result of [`connect`], once the socket is writable.
    ///
    /// # Errors
    /// Refused, unreachable, timed out.
    pub fn connected(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Reads at most `into.len()` bytes without waiting; `None`: there are none now; 0: the peer has closed.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        without_waiting(|| self.stream.read(into))
    }

    /// Writes as many bytes as the send buffer takes; `None`: it is full.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, from: &[u8]) -> io::Result<Option<usize>> {
        without_waiting(|| self.stream.write(from))
    }
}

fn without_waiting(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Opens a non-blocking listener.
///
/// # Errors
/// The address is taken or not this host's; the error names it.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let bind = || {
        let listener = TcpListener::bind(at)?;
        // Again, because the standard library's queue is short.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let named = |why: io::Error| {
        let remedy = match why.kind() {
            io::ErrorKind::AddrInUse => " (another program has this port: `ss -ltnp` names it)",
            io::ErrorKind::AddrNotAvailable => " (give an address of this host: `ip address` lists them)",
            io::ErrorKind::PermissionDenied => " (ports below 1024 are for root)",
            _ => "",
        };
        io::Error::new(why.kind(), format!("cannot listen on {at}: {why}{remedy}"))
    };
    bind().map_err(named)
}

/// Starts to connect. The socket becomes writable when the attempt has ended; [`Socket::connected`] returns the result.
///
/// # Errors
/// The attempt fails at once.
pub fn connect(to: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let family =
        if to.is_ipv4() { rustix::net::AddressFamily::INET } else { rustix::net::AddressFamily::INET6 };
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None)?;
    let stream = TcpStream::from(fd);
    // Before connecting, because the window scale is negotiated then.
    options.set(&stream)?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Socket { stream, peer: to }),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Socket, SocketOptions, connect, listen};
    use crate::net::{Interest, Poller};

    #[test]
    fn connecting_does_not_wait_and_reports_a_refusal() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let poller = Poller::new().unwrap();
        let mut near = connect(at, SocketOptions::default()).unwrap();
        poller.add(&near, 1, Interest::Write).unwrap();
        poller.wait(None, &mut Vec::new()).unwrap();
        near.connected().unwrap();
        let mut far = Socket::accept(&listener, SocketOptions::default()).unwrap().unwrap();
        assert_eq!(far.read(&mut [0; 8]).unwrap(), None);
        assert_eq!(near.write(b"abc").unwrap(), Some(3));
        poller.add(&far, 2, Interest::Read).unwrap();
        let mut events = Vec::new();
        while !events.iter().any(|e: &crate::net::Event| e.token == 2) {
            poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        }
        assert_eq!(far.read(&mut [0; 8]).unwrap(), Some(3));
        drop(near);
        drop(listener);

        let Ok(lost) = connect(at, SocketOptions::default()) else { return };
        poller.add(&lost, 3, Interest::Write).unwrap();
        events.clear();
        while !events.iter().any(|e| e.token == 3) {
            poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        }
        assert!(lost.connected().is_err());
    }
}
