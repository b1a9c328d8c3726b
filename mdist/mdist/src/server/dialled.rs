//! Connections that we make: towards providers and point-to-point servers, kept up for ever.

use std::net::SocketAddr;
use std::time::Duration;

use rssl::transport::{ClientOptions, VERSION_NEWEST, VERSION_OLDEST};

use super::link::{Link, Tally};
use crate::hub::{Batch, Hub, UpstreamId};
use crate::metrics::Metrics;
use crate::metrics::components::Upstream;
use crate::net::{Interest, Now, Registry, Socket, SocketOptions, connect, resolve};
use crate::upstream::{Consumer, Login, Session as _, SessionError};

/// First and longest pause before a lost connection is made again; doubled in between.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The pause after a refusal that trying again soon will not help.
const LONG_PAUSE: Duration = Duration::from_secs(30);
/// The port of interactive providers and point-to-point servers.
const PORT: u16 = 14_002;

/// What is dialled, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// "provider" or "p2ps".
    pub(super) kind: &'static str,
    /// `host:port`s, tried in turn.
    pub(super) hosts: Vec<String>,
    pub(super) login: Login,
    pub(super) transport: ClientOptions,
    pub(super) socket: SocketOptions,
    /// Services that are taken, by name; empty: all.
    pub(super) services: Vec<String>,
}

/// The services that are taken from one source, by name: those set for it, else those of the program; empty: all.
pub(super) fn taken(own: &[String], program: &[String]) -> Vec<String> {
    if own.is_empty() { program } else { own }.to_vec()
}

#[derive(Debug)]
enum State {
    /// Nothing until then.
    Down(Now),
    Connecting(Socket),
    Open(Link<Consumer>),
}

/// One upstream that we dial.
#[derive(Debug)]
pub(super) struct Dialled {
    id: UpstreamId,
    target: Target,
    state: State,
    token: u64,
    registry: Registry,
    /// Which host is next.
    turn: usize,
    version: u8,
    pause: Duration,
    /// What came in former sessions.
    tally: Tally,
    metrics: Metrics,
}

impl Dialled {
    pub(super) fn new(
        id: UpstreamId,
        token: u64,
        target: Target,
        registry: Registry,
        metrics: Metrics,
    ) -> Self {
        Self {
            id,
            target,
            state: State::Down(Now::ZERO),
            token,
            registry,
            turn: 0,
            version: VERSION_NEWEST,
            pause: PAUSE.0,
            tally: Tally::default(),
            metrics,
        }
    }

    /// Its hosts, as a label.
    pub(super) fn label(&self) -> String {
        self.target.hosts.join(",")
    }

    /// What has come from it.
    pub(super) fn tally(&self) -> &Tally {
        if let State::Open(link) = &self.state { &link.tally } else { &self.tally }
    }

    /// A message of it stayed here for so long.
    pub(super) fn measured(&mut self, took: Duration) {
        let tally = if let State::Open(link) = &mut self.state { &mut link.tally } else { &mut self.tally };
        tally.latency.record(took);
    }

    /// Its kind, its name and its counters.
    pub(super) fn shown(&self) -> (&'static str, String, Upstream) {
        let state = match &self.state {
            State::Down(_) => 0,
            State::Open(link) if link.session.is_open() => 2,
            State::Connecting(_) | State::Open(_) => 1,
        };
        (self.target.kind, self.label(), self.tally().shown(state))
    }

    fn host(&self) -> &str {
        let hosts = &self.target.hosts;
        hosts.get(self.turn % hosts.len().max(1)).map_or("", String::as_str)
    }

    fn dial(&mut self, now: Now) {
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
        tracing::warn!(host = self.host(), %why, again_in_ms = self.pause.as_millis(), "no connection to the upstream");
        self.turn += 1;
        self.retry(now);
    }

    fn retry(&mut self, now: Now) {
        self.state = State::Down(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }

    /// The session is over: the hub learns of it, and another attempt is planned.
    fn lost(&mut self, now: Now, why: &SessionError, hub: &mut Hub, out: &mut Batch) {
        tracing::warn!(host = self.host(), %why, "the upstream is lost");
        hub.upstream_down(now, self.id, &why.to_string(), out);
        self.tally = *self.tally();
        let what = serde_json::json!({ "host": self.host(), "reason": why.to_string() });
        self.metrics.disconnect(self.target.kind, why.label(), what);
        match why {
            // Old servers close without a word on versions they do not know.
            SessionError::NoAnswer if self.version > VERSION_OLDEST => {
                self.version -= 1;
                self.state = State::Down(now);
                return;
            }
            SessionError::NoAnswer => self.version = VERSION_NEWEST,
            SessionError::Login { for_good: true, .. } => self.pause = LONG_PAUSE,
            _ => {}
        }
        self.turn += 1;
        self.retry(now);
    }

    /// Something is ready at the socket.
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
            State::Open(link) => {
                let result =
                    link.ready(readable, writable, now, self.id, &self.target.services, buffer, hub, out);
                if link.session.is_open() {
                    self.pause = PAUSE.0;
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
        let mut link = Link::new(socket, session, self.token, &self.registry);
        *link.tally = self.tally;
        self.state = State::Open(link);
    }

    /// Frames an order of the hub.
    pub(super) fn send(&mut self, message: &[u8]) {
        if let State::Open(link) = &mut self.state
            && let Err(why) = link.session.send(message)
        {
            tracing::warn!(host = self.host(), %why, "a request could not be sent");
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        if let State::Open(link) = &mut self.state
            && let Err(why) = link.flush(now)
        {
            self.lost(now, &why, hub, out);
        }
    }

    /// Does what is due: an attempt to connect, pings, an end of patience.
    pub(super) fn tick(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        match &mut self.state {
            State::Down(until) if *until <= now => self.dial(now),
            State::Open(link) => {
                if let Err(why) = link.session.tick(now) {
                    self.lost(now, &why, hub, out);
                }
            }
            State::Down(_) | State::Connecting(_) => {}
        }
    }

    /// When [`Dialled::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Now> {
        match &self.state {
            State::Down(until) => Some(*until),
            State::Connecting(_) => None,
            State::Open(link) => link.session.deadline(),
        }
    }
}
