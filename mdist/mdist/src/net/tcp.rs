//! TCP connections that never wait.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

/// What a socket is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Small writes go out at once (`tcpNoDelay`).
    pub no_delay: bool,
    /// The kernel's buffer for what arrives, bytes; `None`: the kernel decides.
    pub receive_buffer: Option<usize>,
    /// The kernel's buffer for what is sent, bytes; `None`: the kernel decides.
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

/// One connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Socket {
    /// Takes a connection that waits at `listener`; `None`: none waits.
    ///
    /// # Errors
    /// What the system says, out of descriptors above all.
    pub fn accept(listener: &TcpListener, options: SocketOptions) -> io::Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, peer)) => {
                options.set(&stream)?;
                Ok(Some(Self { stream, peer }))
            }
            // The peer hung up while it waited: the next may be fine.
            Err(why) if matches!(why.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// The other end's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// How the attempt to connect ended, once the socket is writable.
    ///
    /// # Errors
    /// Refused, unreachable, timed out.
    pub fn connected(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Reads what is there, at most `into.len()`; `None`: nothing now. 0 is the end.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        now_or_never(|| self.stream.read(into))
    }

    /// Writes what has room; `None`: no room now.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, from: &[u8]) -> io::Result<Option<usize>> {
        now_or_never(|| self.stream.write(from))
    }
}

fn now_or_never(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
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

/// A listener that does not wait.
///
/// # Errors
/// The address is taken, or not this host's; it is in the error.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let bind = || {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|why: io::Error| io::Error::new(why.kind(), format!("cannot listen on {at}: {why}")))
}

/// Starts to connect: the socket becomes writable when it is decided, see [`Socket::connected`].
///
/// # Errors
/// Refused at once.
pub fn connect(to: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let family =
        if to.is_ipv4() { rustix::net::AddressFamily::INET } else { rustix::net::AddressFamily::INET6 };
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None)?;
    let stream = TcpStream::from(fd);
    // Before connecting: the window scale is decided then.
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
    fn connects_without_waiting_and_says_when_refused() {
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
