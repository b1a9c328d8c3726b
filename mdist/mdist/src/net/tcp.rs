//! Streams of TCP.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

use super::{Interest, Socket, Stream};

/// Connections that may wait to be accepted. While the queue is full, the system drops attempts, and a client tries
/// again only after a second; so a flood must not fill it. The system's own limit is usually the same.
const BACKLOG: i32 = 4096;

rssl::with_defaults! {
    /// Options of a TCP socket.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SocketOptions {
        /// Sends small writes at once (`tcpNoDelay`).
        pub no_delay: bool = true,
        /// Receive buffer, bytes; `None`: the system's default.
        pub receive_buffer: Option<usize> = None,
        /// Send buffer, bytes; `None`: the system's default.
        pub send_buffer: Option<usize> = None,
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

/// A TCP connection.
#[derive(Debug)]
struct Tcp {
    stream: TcpStream,
    /// Whether this host has begun to open it, and the result is not known yet.
    opening: bool,
}

impl Stream for Tcp {
    fn open(&mut self) -> io::Result<bool> {
        self.stream.take_error()?.map_or(Ok(()), Err)?;
        self.opening = false;
        Ok(true)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        without_waiting(|| self.stream.read(into))
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        without_waiting(|| match from {
            [one] => self.stream.write(one),
            parts => self.stream.write_vectored(parts),
        })
    }

    fn wants(&self) -> Interest {
        if self.opening { Interest::Write } else { Interest::Read }
    }

    fn has_buffered(&self) -> bool {
        false
    }
}

/// Accepts a connection that waits at `listener`; `None`: none waits.
///
/// # Errors
/// The system refuses it, usually because it is out of descriptors.
pub fn accept(listener: &TcpListener, options: SocketOptions) -> io::Result<Option<Socket>> {
    match listener.accept() {
        Ok((stream, peer)) => {
            options.set(&stream)?;
            Ok(Some(Socket::new(Tcp { stream, opening: false }, peer)))
        }
        // The peer has closed the waiting connection; the next one may be fine.
        Err(why) if matches!(why.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => Ok(None),
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(why) => Err(why),
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

impl AsFd for Tcp {
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

/// Starts to connect; [`Connection::open`](super::Connection::open) returns the result once the socket is writable.
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
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Socket::new(Tcp { stream, opening: true }, to)),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::time::Duration;

    use super::{SocketOptions, accept, connect, listen};
    use crate::net::{Connection, Event, Poller};

    fn event_of(poller: &Poller, token: u64) -> Event {
        let mut events = Vec::new();
        loop {
            poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
            if let Some(event) = events.iter().find(|event| event.token == token) {
                return *event;
            }
        }
    }

    #[test]
    fn connecting_does_not_wait_and_reports_a_refusal() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let poller = Poller::new().unwrap();
        let near = connect(at, SocketOptions::default()).unwrap();
        let mut near = Connection::new(near, 1, poller.registry()).unwrap();
        assert!(event_of(&poller, 1).writable && near.open().unwrap());
        let far = accept(&listener, SocketOptions::default()).unwrap().unwrap();
        let mut far = Connection::new(far, 2, poller.registry()).unwrap();
        far.read(&mut [0; 8], |_| unreachable!("nothing has arrived")).unwrap();
        assert_eq!(near.write(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), Some(3));
        assert!(event_of(&poller, 2).readable);
        let mut read = Vec::new();
        let take = |bytes: &[u8]| {
            read.extend_from_slice(bytes);
            true
        };
        far.read(&mut [0; 8], take).unwrap();
        assert_eq!(read, b"abc");
        drop(near);
        drop(listener);

        let Ok(lost) = connect(at, SocketOptions::default()) else { return };
        let mut lost = Connection::new(lost, 3, poller.registry()).unwrap();
        event_of(&poller, 3);
        assert!(lost.open().is_err());
    }
}
