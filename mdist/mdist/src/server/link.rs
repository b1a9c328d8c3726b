//! A session with its socket, whoever dialled whom.

use std::net::SocketAddr;

use crate::hub::{Batch, Hub, UpstreamError, UpstreamId};
use crate::metrics::Latency;
use crate::metrics::components::Upstream;
use crate::net::{Interest, Now, Registry, Socket};
use crate::upstream::{Event, Session, SessionError, is_wanted};

/// Bytes that may wait for an upstream that does not read.
const MAX_OUTPUT: usize = 64 << 20;

impl From<UpstreamError> for SessionError {
    fn from(why: UpstreamError) -> Self {
        Self::Protocol(why.to_string())
    }
}

/// What has come from one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    messages: u64,
    bytes: u64,
    /// How often it was open.
    opened: u64,
    /// How long its messages stayed here, if that is measured.
    pub(super) latency: Latency,
}

impl Tally {
    /// As it is shown.
    pub(super) fn shown(&self, state: u64) -> Upstream {
        let Self { messages, bytes, opened, .. } = *self;
        Upstream { state, messages, bytes, reconnects: opened.saturating_sub(1) }
    }
}

/// A connection with a session on it.
#[derive(Debug)]
pub(super) struct Link<S> {
    socket: Socket,
    pub(super) session: Box<S>,
    token: u64,
    registry: Registry,
    /// The kernel has no room for the output: the poller says when.
    full: bool,
    pub(super) tally: Box<Tally>,
}

impl<S: Session> Link<S> {
    /// Over a socket that the poller has under this token, waiting for bytes to read.
    pub(super) fn new(socket: Socket, session: S, token: u64, registry: &Registry) -> Self {
        Self {
            socket,
            session: Box::new(session),
            token,
            registry: registry.clone(),
            full: false,
            tally: Box::default(),
        }
    }

    /// The other end's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.socket.peer()
    }

    /// Something is ready: writes what waits, and gives the hub what came. `wanted`: services by name; none: all.
    #[expect(clippy::too_many_arguments, reason = "what is read goes straight to the hub")]
    pub(super) fn ready(
        &mut self,
        readable: bool,
        writable: bool,
        now: Now,
        id: UpstreamId,
        wanted: &[String],
        buffer: &mut [u8],
        hub: &mut Hub,
        out: &mut Batch,
    ) -> Result<(), SessionError> {
        if writable && std::mem::replace(&mut self.full, false) {
            self.watch(Interest::Read)?;
            self.flush(now)?;
        }
        if !readable {
            return Ok(());
        }
        let count = match self.socket.read(buffer) {
            Ok(None) => return Ok(()),
            Ok(Some(0)) => return Err(self.session.ended("closed by the other end")),
            Err(why) => return Err(self.session.ended(&why.to_string())),
            Ok(Some(count)) => count,
        };
        out.begin_read(Some(id), crate::net::now);
        let tally = &mut self.tally;
        tally.bytes += count as u64;
        let taken = self.session.input(buffer.get(..count).unwrap_or_default(), now, |event| {
            match event {
                Event::Message(message) => {
                    tally.messages += 1;
                    hub.message(now, id, message, out)?;
                }
                Event::Up => {
                    tally.opened += 1;
                    hub.upstream_up(now, id, S::PUBLISHES, out);
                }
                Event::Services { mut changes, anew } => {
                    changes.retain(|(_, service)| is_wanted(wanted, service));
                    hub.upstream_services(now, id, changes, anew, out);
                }
            }
            Ok(())
        });
        out.end_read();
        taken
    }

    /// Writes what waits, as far as there is room.
    pub(super) fn flush(&mut self, now: Now) -> Result<(), SessionError> {
        while !self.full && !self.session.output().is_empty() {
            match self.socket.write(self.session.output()) {
                Ok(Some(count)) => {
                    self.session.output().drain(..count);
                    self.session.written(now);
                }
                Ok(None) => {
                    self.full = true;
                    self.watch(Interest::Both)?;
                }
                Err(why) => return Err(self.session.ended(&why.to_string())),
            }
        }
        let waiting = self.session.output().len();
        if waiting > MAX_OUTPUT {
            return Err(SessionError::Ended(format!("{waiting} bytes wait for it: it does not read")));
        }
        Ok(())
    }

    fn watch(&self, interest: Interest) -> Result<(), SessionError> {
        self.registry
            .change(&self.socket, self.token, interest)
            .map_err(|why| SessionError::Ended(why.to_string()))
    }
}
