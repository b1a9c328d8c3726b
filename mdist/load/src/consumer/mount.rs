//! One consumer's connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mdist::net::now;
use rssl::rwf::{Key, Request, RequestFlags};
use rssl::transport::{Channel, InputBuffer, Pulled, Tick};
use rssl::wire::to_vec;

use super::mount_state::{MountState, Stage};
use super::{OutgoingKind, Shared};

/// One mount: a connection with a login of its own.
pub(super) struct Mount {
    channel: Channel,
    input: InputBuffer,
    scratch: Vec<u8>,
    pub(super) state: MountState,
}

impl Mount {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        let state = MountState::new(shared, number);
        let channel = Channel::client(state.client_options());
        Self { channel, input: InputBuffer::default(), scratch: Vec::new(), state }
    }

    /// Resets the state for a new connection, on which nothing is open.
    pub(super) fn restart(&mut self, out: &mut Vec<u8>) {
        self.channel = Channel::client(self.state.client_options());
        self.input.clear();
        self.state.reset();
        self.channel.take_output(out);
    }

    /// Handles received bytes, which are behind the first `front` bytes of the buffer: those are space for the bytes
    /// that are [unread](Self::unread).
    ///
    /// # Errors
    /// The reason why the connection is over.
    pub(super) fn read(&mut self, buffer: &mut [u8], front: usize, out: &mut Vec<u8>) -> Result<()> {
        let Self { channel, input, scratch, state } = self;
        channel.received(now());
        state.counts.bytes += (buffer.len() - front) as u64;
        let unread = input.unread();
        let from = front.checked_sub(unread.len()).context("a frame that is too long")?;
        if let Some(space) = buffer.get_mut(from..front) {
            space.copy_from_slice(unread);
        }
        let bytes = buffer.get(from..).unwrap_or_default();
        input.receive_joined(bytes, |received| {
            loop {
                match received.pull(channel)? {
                    Pulled::Message(message) => {
                        if state.update(message) {
                            continue;
                        }
                        scratch.clear();
                        scratch.extend_from_slice(message);
                        state.message(scratch, &mut |reply: &[u8]| Ok(channel.write(reply, out)?))?;
                    }
                    Pulled::NeedMore => return Ok(()),
                    Pulled::Ping => {}
                    Pulled::Handshake => channel.take_output(out),
                    Pulled::Opened(_) => {
                        channel.take_output(out);
                        let request = state.login()?;
                        channel.write(&request, out)?;
                    }
                    Pulled::Refused { text } => bail!("refused: {text}"),
                }
            }
        })
    }

    /// The front of an incomplete frame.
    pub(super) fn unread(&self) -> &[u8] {
        self.input.unread()
    }

    /// Writes a ping if one is due.
    ///
    /// # Errors
    /// The peer was silent for its ping timeout.
    pub(super) fn tick(&mut self, now: Duration, out: &mut Vec<u8>) -> Result<()> {
        match self.channel.tick(now) {
            Tick::None => {}
            Tick::SendPing => {
                self.channel.ping(out);
                self.channel.sent(now);
            }
            Tick::PeerSilent => bail!("the server was silent for its ping timeout"),
        }
        Ok(())
    }

    pub(super) fn sent(&mut self, now: Duration) {
        self.channel.sent(now);
    }

    /// Requests at most `count` more items; returns how many.
    ///
    /// # Errors
    /// The channel is not open.
    pub(super) fn request(&mut self, count: u64, out: &mut Vec<u8>) -> Result<u64> {
        let Some(service) = self.state.service.filter(|_| self.state.stage == Stage::Items) else {
            return Ok(0);
        };
        let mut requested = 0;
        while requested < count {
            let Some((stream, item)) = self.state.streams.next_to_request(&self.state.shared.options.items)
            else {
                break;
            };
            let mut flags = RequestFlags::NONE;
            if !(item.snapshot || self.state.shared.options.snapshot) {
                flags.insert(RequestFlags::STREAMING);
            }
            if item.generic {
                flags.insert(RequestFlags::PRIVATE);
            }
            let key = Key { service: Some(service), name: Some(item.name.as_bytes()), ..Key::default() };
            let request = Request { domain: item.domain, stream, flags, key, ..Request::default() };
            self.channel.write(&to_vec(|w| request.encode(w))?, out)?;
            requested += 1;
        }
        self.state.counts.requests += requested;
        Ok(requested)
    }

    /// Whether items are left to request and may be requested now.
    pub(super) fn has_items_to_request(&self) -> bool {
        self.state.stage == Stage::Items
            && self.state.service.is_some()
            && self.state.streams.has_more_to_request()
    }

    /// Writes `count` posts or generic messages, the first with `stamp` if it is given.
    ///
    /// # Errors
    /// The channel is not open.
    pub(super) fn send(
        &mut self,
        kind: OutgoingKind,
        count: u64,
        stamp: Option<Duration>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for number in 0..count {
            let stamp = stamp.filter(|_| number == 0);
            let Some(message) = self.state.streams.outgoing(&self.state.shared, kind, stamp) else {
                return Ok(());
            };
            self.channel.write(&message, out)?;
            match kind {
                OutgoingKind::Post => self.state.counts.posts += 1,
                OutgoingKind::Generic => self.state.counts.generics_sent += 1,
            }
        }
        Ok(())
    }
}
