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
        self.now = now;
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
            self.log().filter(|log| log.view.id == header.view).and_then(|log| log.view.rank(from))
        else {
            return;
        };
        if frozen {
            return;
        }
        let limit = self.flood_limit();
        let packet = Packet { bytes: bytes.into(), class: header.class };
        let taken =
            self.log_mut().map_or(Err(Refused::Gap), |log| log.receive(rank, header.number, packet, limit));
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
        if !self.broken {
            self.broken = true;
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
        if header.view != view || self.pending.is_none() {
            return;
        }
        let limit = (u64::MAX, usize::MAX);
        let packet = Packet { bytes: bytes.into(), class: header.class };
        let end = self
            .pending
            .as_ref()
            .and_then(|p| p.proposal.cut_of(view, self.me)?.ends.get(usize::from(rank)).copied());
        if end.is_some_and(|end| header.number <= end)
            && let Some(log) = self.log_mut()
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
        let count = self.log_mut().map_or(0, |log| log.place(rank));
        match self.runs.last_mut() {
            _ if count == 0 => {}
            Some(run) if usize::from(run.rank) == rank && run.count.checked_add(count).is_some() => {
                run.count += count
            }
            _ => self.runs.push(Run { rank: rank as u8, count }),
        }
    }

    fn receive_order(&mut self, from: MemberId, view: crate::ViewId, first: u64, stable: u64, runs: &[Run]) {
        let frozen = !self.state.is_in_view() && !active(Fault::NotFrozen);
        if view != self.view_id() || self.view().and_then(crate::View::sequencer) != Some(from) || frozen {
            return;
        }
        let Some(log) = self.log_mut() else { return };
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
        let known = self.log().map_or(0, crate::log::Log::known);
        let rank = self.view().and_then(|view| view.rank(from));
        if let Some(ack) = rank.and_then(|rank| self.acks.get_mut(rank)) {
            *ack = (*ack).max(place.min(known));
        }
    }

    /// Bytes that the application may leave untaken before this member stops acknowledging.
    pub(super) fn reading_room(&self) -> usize {
        self.config.window as usize + crate::MAX_MEMBERS * MAX_PACKET
    }

    /// The place up to which this member acknowledges: what it has, unless its application does not keep up.
    pub(super) fn acknowledged(&self) -> u64 {
        let held: usize = self.epochs.iter().map(|epoch| epoch.log.undelivered).sum();
        let reached = self.log().map_or(0, crate::log::Log::contiguous);
        let waiting: u64 = self.epochs.iter().map(|epoch| epoch.log.waiting()).sum();
        if held <= self.reading_room() && waiting <= MAX_WAITING { reached } else { self.acked }
    }

    /// The next message for the transport. The first call of a turn closes the batch of small messages.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if self.out.is_empty() {
            self.say_hello();
            if self.state.is_in_view() {
                self.send_batches();
                self.announce();
            }
        }
        let next = self.out.pop_front()?;
        self.out_bytes = self.out_bytes.saturating_sub(next.bytes.len());
        self.stats.sent += 1;
        Some(next)
    }

    /// Puts batches into packets as far as the window allows.
    fn send_batches(&mut self) {
        let (rank, share) = (self.rank(), self.share());
        let members = self.view().map_or(1, |view| view.seats.len().max(1)) as u64;
        while !self.batches.is_empty() && self.has_state {
            let ack = self.acknowledged();
            let Some(log) = self.log() else { return };
            let (packets, bytes) = log.in_flight(rank);
            if packets >= (MAX_IN_FLIGHT / members).max(2) || bytes > share {
                return;
            }
            let header =
                DataHeader { class: Class::Agreed, view: log.view.id, number: log.next_number(rank), ack };
            let Some(batch) = self.batches.pop() else { return };
            let header = DataHeader { class: batch.class, ..header };
            if batch.class == Class::Atomic {
                let count =
                    usize::try_from(batch.messages).unwrap_or(usize::MAX).min(self.tokens_queued.len());
                if let Some(epoch) = self.epochs.back_mut() {
                    epoch.tokens.extend(self.tokens_queued.drain(..count));
                }
            }
            let bytes = finish_data(batch.bytes, &header);
            let packet = Packet { bytes: bytes.clone(), class: header.class };
            let limit = (u64::MAX, usize::MAX);
            let taken =
                self.log_mut().is_some_and(|log| log.receive(rank, header.number, packet, limit).is_ok());
            if !taken {
                return self.give_up(Cause::Protocol);
            }
            self.acked = self.acked.max(ack);
            self.place(rank);
            self.push(Transmit { to: Target::All, bytes });
        }
    }

    /// Announces order and stability as the sequencer; acknowledges as another member.
    fn announce(&mut self) {
        if self.is_sequencer() { self.announce_order() } else { self.acknowledge() }
    }

    fn announce_order(&mut self) {
        let own = self.acknowledged();
        self.acked = own;
        let rank = self.rank();
        if let Some(ack) = self.acks.get_mut(rank) {
            *ack = own;
        }
        let stable =
            if active(Fault::StableTooEarly) { self.acks.iter().max() } else { self.acks.iter().min() };
        let stable = stable.copied().unwrap_or(0);
        let announced = self.announced_stable;
        let Some(log) = self.log_mut() else { return };
        log.stabilise(stable);
        let view = log.view.id;
        // In a group of safe order every message waits for this.
        let waits = log.last_safe > announced || self.config.ordering == crate::Ordering::Safe;
        let urgent =
            stable > announced && (waits || stable - announced >= MAX_IN_FLIGHT / 16 || self.is_due());
        if self.runs.is_empty() && !urgent {
            self.acknowledge_soon(stable > announced);
            return;
        }
        let first = self.announced + 1;
        let runs = std::mem::take(&mut self.runs);
        self.announced += runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        self.announced_stable = stable;
        self.ack_at = None;
        self.transmit(Target::All, &Message::Order { view, first, stable, runs });
    }

    fn acknowledge(&mut self) {
        let place = self.acknowledged();
        let Some(log) = self.log() else { return };
        let unacknowledged = place.saturating_sub(self.acked);
        let waits = log.last_safe > self.acked || self.config.ordering == crate::Ordering::Safe;
        let much = unacknowledged >= MAX_IN_FLIGHT / 16 || log.undelivered > self.config.window as usize / 4;
        let view = log.view.id;
        if unacknowledged == 0 || !(waits || much || self.is_due()) {
            return self.acknowledge_soon(unacknowledged > 0);
        }
        self.acked = place;
        self.ack_at = None;
        if let Some(sequencer) = self.view().and_then(crate::View::sequencer) {
            self.transmit(Target::One(sequencer), &Message::Ack { view, place });
        }
    }

    /// The application has taken what kept this member from acknowledging.
    pub(super) fn resume_acknowledging(&mut self) {
        if self.ack_at.is_none() && self.state.is_in_view() && self.acknowledged() > self.acked {
            self.acknowledge_soon(true);
        }
    }

    fn is_due(&self) -> bool {
        self.ack_at.is_some_and(|at| at <= self.now)
    }

    fn acknowledge_soon(&mut self, needed: bool) {
        let at = self.now + self.config.ack_delay;
        self.ack_at = if needed { self.ack_at.or(Some(at)) } else { None };
    }

    /// Sends what a passed delay was for.
    pub(super) fn acknowledge_late(&mut self) {
        if self.is_due() && self.state.is_in_view() {
            self.announce();
        }
        if self.is_due() {
            self.ack_at = None;
        }
    }
}
