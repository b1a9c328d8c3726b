//! Byte streams to peers. TCP is one; a protocol on TCP, which encrypts or frames the bytes, is another.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::Interest;

/// A stream of bytes in both directions. No call waits. Its [`Connection`](super::Connection) watches the descriptor
/// and decides when to read and write.
pub trait Stream: AsFd + fmt::Debug + Send {
    /// Continues to open the path to the peer; returns whether it is open. To be called when the descriptor is ready
    /// for what the stream [`wants`](Stream::wants). An accepted stream is open from the start, even if it still has to
    /// agree on keys: it does so while it is read.
    ///
    /// # Errors
    /// Refused, unreachable, timed out.
    fn open(&mut self) -> io::Result<bool>;

    /// Reads at most `into.len()` bytes; `None`: there are none now; 0: the peer has closed. While bytes are
    /// [buffered](Stream::has_buffered) it returns those, and reads nothing from the descriptor.
    ///
    /// # Errors
    /// The connection is broken.
    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes the parts in order, as many bytes as it can take; `None`: it can take none now. Without parts it writes
    /// only what the stream has kept itself.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>>;

    /// The readiness that the stream itself waits for, whether or not its user has output.
    fn wants(&self) -> Interest;

    /// Whether a read returns bytes although the descriptor may not be readable, because the stream has received more
    /// than it has returned.
    fn has_buffered(&self) -> bool;
}

/// A stream that was accepted or is being opened, and that no poller watches yet.
#[derive(Debug)]
pub struct Socket {
    pub(super) stream: Box<dyn Stream>,
    peer: SocketAddr,
}

impl Socket {
    /// The stream to this peer.
    pub fn new(stream: impl Stream + 'static, peer: SocketAddr) -> Self {
        Self { stream: Box::new(stream), peer }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}
