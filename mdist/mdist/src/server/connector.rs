//! Connections that this program makes to providers and point-to-point servers. A connection that is lost is
//! made again.

use std::net::SocketAddr;
use std::time::Duration;

use rssl::transport::{ClientOptions, VERSION_NEWEST, VERSION_OLDEST};

use super::connection::{Connection, Tally};
use super::tokens::FIRST_CONNECTOR;
use crate::dictionaries::Half;
use crate::hub::{Batch, Hub, UpstreamId};
use crate::metrics::Metrics;
use crate::metrics::components::Upstream;
use crate::net::{Interest, Now, Registry, Socket, SocketOptions, connect, resolve};
use crate::upstream::{Consumer, Login, Session as _, SessionError};

/// Pause before the first attempt to reconnect; doubled after each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause between two attempts: an upstream that returns is used within this time, after whatever absence.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Pause after a permanent refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// Port of an upstream without one; the settings refuse such hosts.
pub(super) const PORT: u16 = 14_002;

/// An upstream to connect to, and the options for that.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// "provider" or "p2ps".
    pub(super) kind: &'static str,
    /// `host:port` of the upstream and its substitutes, tried in turn.
    pub(super) hosts: Vec<String>,
    pub(super) login: Login,
    pub(super) transport: ClientOptions,
    pub(super) socket: SocketOptions,
    /// Services to accept, by name; empty: all.
    pub(super) services: Vec<String>,
}

#[derive(Debug)]
enum State {
    /// Not connected; the next attempt is due then.
    Down(Now),
    Connecting(Socket),
    Open(Connection<Consumer>),
}

/// Keeps a connection to one upstream.
#[derive(Debug)]
pub(super) struct Connector {
    id: UpstreamId,
    target: Target,
    state: State,
    token: u64,
    registry: Registry,
    /// Number of the current host, modulo the number of hosts.
    host: usize,
    version: u8,
    pause: Duration,
    /// Whether the log has the opening of the current session.
    reported: bool,
    /// Counts of earlier sessions.
    tally: Tally,
    metrics: Metrics,
}

impl Connector {
    /// Connects to `target` at the first tick; `id` is its number in the hub.
    pub(super) fn new(id: UpstreamId, target: Target, registry: Registry, metrics: Metrics) -> Self {
        Self {
            id,
            target,
            state: State::Down(Now::ZERO),
            token: FIRST_CONNECTOR + u64::from(id.0),
            registry,
            host: 0,
            version: VERSION_NEWEST,
            pause: BACKOFF,
            reported: false,
            tally: Tally::default(),
            metrics,
        }
    }

    /// The hosts, as a label of metrics.
    pub(super) fn label(&self) -> String {
        self.target.hosts.join(",")
    }

    /// Counts of all sessions.
    pub(super) fn tally(&self) -> &Tally {
        if let State::Open(connection) = &self.state { &connection.tally } else { &self.tally }
    }

    /// Records how long a message of this upstream stayed in the program.
    pub(super) fn record_latency(&mut self, took: Duration) {
        let tally = if let State::Open(connection) = &mut self.state {
            &mut connection.tally
        } else {
            &mut self.tally
        };
        tally.latency.record(took);
    }

    /// Kind, label and counters, as metrics show them.
    pub(super) fn counters(&self) -> (&'static str, String, Upstream) {
        let state = match &self.state {
            State::Down(_) => 0,
            State::Open(connection) if connection.session.is_open() => 2,
            State::Connecting(_) | State::Open(_) => 1,
        };
        (self.target.kind, self.label(), self.tally().counters(state))
    }

    fn host(&self) -> &str {
        let hosts = &self.target.hosts;
        hosts.get(self.host % hosts.len().max(1)).map_or("", String::as_str)
    }

    fn connect(&mut self, now: Now) {
        let attempt = resolve(self.host(), PORT).and_then(|to: SocketAddr| connect(to, self.target.socket));
        let registered = attempt.and_then(|socket| {
            self.registry.add(&socket, self.token, Interest::Write)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => self.state = State::Connecting(socket),
            Err(why) => self.failed(now, &why),
        }
    }

    fn failed(&mut self, now: Now, why: &dyn std::fmt::Display) {
        tracing::warn!(host = self.host(), %why, again_in_ms = self.pause.as_millis(), "cannot connect to the upstream");
        self.host += 1;
        self.retry(now);
    }

    fn retry(&mut self, now: Now) {
        self.state = State::Down(now + self.pause);
        self.pause = (self.pause * 2).min(MAX_BACKOFF);
    }

    /// Ends the session: notifies the hub and schedules the next attempt.
    fn lost(&mut self, now: Now, why: &SessionError, hub: &mut Hub, out: &mut Batch) {
        tracing::warn!(host = self.host(), %why, "the upstream is lost");
        hub.upstream_down(now, self.id, why.for_consumers(), out);
        self.tally = *self.tally();
        let what = serde_json::json!({ "host": self.host(), "reason": why.to_string() });
        self.metrics.disconnect(self.target.kind, why.label(), what);
        match why {
            // Old servers close the connection without a reply to a version they do not know.
            SessionError::NoAnswer if self.version > VERSION_OLDEST => {
                self.version -= 1;
                self.state = State::Down(now);
                return;
            }
            SessionError::NoAnswer => self.version = VERSION_NEWEST,
            SessionError::Login { for_good: true, .. } => self.pause = REFUSED_PAUSE,
            _ => {}
        }
        self.host += 1;
        self.retry(now);
    }

    /// Handles readiness of the socket.
    pub(super) fn ready(
        &mut self,
        (readable, writable): (bool, bool),
        now: Now,
        buffer: &mut [u8],
        hub: &mut Hub,
        out: &mut Batch,
    ) {
        match &mut self.state {
            State::Down(_) => {}
            State::Connecting(socket) => match socket.connected() {
                Ok(()) => self.opened(now),
                Err(why) => self.failed(now, &why),
            },
            State::Open(connection) => {
                let result = connection.ready(
                    readable,
                    writable,
                    now,
                    self.id,
                    &self.target.services,
                    buffer,
                    hub,
                    out,
                );
                if connection.session.is_open() {
                    self.pause = BACKOFF;
                    if !std::mem::replace(&mut self.reported, true) {
                        let peer = connection.peer();
                        tracing::info!(host = self.host(), %peer, "connected to the {}", self.target.kind);
                    }
                }
                if let Err(why) = result {
                    self.lost(now, &why, hub, out);
                }
            }
        }
    }

    fn opened(&mut self, now: Now) {
        let State::Connecting(socket) = std::mem::replace(&mut self.state, State::Down(now)) else { return };
        if let Err(why) = self.registry.change(&socket, self.token, Interest::Read) {
            return self.failed(now, &why);
        }
        let transport = ClientOptions { version: self.version, ..self.target.transport.clone() };
        let session = Consumer::new(transport, self.target.login.clone(), now);
        let mut connection = Connection::new(socket, session, self.token, &self.registry);
        *connection.tally = self.tally;
        self.reported = false;
        self.state = State::Open(connection);
    }

    /// The dictionaries that have arrived since the last call, each with the name of the upstream; logs which do not
    /// come.
    pub(super) fn take_dictionaries(&mut self) -> Vec<(String, Half)> {
        let State::Open(connection) = &mut self.state else { return Vec::new() };
        let (received, failures) = connection.session.take_dictionaries();
        let host = self.host().to_owned();
        for why in failures {
            tracing::warn!(host, "no dictionary {why}");
        }
        received.into_iter().map(|half| (host.clone(), half)).collect()
    }

    /// Queues a message of the hub for the upstream.
    pub(super) fn send(&mut self, message: &[u8]) {
        if let State::Open(connection) = &mut self.state
            && let Err(why) = connection.session.send(message)
        {
            tracing::warn!(host = self.host(), %why, "cannot send a request to the upstream");
        }
    }

    /// Writes queued output.
    pub(super) fn flush(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        if let State::Open(connection) = &mut self.state
            && let Err(why) = connection.flush(now)
        {
            self.lost(now, &why, hub, out);
        }
    }

    /// Runs the timers that are due: attempts to connect, pings, timeouts.
    pub(super) fn tick(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        match &mut self.state {
            State::Down(until) if *until <= now => self.connect(now),
            State::Open(connection) => {
                connection.release_directories(now, self.id, &self.target.services, hub, out);
                if let Err(why) = connection.session.tick(now) {
                    self.lost(now, &why, hub, out);
                }
            }
            State::Down(_) | State::Connecting(_) => {}
        }
    }

    /// Time when [`Connector::tick`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        match &self.state {
            State::Down(until) => Some(*until),
            State::Connecting(_) => None,
            State::Open(connection) => {
                let session = &connection.session;
                [session.deadline(), session.release_due()].into_iter().flatten().min()
            }
        }
    }
}
