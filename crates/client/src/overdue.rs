//! Replies that do not come in time: the daemon is stopped, or has no processor.
//!
//! No call waits for a reply without limit. A request that the daemon has not begun by then is cancelled: it has no
//! effect, so that the call can report an error or try again. A request that only keeps daemon and process in step
//! stays where it is, and the call goes on as if it were done. The replies to both come later, and are read before the
//! next request. Decision 25, docs/spec/attach.md §2.

use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use utipc_attach::{MAX_PACKET, Reply, Request};
use utipc_os::fdpass::{Got, MAX_FDS};

use crate::attachment::Attachment;
use crate::error::Error;
use crate::handshake::Wire;

/// Unit in which waits for replies are measured.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Slices for which a call waits that programs make in event loops and before forks: long enough for a daemon on a
/// loaded machine.
const SHORT: u32 = 1;
/// Slices for which any other call waits.
pub(crate) const LONG: u32 = 5;
/// Maximum number of requests without a reply. Each takes less than 1 KiB of the send buffer.
const UNANSWERED_MAX: u32 = 64;
/// Pause between two tries of a call that may wait for a daemon that does not answer.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Slices for which to wait for the reply to a request.
pub(crate) fn patience(request: &Request) -> u32 {
    if request.is_urgent() { SHORT } else { LONG }
}

/// What has become of a request.
pub(crate) enum Answered {
    /// The reply has this length.
    Reply(usize),
    /// No reply has come; to be taken for this one.
    Assumed(Reply),
}

impl Attachment {
    /// Waits for the reply to the request that was sent last.
    pub(crate) fn await_reply(&self, wire: &mut Wire, request: &Request) -> Result<Answered, Error> {
        if let Some(len) = self.receive_within(wire, patience(request))? {
            return Ok(Answered::Reply(len));
        }
        if let Some(reply) = request.assumed_reply() {
            self.note_overdue(wire);
            return Ok(Answered::Assumed(reply));
        }
        if self.bell().cancel(wire.sent) {
            self.note_overdue(wire);
            return Err(self.silent());
        }
        // The daemon has begun the request: whether it has an effect is unknown.
        match self.receive_within(wire, LONG)? {
            Some(len) => Ok(Answered::Reply(len)),
            None => Err(self.lost()),
        }
    }

    fn receive_within(&self, wire: &mut Wire, slices: u32) -> Result<Option<usize>, Error> {
        for _ in 0..slices {
            match self.channel().receive(&mut wire.input, &mut wire.fds, MAX_FDS, true)? {
                Got::Packet(len) => return Ok(Some(len)),
                Got::Nothing => {}
                Got::End => return Err(self.lost()),
            }
        }
        Ok(None)
    }

    fn note_overdue(&self, wire: &mut Wire) {
        wire.overdue += 1;
        self.overdue.store(true, Release);
    }

    /// Before a request: reads the overdue replies that have come. If others are still missing, returns what follows
    /// for the request: an error, or the reply to assume after it was sent.
    pub(crate) fn settle_overdue(&self, wire: &mut Wire, request: &Request) -> Result<Option<Reply>, Error> {
        if wire.overdue == 0 {
            return Ok(None);
        }
        self.collect_overdue(wire)?;
        if wire.overdue == 0 {
            return Ok(None);
        }
        match request.assumed_reply() {
            Some(reply) if wire.overdue < UNANSWERED_MAX => {
                self.note_overdue(wire);
                Ok(Some(reply))
            }
            _ => Err(self.silent()),
        }
    }

    /// Reads the overdue replies that have come. Their requests were cancelled, or no call depends on their results.
    fn collect_overdue(&self, wire: &mut Wire) -> Result<(), Error> {
        while wire.overdue > 0 {
            wire.fds.clear();
            match self.channel().receive(&mut wire.input, &mut wire.fds, MAX_FDS, false)? {
                Got::Packet(len) => self.process_overdue(&wire.input[..len.min(MAX_PACKET)])?,
                Got::Nothing => return Ok(()),
                Got::End => return Err(self.lost()),
            }
            wire.overdue -= 1;
        }
        wire.fds.clear();
        self.bell().forget_cancelled();
        self.overdue.store(false, Release);
        Ok(())
    }

    /// Before a request that may wait: waits until the daemon answers again, without the connection's lock.
    #[cold]
    pub(crate) fn wait_for_overdue(&self, request: &Request) -> Result<(), Error> {
        if request.assumed_reply().is_some() || patience(request) == SHORT {
            return Ok(());
        }
        let end = Instant::now() + SLICE * patience(request);
        while self.is_overdue() && !self.is_over() {
            self.collect_overdue(&mut self.lock_wire())?;
            if Instant::now() >= end {
                return Err(self.silent());
            }
            if self.is_overdue() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// The error of a call for which the daemon has not replied in time.
    pub(crate) fn silent(&self) -> Error {
        Error::Silent(self.path().to_owned())
    }
}
