//! The server's side of one connection from a non-interactive provider: it logs in, announces its services and publishes
//! items on streams that it opens itself. The hub keeps what it published.
//!
//! Pure: bytes and time in, events and bytes to send out. Spec: rssl.md §7.5

use rssl::rdm::directory;
use rssl::rdm::login;
use rssl::rwf::{
    DataState, Domain, Message, RefreshFlags, Request, RequestFlags, State, Status, StreamState, code, peek,
    set_stream,
};
use rssl::transport::{Channel, Pulled, ServerOptions, Tick};
use rssl::wire::to_vec;

use super::{Event, LOGIN_STREAM, Lost};
use crate::hub::Now;

/// Bytes of a frame that is not whole yet; the handshake agrees on less.
const MAX_PARTIAL: usize = 1 << 17;
/// Most time from connecting to the login.
const PATIENCE: Now = Now::from_secs(45);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Login,
    Open,
}

/// Who publishes, as its login says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publishes {
    /// User name.
    pub user: String,
    /// Name of the program.
    pub application: String,
    /// "ip/net" of its host.
    pub position: String,
}

/// One connection.
pub struct Publisher {
    channel: Channel,
    phase: Phase,
    who: Publishes,
    login_stream: i32,
    directory_stream: Option<i32>,
    since: Now,
    partial: Vec<u8>,
    out: Vec<u8>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("phase", &self.phase)
            .field("who", &self.who)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(transport: ServerOptions, now: Now) -> Self {
        let mut channel = Channel::server(transport);
        channel.received(now);
        channel.sent(now);
        Self {
            channel,
            phase: Phase::Handshake,
            who: Publishes::default(),
            login_stream: LOGIN_STREAM,
            directory_stream: None,
            since: now,
            partial: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Whether it is logged in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Who it is; empty before the login.
    #[must_use]
    pub fn who(&self) -> &Publishes {
        &self.who
    }

    /// Takes received bytes; `on` sees what they mean, in order. `Event::Up` is to be passed to the hub as a publisher.
    ///
    /// # Errors
    /// The connection has to be closed: why. [`Publisher::farewell`] tells the other end.
    pub fn input<E: Into<Lost>>(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut on: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), Lost> {
        self.channel.received(now);
        if self.partial.is_empty() {
            let used = self.feed(bytes, &mut on)?;
            self.partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(bytes);
            let used = self.feed(&whole, &mut on)?;
            whole.drain(..used);
            self.partial = whole;
        }
        if self.partial.len() > MAX_PARTIAL {
            return Err(Lost::Protocol(format!("a frame of more than {MAX_PARTIAL} bytes")));
        }
        Ok(())
    }

    fn feed<E: Into<Lost>>(
        &mut self,
        input: &[u8],
        on: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<usize, Lost> {
        let mut at = 0;
        let mut session = Session {
            phase: self.phase,
            who: &mut self.who,
            login_stream: &mut self.login_stream,
            directory_stream: &mut self.directory_stream,
            replies: Vec::new(),
        };
        let result = loop {
            let rest = input.get(at..).unwrap_or_default();
            let (used, pulled) = match self.channel.pull(rest) {
                Ok(step) => step,
                Err(why) => break Err(Lost::Protocol(why.to_string())),
            };
            at += used;
            let step = match pulled {
                Pulled::NeedMore => break Ok(at),
                Pulled::Ping => Ok(()),
                Pulled::Handshake => {
                    self.channel.take_output(&mut self.out);
                    Ok(())
                }
                Pulled::Refused { text } => {
                    let text = text.to_owned();
                    self.channel.take_output(&mut self.out);
                    Err(Lost::Refused(text))
                }
                Pulled::Opened(_) => {
                    self.channel.take_output(&mut self.out);
                    session.phase = Phase::Login;
                    Ok(())
                }
                Pulled::Message(message) => session.message(message, on),
            };
            // What was answered before an error is said, too: a refusal is an answer.
            let written = session.replies.drain(..).try_for_each(|m| self.channel.write(&m, &mut self.out));
            if let Err(why) = step.and(written.map_err(|why| Lost::Protocol(why.to_string()))) {
                break Err(why);
            }
        };
        self.phase = session.phase;
        result
    }

    /// Frames an order of the hub (posts, acknowledgements wanted or not) for [`Publisher::output`].
    ///
    /// # Errors
    /// It cannot be framed: not open, or too long.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Lost> {
        let broken = |why: &dyn std::fmt::Display| Lost::Protocol(why.to_string());
        let head = peek(message).map_err(|why| broken(&why))?;
        if head.stream == LOGIN_STREAM && self.login_stream != LOGIN_STREAM {
            let mut own = message.to_vec();
            set_stream(&mut own, self.login_stream).map_err(|why| broken(&why))?;
            return self.channel.write(&own, &mut self.out).map_err(|why| broken(&why));
        }
        self.channel.write(message, &mut self.out).map_err(|why| broken(&why))
    }

    /// Ends the login with a reason, as a message for [`Publisher::output`]; then the connection is to be closed.
    pub fn farewell(&mut self, why: &Lost) {
        if self.phase != Phase::Open {
            return;
        }
        let text = why.to_string();
        let state = State::new(StreamState::ClosedRecover, DataState::Suspect, code::NONE, text.as_bytes());
        if let Ok(message) = to_vec(|w| login::reject(self.login_stream, state, w)) {
            // A channel that broke says nothing any more.
            let _ = self.channel.write(&message, &mut self.out);
        }
    }

    /// Bytes to be written: the driver takes away what it wrote.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes were written.
    pub fn written(&mut self, now: Now) {
        self.channel.sent(now);
    }

    /// Does what is due: pings, and an end of patience.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn tick(&mut self, now: Now) -> Result<(), Lost> {
        match self.channel.tick(now) {
            Tick::SendPing if self.out.is_empty() => self.channel.ping(&mut self.out),
            Tick::None | Tick::SendPing => {}
            Tick::PeerSilent => {
                return Err(Lost::Silent(self.channel.opened().map_or(0, |o| o.ping_timeout.as_secs())));
            }
        }
        if self.phase != Phase::Open && now.saturating_sub(self.since) > PATIENCE {
            return Err(Lost::Slow("login"));
        }
        Ok(())
    }

    /// When [`Publisher::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        let patience = (self.phase != Phase::Open).then_some(self.since + PATIENCE);
        [self.channel.deadline(), patience].into_iter().flatten().min()
    }
}

/// What a message changes.
struct Session<'s> {
    phase: Phase,
    who: &'s mut Publishes,
    login_stream: &'s mut i32,
    directory_stream: &'s mut Option<i32>,
    replies: Vec<Vec<u8>>,
}

impl Session<'_> {
    fn message<E: Into<Lost>>(
        &mut self,
        bytes: &[u8],
        on: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), Lost> {
        let head = peek(bytes).map_err(broken)?;
        if self.phase == Phase::Open && !head.domain.is_administrative() {
            return on(Event::Message(bytes)).map_err(Into::into);
        }
        let message = Message::decode(bytes).map_err(broken)?;
        match (&message, head.domain) {
            (Message::Request(request), Domain::LOGIN) => {
                let first = self.phase == Phase::Login;
                self.login(request)?;
                if first {
                    on(Event::Up).map_err(Into::into)?;
                }
            }
            _ if self.phase != Phase::Open => {
                return Err(Lost::Protocol("a message before the login; log in first".into()));
            }
            (Message::Close(_), Domain::LOGIN) => return Err(Lost::Ended("the publisher logged out".into())),
            (Message::Refresh(refresh), Domain::DIRECTORY) => {
                let changes = directory::decode(refresh.payload).map_err(broken)?;
                // Without the flag a first directory is the whole directory all the same.
                let anew =
                    refresh.flags.contains(RefreshFlags::CLEAR_CACHE) || self.directory_stream.is_none();
                *self.directory_stream = Some(head.stream);
                on(Event::Services { changes, anew }).map_err(Into::into)?;
            }
            (Message::Update(update), Domain::DIRECTORY) => {
                let changes = directory::decode(update.payload).map_err(broken)?;
                on(Event::Services { changes, anew: false }).map_err(Into::into)?;
            }
            (Message::Close(_), Domain::DIRECTORY) => self.withdrawn(head.stream, on)?,
            (Message::Status(Status { state: Some(state), .. }), Domain::DIRECTORY) if state.is_final() => {
                self.withdrawn(head.stream, on)?;
            }
            // Nothing can be asked here; a client that does is told so rather than left waiting.
            (Message::Request(_), _) => {
                let state = State::new(
                    StreamState::Closed,
                    DataState::Suspect,
                    code::USAGE_ERROR,
                    b"This port takes publishers and answers no requests",
                );
                let status = Status {
                    domain: head.domain,
                    stream: head.stream,
                    state: Some(state),
                    ..Status::default()
                };
                self.replies.push(to_vec(|w| status.encode(w)).map_err(broken)?);
            }
            // Acknowledgements of posts on the login stream.
            (Message::Ack(_), _) => on(Event::Message(bytes)).map_err(Into::into)?,
            _ => {}
        }
        Ok(())
    }

    fn login(&mut self, request: &Request<'_>) -> Result<(), Lost> {
        let asked = login::Request::decode(request).map_err(broken)?;
        *self.login_stream = request.stream;
        if asked.attributes.role != login::PROVIDER {
            let text = "This port takes publishers (login role 1); consumers connect to the p2ps";
            let state =
                State::new(StreamState::Closed, DataState::Suspect, code::USAGE_ERROR, text.as_bytes());
            self.replies.push(to_vec(|w| login::reject(request.stream, state, w)).map_err(broken)?);
            return Err(Lost::Login { text: text.into(), for_good: true });
        }
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        *self.who = Publishes {
            user: text(Some(asked.user)),
            application: text(asked.attributes.application_name),
            position: text(asked.attributes.position),
        };
        self.phase = Phase::Open;
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return Ok(());
        }
        let attributes = login::Attributes { single_open: false, password: None, ..asked.attributes };
        let state = State::new(StreamState::Open, DataState::Ok, code::NONE, b"Login accepted");
        let reply = login::Reply {
            user: asked.user,
            name_type: asked.name_type,
            attributes,
            support_post: true,
            state,
            ..login::Reply::default()
        };
        self.replies.push(to_vec(|w| reply.encode(request.stream, w)).map_err(broken)?);
        Ok(())
    }

    /// The publisher ended its directory: it offers nothing any more.
    fn withdrawn<E: Into<Lost>>(
        &mut self,
        stream: i32,
        on: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), Lost> {
        if *self.directory_stream == Some(stream) {
            *self.directory_stream = None;
            on(Event::Services { changes: Vec::new(), anew: true }).map_err(Into::into)?;
        }
        Ok(())
    }
}

fn broken(why: rssl::Error) -> Lost {
    Lost::Protocol(why.to_string())
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
