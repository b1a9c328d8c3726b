//! The sending half of a sequence: packets in flight, kept until they are acknowledged. Spec: tipc.md §5.8.

use std::collections::VecDeque;

use super::packet::Outgoing;
use super::path::is_large;
use crate::limits::MAX_WINDOW;
use crate::planted::{self, Fault};
use crate::pool::Pool;
use crate::time::Time;
use crate::wire::{GapBlock, seq};

/// Retransmissions of a packet after which their least interval doubles. Ours: of packets that are lost with a
/// probability of one half, one in sixteen is lost more often.
const REPEATS_AT_ONCE: u8 = 4;
/// Maximum number of doublings of that interval. Ours: a peer that reports everything as missing all the time gets a
/// window again about 30 times a second instead of 1000 times.
const MAX_DOUBLINGS: u32 = 5;

/// Of the retransmissions in parts, every so many are accompanied by the whole packet.
const WHOLE_EVERY: u8 = 4;

/// A packet in flight. `T` is additional state of the queue's owner.
#[derive(Debug)]
pub(crate) struct Sent<T> {
    /// The packet, with its number.
    pub(crate) packet: Outgoing,
    /// State of the queue's owner.
    pub(crate) extra: T,
    /// Earliest time of the next retransmission.
    next_retransmit: Time,
    /// Time of the first retransmission.
    first_retransmit: Option<Time>,
    /// Number of retransmissions.
    repeats: u8,
}

impl<T> Sent<T> {
    /// True if the packet may be retransmitted now, at most once in `spacing_ms`, and less often after several times;
    /// records the time.
    pub(crate) fn try_retransmit(&mut self, now: Time, spacing_ms: u64) -> bool {
        if now < self.next_retransmit || planted::active(Fault::NoRetransmission) {
            return false;
        }
        let doublings = u32::from(self.repeats / REPEATS_AT_ONCE).min(MAX_DOUBLINGS);
        self.next_retransmit = now.plus_millis(spacing_ms << doublings);
        self.repeats = self.repeats.saturating_add(1);
        self.first_retransmit.get_or_insert(now);
        true
    }

    /// True if this retransmission also goes out whole although the path seems too narrow: it may have recovered, and
    /// only utipc takes parts.
    pub(crate) fn tries_whole(&self) -> bool {
        self.repeats.is_multiple_of(WHOLE_EVERY)
    }

    /// Time of the first retransmission.
    pub(crate) fn first_retransmit(&self) -> Option<Time> {
        self.first_retransmit
    }
}

/// Packets in flight, by number. Packets may be removed out of order, which leaves holes.
#[derive(Debug)]
pub(crate) struct TransmitQueue<T = ()> {
    snd_nxt: u16,
    /// The last slot holds packet `snd_nxt - 1`; the first is not empty.
    slots: VecDeque<Option<Sent<T>>>,
    count: usize,
    /// Packets sent since the queue was made.
    sent: u64,
    /// Large packets that were acknowledged since the queue was made.
    large_acknowledged: u64,
}

impl<T> TransmitQueue<T> {
    /// An empty queue whose first packet gets number `snd_nxt`.
    pub(crate) fn new(snd_nxt: u16) -> Self {
        Self { snd_nxt, slots: VecDeque::new(), count: 0, sent: 0, large_acknowledged: 0 }
    }

    /// Number of the next packet to send.
    pub(crate) fn snd_nxt(&self) -> u16 {
        self.snd_nxt
    }

    /// Number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// True if all packets are acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Packets sent since the queue was made.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets sent before the oldest one in flight.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.sent - self.slots.len() as u64
    }

    /// Packets for which [`is_large`] is true that were acknowledged since the queue was made.
    pub(crate) fn large_acknowledged(&self) -> u64 {
        self.large_acknowledged
    }

    /// True if one more packet fits a window of `window` packets and the receiver's accept window.
    pub(crate) fn has_room(&self, window: u16) -> bool {
        self.count < usize::from(window) && self.slots.len() < usize::from(MAX_WINDOW)
    }

    /// True if a packet was acknowledged before an earlier one.
    pub(crate) fn has_holes(&self) -> bool {
        self.slots.len() != self.count
    }

    /// Number of the oldest packet in flight; `snd_nxt` if there is none.
    pub(crate) fn head(&self) -> u16 {
        self.snd_nxt.wrapping_sub(self.slots.len() as u16)
    }

    /// The oldest packet in flight.
    pub(crate) fn first(&self) -> Option<&Sent<T>> {
        self.slots.front()?.as_ref()
    }

    /// Numbers a packet and keeps it; returns the packet to be sent. It may be retransmitted from `retransmit_from` on.
    pub(crate) fn push(
        &mut self,
        packet: impl Into<Outgoing>,
        extra: T,
        retransmit_from: Time,
    ) -> Option<&Outgoing> {
        let mut packet = packet.into();
        packet.edit().set_seqno(self.snd_nxt);
        self.snd_nxt = self.snd_nxt.wrapping_add(1);
        self.count += 1;
        self.sent += 1;
        let sent =
            Sent { packet, extra, next_retransmit: retransmit_from, first_retransmit: None, repeats: 0 };
        self.slots.push_back(Some(sent));
        self.slots.back().and_then(Option::as_ref).map(|sent| &sent.packet)
    }

    /// The packet with this number, if it is in flight.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self, seqno: u16) -> Option<&mut Sent<T>> {
        let at = self.index(seqno)?;
        self.slots.get_mut(at)?.as_mut()
    }

    /// The packets in flight with numbers from `first` to `last` (both included), in order.
    pub(crate) fn range_mut(&mut self, first: u16, last: u16) -> impl Iterator<Item = &mut Sent<T>> {
        let head = self.head();
        let from = if seq::lt(first, head) { 0 } else { usize::from(first.wrapping_sub(head)) };
        let to = if seq::lt(last, head) { 0 } else { usize::from(last.wrapping_sub(head)) + 1 };
        let to = to.min(self.slots.len());
        self.slots.range_mut(from.min(to)..to).flatten()
    }

    /// All packets in flight, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sent<T>> {
        self.slots.iter().flatten()
    }

    /// Removes the packet with this number; false if it is not in flight.
    pub(crate) fn remove(&mut self, seqno: u16) -> bool {
        let Some(at) = self.index(seqno) else { return false };
        let found = self.slots.get_mut(at).is_some_and(|slot| slot.take().is_some());
        self.count -= usize::from(found);
        self.trim();
        found
    }

    /// True if an acknowledgement up to this number removes packets.
    pub(crate) fn releases(&self, ack: u16) -> bool {
        self.is_sent(ack) && !seq::lt(ack, self.head())
    }

    /// Removes all packets up to `ack` and returns their number; 0 for a number that was never sent or is old.
    pub(crate) fn release_to(&mut self, ack: u16, pool: &mut Pool) -> usize {
        if !self.releases(ack) {
            return 0;
        }
        let before = self.count;
        for _ in 0..=ack.wrapping_sub(self.head()) {
            if let Some(sent) = self.slots.pop_front().flatten() {
                self.count -= 1;
                self.large_acknowledged += u64::from(is_large(sent.packet.size()));
                sent.packet.recycle(pool);
            }
        }
        self.trim();
        before - self.count
    }

    /// Removes the packets with numbers from `first` to `last` and returns their number.
    pub(crate) fn release_range(&mut self, first: u16, last: u16, pool: &mut Pool) -> usize {
        if seq::lt(last, first) || !self.is_sent(last) {
            return 0;
        }
        let before = self.count;
        let mut seqno = if seq::lt(first, self.head()) { self.head() } else { first };
        while seq::le(seqno, last) {
            let slot = self.index(seqno).and_then(|at| self.slots.get_mut(at));
            if let Some(sent) = slot.and_then(Option::take) {
                self.count -= 1;
                self.large_acknowledged += u64::from(is_large(sent.packet.size()));
                sent.packet.recycle(pool);
            }
            seqno = seqno.wrapping_add(1);
        }
        self.trim();
        before - self.count
    }

    /// True if a packet with this number was sent (in the half range before `snd_nxt`).
    pub(crate) fn is_sent(&self, seqno: u16) -> bool {
        seq::lt(seqno, self.snd_nxt)
    }

    /// True if a correct peer can report this: nothing beyond `snd_nxt`, blocks in rising order. Spec: tipc.md §14.2.
    pub(crate) fn is_plausible(&self, ack: u16, gap: u16, blocks: &[GapBlock]) -> bool {
        let mut end = ack;
        let mut first = true;
        for &(to, missing) in core::iter::once(&(ack, gap)).chain(blocks) {
            let rising = first || seq::lt(end, to);
            end = to.wrapping_add(missing);
            if !rising || missing > MAX_WINDOW || !self.is_sent(to) || !self.is_sent(end) {
                return false;
            }
            first = false;
        }
        true
    }

    /// Removes all packets in flight, in order, and restarts at `snd_nxt`.
    pub(crate) fn take(&mut self, snd_nxt: u16) -> impl Iterator<Item = Sent<T>> {
        self.snd_nxt = snd_nxt;
        self.count = 0;
        core::mem::take(&mut self.slots).into_iter().flatten()
    }

    fn index(&self, seqno: u16) -> Option<usize> {
        let at = usize::from(seqno.wrapping_sub(self.head()));
        (at < self.slots.len()).then_some(at)
    }

    /// Removes empty slots at the front.
    fn trim(&mut self) {
        while matches!(self.slots.front(), Some(None)) {
            self.slots.pop_front();
        }
    }
}
