//! Connections that this program makes to providers and point-to-point servers. A connection that is lost is
//! made again.

use std::net::SocketAddr;
use std::time::Duration;

use rssl::transport::{ClientOptions, VERSION_NEWEST, VERSION_OLDEST};

use super::tokens::FIRST_CONNECTOR;
use super::upstream::{Tally, Terms, Upstream};
use crate::dictionaries::Half;
use crate::hub::{HubTurn, UpstreamId};
use crate::metrics::{Metrics, components};
use crate::net::{Connection, Event, Now, Registry, SocketOptions, connect, resolve};
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
    Connecting(Connection),
    Open(Upstream<Consumer>),
}

/// Keeps a connection to one upstream.
#[derive(Debug)]
pub(super) struct Connector {
    terms: Terms,
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
            terms: Terms { id, services: target.services.clone().into() },
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
        if let State::Open(upstream) = &self.state { &upstream.tally } else { &self.tally }
    }

    /// Records how long a message of this upstream stayed in the program.
    pub(super) fn record_latency(&mut self, took: Duration) {
        let tally =
            if let State::Open(upstream) = &mut self.state { &mut upstream.tally } else { &mut self.tally };
        tally.latency.record(took);
    }

    /// Kind, label and counters, as metrics show them.
    pub(super) fn counters(&self) -> (&'static str, String, components::Upstream) {
        let state = match &self.state {
            State::Down(_) => 0,
            State::Open(upstream) if upstream.session.is_open() => 2,
            State::Connecting(_) | State::Open(_) => 1,
        };
        (self.target.kind, self.label(), self.tally().counters(state))
    }

    fn host(&self) -> &str {
        let hosts = &self.target.hosts;
        hosts.get(self.host % hosts.len().max(1)).map_or("", String::as_str)
    }

    fn connect(&mut self, now: Now) {
        let attempt = resolve(self.host(), PORT).and_then(|to: SocketAddr| {
            Connection::new(connect(to, self.target.socket)?, self.token, &self.registry)
        });
        match attempt {
            Ok(connection) => self.state = State::Connecting(connection),
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
    fn lost(&mut self, why: &SessionError, turn: &mut HubTurn<'_>) {
        tracing::warn!(host = self.host(), %why, "the upstream is lost");
        turn.upstream_down(self.terms.id, why.for_consumers());
        self.tally = *self.tally();
        let what = serde_json::json!({ "host": self.host(), "reason": why.to_string() });
        self.metrics.disconnect(self.target.kind, why.label(), what);
        match why {
            // Old servers close the connection without a reply to a version they do not know.
            SessionError::NoAnswer if self.version > VERSION_OLDEST => {
                self.version -= 1;
                self.state = State::Down(turn.now);
                return;
            }
            SessionError::NoAnswer => self.version = VERSION_NEWEST,
            SessionError::Login { for_good: true, .. } => self.pause = REFUSED_PAUSE,
            _ => {}
        }
        self.host += 1;
        self.retry(turn.now);
    }

    /// Handles readiness of the connection.
    pub(super) fn ready(&mut self, event: Event, buffer: &mut [u8], turn: &mut HubTurn<'_>) {
        match &mut self.state {
            State::Down(_) => {}
            State::Connecting(connection) => match connection.open() {
                Ok(true) => {
                    self.opened(turn.now);
                    self.ready(event, buffer, turn);
                }
                Ok(false) => {}
                Err(why) => self.failed(turn.now, &why),
            },
            State::Open(upstream) => {
                let result = upstream.ready(event, buffer, turn);
                if upstream.session.is_open() {
                    self.pause = BACKOFF;
                    if !std::mem::replace(&mut self.reported, true) {
                        let peer = upstream.peer();
                        tracing::info!(host = self.host(), %peer, "connected to the {}", self.target.kind);
                    }
                }
                if let Err(why) = result {
                    self.lost(&why, turn);
                }
            }
        }
    }

    fn opened(&mut self, now: Now) {
        let State::Connecting(connection) = std::mem::replace(&mut self.state, State::Down(now)) else {
            return;
        };
        let transport = ClientOptions { version: self.version, ..self.target.transport.clone() };
        let session = Consumer::new(transport, self.target.login.clone(), now);
        let mut upstream = Upstream::new(self.terms.clone(), connection, session);
        *upstream.tally = self.tally;
        self.reported = false;
        self.state = State::Open(upstream);
    }

    /// The dictionaries that have arrived since the last call, each with the name of the upstream; logs which do not
    /// come.
    pub(super) fn take_dictionaries(&mut self) -> Vec<(String, Half)> {
        let State::Open(upstream) = &mut self.state else { return Vec::new() };
        let (received, failures) = upstream.session.take_dictionaries();
        let host = self.host().to_owned();
        for why in failures {
            tracing::warn!(host, "no dictionary {why}");
        }
        received.into_iter().map(|half| (host.clone(), half)).collect()
    }

    /// Queues a message of the hub for the upstream.
    pub(super) fn send(&mut self, message: &[u8]) {
        if let State::Open(upstream) = &mut self.state
            && let Err(why) = upstream.session.send(message)
        {
            tracing::warn!(host = self.host(), %why, "cannot send a request to the upstream");
        }
    }

    /// Writes queued output.
    pub(super) fn flush(&mut self, turn: &mut HubTurn<'_>) {
        if let State::Open(upstream) = &mut self.state
            && let Err(why) = upstream.flush(turn.now)
        {
            self.lost(&why, turn);
        }
    }

    /// Runs the timers that are due: attempts to connect, pings, timeouts.
    pub(super) fn tick(&mut self, turn: &mut HubTurn<'_>) {
        match &mut self.state {
            State::Down(until) if *until <= turn.now => self.connect(turn.now),
            State::Open(upstream) => {
                upstream.release_directories(turn);
                if let Err(why) = upstream.session.tick(turn.now) {
                    self.lost(&why, turn);
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
            State::Open(upstream) => {
                let session = &upstream.session;
                [session.deadline(), session.release_due()].into_iter().flatten().min()
            }
        }
    }
}
