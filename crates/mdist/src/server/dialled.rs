//! Connections that we make: towards providers and point-to-point servers, kept up for ever.

use std::net::SocketAddr;
use std::time::Duration;

use rssl::transport::{ClientOptions, VERSION_NEWEST, VERSION_OLDEST};

use crate::hub::{Batch, Broken, Engine, UpstreamId};
use crate::net::{Interest, Now, Registry, Socket, SocketOptions, connect, resolve};
use crate::upstream::{Consumer, Event, Login, Lost};

/// Bytes that one read takes at most: many updates share a turn.
const READ: usize = 256 * 1024;
/// Bytes that may wait for an upstream that does not read.
const MAX_OUTPUT: usize = 64 << 20;
/// First and longest pause before a lost connection is made again; doubled in between.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The pause after a refusal that trying again soon will not help.
const LONG_PAUSE: Duration = Duration::from_secs(30);
/// The port of interactive providers and point-to-point servers.
const PORT: u16 = 14_002;

impl From<Broken> for Lost {
    fn from(why: Broken) -> Self {
        Self::Protocol(why.to_string())
    }
}

/// What is dialled, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// `host:port`s, tried in turn.
    pub(super) hosts: Vec<String>,
    pub(super) login: Login,
    pub(super) transport: ClientOptions,
    pub(super) socket: SocketOptions,
    /// Services that are taken, by name; empty: all.
    pub(super) services: Vec<String>,
}

#[derive(Debug)]
enum Link {
    /// Nothing until then.
    Down(Now),
    Connecting(Socket),
    Open {
        socket: Socket,
        session: Box<Consumer>,
        full: bool,
    },
}

/// One upstream that we dial.
#[derive(Debug)]
pub(super) struct Dialled {
    id: UpstreamId,
    target: Target,
    link: Link,
    token: u64,
    registry: Registry,
    /// Which host is next.
    turn: usize,
    version: u8,
    pause: Duration,
    input: Vec<u8>,
}

impl Dialled {
    pub(super) fn new(id: UpstreamId, token: u64, target: Target, registry: Registry) -> Self {
        Self {
            id,
            target,
            link: Link::Down(Now::ZERO),
            token,
            registry,
            turn: 0,
            version: VERSION_NEWEST,
            pause: PAUSE.0,
            input: vec![0; READ],
        }
    }

    fn host(&self) -> &str {
        let hosts = &self.target.hosts;
        hosts.get(self.turn % hosts.len().max(1)).map_or("", String::as_str)
    }

    fn dial(&mut self, now: Now) {
        let attempt = resolve(self.host(), PORT).and_then(|to: SocketAddr| connect(to, self.target.socket));
        match attempt {
            Ok(socket) => match self.registry.add(&socket, self.token, Interest::Write) {
                Ok(()) => self.link = Link::Connecting(socket),
                Err(why) => self.failed(now, &why),
            },
            Err(why) => self.failed(now, &why),
        }
    }

    fn failed(&mut self, now: Now, why: &dyn std::fmt::Display) {
        tracing::warn!(host = self.host(), %why, again_in_ms = self.pause.as_millis(), "no connection to the upstream");
        self.turn += 1;
        self.retry(now);
    }

    fn retry(&mut self, now: Now) {
        self.link = Link::Down(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }

    /// The session is over: the hub learns of it, and another attempt is planned.
    fn lost(&mut self, now: Now, why: &Lost, hub: &mut Engine, out: &mut Batch) {
        tracing::warn!(host = self.host(), %why, "the upstream is lost");
        hub.upstream_down(now, self.id, &why.to_string(), out);
        match why {
            // Old servers close without a word on versions they do not know.
            Lost::NoAnswer if self.version > VERSION_OLDEST => {
                self.version -= 1;
                self.link = Link::Down(now);
                return;
            }
            Lost::NoAnswer => self.version = VERSION_NEWEST,
            Lost::Login { for_good: true, .. } => self.pause = LONG_PAUSE,
            _ => {}
        }
        self.turn += 1;
        self.retry(now);
    }

    /// Something is ready at the socket.
    pub(super) fn ready(
        &mut self,
        readable: bool,
        writable: bool,
        now: Now,
        hub: &mut Engine,
        out: &mut Batch,
    ) {
        if let Link::Connecting(socket) = &self.link {
            if let Err(why) = socket.connected() {
                return self.failed(now, &why);
            }
            self.opened(now);
            return;
        }
        if writable
            && let Link::Open { socket, full, .. } = &mut self.link
            && std::mem::replace(full, false)
        {
            // What fills it again says so again.
            let _ = self.registry.change(&*socket, self.token, Interest::Read);
            self.flush(now, hub, out);
        }
        if readable {
            self.read(now, hub, out);
        }
    }

    fn opened(&mut self, now: Now) {
        let Link::Connecting(socket) = std::mem::replace(&mut self.link, Link::Down(now)) else { return };
        if let Err(why) = self.registry.change(&socket, self.token, Interest::Read) {
            return self.failed(now, &why);
        }
        let transport = ClientOptions { version: self.version, ..self.target.transport.clone() };
        let session = Box::new(Consumer::new(transport, self.target.login.clone(), now));
        self.link = Link::Open { socket, session, full: false };
    }

    fn read(&mut self, now: Now, hub: &mut Engine, out: &mut Batch) {
        let Link::Open { socket, session, .. } = &mut self.link else { return };
        let (id, wanted) = (self.id, &self.target.services);
        let result = match socket.read(&mut self.input) {
            Ok(None) => return,
            Ok(Some(0)) => Err(session.ended("closed by the other end")),
            Err(why) => Err(session.ended(&why.to_string())),
            Ok(Some(count)) => session.input(self.input.get(..count).unwrap_or_default(), now, |event| {
                match event {
                    Event::Message(message) => return hub.message(now, id, message, out),
                    Event::Up => hub.upstream_up(now, id, false, out),
                    Event::Services { mut changes, anew } => {
                        changes.retain(|(_, service)| {
                            let name = service.info.as_ref().map(|info| &info.name);
                            name.is_none_or(|name| wanted.is_empty() || wanted.contains(name))
                        });
                        hub.upstream_services(now, id, changes, anew, out);
                    }
                }
                Ok(())
            }),
        };
        if session.is_open() {
            self.pause = PAUSE.0;
        }
        if let Err(why) = result {
            self.lost(now, &why, hub, out);
        }
    }

    /// Frames an order of the hub.
    pub(super) fn send(&mut self, message: &[u8]) {
        if let Link::Open { session, .. } = &mut self.link
            && let Err(why) = session.send(message)
        {
            tracing::warn!(host = self.host(), %why, "a request could not be sent");
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, now: Now, hub: &mut Engine, out: &mut Batch) {
        let Link::Open { socket, session, full } = &mut self.link else { return };
        let was_full = *full;
        let result = loop {
            if *full || session.output().is_empty() {
                break Ok(());
            }
            match socket.write(session.output()) {
                Ok(Some(count)) => {
                    session.output().drain(..count);
                    session.written(now);
                }
                Ok(None) => *full = true,
                Err(why) => break Err(session.ended(&why.to_string())),
            }
        };
        let waiting = session.output().len();
        let interest = if *full { Interest::Both } else { Interest::Read };
        let result = result.and_then(|()| {
            if waiting > MAX_OUTPUT {
                return Err(Lost::Ended(format!("{waiting} bytes of requests wait: it does not read")));
            }
            if was_full == *full {
                return Ok(());
            }
            self.registry.change(&*socket, self.token, interest).map_err(|why| Lost::Ended(why.to_string()))
        });
        if let Err(why) = result {
            self.lost(now, &why, hub, out);
        }
    }

    /// Does what is due: an attempt to connect, pings, an end of patience.
    pub(super) fn tick(&mut self, now: Now, hub: &mut Engine, out: &mut Batch) {
        match &mut self.link {
            Link::Down(until) if *until <= now => self.dial(now),
            Link::Open { session, .. } => {
                if let Err(why) = session.tick(now) {
                    self.lost(now, &why, hub, out);
                }
            }
            Link::Down(_) | Link::Connecting(_) => {}
        }
    }

    /// When [`Dialled::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Now> {
        match &self.link {
            Link::Down(until) => Some(*until),
            Link::Connecting(_) => None,
            Link::Open { session, .. } => session.deadline(),
        }
    }
}
