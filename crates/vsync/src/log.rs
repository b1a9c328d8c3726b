//! The messages of one view at one member: packets by sender, their order, and the progress of each step.
//!
//! A *place* is a position in the total order, from 1; each packet has one. Three cursors move along the order:
//! `collected` ≤ `delivered` ≤ `contiguous` ≤ places known. Only the sequencer makes places, so that the orders that
//! two members know are equal as far as both go.

use std::collections::VecDeque;

use crate::config::MAX_IN_FLIGHT;
use crate::planted::{Fault, active};
use crate::view::View;
use crate::wire::{Cut, Packet, Report, Run};

/// Maximum number of places whose packets have not arrived. Members have at most this much in flight in this view and
/// the previous one.
const MAX_AHEAD: u64 = 4 * MAX_IN_FLIGHT;

/// The packets of one sender.
#[derive(Debug, Default)]
struct Sender {
    /// Packets after `collected`, in the order of their numbers.
    packets: VecDeque<Packet>,
    /// Packets freed.
    collected: u64,
    /// Packets with a place.
    placed: u64,
    /// Packets in places up to `contiguous`.
    contiguous: u64,
    /// Packets delivered.
    delivered: u64,
    /// Packets in stable places.
    stable: u64,
    /// Bytes of packets after those.
    unstable: usize,
}

impl Sender {
    fn received(&self) -> u64 {
        self.collected + self.packets.len() as u64
    }

    fn packet(&self, number: u64) -> Option<&Packet> {
        self.packets.get(usize::try_from(number.checked_sub(self.collected + 1)?).ok()?)
    }
}

/// A packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It has been received before.
    Duplicate,
    /// Packets before it are missing, because the path to its sender was lost in between.
    Gap,
    /// Its sender exceeds its window.
    Flood,
}

/// A packet whose turn it is.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) rank: usize,
    pub(crate) place: u64,
    pub(crate) packet: &'a Packet,
    /// The view ended before every member was known to have it.
    pub(crate) transitional: bool,
}

/// The messages of one view.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) view: View,
    senders: Vec<Sender>,
    /// Ranks of the senders in places after `collected`.
    order: VecDeque<u8>,
    collected: u64,
    contiguous: u64,
    delivered: u64,
    /// Places whose packets every member of the view has.
    pub(crate) stable: u64,
    /// The last place with a packet that is delivered only when stable.
    pub(crate) last_safe: u64,
    /// Bytes received and not delivered.
    pub(crate) undelivered: usize,
    /// The end of the view is known: nothing more arrives.
    pub(crate) sealed: bool,
}

impl Log {
    pub(crate) fn new(view: View) -> Self {
        let senders = view.seats.iter().map(|_| Sender::default()).collect();
        Self {
            view,
            senders,
            order: VecDeque::new(),
            collected: 0,
            contiguous: 0,
            delivered: 0,
            stable: 0,
            last_safe: 0,
            undelivered: 0,
            sealed: false,
        }
    }

    /// Places known.
    pub(crate) fn known(&self) -> u64 {
        self.collected + self.order.len() as u64
    }

    pub(crate) fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// The number of the next packet of a sender.
    pub(crate) fn next_number(&self, rank: usize) -> u64 {
        self.senders.get(rank).map_or(1, |sender| sender.received() + 1)
    }

    /// Packets and bytes of a sender that are not known to be stable.
    pub(crate) fn in_flight(&self, rank: usize) -> (u64, usize) {
        self.senders.get(rank).map_or((0, 0), |sender| (sender.received() - sender.stable, sender.unstable))
    }

    /// Packets that the application has not taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.contiguous - self.delivered
    }

    /// Takes packet `number` of a sender.
    pub(crate) fn receive(
        &mut self,
        rank: usize,
        number: u64,
        packet: Packet,
        limit: (u64, usize),
    ) -> Result<(), Refused> {
        let sender = self.senders.get_mut(rank).ok_or(Refused::Duplicate)?;
        match number.cmp(&(sender.received() + 1)) {
            core::cmp::Ordering::Less => return Err(Refused::Duplicate),
            core::cmp::Ordering::Greater => return Err(Refused::Gap),
            core::cmp::Ordering::Equal => {}
        }
        if sender.received() - sender.stable >= limit.0 || sender.unstable > limit.1 {
            return Err(Refused::Flood);
        }
        sender.unstable += packet.bytes.len();
        self.undelivered += packet.bytes.len();
        sender.packets.push_back(packet);
        self.advance();
        Ok(())
    }

    /// As the sequencer: gives all received packets of a sender a place. Returns how many got a place.
    pub(crate) fn place(&mut self, rank: usize) -> u16 {
        let Some(sender) = self.senders.get_mut(rank) else { return 0 };
        let mut count = 0;
        while sender.placed < sender.received() && count < u16::MAX {
            sender.placed += 1;
            count += 1;
            self.order.push_back(rank as u8);
        }
        self.advance();
        count
    }

    /// Takes places from the sequencer. False if earlier places are missing, a run is impossible, or there are more
    /// places than packets can be in flight.
    pub(crate) fn extend(&mut self, first: u64, runs: &[Run]) -> bool {
        let added: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if first != self.known() + 1 || self.known() - self.contiguous + added > MAX_AHEAD {
            return false;
        }
        let possible = |run: &Run| usize::from(run.rank) < self.senders.len();
        if !runs.iter().all(possible) {
            return false;
        }
        for run in runs {
            if let Some(sender) = self.senders.get_mut(usize::from(run.rank)) {
                sender.placed += u64::from(run.count);
            }
            self.order.extend(core::iter::repeat_n(run.rank, usize::from(run.count)));
        }
        self.advance();
        true
    }

    fn advance(&mut self) {
        loop {
            let index = usize::try_from(self.contiguous - self.collected).unwrap_or(usize::MAX);
            let Some(rank) = self.order.get(index) else { return };
            let Some(sender) = self.senders.get_mut(usize::from(*rank)) else { return };
            let Some(packet) = sender.packet(sender.contiguous + 1) else { return };
            let safe = packet.class.is_safe();
            sender.contiguous += 1;
            self.contiguous += 1;
            if safe {
                self.last_safe = self.contiguous;
            }
        }
    }

    /// The packet that is delivered next, if its turn has come. `safe`: treat all packets as safe.
    pub(crate) fn turn(&self, safe: bool) -> Option<Turn<'_>> {
        if self.delivered >= self.contiguous {
            return None;
        }
        let rank = usize::from(*self.order.get(usize::try_from(self.delivered - self.collected).ok()?)?);
        let sender = self.senders.get(rank)?;
        let packet = sender.packet(sender.delivered + 1)?;
        let place = self.delivered + 1;
        let unstable = place > self.stable;
        if unstable && !self.sealed && (safe || packet.class.is_safe()) {
            return None;
        }
        Some(Turn { rank, place, packet, transitional: unstable && self.sealed })
    }

    /// Notes that the packet of [`Log::turn`] is delivered.
    pub(crate) fn delivered_one(&mut self) {
        let Some(index) = usize::try_from(self.delivered - self.collected).ok() else { return };
        let Some(rank) = self.order.get(index) else { return };
        let Some(sender) = self.senders.get_mut(usize::from(*rank)) else { return };
        sender.delivered += 1;
        let bytes = sender.packet(sender.delivered).map_or(0, |packet| packet.bytes.len());
        self.undelivered = self.undelivered.saturating_sub(bytes);
        self.delivered += 1;
        self.collect();
    }

    /// Every member has the packets up to this place.
    pub(crate) fn stabilise(&mut self, place: u64) {
        while self.stable < place.min(self.contiguous) {
            let Some(index) = usize::try_from(self.stable - self.collected).ok() else { return };
            let Some(rank) = self.order.get(index) else { return };
            let Some(sender) = self.senders.get_mut(usize::from(*rank)) else { return };
            sender.stable += 1;
            let bytes = sender.packet(sender.stable).map_or(0, |packet| packet.bytes.len());
            sender.unstable = sender.unstable.saturating_sub(bytes);
            self.stable += 1;
        }
        self.collect();
    }

    /// Frees what is delivered and stable: no member can need it again.
    fn collect(&mut self) {
        while self.collected < self.stable.min(self.delivered) {
            let Some(rank) = self.order.pop_front() else { return };
            self.collected += 1;
            if let Some(sender) = self.senders.get_mut(usize::from(rank))
                && sender.packets.pop_front().is_some()
            {
                sender.collected += 1;
            }
        }
    }

    /// The packets that this member has, for the coordinator of a view change.
    pub(crate) fn report(&self) -> Report {
        let mut runs: Vec<Run> = Vec::new();
        let freed = usize::try_from(self.stable - self.collected).unwrap_or(usize::MAX);
        for rank in self.order.iter().skip(freed) {
            match runs.last_mut() {
                Some(run) if run.rank == *rank && run.count < u16::MAX => run.count += 1,
                _ => runs.push(Run { rank: *rank, count: 1 }),
            }
        }
        Report {
            stable: self.stable,
            base: self.senders.iter().map(|sender| sender.stable).collect(),
            received: self.senders.iter().map(Sender::received).collect(),
            contiguous: self.contiguous,
            runs,
        }
    }

    /// The packets of a sender after `after` up to `end`.
    pub(crate) fn packets(&self, rank: usize, after: u64, end: u64) -> impl Iterator<Item = &Packet> {
        let sender = self.senders.get(rank);
        let fetched = if active(Fault::FetchOffByOne) { end.saturating_sub(1) } else { end };
        let range = after.saturating_add(1)..=fetched.min(sender.map_or(0, Sender::received));
        range.filter_map(move |number| sender?.packet(number))
    }

    /// For each sender, the packets received.
    pub(crate) fn received(&self) -> impl Iterator<Item = u64> + '_ {
        self.senders.iter().map(Sender::received)
    }

    /// Whether the log has everything up to the cut.
    pub(crate) fn has_all(&self, cut: &Cut) -> bool {
        self.senders.len() == cut.ends.len()
            && self.senders.iter().zip(&cut.ends).all(|(sender, end)| sender.received() >= *end)
    }

    /// Whether the cut continues what this member knows: it keeps all places that may have been delivered, and its
    /// order has as many packets as its ends imply.
    pub(crate) fn fits(&self, cut: &Cut) -> bool {
        let kept = cut.from.checked_sub(self.collected).and_then(|n| usize::try_from(n).ok());
        let Some(kept) = kept.filter(|kept| *kept <= self.order.len() && cut.from <= self.contiguous) else {
            return false;
        };
        let mut placed: Vec<u64> = self.senders.iter().map(|sender| sender.collected).collect();
        for rank in self.order.iter().take(kept) {
            if let Some(n) = placed.get_mut(usize::from(*rank)) {
                *n += 1;
            }
        }
        let mut own = self.order.iter().skip(kept);
        let mut place = cut.from;
        for run in &cut.runs {
            let Some(n) = placed.get_mut(usize::from(run.rank)) else { return false };
            *n += u64::from(run.count);
            for _ in 0..run.count {
                place += 1;
                let same = own.next() == Some(&run.rank);
                if place <= self.contiguous && !same {
                    return false;
                }
            }
        }
        place >= self.contiguous && placed == cut.ends
    }

    /// Ends the view with the cut, which [`Log::fits`] and [`Log::has_all`] have checked.
    pub(crate) fn seal(&mut self, cut: &Cut) {
        let kept = usize::try_from(cut.from.saturating_sub(self.collected)).unwrap_or(usize::MAX);
        self.order.truncate(kept);
        for run in &cut.runs {
            self.order.extend(core::iter::repeat_n(run.rank, usize::from(run.count)));
        }
        self.advance();
        self.sealed = true;
    }

    /// A sealed log with nothing left to deliver.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.sealed && self.delivered >= self.contiguous
    }
}
