//! The consumer's side of a session: towards an interactive provider, or another point-to-point server.
//!
//! Pure: bytes and time in, events and bytes to send out. Spec: rssl.md §5.1, §5.2, §7.4

use std::time::Duration;

use rssl::rdm::directory::{self, Action, Service, filter};
use rssl::rdm::login;
use rssl::rwf::{
    DataState, Domain, Generic, Key, Message, Refresh, RefreshFlags, Request, State, StreamState, peek,
};
use rssl::transport::{Channel, ClientOptions};
use rssl::wire::to_vec;

use super::dictionary::Download;
use super::session::{ChannelEvent, Connection, Event, Session, SessionError};
use crate::dictionaries::Half;
use crate::hub::{LOGIN_STREAM, Now};

/// Stream of the directory. Item streams begin at 16, see [`crate::hub`].
pub const DIRECTORY_STREAM: i32 = 2;
/// The directory filter that is requested. Spec: rssl.md §5.2
const EVERYTHING: u32 = filter::ALL | filter::DATA;

/// Longest time that the services wait for the dictionaries of the upstream: consumers of these services ask for a
/// dictionary once, so it should be there first.
const DICTIONARY_TIMEOUT: Duration = Duration::from_secs(10);

/// A directory, or changes of it, and whether it replaces the earlier one.
pub type Directory = (Vec<(Action, Service)>, bool);

/// The identity for a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub user: String,
    /// Application id, "256" by custom.
    pub application_id: String,
    /// Name of the program.
    pub application: String,
    /// "ip/net" of this host.
    pub position: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Login,
    Directory,
    Open,
}

/// A session as a consumer.
#[derive(Debug)]
pub struct Consumer {
    connection: Connection,
    phase: Phase,
    login: Login,
    dictionaries: Dictionaries,
}

/// The dictionaries of the upstream, and the directories that wait for them.
#[derive(Debug, Default)]
struct Dictionaries {
    download: Download,
    waiting: Vec<Directory>,
    /// When they are reported without the dictionaries.
    due: Option<Now>,
    received: Vec<Half>,
    failures: Vec<String>,
}

impl Consumer {
    /// Creates the session of a connection that was just made.
    #[must_use]
    pub fn new(transport: ClientOptions, login: Login, now: Now) -> Self {
        Self {
            connection: Connection::new(Channel::client(transport), now),
            phase: Phase::Handshake,
            login,
            dictionaries: Dictionaries::default(),
        }
    }

    /// Takes the dictionaries that have arrived, and what went wrong with others.
    pub fn take_dictionaries(&mut self) -> (Vec<Half>, Vec<String>) {
        (std::mem::take(&mut self.dictionaries.received), std::mem::take(&mut self.dictionaries.failures))
    }

    /// Opens the session without the dictionaries once they are overdue; returns the directories to be reported.
    pub fn release_directories(&mut self, now: Now) -> Vec<Directory> {
        if self.dictionaries.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.phase = Phase::Open;
        self.dictionaries.due = None;
        let Dictionaries { download, waiting, failures, .. } = &mut self.dictionaries;
        for name in download.give_up() {
            failures.push(format!("{name}: it did not come within {DICTIONARY_TIMEOUT:?}"));
        }
        std::mem::take(waiting)
    }

    /// When [`Consumer::release_directories`] is due.
    #[must_use]
    pub fn release_due(&self) -> Option<Now> {
        self.dictionaries.due
    }
}

impl Session for Consumer {
    const PUBLISHES: bool = false;

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn awaits(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Handshake => Some("answer to the handshake"),
            Phase::Login => Some("answer to the login"),
            Phase::Directory => Some("directory"),
            Phase::Open => None,
        }
    }

    fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut on: impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Self { connection, phase, login, dictionaries } = self;
        connection.input(bytes, now, |on_event, replies| match on_event {
            ChannelEvent::Opened => {
                *phase = Phase::Login;
                replies.push(login_request(login)?);
                Ok(())
            }
            ChannelEvent::Message(message) => {
                let stream = peek(message)?.stream;
                if Download::owns(stream) {
                    return dictionaries.message(phase, &Message::decode(message)?, replies, &mut on);
                }
                if stream != LOGIN_STREAM && stream != DIRECTORY_STREAM && *phase == Phase::Open {
                    return on(Event::Message(message));
                }
                administrative(phase, dictionaries, message, now, replies, &mut on)
            }
        })
    }

    fn ended(&self, why: &str) -> SessionError {
        if self.phase == Phase::Handshake {
            SessionError::NoAnswer
        } else {
            SessionError::Ended(why.to_owned())
        }
    }
}

impl Dictionaries {
    /// Requests the dictionaries that a directory names, and reports the directory after them.
    fn directory(
        &mut self,
        phase: &mut Phase,
        directory: Directory,
        now: Now,
        replies: &mut Vec<Vec<u8>>,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let requests = self.download.requests(&directory.0)?;
        if !requests.is_empty() {
            self.due = Some(now + DICTIONARY_TIMEOUT);
        }
        replies.extend(requests);
        self.waiting.push(directory);
        self.report(phase, on)
    }

    /// Takes a message on a dictionary's stream.
    fn message(
        &mut self,
        phase: &mut Phase,
        message: &Message<'_>,
        replies: &mut Vec<Vec<u8>>,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        if let Some(request) = self.download.renewal(message) {
            replies.push(request?);
            return Ok(());
        }
        match self.download.message(message) {
            Some(Ok(half)) => self.received.push(half),
            Some(Err((name, why))) => self.failures.push(format!("{name}: {why}")),
            None => return Ok(()),
        }
        self.report(phase, on)
    }

    fn report(
        &mut self,
        phase: &mut Phase,
        on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        if self.download.is_awaited() {
            return Ok(());
        }
        self.due = None;
        if *phase == Phase::Directory && !self.waiting.is_empty() {
            *phase = Phase::Open;
        }
        let mut waiting = self.waiting.drain(..);
        waiting.try_for_each(|(changes, replaces)| on(Event::Services { changes, replaces }))
    }
}

/// Handles messages on the streams of login and directory, and all messages before the session is open.
fn administrative(
    phase: &mut Phase,
    dictionaries: &mut Dictionaries,
    bytes: &[u8],
    now: Now,
    replies: &mut Vec<Vec<u8>>,
    on: &mut impl FnMut(Event<'_>) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let message = Message::decode(bytes)?;
    let head = message.head();
    match (&message, head.stream, head.domain) {
        (Message::Refresh(Refresh { state, .. }), LOGIN_STREAM, Domain::LOGIN) => {
            ended(state).map_or(Ok(()), |(text, for_good)| Err(SessionError::Login { text, for_good }))?;
            if *phase == Phase::Login && state.data != DataState::Suspect {
                *phase = Phase::Directory;
                on(Event::Up)?;
                replies.push(directory_request()?);
            }
        }
        (Message::Status(status), LOGIN_STREAM, Domain::LOGIN) => {
            let end = status.state.as_ref().and_then(ended);
            end.map_or(Ok(()), |(text, for_good)| Err(SessionError::Login { text, for_good }))?;
        }
        (Message::Close(_), LOGIN_STREAM, _) => {
            return Err(SessionError::Login { text: "the peer closed it".into(), for_good: false });
        }
        (Message::Refresh(refresh), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            ended(&refresh.state).map_or(Ok(()), |(text, _)| Err(SessionError::Directory(text)))?;
            let changes = directory::decode(refresh.payload)?;
            let replaces = refresh.flags.contains(RefreshFlags::CLEAR_CACHE)
                || refresh.flags.contains(RefreshFlags::SOLICITED);
            dictionaries.directory(phase, (changes, replaces), now, replies, on)?;
        }
        (Message::Update(update), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            let changes = directory::decode(update.payload)?;
            dictionaries.directory(phase, (changes, false), now, replies, on)?;
        }
        (Message::Status(status), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            let end = status.state.as_ref().and_then(ended);
            end.map_or(Ok(()), |(text, _)| Err(SessionError::Directory(text)))?;
        }
        // Round-trip probes are echoed. Spec: rssl.md §5.1
        (Message::Generic(generic), LOGIN_STREAM, Domain::LOGIN) => {
            let echo = Generic { perm: None, ..generic.clone() };
            replies.push(echo.to_vec()?);
        }
        // Acknowledgements of posts, and other messages about items.
        _ if *phase == Phase::Open => on(Event::Message(bytes))?,
        _ => {}
    }
    Ok(())
}

/// The text of a state that ends its stream, and whether the end is final; `None`: the stream goes on.
fn ended(state: &State<'_>) -> Option<(String, bool)> {
    let for_good = match state.stream {
        StreamState::Closed => true,
        StreamState::ClosedRecover | StreamState::Redirected => false,
        StreamState::Unspecified | StreamState::Open | StreamState::NonStreaming => return None,
    };
    Some((String::from_utf8_lossy(state.text).into_owned(), for_good))
}

fn login_request(login: &Login) -> rssl::Result<Vec<u8>> {
    let attributes = login::Attributes {
        application_id: Some(login.application_id.as_bytes()),
        application_name: Some(login.application.as_bytes()),
        position: Some(login.position.as_bytes()),
        ..login::Attributes::default()
    };
    let request = login::Request { user: login.user.as_bytes(), name_type: 1, attributes };
    to_vec(|w| request.encode(LOGIN_STREAM, w))
}

fn directory_request() -> rssl::Result<Vec<u8>> {
    Request::streaming(
        Domain::DIRECTORY,
        DIRECTORY_STREAM,
        Key { filter: Some(EVERYTHING), ..Key::default() },
    )
    .to_vec()
}

#[cfg(test)]
mod tests {
    use rssl::rdm::directory::Info;
    use rssl::rwf::{DataType, Update};

    use super::*;

    /// A session that waits for the directory.
    fn session() -> Consumer {
        let mut session = Consumer::new(ClientOptions::default(), Login::default(), Now::ZERO);
        session.phase = Phase::Directory;
        session
    }

    fn service(id: u16, provided: &[&str]) -> (Action, Service) {
        let dictionaries_provided = provided.iter().map(|name| (*name).to_owned()).collect();
        let info = Info { name: format!("S{id}"), dictionaries_provided, ..Info::default() };
        (Action::Add, Service { id, info: Some(info), ..Service::default() })
    }

    /// Passes a directory message in; returns the ids of the reported services, and the number of replies.
    fn pass(session: &mut Consumer, services: &[(Action, Service)], refresh: bool) -> (Vec<u16>, usize) {
        let payload = to_vec(|w| directory::encode(w, EVERYTHING, services)).unwrap();
        let (domain, stream, container) = (Domain::DIRECTORY, DIRECTORY_STREAM, DataType::MAP);
        let message = if refresh {
            let flags = RefreshFlags::SOLICITED.with(RefreshFlags::COMPLETE);
            let refresh =
                Refresh { flags, state: State::OK, ..Refresh::new(domain, stream, container, &payload) };
            refresh.to_vec().unwrap()
        } else {
            Update::new(domain, stream, container, &payload).to_vec().unwrap()
        };
        let (mut reported, mut replies) = (Vec::new(), Vec::new());
        let mut on = |event: Event<'_>| {
            if let Event::Services { changes, .. } = event {
                reported.extend(changes.iter().map(|(_, service)| service.id));
            }
            Ok(())
        };
        let Consumer { phase, dictionaries, .. } = session;
        administrative(phase, dictionaries, &message, Now::ZERO, &mut replies, &mut on).unwrap();
        (reported, replies.len())
    }

    #[test]
    fn services_without_dictionaries_are_reported_at_once() {
        let mut session = session();
        assert_eq!(pass(&mut session, &[service(1, &[])], true), (vec![1], 0));
        assert!(session.is_open() && session.release_due().is_none());
    }

    #[test]
    fn services_wait_for_their_dictionaries_but_not_for_ever() {
        for opened_before in [false, true] {
            let mut session = session();
            if opened_before {
                pass(&mut session, &[], true);
            }
            let provided = [service(1, &["RWFFld"])];
            assert_eq!(pass(&mut session, &provided, !opened_before), (vec![], 1));
            assert_eq!(pass(&mut session, &[service(2, &[])], false), (vec![], 0), "the order is kept");
            assert_eq!(session.is_open(), opened_before);
            assert!(session.release_directories(DICTIONARY_TIMEOUT / 2).is_empty());
            assert_eq!(session.release_due(), Some(DICTIONARY_TIMEOUT));
            let released = session.release_directories(DICTIONARY_TIMEOUT);
            let ids: Vec<u16> = released.iter().flat_map(|(changes, _)| changes).map(|(_, s)| s.id).collect();
            assert_eq!((ids, session.is_open()), (vec![1, 2], true));
            assert_eq!(session.take_dictionaries().1, ["RWFFld: it did not come within 10s"]);
            assert_eq!(pass(&mut session, &[service(3, &["RWFFld"])], false), (vec![3], 0));
        }
    }
}
