//! The server's side of one connection from a non-interactive provider: it logs in, announces its services and publishes
//! items on streams that it opens itself. The hub keeps what it published.
//!
//! Pure: bytes and time in, events and bytes to send out. Spec: rssl.md §7.5

use std::sync::Arc;

use rssl::rdm::directory;
use rssl::rdm::login;
use rssl::rwf::{
    DataState, Domain, Message, RefreshFlags, Request, RequestFlags, State, Status, StreamState, code, peek,
    set_stream,
};
use rssl::transport::{Channel, ServerOptions};
use rssl::wire::to_vec;

use super::LOGIN_STREAM;
use super::session::{ChannelEvent, Event, Session, SessionError, Wire};
use crate::dictionaries::Dictionaries;
use crate::hub::Now;

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
#[derive(Debug)]
pub struct Publisher {
    wire: Wire,
    talk: Talk,
}

impl Publisher {
    /// A connection that was just accepted; `dictionaries` are given out on request.
    #[must_use]
    pub fn new(transport: ServerOptions, dictionaries: Arc<Dictionaries>, now: Now) -> Self {
        let talk = Talk {
            dictionaries,
            phase: Phase::Handshake,
            who: Publishes::default(),
            login_stream: LOGIN_STREAM,
            directory_stream: None,
        };
        Self { wire: Wire::new(Channel::server(transport), now), talk }
    }

    /// Who it is; empty before the login.
    #[must_use]
    pub fn who(&self) -> &Publishes {
        &self.talk.who
    }

    /// Ends the login with a reason, as a message for [`Session::output`]; then the connection is to be closed.
    pub fn farewell(&mut self, why: &SessionError) {
        if self.talk.phase != Phase::Open {
            return;
        }
        let text = why.to_string();
        let state = State::new(StreamState::ClosedRecover, DataState::Suspect, code::NONE, text.as_bytes());
        if let Ok(message) = to_vec(|w| login::reject(self.talk.login_stream, state, w)) {
            // A channel that broke says nothing any more.
            let _ = self.wire.write(&message);
        }
    }
}

impl Session for Publisher {
    const PUBLISHES: bool = true;

    fn wire(&self) -> &Wire {
        &self.wire
    }

    fn wire_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn waits_for(&self) -> Option<&'static str> {
        (self.talk.phase != Phase::Open).then_some("login")
    }

    fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut on: impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Self { wire, talk } = self;
        wire.input(bytes, now, |step, replies| match step {
            ChannelEvent::Opened => {
                talk.phase = Phase::Login;
                Ok(())
            }
            ChannelEvent::Message(message) => talk.message(message, replies, &mut on),
        })
    }

    /// Orders of the hub for the login stream go to the stream on which this publisher logged in.
    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        let head = peek(message)?;
        if head.stream == LOGIN_STREAM && self.talk.login_stream != LOGIN_STREAM {
            let mut own = message.to_vec();
            set_stream(&mut own, self.talk.login_stream)?;
            return self.wire.write(&own);
        }
        self.wire.write(message)
    }
}

/// What was said.
#[derive(Debug)]
struct Talk {
    dictionaries: Arc<Dictionaries>,
    phase: Phase,
    who: Publishes,
    login_stream: i32,
    directory_stream: Option<i32>,
}

impl Talk {
    fn message(
        &mut self,
        bytes: &[u8],
        replies: &mut Vec<Vec<u8>>,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let head = peek(bytes)?;
        if self.phase == Phase::Open && !head.domain.is_administrative() {
            return on(Event::Message(bytes));
        }
        let message = Message::decode(bytes)?;
        match (&message, head.domain) {
            (Message::Request(request), Domain::LOGIN) => {
                let first = self.phase == Phase::Login;
                self.login(request, replies)?;
                if first {
                    on(Event::Up)?;
                }
            }
            _ if self.phase != Phase::Open => {
                return Err(SessionError::Protocol("a message before the login; log in first".into()));
            }
            (Message::Close(_), Domain::LOGIN) => {
                return Err(SessionError::Ended("the publisher logged out".into()));
            }
            (Message::Refresh(refresh), Domain::DIRECTORY) => {
                let changes = directory::decode(refresh.payload)?;
                // Without the flag a first directory is the whole directory all the same.
                let anew =
                    refresh.flags.contains(RefreshFlags::CLEAR_CACHE) || self.directory_stream.is_none();
                self.directory_stream = Some(head.stream);
                on(Event::Services { changes, anew })?;
            }
            (Message::Update(update), Domain::DIRECTORY) => {
                let changes = directory::decode(update.payload)?;
                on(Event::Services { changes, anew: false })?;
            }
            (Message::Close(_), Domain::DIRECTORY) => self.withdrawn(head.stream, on)?,
            (Message::Status(Status { state: Some(state), .. }), Domain::DIRECTORY) if state.is_final() => {
                self.withdrawn(head.stream, on)?;
            }
            // Publishers may need the dictionary to write their fields; nothing else can be asked here, and who does is told
            // so rather than left waiting.
            (Message::Request(request), domain) => {
                let dictionary = (domain == Domain::DICTIONARY).then(|| self.dictionaries.answer(request));
                let (code, text) = match dictionary {
                    Some(Some(messages)) => {
                        replies.extend(messages);
                        return Ok(());
                    }
                    Some(None) => (code::NOT_FOUND, &b"There is no such dictionary"[..]),
                    None => (
                        code::USAGE_ERROR,
                        &b"This port takes publishers and answers requests for dictionaries only"[..],
                    ),
                };
                let state = State::new(StreamState::Closed, DataState::Suspect, code, text);
                let status = Status {
                    domain: head.domain,
                    stream: head.stream,
                    state: Some(state),
                    ..Status::default()
                };
                replies.push(to_vec(|w| status.encode(w))?);
            }
            // Acknowledgements of posts on the login stream.
            (Message::Ack(_), _) => on(Event::Message(bytes))?,
            _ => {}
        }
        Ok(())
    }

    fn login(&mut self, request: &Request<'_>, replies: &mut Vec<Vec<u8>>) -> Result<(), SessionError> {
        let asked = login::Request::decode(request)?;
        self.login_stream = request.stream;
        if asked.attributes.role != login::PROVIDER {
            let text = "This port takes publishers (login role 1); consumers connect to the p2ps";
            let state =
                State::new(StreamState::Closed, DataState::Suspect, code::USAGE_ERROR, text.as_bytes());
            replies.push(to_vec(|w| login::reject(request.stream, state, w))?);
            return Err(SessionError::Login { text: text.into(), for_good: true });
        }
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        self.who = Publishes {
            user: text(Some(asked.user)),
            application: text(asked.attributes.application_name),
            position: text(asked.attributes.position),
        };
        self.phase = Phase::Open;
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return Ok(());
        }
        let attributes = login::Attributes {
            single_open: false,
            password: None,
            dictionary_download: true,
            ..asked.attributes
        };
        let state = State::new(StreamState::Open, DataState::Ok, code::NONE, b"Login accepted");
        let reply = login::Reply {
            user: asked.user,
            name_type: asked.name_type,
            attributes,
            support_post: true,
            state,
            ..login::Reply::default()
        };
        replies.push(to_vec(|w| reply.encode(request.stream, w))?);
        Ok(())
    }

    /// The publisher ended its directory: it offers nothing any more.
    fn withdrawn(
        &mut self,
        stream: i32,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        if self.directory_stream == Some(stream) {
            self.directory_stream = None;
            on(Event::Services { changes: Vec::new(), anew: true })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
