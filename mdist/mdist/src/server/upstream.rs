//! An upstream: a session on a connection, whether this program or the upstream has connected.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::hub::{HubTurn, UpstreamError, UpstreamId};
use crate::metrics::{LatencyHistogram, components};
use crate::net::{Connection, Event, Now};
use crate::upstream::{self, Consumer, Session, SessionError, is_wanted};

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
    pub(super) fn counters(&self, state: u64) -> components::Upstream {
        let Self { messages, bytes, opened, .. } = *self;
        components::Upstream { state, messages, bytes, reconnects: opened.saturating_sub(1) }
    }
}

/// The upstream's number in the hub, and the services to accept from it.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) id: UpstreamId,
    /// By name; empty: all.
    pub(super) services: Arc<[String]>,
}

/// An upstream that is connected.
#[derive(Debug)]
pub(super) struct Upstream<S> {
    terms: Terms,
    connection: Connection,
    pub(super) session: Box<S>,
    pub(super) tally: Box<Tally>,
}

impl<S: Session> Upstream<S> {
    /// Starts a session on a connection.
    pub(super) fn new(terms: Terms, connection: Connection, session: S) -> Self {
        Self { terms, connection, session: Box::new(session), tally: Box::default() }
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.connection.peer()
    }

    /// Handles readiness of the connection: writes queued output, and passes input to the hub.
    pub(super) fn ready(
        &mut self,
        event: Event,
        buffer: &mut [u8],
        turn: &mut HubTurn<'_>,
    ) -> Result<(), SessionError> {
        if self.connection.writable(event).map_err(|why| self.session.ended(&why.to_string()))? {
            self.flush(turn.now)?;
        }
        if !self.connection.has_input(event) {
            return Ok(());
        }
        let Self { terms, connection, session, tally } = self;
        let mut taken = Ok(());
        let read = connection.read(buffer, |bytes| {
            turn.log.begin_read(Some(terms.id), crate::net::now);
            tally.bytes += bytes.len() as u64;
            taken = session.input(bytes, turn.now, |event| handle::<S>(terms, tally, event, turn));
            turn.log.end_read();
            taken.is_ok()
        });
        taken?;
        read.map_err(|why| session.ended(&why.to_string()))
    }

    /// Writes queued output, as far as the connection takes it.
    pub(super) fn flush(&mut self, now: Now) -> Result<(), SessionError> {
        let output = self.session.output();
        if !output.is_empty() {
            match self.connection.write(&[IoSlice::new(output)]) {
                Ok(None) => {}
                Ok(Some(count)) => {
                    output.drain(..count);
                    self.session.written(now);
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
}

/// Passes an event of the session to the hub.
#[inline]
fn handle<S: Session>(
    terms: &Terms,
    tally: &mut Tally,
    event: upstream::Event<'_>,
    turn: &mut HubTurn<'_>,
) -> Result<(), SessionError> {
    match event {
        upstream::Event::Message(message) => {
            tally.messages += 1;
            turn.message(terms.id, message)?;
        }
        upstream::Event::Up => {
            tally.opened += 1;
            turn.upstream_up(terms.id, S::PUBLISHES);
        }
        upstream::Event::Services { mut changes, replaces } => {
            changes.retain(|(_, service)| is_wanted(&terms.services, service));
            turn.upstream_services(terms.id, changes, replaces);
        }
    }
    Ok(())
}

impl Upstream<Consumer> {
    /// Passes the services to the hub whose dictionaries are overdue.
    pub(super) fn release_directories(&mut self, turn: &mut HubTurn<'_>) {
        for (mut changes, replaces) in self.session.release_directories(turn.now) {
            changes.retain(|(_, service)| is_wanted(&self.terms.services, service));
            turn.upstream_services(self.terms.id, changes, replaces);
        }
    }
}
