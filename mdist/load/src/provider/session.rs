//! One connection of a publisher: bytes in, bytes out, in either role.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rssl::transport::{Channel, ClientOptions, InputBuffer, Pulled, Received, ServerOptions, Tick};

use super::sending::FULL;
use super::state::{Role, SessionState};
use super::{Counts, Shared};
use crate::pace::Pace;

/// One connection of a publisher.
pub(super) struct Session {
    channel: Channel,
    state: SessionState,
    scratch: Vec<u8>,
    input: InputBuffer,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, role: Role) -> Self {
        let channel = match role {
            Role::Interactive => Channel::server(ServerOptions::default()),
            Role::Publisher => {
                Channel::client(ClientOptions { host: shared.host.clone(), ..ClientOptions::default() })
            }
        };
        Self {
            channel,
            state: SessionState::new(shared, role),
            scratch: Vec::new(),
            input: InputBuffer::default(),
        }
    }

    /// Appends the messages of the handshake that the channel has to send.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) {
        self.channel.take_output(out);
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// The reason why the connection is over.
    pub(super) fn input(&mut self, now: Duration, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.channel.received(now);
        let mut input = std::mem::take(&mut self.input);
        let result = input.receive(bytes, |received| self.handle(received, out));
        self.input = input;
        result?;
        match self.state.end.take() {
            Some(reason) => bail!("{reason}"),
            None => Ok(()),
        }
    }

    /// Handles every whole message in `received`.
    fn handle(&mut self, received: &mut Received<'_>, out: &mut Vec<u8>) -> Result<()> {
        loop {
            match received.pull(&mut self.channel)? {
                Pulled::NeedMore => return Ok(()),
                Pulled::Opened(_) => {
                    self.channel.take_output(out);
                    if self.state.role == Role::Publisher {
                        let request = self.state.login_request()?;
                        self.channel.write(&request, out)?;
                    }
                }
                Pulled::Handshake => self.channel.take_output(out),
                Pulled::Ping => {}
                Pulled::Refused { text } => bail!("refused: {text}"),
                Pulled::Message(message) => {
                    self.scratch.clear();
                    self.scratch.extend_from_slice(message);
                    let (state, channel) = (&mut self.state, &mut self.channel);
                    state.message(&self.scratch, &mut |reply: &[u8]| Ok(channel.write(reply, out)?))?;
                }
            }
        }
    }

    /// Writes everything that is due to `out`: images first, then updates. Returns true if `out` is full: call again
    /// once it is sent.
    ///
    /// # Errors
    /// The reason why the connection is over.
    pub(super) fn work(&mut self, now: Duration, out: &mut Vec<u8>) -> Result<bool> {
        match self.channel.tick(now) {
            Tick::None => {}
            Tick::SendPing => {
                self.channel.ping(out);
                self.channel.sent(now);
            }
            Tick::PeerSilent => bail!("the peer was silent for its ping timeout"),
        }
        let (state, channel) = (&mut self.state, &mut self.channel);
        if state.announced < state.shared.events.count() {
            state.announcements(out, |message, out| Ok(channel.write(message, out)?))?;
        }
        state.images(out, |message, out| Ok(channel.write(message, out)?))?;
        state.updates(now, out, |message, out| Ok(channel.write(message, out)?))?;
        Ok(out.len() >= FULL)
    }

    /// Notes that output was sent.
    pub(super) fn sent(&mut self, now: Duration) {
        self.channel.sent(now);
    }

    /// Time when [`Session::work`] is due next if nothing arrives.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let tick = self.state.pace.as_ref().filter(|_| self.state.items.len() > 0).map(Pace::next);
        tick.into_iter().chain(self.channel.deadline()).min()
    }

    pub(super) fn counts(&self) -> Counts {
        let missed = self.state.pace.as_ref().map_or(0, Pace::missed);
        Counts {
            missed: self.state.counts.missed + missed,
            items: self.state.items.len() as u64,
            ..self.state.counts
        }
    }

    /// Name and number of updates so far of each open item.
    pub(super) fn item_counts(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.state.items.counts()
    }
}
