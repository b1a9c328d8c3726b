//! A session with an upstream on a socket, whether this program or the upstream has connected.

use std::net::SocketAddr;

use crate::hub::{Batch, Hub, UpstreamError, UpstreamId};
use crate::metrics::LatencyHistogram;
use crate::metrics::components::Upstream;
use crate::net::{Interest, Now, Registry, Socket};
use crate::upstream::{Consumer, Event, Session, SessionError, is_wanted};

/// Maximum number of bytes that wait for an upstream to read; above this it is disconnected.
const MAX_OUTPUT: usize = 64 << 20;

impl From<UpstreamError> for SessionError {
    fn from(why: UpstreamError) -> Self {
        Self::Protocol(why.to_string())
    }
}

/// Counts of the messages that one upstream has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    messages: u64,
    bytes: u64,
    /// Sessions that were opened.
    opened: u64,
    /// Latency of its messages in the program, if that is measured.
    pub(super) latency: LatencyHistogram,
}

impl Tally {
    /// The counts as metrics show them; `state` as in `upstream_state`.
    pub(super) fn counters(&self, state: u64) -> Upstream {
        let Self { messages, bytes, opened, .. } = *self;
        Upstream { state, messages, bytes, reconnects: opened.saturating_sub(1) }
    }
}

/// A socket with a session on it.
#[derive(Debug)]
pub(super) struct Connection<S> {
    socket: Socket,
    pub(super) session: Box<S>,
    token: u64,
    registry: Registry,
    /// Whether the socket's send buffer is full, so that the poller reports when it is not.
    full: bool,
    pub(super) tally: Box<Tally>,
}

impl<S: Session> Connection<S> {
    /// Starts a session on a socket that the poller watches for input under `token`.
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

    /// The peer's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.socket.peer()
    }

    /// Handles readiness of the socket: writes queued output, and passes input to the hub. `accepted`: services by
    /// name; empty: all.
    #[expect(clippy::too_many_arguments, reason = "input goes straight to the hub")]
    pub(super) fn ready(
        &mut self,
        readable: bool,
        writable: bool,
        now: Now,
        id: UpstreamId,
        accepted: &[String],
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
            Ok(Some(0)) => return Err(self.session.ended("closed by the peer")),
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
                Event::Services { mut changes, replaces } => {
                    changes.retain(|(_, service)| is_wanted(accepted, service));
                    hub.upstream_services(now, id, changes, replaces, out);
                }
            }
            Ok(())
        });
        out.end_read();
        taken
    }

    /// Writes queued output, as far as the socket takes it.
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
            return Err(SessionError::Ended(format!(
                "{waiting} bytes wait for it: it does not read fast enough"
            )));
        }
        Ok(())
    }

    fn watch(&self, interest: Interest) -> Result<(), SessionError> {
        self.registry
            .change(&self.socket, self.token, interest)
            .map_err(|why| SessionError::Ended(why.to_string()))
    }
}

impl Connection<Consumer> {
    /// Passes the services to the hub whose dictionaries are overdue. `accepted`: as in [`Connection::ready`].
    pub(super) fn release_directories(
        &mut self,
        now: Now,
        id: UpstreamId,
        accepted: &[String],
        hub: &mut Hub,
        out: &mut Batch,
    ) {
        for (mut changes, replaces) in self.session.release_directories(now) {
            changes.retain(|(_, service)| is_wanted(accepted, service));
            hub.upstream_services(now, id, changes, replaces, out);
        }
    }
}
