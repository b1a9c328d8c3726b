//! What every session has: a channel, bytes that are not whole yet, bytes to be written, an end of patience.

use rssl::rdm::directory::{Action, Service};
use rssl::transport::{Channel, InputBuffer, Pulled, Received, Tick};
use thiserror::Error;

use crate::hub::Now;

/// Bytes of a frame that is not whole yet; the handshake agrees on less.
const MAX_PARTIAL: usize = 1 << 17;
/// Most time from connecting until the session is open.
const PATIENCE: Now = Now::from_secs(45);

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
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

impl SessionError {
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

impl From<rssl::Error> for SessionError {
    fn from(why: rssl::Error) -> Self {
        Self::Protocol(why.to_string())
    }
}

impl From<rssl::transport::Error> for SessionError {
    fn from(why: rssl::transport::Error) -> Self {
        Self::Protocol(why.to_string())
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

/// Whether a service is to be taken: `wanted` are names, none are all. One without a name is a change of one that was.
#[must_use]
pub fn is_wanted(wanted: &[String], service: &Service) -> bool {
    let name = service.info.as_ref().map(|info| &info.name);
    name.is_none_or(|name| wanted.is_empty() || wanted.contains(name))
}

/// One connection with what is said on it. The driver gives it the bytes that come and writes its
/// [`output`](Session::output); after an error the connection is to be closed.
pub trait Session {
    /// Whether the other end opens the item streams.
    const PUBLISHES: bool;

    /// The connection by itself.
    fn wire(&self) -> &Wire;

    /// The connection by itself.
    fn wire_mut(&mut self) -> &mut Wire;

    /// What has to come before the session is open; `None` once it is.
    fn waits_for(&self) -> Option<&'static str>;

    /// Takes received bytes; `on` sees what they mean, in order.
    ///
    /// # Errors
    /// The connection has to be closed: why.
    fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        on: impl FnMut(Event<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError>;

    /// Whether messages may be sent.
    fn is_open(&self) -> bool {
        self.waits_for().is_none()
    }

    /// Frames a message for [`Session::output`].
    ///
    /// # Errors
    /// It cannot be framed: not open, or too long.
    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        self.wire_mut().write(message)
    }

    /// Bytes to be written: the driver takes away what it wrote.
    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.wire_mut().out
    }

    /// Bytes were written.
    fn written(&mut self, now: Now) {
        self.wire_mut().channel.sent(now);
    }

    /// The connection ended: what that means.
    fn ended(&self, why: &str) -> SessionError {
        SessionError::Ended(why.to_owned())
    }

    /// Does what is due: pings, and an end of patience.
    ///
    /// # Errors
    /// The connection has to be closed.
    fn tick(&mut self, now: Now) -> Result<(), SessionError> {
        let waits_for = self.waits_for();
        self.wire_mut().tick(now, waits_for)
    }

    /// When [`Session::tick`] has something to do.
    fn deadline(&self) -> Option<Now> {
        let wire = self.wire();
        let patience = (!self.is_open()).then_some(wire.since + PATIENCE);
        [wire.channel.deadline(), patience].into_iter().flatten().min()
    }
}

/// What a session has to look at.
pub(super) enum ChannelEvent<'a> {
    /// The handshake is done.
    Opened,
    /// A message, whole.
    Message(&'a [u8]),
}

/// A connection by itself.
pub struct Wire {
    pub(super) channel: Channel,
    since: Now,
    input: InputBuffer,
    out: Vec<u8>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("since", &self.since).finish_non_exhaustive()
    }
}

impl Wire {
    /// A connection that was just made, or accepted.
    pub(super) fn new(mut channel: Channel, now: Now) -> Self {
        channel.received(now);
        channel.sent(now);
        let mut out = Vec::new();
        channel.take_output(&mut out);
        Self { channel, since: now, input: InputBuffer::default(), out }
    }

    pub(super) fn write(&mut self, message: &[u8]) -> Result<(), SessionError> {
        Ok(self.channel.write(message, &mut self.out)?)
    }

    /// Takes received bytes; `step` sees what is whole, and leaves its replies.
    pub(super) fn input(
        &mut self,
        bytes: &[u8],
        now: Now,
        mut step: impl FnMut(ChannelEvent<'_>, &mut Vec<Vec<u8>>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        self.channel.received(now);
        let mut input = std::mem::take(&mut self.input);
        let result = input.receive(bytes, |received| self.handle(received, &mut step));
        self.input = input;
        result?;
        if self.input.unread().len() > MAX_PARTIAL {
            return Err(SessionError::Protocol(format!("a frame of more than {MAX_PARTIAL} bytes")));
        }
        Ok(())
    }

    fn handle(
        &mut self,
        received: &mut Received<'_>,
        step: &mut impl FnMut(ChannelEvent<'_>, &mut Vec<Vec<u8>>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let mut replies = Vec::new();
        loop {
            let (speaks, result) = match received.pull(&mut self.channel)? {
                Pulled::NeedMore => return Ok(()),
                Pulled::Ping => continue,
                Pulled::Message(message) => (false, step(ChannelEvent::Message(message), &mut replies)),
                Pulled::Handshake => (true, Ok(())),
                Pulled::Opened(_) => (true, step(ChannelEvent::Opened, &mut replies)),
                Pulled::Refused { text } => (true, Err(SessionError::Refused(text.to_owned()))),
            };
            if speaks {
                self.channel.take_output(&mut self.out);
            }
            // What was answered before an error is said, too: a refusal is an answer.
            let written = replies.drain(..).try_for_each(|reply| self.write(&reply));
            result.and(written)?;
        }
    }

    fn tick(&mut self, now: Now, waits_for: Option<&'static str>) -> Result<(), SessionError> {
        match self.channel.tick(now) {
            Tick::SendPing if self.out.is_empty() => self.channel.ping(&mut self.out),
            Tick::None | Tick::SendPing => {}
            Tick::PeerSilent => {
                return Err(SessionError::Silent(
                    self.channel.opened().map_or(0, |o| o.ping_timeout.as_secs()),
                ));
            }
        }
        match waits_for {
            Some(what) if now.saturating_sub(self.since) > PATIENCE => Err(SessionError::Slow(what)),
            _ => Ok(()),
        }
    }
}
