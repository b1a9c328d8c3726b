//! The consumer's side of one connection: towards an interactive provider, or a point-to-point server above us.
//!
//! Pure: bytes and time in, events and bytes to send out. Spec: rssl.md §5.1, §5.2, §7.4

use rssl::rdm::directory::{self, Action, Service};
use rssl::rdm::login;
use rssl::rwf::{
    DataState, DataType, Domain, Generic, Key, Message, Refresh, RefreshFlags, Request, RequestFlags, State,
    StreamState, peek,
};
use rssl::transport::{Channel, ClientOptions, Pulled, Tick};
use rssl::wire::to_vec;
use thiserror::Error;

use crate::hub::Now;

/// Stream of the login. Item streams begin at 16, see [`crate::hub`].
pub const LOGIN_STREAM: i32 = 1;
/// Stream of the directory.
pub const DIRECTORY_STREAM: i32 = 2;
/// Info, state, groups, load, data and links. Spec: rssl.md §5.2
const EVERYTHING: u32 = 0x3f;
/// Longest message that waits to be whole, in bytes; a longer one comes in fragments.
const MAX_PARTIAL: usize = 1 << 17;
/// Most time from connecting to the end of login and directory.
const PATIENCE: Now = Now::from_secs(45);

/// Who logs in.
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

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// The other end closed before it answered: it may speak an older version only.
    #[error("closed before it answered the handshake")]
    NoAnswer,
    /// The other end said no to the connection.
    #[error("the connection was refused: {0}")]
    Refused(String),
    /// The other end said no to the login, or ended it. `for_good`: not to be tried again soon.
    #[error("the login was refused: {text}{}", if *.for_good { " (correct the user or application id)" } else { "" })]
    Login {
        /// What it said.
        text: String,
        /// Trying again will not help.
        for_good: bool,
    },
    /// It sent what the protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// It ended the directory.
    #[error("the directory was closed: {0}")]
    Directory(String),
    /// Nothing came for the ping time-out.
    #[error("nothing was heard for {0} s")]
    Silent(u64),
    /// Login and directory did not come.
    #[error("no {0} within 45 s")]
    Slow(&'static str),
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Ended(String),
}

impl Lost {
    /// One word, as a label of counters.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::Refused(_) => "refused",
            Self::Login { .. } => "login",
            Self::Protocol(_) => "protocol",
            Self::Directory(_) => "directory",
            Self::Silent(_) => "silent",
            Self::Slow(_) => "slow",
            Self::Ended(_) => "ended",
        }
    }
}

/// What the other end did.
#[derive(Debug)]
pub enum Event<'a> {
    /// It is logged in: messages may be sent.
    Up,
    /// Its directory. `anew`: what is not named is gone.
    Services {
        /// Services and what became of them.
        changes: Vec<(Action, Service)>,
        /// A refresh that replaces all before.
        anew: bool,
    },
    /// A message of an item, or an answer on the login stream.
    Message(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Login,
    Directory,
    Open,
}

/// One connection.
pub struct Consumer {
    channel: Channel,
    phase: Phase,
    login: Login,
    since: Now,
    partial: Vec<u8>,
    out: Vec<u8>,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("phase", &self.phase)
            .field("login", &self.login)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// A connection that was just made.
    #[must_use]
    pub fn new(transport: ClientOptions, login: Login, now: Now) -> Self {
        let mut channel = Channel::client(transport);
        channel.received(now);
        channel.sent(now);
        let mut out = Vec::new();
        channel.take_output(&mut out);
        Self { channel, phase: Phase::Handshake, login, since: now, partial: Vec::new(), out }
    }

    /// Whether login and directory are there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Takes received bytes; `on` sees what they mean, in order.
    ///
    /// # Errors
    /// The connection has to be closed: why.
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
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let (used, pulled) = self.channel.pull(rest).map_err(|why| Lost::Protocol(why.to_string()))?;
            at += used;
            match pulled {
                Pulled::NeedMore => return Ok(at),
                Pulled::Ping => {}
                Pulled::Handshake => self.channel.take_output(&mut self.out),
                Pulled::Refused { text } => return Err(Lost::Refused(text.to_owned())),
                Pulled::Opened(_) => {
                    self.channel.take_output(&mut self.out);
                    self.phase = Phase::Login;
                    let request =
                        login_request(&self.login).map_err(|why| Lost::Protocol(why.to_string()))?;
                    self.send(&request)?;
                }
                Pulled::Message(message) => {
                    let head = peek(message).map_err(|why| Lost::Protocol(why.to_string()))?;
                    if head.stream != LOGIN_STREAM
                        && head.stream != DIRECTORY_STREAM
                        && self.phase == Phase::Open
                    {
                        on(Event::Message(message)).map_err(Into::into)?;
                        continue;
                    }
                    let mut reply = Vec::new();
                    administrative(&mut self.phase, message, &mut reply, on)?;
                    for message in reply {
                        self.send(&message)?;
                    }
                }
            }
        }
    }

    /// Frames a message for [`Consumer::output`].
    ///
    /// # Errors
    /// It cannot be framed: not open, or too long.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Lost> {
        self.channel.write(message, &mut self.out).map_err(|why| Lost::Protocol(why.to_string()))
    }

    /// Bytes to be written: the driver takes away what it wrote.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes were written.
    pub fn written(&mut self, now: Now) {
        self.channel.sent(now);
    }

    /// The connection ended: what that means.
    #[must_use]
    pub fn ended(&self, why: &str) -> Lost {
        if self.phase == Phase::Handshake { Lost::NoAnswer } else { Lost::Ended(why.to_owned()) }
    }

    /// Does what is due: pings, and an end of patience.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn tick(&mut self, now: Now) -> Result<(), Lost> {
        match self.channel.tick(now) {
            Tick::None => {}
            Tick::SendPing if self.out.is_empty() => self.channel.ping(&mut self.out),
            Tick::SendPing => {}
            Tick::PeerSilent => {
                return Err(Lost::Silent(self.channel.opened().map_or(0, |o| o.ping_timeout.as_secs())));
            }
        }
        let waits_for = match self.phase {
            Phase::Handshake => "answer to the handshake",
            Phase::Login => "answer to the login",
            Phase::Directory => "directory",
            Phase::Open => return Ok(()),
        };
        if now.saturating_sub(self.since) > PATIENCE { Err(Lost::Slow(waits_for)) } else { Ok(()) }
    }

    /// When [`Consumer::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        let patience = (self.phase != Phase::Open).then_some(self.since + PATIENCE);
        [self.channel.deadline(), patience].into_iter().flatten().min()
    }
}

/// What comes on the streams of login and directory, and before they are open.
fn administrative<E: Into<Lost>>(
    phase: &mut Phase,
    bytes: &[u8],
    reply: &mut Vec<Vec<u8>>,
    on: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(), Lost> {
    let broken = |why: rssl::Error| Lost::Protocol(why.to_string());
    let message = Message::decode(bytes).map_err(broken)?;
    let head = message.head();
    match (&message, head.stream, head.domain) {
        (Message::Refresh(Refresh { state, .. }), LOGIN_STREAM, Domain::LOGIN) => {
            ended(state).map_or(Ok(()), |(text, for_good)| Err(Lost::Login { text, for_good }))?;
            if *phase == Phase::Login && state.data != DataState::Suspect {
                *phase = Phase::Directory;
                on(Event::Up).map_err(Into::into)?;
                reply.push(directory_request().map_err(broken)?);
            }
        }
        (Message::Status(status), LOGIN_STREAM, Domain::LOGIN) => {
            let end = status.state.as_ref().and_then(ended);
            end.map_or(Ok(()), |(text, for_good)| Err(Lost::Login { text, for_good }))?;
        }
        (Message::Close(_), LOGIN_STREAM, _) => {
            return Err(Lost::Login { text: "the other end closed it".into(), for_good: false });
        }
        (Message::Refresh(refresh), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            ended(&refresh.state).map_or(Ok(()), |(text, _)| Err(Lost::Directory(text)))?;
            let changes = directory::decode(refresh.payload).map_err(broken)?;
            *phase = Phase::Open;
            let anew = refresh.flags.contains(RefreshFlags::CLEAR_CACHE)
                || refresh.flags.contains(RefreshFlags::SOLICITED);
            on(Event::Services { changes, anew }).map_err(Into::into)?;
        }
        (Message::Update(update), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            let changes = directory::decode(update.payload).map_err(broken)?;
            on(Event::Services { changes, anew: false }).map_err(Into::into)?;
        }
        (Message::Status(status), DIRECTORY_STREAM, Domain::DIRECTORY) => {
            let end = status.state.as_ref().and_then(ended);
            end.map_or(Ok(()), |(text, _)| Err(Lost::Directory(text)))?;
        }
        // Probes of the round trip are answered as they came. Spec: rssl.md §5.1
        (Message::Generic(generic), LOGIN_STREAM, Domain::LOGIN) => {
            let echo = Generic { perm: None, ..generic.clone() };
            reply.push(to_vec(|w| echo.encode(w)).map_err(broken)?);
        }
        // Acknowledgements of posts, and whatever else concerns items.
        _ if *phase == Phase::Open => on(Event::Message(bytes)).map_err(Into::into)?,
        _ => {}
    }
    Ok(())
}

/// What a state says about the end of its stream: the text, and whether it is for good.
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
    let request = Request {
        domain: Domain::DIRECTORY,
        stream: DIRECTORY_STREAM,
        flags: RequestFlags::STREAMING,
        container: DataType::NO_DATA,
        key: Key { filter: Some(EVERYTHING), ..Key::default() },
        ..Request::default()
    };
    to_vec(|w| request.encode(w))
}
