//! A connection: a stream that a poller watches.
//!
//! All users of connections share this code, which knows when a stream has to be read again, and when the poller has to
//! report space for output.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use super::{Event, Interest, Registry, Socket, Stream};

/// The reason why a connection gives no more input.
#[derive(Debug, Error)]
pub enum Disconnected {
    /// The peer has closed it.
    #[error("closed by the peer")]
    Closed,
    /// It is broken.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// A stream with its place in a poller.
#[derive(Debug)]
pub struct Connection {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
    token: u64,
    registry: Registry,
    /// The readiness that the poller reports.
    watched: Interest,
    /// Whether the last write was not taken whole: nothing is written before the poller reports space.
    full: bool,
}

impl Connection {
    /// Makes a poller report the socket's readiness with `token`.
    ///
    /// # Errors
    /// As [`Registry::add`].
    pub fn new(socket: Socket, token: u64, registry: &Registry) -> io::Result<Self> {
        let peer = socket.peer();
        let stream = socket.stream;
        let watched = stream.wants();
        registry.add(&stream, token, watched)?;
        Ok(Self { stream, peer, token, registry: registry.clone(), watched, full: false })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the last write was not taken whole, so that [`Connection::write`] takes nothing now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Continues to open a connection that this host makes; returns whether it is open.
    ///
    /// # Errors
    /// As [`Stream::open`].
    pub fn open(&mut self) -> io::Result<bool> {
        let is_open = self.stream.open()?;
        self.watch()?;
        Ok(is_open)
    }

    /// Handles the report of space for output. Returns whether output that was not taken may be written now.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn writable(&mut self, event: Event) -> io::Result<bool> {
        if !event.writable {
            return Ok(false);
        }
        if self.stream.wants().has_write() {
            self.stream.write(&[])?;
        }
        let was_full = std::mem::take(&mut self.full);
        self.watch()?;
        Ok(was_full)
    }

    /// Whether there may be something to read: the poller has reported it, or the stream has bytes buffered, for
    /// example behind those that opened it.
    #[must_use]
    pub fn has_input(&self, event: Event) -> bool {
        event.readable || self.stream.has_buffered()
    }

    /// Reads what has arrived into `buffer`, which is not empty, and passes it to `take`: once, and again as long as
    /// the stream has bytes buffered, of which the poller reports nothing. `take` returns whether to go on; after
    /// `false` the connection has to be closed.
    ///
    /// # Errors
    /// The peer has closed the connection, or it is broken.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Disconnected> {
        self.read_behind(0, buffer, |bytes| take(bytes))
    }

    /// As [`Connection::read`], behind the first `front` bytes of `buffer`; `take` gets these bytes too, to put in them
    /// what was left of earlier reads.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub fn read_behind(
        &mut self,
        front: usize,
        buffer: &mut [u8],
        mut take: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<(), Disconnected> {
        loop {
            let count = match self.stream.read(buffer.get_mut(front..).unwrap_or_default())? {
                None => break,
                Some(0) => return Err(Disconnected::Closed),
                Some(count) => count,
            };
            let goes_on = take(buffer.get_mut(..front + count).unwrap_or_default());
            if !goes_on || !self.stream.has_buffered() {
                break;
            }
        }
        Ok(self.watch()?)
    }

    /// Writes as many bytes as the stream takes; `None`: it takes none now. If it does not take all, the poller reports
    /// when it takes more, see [`Connection::writable`].
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.full {
            return Ok(None);
        }
        let took = self.stream.write(from)?;
        self.full = took.unwrap_or(0) < from.iter().map(|part| part.len()).sum();
        self.watch()?;
        Ok(took)
    }

    /// Makes the poller report what the stream and its output wait for.
    fn watch(&mut self) -> io::Result<()> {
        let wanted = self.stream.wants();
        let wanted = if self.full { wanted.with_write() } else { wanted };
        if wanted != self.watched {
            self.registry.change(&self.stream, self.token, wanted)?;
            self.watched = wanted;
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::net::Poller;

    /// Bytes that [`Sealed`] takes from its descriptor at a time, as a protocol that encrypts records does.
    const RECORD: usize = 64;

    /// A stream that reads whole records, and returns them in smaller pieces; it has to write a key first.
    #[derive(Debug)]
    struct Sealed {
        below: UnixStream,
        buffered: Vec<u8>,
        key: Vec<u8>,
    }

    impl AsFd for Sealed {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.below.as_fd()
        }
    }

    fn now<T>(result: io::Result<T>) -> io::Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    impl Stream for Sealed {
        fn open(&mut self) -> io::Result<bool> {
            Ok(true)
        }

        fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
            if self.buffered.is_empty() {
                let mut record = [0; RECORD];
                let Some(count) = now(self.below.read(&mut record))? else { return Ok(None) };
                self.buffered.extend_from_slice(&record[..count]);
            }
            let count = self.buffered.len().min(into.len());
            into[..count].copy_from_slice(&self.buffered[..count]);
            self.buffered.drain(..count);
            Ok(Some(count))
        }

        fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
            if !self.key.is_empty() {
                let Some(count) = now(self.below.write(&self.key))? else { return Ok(None) };
                self.key.drain(..count);
            }
            if from.is_empty() { Ok(Some(0)) } else { now(self.below.write_vectored(from)) }
        }

        fn wants(&self) -> Interest {
            if self.key.is_empty() { Interest::Read } else { Interest::Both }
        }

        fn has_buffered(&self) -> bool {
            !self.buffered.is_empty()
        }
    }

    fn pair(key: &[u8]) -> (Poller, Connection, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        let stream = Sealed { below: near, buffered: Vec::new(), key: key.to_vec() };
        let socket = Socket::new(stream, (Ipv4Addr::LOCALHOST, 1).into());
        let connection = Connection::new(socket, 7, poller.registry()).unwrap();
        (poller, connection, far)
    }

    fn events(poller: &Poller, wait: u64) -> Vec<Event> {
        let mut events = Vec::new();
        poller.wait(Some(Duration::from_millis(wait)), &mut events).unwrap();
        events
    }

    #[test]
    fn bytes_that_the_stream_has_buffered_are_read_without_a_further_event() {
        let (poller, mut connection, mut far) = pair(&[]);
        far.write_all(&[5; 3 * RECORD]).unwrap();
        let (mut buffer, mut reads) = ([0; 10], Vec::new());
        for record in 1..=3 {
            assert!(events(&poller, 5_000)[0].readable);
            let all = connection.read(&mut buffer, |bytes| {
                reads.extend_from_slice(bytes);
                true
            });
            all.unwrap();
            assert_eq!(
                reads,
                vec![5; record * RECORD],
                "one record for each event, in {} pieces",
                RECORD / 10
            );
        }
        assert!(events(&poller, 10).is_empty());
        far.write_all(&[6; RECORD]).unwrap();
        let mut calls = 0;
        let count = |_: &[u8]| {
            calls += 1;
            false
        };
        connection.read(&mut buffer, count).unwrap();
        assert_eq!(calls, 1, "a refused piece is the last one");
        assert!(connection.has_input(Event { token: 7, readable: false, writable: true }));
        drop(far);
        connection.read(&mut [0; RECORD], |_| true).unwrap();
        let end = connection.read(&mut buffer, |_| true).unwrap_err();
        assert_eq!(
            (end.to_string().as_str(), matches!(end, Disconnected::Closed)),
            ("closed by the peer", true)
        );
    }

    #[test]
    fn bytes_are_put_behind_those_left_of_earlier_reads() {
        let (_poller, mut connection, mut far) = pair(&[]);
        far.write_all(b"def").unwrap();
        let mut buffer = *b"abc______";
        let read = connection.read_behind(3, &mut buffer, |bytes| {
            assert_eq!(bytes, b"abcdef");
            true
        });
        read.unwrap();
    }

    #[test]
    fn space_is_reported_only_after_a_write_that_was_not_taken_whole() {
        let (poller, mut connection, mut far) = pair(&[]);
        let piece = [1; 4096];
        let mut sent = connection.write(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap().unwrap();
        assert_eq!((sent, connection.is_full()), (3, false));
        assert!(events(&poller, 10).is_empty(), "nobody waits for space");
        while !connection.is_full() {
            sent += connection.write(&[IoSlice::new(&piece)]).unwrap().unwrap_or(0);
        }
        assert_eq!(
            connection.write(&[IoSlice::new(&piece)]).unwrap(),
            None,
            "before the poller has reported space"
        );
        assert!(events(&poller, 10).is_empty(), "there is no space");
        let mut rest = vec![0; sent];
        far.read_exact(&mut rest).unwrap();
        let event = events(&poller, 5_000)[0];
        assert!(connection.writable(event).unwrap() && !connection.is_full());
        assert!(events(&poller, 10).is_empty(), "nobody waits for space");
        assert!(!connection.writable(event).unwrap(), "nothing was left to write");
    }

    #[test]
    fn stream_writes_for_itself_when_there_is_space() {
        let (poller, mut connection, mut far) = pair(b"key");
        let event = events(&poller, 5_000)[0];
        assert!(event.writable && !connection.writable(event).unwrap(), "no output of the user waits");
        let mut key = [0; 3];
        far.read_exact(&mut key).unwrap();
        assert_eq!(&key, b"key");
        assert!(events(&poller, 10).is_empty());
        assert!(connection.open().unwrap());
    }
}
