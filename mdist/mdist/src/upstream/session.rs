//! The common part of sessions towards upstreams: transport, received and waiting bytes, time-outs.

use rssl::rdm::directory::{Action, Service};
use rssl::transport::{Channel, InputBuffer, Pulled, Received, Tick};
use thiserror::Error;

use crate::hub::Now;

/// Maximum number of bytes of an incomplete frame; handshakes agree on smaller frames.
const MAX_PARTIAL: usize = 1 << 17;
/// Longest time from connecting until the session is open.
pub(super) const OPEN_TIMEOUT: Now = Now::from_secs(45);

/// Reason why a session ended, and its connection is to be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    /// The peer closed before it answered the handshake: it may support older versions only.
    #[error("closed before it answered the handshake")]
    NoAnswer,
    /// The peer refused the connection.
    #[error("the connection was refused: {0}")]
    Refused(String),
    /// The peer refused the login, or ended it.
    #[error("the login was refused: {text}{}", if *.for_good { " (correct the user or application id)" } else { "" })]
    Login {
        /// The peer's text.
        text: String,
        /// Whether the login has to be corrected, because a retry will not help.
        for_good: bool,
    },
    /// The peer violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The peer closed the directory.
    #[error("the directory was closed: {0}")]
    Directory(String),
    /// The peer sent nothing for the ping time-out, in seconds.
    #[error("nothing was heard for {0} s")]
    Silent(u64),
    /// The named message of login or directory did not come in time.
    #[error("no {what} within {seconds} s")]
    Slow {
        /// The message.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The connection had not logged in when others took its place.
    #[error("no login before {newer} newer connections (max-pending, max-pending-per-address)")]
    Evicted {
        /// Connections without a login that are newer, at least.
        newer: usize,
    },
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Ended(String),
}

impl SessionError {
    /// The reason as consumers get it: without texts of the peer, which may name its users and hosts. They are in the
    /// log.
    #[must_use]
    pub fn for_consumers(&self) -> &'static str {
        match self {
            Self::NoAnswer | Self::Refused(_) => "the connection was refused",
            Self::Login { .. } => "the login was refused",
            Self::Protocol(_) => "protocol error",
            Self::Directory(_) => "the directory was closed",
            Self::Silent(_) => "nothing was heard",
            Self::Slow { .. } => "it did not answer in time",
            Self::Evicted { .. } => "it did not log in",
            Self::Ended(_) => "the connection ended",
        }
    }

    /// The label of its counter.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::Refused(_) => "refused",
            Self::Login { .. } => "login",
            Self::Protocol(_) => "protocol",
            Self::Directory(_) => "directory",
            Self::Silent(_) => "silent",
            Self::Slow { .. } => "slow",
            Self::Evicted { .. } => "crowded",
            Self::Ended(_) => "ended",
        }
    }
}

impl From<rssl::Error> for SessionError {
    fn from(error: rssl::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<rssl::transport::Error> for SessionError {
    fn from(error: rssl::transport::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// An event that a session reports to its driver.
#[derive(Debug)]
pub enum Event<'a> {
    /// The login is complete: messages may be sent.
    Up,
    /// The directory of the peer, or changes of it.
    Services {
        /// Services, and whether each was added, updated or deleted.
        changes: Vec<(Action, Service)>,
        /// Whether the directory replaces the earlier one, so that services which it lacks are gone.
        replaces: bool,
    },
    /// A message of an item, or an acknowledgement on the login stream.
    Message(&'a [u8]),
}

/// Whether a service is accepted. `wanted` are names; empty: all services. A service without a name is a change
/// of a known one, and is wanted.
#[must_use]
pub fn is_wanted(wanted: &[String], service: &Service) -> bool {
    let name = service.info.as_ref().map(|info| &info.name);
    name.is_none_or(|name| wanted.is_empty() || wanted.contains(name))
}

/// A session on one connection. The driver passes received bytes in and writes the [`output`](Session::output); after
/// an error it closes the connection.
pub trait Session {
    /// Whether the peer is a publisher, which opens the item streams.
    const PUBLISHES: bool;

    /// The connection of the session.
    fn connection(&self) -> &Connection;

    /// The connection of the session.
    fn connection_mut(&mut self) -> &mut Connection;

    /// The message that the session waits for before it is open; `None`: it is open.
    fn awaits(&self) -> Option<&'static str>;

    /// Handles received bytes; calls `on` with the events in them, in order.
    ///
    /// # Errors
    /// The session has ended.
    fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        on: impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError>;

    /// Longest time from connecting until the session is open.
    fn open_timeout(&self) -> Now {
        OPEN_TIMEOUT
    }

    /// Whether messages may be sent.
    fn is_open(&self) -> bool {
        self.awaits().is_none()
    }

    /// Frames a message for [`Session::output`].
    ///
    /// # Errors
    /// The message cannot be framed: the transport is not open, or the message is too long.
    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        self.connection_mut().write(message)
    }

    /// Bytes to write: the driver removes those that it wrote.
    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.connection_mut().out
    }

    /// Records that bytes were written.
    fn written(&mut self, now: Now) {
        self.connection_mut().channel.sent(now);
    }

    /// The error for a connection that ended with the cause `why`.
    fn ended(&self, why: &str) -> SessionError {
        SessionError::Ended(why.to_owned())
    }

    /// Sends pings, and checks the time-outs.
    ///
    /// # Errors
    /// A time-out has passed: the session has ended.
    fn tick(&mut self, now: Now) -> Result<(), SessionError> {
        let awaits = self.awaits().map(|what| (what, self.open_timeout()));
        self.connection_mut().tick(now, awaits)
    }

    /// Time when [`Session::tick`] is due.
    fn deadline(&self) -> Option<Now> {
        let connection = self.connection();
        let open_timeout = (!self.is_open()).then_some(connection.since + self.open_timeout());
        [connection.channel.deadline(), open_timeout].into_iter().flatten().min()
    }
}

/// An event of the transport that the session handles.
pub(super) enum ChannelEvent<'a> {
    /// The handshake is done.
    Opened,
    /// A complete message.
    Message(&'a [u8]),
}

/// The transport of a session, with the bytes that wait in both directions.
pub struct Connection {
    pub(super) channel: Channel,
    since: Now,
    input: InputBuffer,
    out: Vec<u8>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("since", &self.since).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates the transport of a connection that was just made or accepted.
    pub(super) fn new(mut channel: Channel, now: Now) -> Self {
        channel.received(now);
        channel.sent(now);
        let mut out = Vec::new();
        channel.take_output(&mut out);
        Self { channel, since: now, input: InputBuffer::default(), out }
    }

    /// Frames a message into the output.
    pub(super) fn write(&mut self, message: &[u8]) -> Result<(), SessionError> {
        Ok(self.channel.write(message, &mut self.out)?)
    }

    /// Handles received bytes; calls `on_event` with each event, and sends the replies that it leaves.
    pub(super) fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut on_event: impl FnMut(ChannelEvent<'_>, &mut Vec<Vec<u8>>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        self.channel.received(now);
        let mut input = std::mem::take(&mut self.input);
        let result = input.receive(bytes, |received| self.process_frames(received, &mut on_event));
        self.input = input;
        result?;
        if self.input.unread().len() > MAX_PARTIAL {
            return Err(SessionError::Protocol(format!("a frame of more than {MAX_PARTIAL} bytes")));
        }
        Ok(())
    }

    fn process_frames(
        &mut self,
        received: &mut Received<'_>,
        on_event: &mut impl FnMut(ChannelEvent<'_>, &mut Vec<Vec<u8>>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let mut replies = Vec::new();
        loop {
            let (has_output, result) = match received.pull(&mut self.channel)? {
                Pulled::NeedMore => return Ok(()),
                Pulled::Ping => continue,
                Pulled::Message(message) => (false, on_event(ChannelEvent::Message(message), &mut replies)),
                Pulled::Handshake => (true, Ok(())),
                Pulled::Opened(_) => (true, on_event(ChannelEvent::Opened, &mut replies)),
                Pulled::Refused { text } => (true, Err(SessionError::Refused(text.to_owned()))),
            };
            if has_output {
                self.channel.take_output(&mut self.out);
            }
            // Replies that were left before an error are sent as well: a refusal is one.
            let written = replies.drain(..).try_for_each(|reply| self.write(&reply));
            result.and(written)?;
        }
    }

    /// Sends a ping if that is due, and checks the time-outs; `awaits`: the awaited message, and how long.
    pub(super) fn tick(&mut self, now: Now, awaits: Option<(&'static str, Now)>) -> Result<(), SessionError> {
        match self.channel.tick(now) {
            Tick::SendPing if self.out.is_empty() => self.channel.ping(&mut self.out),
            Tick::None | Tick::SendPing => {}
            Tick::PeerSilent => {
                return Err(SessionError::Silent(
                    self.channel.opened().map_or(0, |o| o.ping_timeout.as_secs()),
                ));
            }
        }
        match awaits {
            Some((what, limit)) if now.saturating_sub(self.since) > limit => {
                Err(SessionError::Slow { what, seconds: limit.as_secs() })
            }
            _ => Ok(()),
        }
    }
}
