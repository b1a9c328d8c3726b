//! Outgoing messages: fragments, window, backlog. Spec: tipc.md §5.7.

use super::backlog::{Level, MAX_BACKLOG, Queued};
use super::fragment::Fragments;
use super::{Accepted, DownReason, Link, LinkIo, Outgoing, SendFault, Wakeup};
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{Message, User};

impl Link {
    /// Sends a message of any user that the link carries; fragments it if it is larger than a packet.
    ///
    /// # Errors
    /// [`SendFault`]; the message is lost. [`SendFault::Overflow`] also takes the link down.
    pub fn send(&mut self, now: Time, message: Message, io: &mut LinkIo<'_>) -> Result<Accepted, SendFault> {
        if !self.is_up() {
            return Err(SendFault::Down);
        }
        let is_packet = matches!(message.user(), User::Fragmenter | User::Bundler | User::Tunnel);
        let must_fragment = message.size() > self.mss() && !is_packet;
        if !must_fragment && message.size() > self.largest() {
            return Err(SendFault::TooLarge { size: message.size(), mtu: self.mtu });
        }
        let accepted = self.admit(&message, io)?;
        let first = self.snd_nxt();
        if must_fragment {
            let fragments = Fragments::new(message, self.mss(), self.config.own, self.config.peer);
            self.session.stats.tx_fragmented += 1;
            self.session.stats.tx_fragments += fragments.remaining() as u64;
            for fragment in fragments {
                self.send_packet(fragment, io);
            }
        } else {
            self.send_packet(message, io);
        }
        if self.snd_nxt() != first {
            self.session.round_trip.sent(now, first);
        }
        Ok(accepted)
    }

    /// Whether the backlog has room for another message, however congested it is.
    pub(crate) fn takes(&self) -> bool {
        self.backlog.len() < MAX_BACKLOG
    }

    /// Decides by the backlog of the message's level whether its sender must wait.
    fn admit(&mut self, message: &Message, io: &mut LinkIo<'_>) -> Result<Accepted, SendFault> {
        if self.backlog.overflows(message.view()) {
            self.fail_because(DownReason::Backlog, io);
            return Err(SendFault::Overflow);
        }
        if self.backlog.len() >= MAX_BACKLOG {
            return Err(SendFault::NoBuffers);
        }
        let level = Level::of(message.view());
        let Some(importance) = level.importance() else { return Ok(Accepted::Sent) };
        let port = message.origin_port();
        self.backlog.count(importance, port, message.size());
        if !self.backlog.is_congested(level) {
            return Ok(Accepted::Sent);
        }
        self.backlog.register(Wakeup { port, importance });
        self.session.stats.congestions += 1;
        Ok(Accepted::Congested)
    }

    /// Sends a packet, or queues it if others are waiting.
    pub(super) fn send_packet(&mut self, packet: impl Into<Outgoing>, io: &mut LinkIo<'_>) {
        let packet = packet.into();
        if self.backlog.is_empty() && self.has_room_for(packet.view().user()) {
            return self.transmit_packet(packet, io);
        }
        match self.backlog.push(packet, self.mss(), self.config.own, self.config.peer) {
            Queued::Alone => {}
            Queued::Bundled => self.session.stats.tx_bundled += 1,
            Queued::NewBundle => {
                self.session.stats.tx_bundles += 1;
                self.session.stats.tx_bundled += 2;
            }
        }
    }

    /// Sends waiting packets as far as the window has room.
    pub(super) fn advance_backlog(&mut self, io: &mut LinkIo<'_>) {
        while self.backlog.first().is_some_and(|packet| self.has_room_for(packet.view().user())) {
            let Some(packet) = self.backlog.pop() else { return };
            self.transmit_packet(packet, io);
        }
    }

    /// True if the window has room. Fragments may fill the window; other packets are limited by the round trip.
    fn has_room_for(&self, user: User) -> bool {
        let window = self.session.window.size();
        let limit = if user == User::Fragmenter {
            window
        } else {
            window.min(self.session.round_trip.in_flight_limit())
        };
        self.session.transmit.has_room(limit)
    }

    /// Updates window, backlog and waiting ports after an acknowledgement.
    pub(super) fn released(&mut self, released: usize, repeated: bool, io: &mut LinkIo<'_>) {
        if released == 0 || !self.is_up() {
            return;
        }
        if !repeated {
            let pending = self.session.transmit.len() + self.backlog.len();
            self.session.window.released(released, pending, self.session.transmit.has_holes());
        }
        self.advance_backlog(io);
        self.backlog.wake(io.wakeups);
    }

    fn transmit_packet(&mut self, mut packet: Outgoing, io: &mut LinkIo<'_>) {
        let ahead = u16::from(planted::active(Fault::AckBeyond));
        let mut header = packet.edit();
        header.set_ack(self.ack().wrapping_add(ahead));
        header.set_bcast_ack(io.bcast.ack);
        self.session.acks.unacked = 0;
        self.session.stats.tx_packets += 1;
        let (largest, part) = (self.largest(), self.part_header());
        match self.session.transmit.push(packet, (), Time::ZERO) {
            // It was made before the path became narrower.
            Some(packet) if packet.size() > largest => packet.push_parts(part, largest, &mut io.frames),
            Some(packet) => packet.push(&mut io.frames),
            None => {}
        }
        self.session.stats.queue_max = self.session.stats.queue_max.max(self.session.transmit.len() as u64);
    }
}
