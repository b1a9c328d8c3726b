//! Messages in a view: packets, their order, acknowledgements.
//!
//! A member broadcasts its packets; the sequencer broadcasts the order. A packet costs no separate acknowledgement:
//! acknowledgements travel in packets, after a quarter of the window, after a delay, or, if a safe message waits, once
//! in each turn of the caller's loop.

use utipc_core::Time;

use super::{Member, Target, Transmit};
use crate::config::{MAX_IN_FLIGHT, MAX_PACKET};
use crate::event::Cause;
use crate::log::Refused;
use crate::planted::{Fault, active};
use crate::state::State;
use crate::view::MemberId;
use crate::wire::{Class, DataHeader, Message, Packet, Run, finish_data};

/// Packets that the application may leave untaken before this member stops acknowledging.
const MAX_WAITING: u64 = 8 * MAX_IN_FLIGHT;

impl Member {
    /// A message from a member.
    pub fn receive(&mut self, now: Time, from: MemberId, bytes: &[u8]) {
        self.times.now = now;
        if self.state == State::Idle || !self.peers.contains_key(&from) {
            return;
        }
        let Ok(message) = Message::parse(bytes) else {
            self.stats.refused += 1;
            return;
        };
        let shown = message.installed();
        if shown.is_some() && shown == self.accepted().map(|view| view.id) {
            self.install();
            self.reconsider();
        }
        match message {
            Message::Data(header) => return self.receive_data(from, &header, bytes),
            Message::Order { view, first, stable, runs } => {
                return self.receive_order(from, view, first, stable, &runs);
            }
            Message::Ack { view, place } if view == self.view_id() => return self.receive_ack(from, place),
            Message::Hello(hello) => self.receive_hello(from, hello),
            Message::Collect { ballot } => self.receive_collect(from, ballot),
            Message::Status { ballot, status } => {
                if status.hello.config == self.config.word() {
                    self.receive_status(from, ballot, *status);
                }
            }
            Message::Refuse { ballot, round, refusal } => self.receive_refusal(from, ballot, round, refusal),
            Message::Propose { ballot, proposal, holders } if ballot.coordinator == from => {
                self.receive_proposal(ballot, *proposal, &holders);
            }
            Message::Accepted { ballot } => self.receive_accepted(from, ballot),
            Message::NoMajority { ballot } if ballot.coordinator == from => self.receive_no_majority(ballot),
            Message::Fetch { view, rank, after, end } => self.receive_fetch(from, (view, rank, after, end)),
            Message::Relay { rank, packet } => self.receive_relay(rank, packet),
            Message::Chunk { view, index, last, bytes } => self.receive_chunk(from, view, index, last, bytes),
            Message::ChunkAck { view, taken } => self.receive_chunk_ack(from, view, taken),
            Message::Bye => self.receive_bye(from),
            Message::Ack { .. } | Message::Propose { .. } | Message::NoMajority { .. } => {}
        }
        self.reconsider();
    }

    /// The packets that a sender may have in flight, as a receiver sees it: its share in this window and in the
    /// previous one, which may be stable without this member's knowledge.
    fn flood_limit(&self) -> (u64, usize) {
        (2 * MAX_IN_FLIGHT, 3 * self.share() + 2 * MAX_PACKET)
    }

    fn receive_data(&mut self, from: MemberId, header: &DataHeader, bytes: &[u8]) {
        let frozen = !self.state.is_in_view() && !active(Fault::NotFrozen);
        let Some(rank) =
            self.history.log().filter(|log| log.view.id == header.view).and_then(|log| log.view.rank(from))
        else {
            return;
        };
        if frozen {
            return;
        }
        let limit = self.flood_limit();
        let packet = Packet { bytes: bytes.into(), class: header.class };
        let taken = self
            .history
            .log_mut()
            .map_or(Err(Refused::Gap), |log| log.receive(rank, header.number, packet, limit));
        match taken {
            Ok(()) => {
                self.place(rank);
                self.receive_ack(from, header.ack);
            }
            Err(Refused::Duplicate) => self.stats.refused += 1,
            Err(Refused::Gap | Refused::Flood) => self.lose_view(),
        }
    }

    /// Messages of the view are missing here: only a view change can bring them.
    fn lose_view(&mut self) {
        self.stats.refused += 1;
        if self.losses.set_broken() {
            self.hello_due = true;
            self.reconsider();
        }
    }

    /// A packet fetched from another member.
    pub(super) fn receive_relay(&mut self, rank: u8, bytes: &[u8]) {
        let view = self.view_id();
        let Ok(header) = DataHeader::parse(bytes) else {
            self.stats.refused += 1;
            return;
        };
        // Without a proposal nothing was fetched.
        if header.view != view || self.ballots.pending().is_none() {
            return;
        }
        let limit = (u64::MAX, usize::MAX);
        let packet = Packet { bytes: bytes.into(), class: header.class };
        let cut = self.ballots.pending_cut(view, self.me);
        let end = cut.and_then(|cut| cut.ends.get(usize::from(rank)).copied());
        if end.is_some_and(|end| header.number <= end)
            && let Some(log) = self.history.log_mut()
            && log.receive(usize::from(rank), header.number, packet, limit).is_ok()
        {
            self.accept_if_complete();
        }
    }

    fn is_sequencer(&self) -> bool {
        self.view().and_then(crate::View::sequencer) == Some(self.me)
    }

    /// As the sequencer: gives the packets of a sender their places.
    fn place(&mut self, rank: usize) {
        if !self.is_sequencer() || !self.state.is_in_view() {
            return;
        }
        let count = self.history.log_mut().map_or(0, |log| log.place(rank));
        self.order.place(rank, count);
    }

    fn receive_order(&mut self, from: MemberId, view: crate::ViewId, first: u64, stable: u64, runs: &[Run]) {
        let frozen = !self.state.is_in_view() && !active(Fault::NotFrozen);
        if view != self.view_id() || self.view().and_then(crate::View::sequencer) != Some(from) || frozen {
            return;
        }
        let Some(log) = self.history.log_mut() else { return };
        if log.extend(first, runs) {
            log.stabilise(stable);
        } else {
            self.lose_view();
        }
    }

    /// As the sequencer: notes that a member has all packets up to a place.
    fn receive_ack(&mut self, from: MemberId, place: u64) {
        if !self.is_sequencer() || !self.state.is_in_view() {
            return;
        }
        let known = self.history.log().map_or(0, crate::log::Log::known);
        let rank = self.view().and_then(|view| view.rank(from));
        if let Some(rank) = rank {
            self.order.note_ack(rank, place.min(known));
        }
    }

    /// Bytes that the application may leave untaken before this member stops acknowledging.
    pub(super) fn reading_room(&self) -> usize {
        self.config.window as usize + crate::MAX_MEMBERS * MAX_PACKET
    }

    /// The place up to which this member acknowledges: what it has, unless its application does not keep up.
    pub(super) fn acknowledged(&self) -> u64 {
        let reached = self.history.log().map_or(0, crate::log::Log::contiguous);
        let reads =
            self.history.undelivered() <= self.reading_room() && self.history.waiting() <= MAX_WAITING;
        if reads { reached } else { self.order.acked() }
    }

    /// The next message for the transport. The first call of a turn closes the batch of small messages.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if self.outbox.is_empty() {
            self.say_hello();
            if self.state.is_in_view() {
                self.send_batches();
                self.announce();
            }
        }
        let next = self.outbox.pop()?;
        self.stats.sent += 1;
        Some(next)
    }

    /// Puts batches into packets as far as the window allows.
    fn send_batches(&mut self) {
        let (rank, share) = (self.rank(), self.share());
        let members = self.view().map_or(1, |view| view.seats.len().max(1)) as u64;
        while !self.batches.is_empty() && self.has_state {
            let ack = self.acknowledged();
            let Some(log) = self.history.log() else { return };
            let (packets, bytes) = log.in_flight(rank);
            if packets >= (MAX_IN_FLIGHT / members).max(2) || bytes > share {
                return;
            }
            let header =
                DataHeader { class: Class::Agreed, view: log.view.id, number: log.next_number(rank), ack };
            let Some(batch) = self.batches.pop() else { return };
            let header = DataHeader { class: batch.class, ..header };
            if batch.class == Class::Atomic
                && let Some(epoch) = self.history.last_mut()
            {
                epoch.tokens.extend(self.tokens.take(batch.messages));
            }
            let bytes = finish_data(batch.bytes, &header);
            let packet = Packet { bytes: bytes.clone(), class: header.class };
            let limit = (u64::MAX, usize::MAX);
            let taken = self
                .history
                .log_mut()
                .is_some_and(|log| log.receive(rank, header.number, packet, limit).is_ok());
            if !taken {
                return self.give_up(Cause::Protocol);
            }
            self.order.note_acked(ack);
            self.place(rank);
            self.outbox.push(Transmit { to: Target::All, bytes });
        }
    }

    /// Announces order and stability as the sequencer; acknowledges as another member.
    fn announce(&mut self) {
        if self.is_sequencer() { self.announce_order() } else { self.acknowledge() }
    }

    fn announce_order(&mut self) {
        let stable = self.order.stable(self.rank(), self.acknowledged());
        let announced = self.order.announced_stable();
        let Some(log) = self.history.log_mut() else { return };
        log.stabilise(stable);
        let view = log.view.id;
        // In a group of safe order every message waits for this.
        let waits = log.last_safe > announced || self.config.ordering == crate::Ordering::Safe;
        let urgent =
            stable > announced && (waits || stable - announced >= MAX_IN_FLIGHT / 16 || self.is_due());
        if !self.order.has_places() && !urgent {
            self.acknowledge_soon(stable > announced);
            return;
        }
        let (first, runs) = self.order.announce(stable);
        self.transmit(Target::All, &Message::Order { view, first, stable, runs });
    }

    fn acknowledge(&mut self) {
        let place = self.acknowledged();
        let Some(log) = self.history.log() else { return };
        let unacknowledged = place.saturating_sub(self.order.acked());
        let waits = log.last_safe > self.order.acked() || self.config.ordering == crate::Ordering::Safe;
        let much = unacknowledged >= MAX_IN_FLIGHT / 16 || log.undelivered > self.config.window as usize / 4;
        let view = log.view.id;
        if unacknowledged == 0 || !(waits || much || self.is_due()) {
            return self.acknowledge_soon(unacknowledged > 0);
        }
        self.order.acknowledge(place);
        if let Some(sequencer) = self.view().and_then(crate::View::sequencer) {
            self.transmit(Target::One(sequencer), &Message::Ack { view, place });
        }
    }

    /// The application has taken what kept this member from acknowledging.
    pub(super) fn resume_acknowledging(&mut self) {
        if self.order.due().is_none() && self.state.is_in_view() && self.acknowledged() > self.order.acked() {
            self.acknowledge_soon(true);
        }
    }

    fn is_due(&self) -> bool {
        self.order.is_due(self.times.now)
    }

    fn acknowledge_soon(&mut self, needed: bool) {
        let at = self.times.now + self.config.ack_delay;
        self.order.tell_by(needed.then_some(at));
    }

    /// Sends what a passed delay was for.
    pub(super) fn acknowledge_late(&mut self) {
        if self.is_due() && self.state.is_in_view() {
            self.announce();
        }
        if self.is_due() {
            self.order.tell_by(None);
        }
    }
}
