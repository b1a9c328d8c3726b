//! A connection between a source end and a sink end: records both ways, in pieces that TIPC carries.

use std::time::Duration;

use utipc::Socket;

use crate::backbone::Ended;
use crate::backbone::wire::Records;
use crate::net::{Interest, Poller};

/// Longest message on the connection, bytes.
const PIECE: usize = 60_000;
/// Maximum number of messages read from one connection before the others are served.
const MESSAGES_PER_TURN: usize = 8;
/// Maximum number of bytes that wait for the peer: the images of a very large watchlist.
const QUEUE_MAX: usize = 256 << 20;

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    records: Records,
    out: Vec<u8>,
    sent: usize,
    /// Whether the socket is congested, so that the poller reports when it is not.
    blocked: bool,
    /// Whether more than [`QUEUE_MAX`] bytes were queued.
    overflowed: bool,
}

impl Connection {
    pub(super) fn new(socket: Socket) -> Self {
        socket.set_nonblocking(true);
        Self {
            socket,
            records: Records::default(),
            out: Vec::new(),
            sent: 0,
            blocked: false,
            overflowed: false,
        }
    }

    /// Queues a record.
    pub(super) fn queue(&mut self, record: &[u8]) {
        if self.queued() + record.len() > QUEUE_MAX {
            self.overflowed = true;
        } else {
            Records::append(&mut self.out, record);
        }
    }

    /// Queued bytes.
    pub(super) fn queued(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends queued bytes as far as possible without waiting; the error ends the connection.
    pub(super) fn flush(&mut self, poller: &Poller, token: u64) -> Result<(), Ended> {
        if self.overflowed {
            return Err(Ended::Unread(QUEUE_MAX));
        }
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let piece = rest.get(..PIECE).unwrap_or(rest);
            match self.socket.within(Duration::ZERO).send(piece) {
                Ok(sent) => self.sent += sent,
                Err(why) if why.is_temporary() => break,
                Err(why) => return Err(Ended::Broke(why.to_string())),
            }
        }
        let blocked = self.queued() > 0;
        if !blocked {
            self.out.clear();
            self.out.shrink_to(1 << 20);
            self.sent = 0;
        } else if self.sent > self.out.len() / 2 {
            self.out.drain(..std::mem::take(&mut self.sent));
        }
        if blocked != self.blocked {
            self.blocked = blocked;
            let interest = if blocked { Interest::Both } else { Interest::Read };
            poller.change(&self.socket, token, interest).map_err(|why| Ended::Broke(why.to_string()))?;
        }
        Ok(())
    }

    /// Reads the messages that have arrived, at most [`MESSAGES_PER_TURN`]; the error ends the connection.
    pub(super) fn read(&mut self, buffer: &mut [u8], mut record: impl FnMut(Vec<u8>)) -> Result<(), Ended> {
        for _ in 0..MESSAGES_PER_TURN {
            let len = match self
                .socket
                .within(Duration::ZERO)
                .receive_with(buffer, utipc::RecvOptions::default())
            {
                Ok(received) if received.len == 0 => return Err(Ended::Closed),
                Ok(received) => received.len,
                Err(why) if why.is_temporary() => return Ok(()),
                Err(why) => return Err(Ended::Broke(why.to_string())),
            };
            self.records.put(buffer.get(..len).unwrap_or(buffer));
            while let Some(bytes) = self.records.take().map_err(|why| Ended::Broke(why.to_string()))? {
                record(bytes.to_vec());
            }
        }
        Ok(())
    }
}
