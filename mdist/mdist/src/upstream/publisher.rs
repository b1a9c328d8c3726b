//! The server's side of a session with a publisher (non-interactive provider), which logs in, announces its services
//! and publishes items on streams that it opens itself. The hub caches the items.
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
use super::session::{ChannelEvent, Connection, Event, OPEN_TIMEOUT, Session, SessionError};
use crate::dictionaries::{Dictionaries, Given};
use crate::hub::Now;
use crate::net::{LoginPlace, LoginRefusal};

/// Maximum number of streams of dictionaries that a publisher may have open.
const MAX_DICTIONARIES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Login,
    Open,
}

/// The identity of a publisher, from its login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublisherIdentity {
    /// User name.
    pub user: String,
    /// Name of the program.
    pub application: String,
    /// "ip/net" of its host.
    pub position: String,
}

/// A session with a publisher.
#[derive(Debug)]
pub struct Publisher {
    connection: Connection,
    dialogue: Dialogue,
    login_timeout: Now,
}

impl Publisher {
    /// Creates the session of a connection that was just accepted; `dictionaries` are sent on request.
    #[must_use]
    pub fn new(transport: ServerOptions, dictionaries: Arc<Dictionaries>, now: Now) -> Self {
        let dialogue = Dialogue {
            dictionaries,
            phase: Phase::Handshake,
            identity: PublisherIdentity::default(),
            login_stream: LOGIN_STREAM,
            directory_stream: None,
            open_dictionaries: Vec::new(),
            place: None,
        };
        let connection = Connection::new(Channel::server(transport), now);
        Self { connection, dialogue, login_timeout: OPEN_TIMEOUT }
    }

    /// Limits the time from connecting to the login; 45 s without this call.
    #[must_use]
    pub fn with_login_timeout(self, limit: Now) -> Self {
        Self { login_timeout: limit, ..self }
    }

    /// Refuses the login if `place` cannot be taken; without this call no login is refused for others.
    #[must_use]
    pub fn with_place(mut self, place: LoginPlace) -> Self {
        self.dialogue.place = Some(place);
        self
    }

    /// The identity of the publisher; empty before the login.
    #[must_use]
    pub fn identity(&self) -> &PublisherIdentity {
        &self.dialogue.identity
    }

    /// Ends the login with a status that has the cause, in [`Session::output`]; then the connection is to be closed.
    pub fn end_login(&mut self, why: &SessionError) {
        if self.dialogue.phase != Phase::Open {
            return;
        }
        let text = why.to_string();
        let state = State::closed_recover(code::NONE, text.as_bytes());
        if let Ok(message) = to_vec(|w| login::reject(self.dialogue.login_stream, state, w)) {
            // A failed channel sends nothing any more.
            let _ = self.connection.write(&message);
        }
    }
}

impl Session for Publisher {
    const PUBLISHES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn awaits(&self) -> Option<&'static str> {
        (self.dialogue.phase != Phase::Open).then_some("login")
    }

    fn open_timeout(&self) -> Now {
        self.login_timeout
    }

    fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut on: impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Self { connection, dialogue, .. } = self;
        connection.input(bytes, now, |on_event, replies| match on_event {
            ChannelEvent::Opened => {
                dialogue.phase = Phase::Login;
                Ok(())
            }
            ChannelEvent::Message(message) => dialogue.message(message, replies, &mut on),
        })
    }

    /// Sends pings and notices of dictionaries that have been replaced, and checks the time-outs.
    fn tick(&mut self, now: Now) -> Result<(), SessionError> {
        for (stream, given) in &mut self.dialogue.open_dictionaries {
            if let Some(notice) = self.dialogue.dictionaries.notice(*stream, given) {
                self.connection.write(&notice)?;
            }
        }
        let awaits = self.awaits().map(|what| (what, self.open_timeout()));
        self.connection.tick(now, awaits)
    }

    /// Frames a message. Those for the login stream get the id of the stream on which this publisher logged in.
    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        let head = peek(message)?;
        if head.stream == LOGIN_STREAM && self.dialogue.login_stream != LOGIN_STREAM {
            let mut own = message.to_vec();
            set_stream(&mut own, self.dialogue.login_stream)?;
            return self.connection.write(&own);
        }
        self.connection.write(message)
    }
}

/// The state of login and directory.
#[derive(Debug)]
struct Dialogue {
    dictionaries: Arc<Dictionaries>,
    phase: Phase,
    identity: PublisherIdentity,
    login_stream: i32,
    directory_stream: Option<i32>,
    /// Open streams of dictionaries.
    open_dictionaries: Vec<(i32, Given)>,
    /// Its place among the publishers that are logged in.
    place: Option<LoginPlace>,
}

impl Dialogue {
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
                // A first directory is the whole directory even without the flag.
                let replaces =
                    refresh.flags.contains(RefreshFlags::CLEAR_CACHE) || self.directory_stream.is_none();
                self.directory_stream = Some(head.stream);
                on(Event::Services { changes, replaces })?;
            }
            (Message::Update(update), Domain::DIRECTORY) => {
                let changes = directory::decode(update.payload)?;
                on(Event::Services { changes, replaces: false })?;
            }
            (Message::Close(_), Domain::DIRECTORY) => self.withdrawn(head.stream, on)?,
            (Message::Status(Status { state: Some(state), .. }), Domain::DIRECTORY) if state.is_final() => {
                self.withdrawn(head.stream, on)?;
            }
            (Message::Request(request), _) => self.answer_request(request, replies)?,
            (Message::Close(_), Domain::DICTIONARY) => {
                self.open_dictionaries.retain(|(stream, _)| *stream != head.stream);
            }
            // Acknowledgements of posts on the login stream.
            (Message::Ack(_), _) => on(Event::Message(bytes))?,
            _ => {}
        }
        Ok(())
    }

    /// Sends a dictionary, which publishers may need to encode fields; refuses other requests.
    fn answer_request(
        &mut self,
        request: &Request<'_>,
        replies: &mut Vec<Vec<u8>>,
    ) -> Result<(), SessionError> {
        let (code, text) = if request.domain != Domain::DICTIONARY {
            let text = "This port takes publishers and answers requests for dictionaries only";
            (code::USAGE_ERROR, text.as_bytes())
        } else if let Some(given) = self.dictionaries.current(request.key.name.unwrap_or_default()) {
            self.open_dictionaries.retain(|(stream, _)| *stream != request.stream);
            if self.open_dictionaries.len() < MAX_DICTIONARIES {
                if request.flags.contains(RequestFlags::STREAMING) {
                    self.open_dictionaries.push((request.stream, given));
                }
                replies.extend(self.dictionaries.answer(request).unwrap_or_default());
                return Ok(());
            }
            (code::TOO_MANY_ITEMS, &b"Too many streams of dictionaries are open"[..])
        } else {
            (code::NOT_FOUND, &b"There is no such dictionary"[..])
        };
        let state = State::closed(code, text);
        replies.push(Status::new(request.domain, request.stream, state).to_vec()?);
        Ok(())
    }

    /// Handles a login; a consumer's is refused.
    fn login(&mut self, request: &Request<'_>, replies: &mut Vec<Vec<u8>>) -> Result<(), SessionError> {
        let login = login::Request::decode(request)?;
        self.login_stream = request.stream;
        if login.attributes.role != login::PROVIDER {
            let text = "This port takes publishers (login role 1); consumers connect to the p2ps";
            let state = State::closed(code::USAGE_ERROR, text.as_bytes());
            replies.push(to_vec(|w| login::reject(request.stream, state, w))?);
            return Err(SessionError::Login { text: text.into(), for_good: true });
        }
        if let Some(Err(refusal)) = self.place.as_mut().map(|place| place.take(login.identity())) {
            let text = refusal_text(refusal);
            let state = State::closed_recover(code::NO_RESOURCES, text.as_bytes());
            replies.push(to_vec(|w| login::reject(request.stream, state, w))?);
            return Err(SessionError::Login { text, for_good: false });
        }
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        self.identity = PublisherIdentity {
            user: text(Some(login.user_name())),
            application: text(login.attributes.application_name),
            position: text(login.attributes.position),
        };
        self.phase = Phase::Open;
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return Ok(());
        }
        let attributes = login::Attributes {
            single_open: false,
            dictionary_download: true,
            ..login.attributes.accepted(b"src_dist")
        };
        let state = State::new(StreamState::Open, DataState::Ok, code::NONE, b"Login accepted");
        let reply = login::Reply { attributes, support_post: true, state, ..login::Reply::to(&login) };
        replies.push(to_vec(|w| reply.encode(request.stream, w))?);
        Ok(())
    }

    /// Withdraws all services: the publisher closed its directory.
    fn withdrawn(
        &mut self,
        stream: i32,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        if self.directory_stream == Some(stream) {
            self.directory_stream = None;
            on(Event::Services { changes: Vec::new(), replaces: true })?;
        }
        Ok(())
    }
}

/// The text for a publisher that a limit keeps out.
fn refusal_text(refusal: LoginRefusal) -> String {
    let (whose, most) = match refusal {
        LoginRefusal::Total(most) => ("", most),
        LoginRefusal::User(most) => (" of this user", most),
        LoginRefusal::Address(most) => (" of this address", most),
        LoginRefusal::UserAndAddress(most) => (" of this user at this address", most),
    };
    format!("{most} publishers{whose} are connected already, the most allowed; try again later")
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
