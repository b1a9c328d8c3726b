//! Parts of packets that the path does not carry whole. Spec: tipc.md §4.7.
//!
//! A packet keeps its number when the path becomes narrower, so the link cannot divide it again. It travels in
//! LINK_PROTOCOL messages of a type of its own, which Linux ignores, and its receiver processes it when all have
//! arrived.

use std::collections::BTreeMap;

use crate::addr::NodeAddr;
use crate::outbox::FrameSink;
use crate::wire::{BareHeader, INTERNAL_HEADER, LinkProtocolType, Message, User, View};

/// Packets of one peer that may be incomplete at a time. Ours: parts of as many mix on a path that reorders.
const MAX_PACKETS: usize = 32;
/// Bytes of their parts. Ours: [`MAX_PACKETS`] packets of a jumbo frame each.
const MAX_BYTES: usize = 288 << 10;
/// Parts of a packet of 65,535 bytes in packets of 576 bytes, which every IPv4 host takes.
const MAX_PARTS: u16 = 128;

/// The header of a part of a packet from `own` to `dest`, none for a broadcast.
pub(crate) fn header(own: NodeAddr, dest: NodeAddr) -> BareHeader {
    let mut header = BareHeader::new(User::LinkProtocol, LinkProtocolType::Part.into(), 0);
    header.set_prev_node(own);
    header.set_origin_node(own);
    header.set_dest_node(dest);
    header.set_redundant_link(true);
    header
}

/// Sends a packet in parts of at most `largest` bytes.
pub(super) fn push(packet: &[u8], mut header: BareHeader, largest: usize, frames: &mut FrameSink<'_>) {
    let room = largest.saturating_sub(INTERNAL_HEADER).max(packet.len().div_ceil(usize::from(MAX_PARTS)));
    let inner = View::of_header(packet);
    header.set_non_sequenced(false);
    header.set_seqno(inner.seqno());
    header.set_bcast_ack_invalid(inner.non_sequenced());
    header.set_fragment_count(packet.len().div_ceil(room) as u16);
    for (number, slice) in (1u16..).zip(packet.chunks(room)) {
        header.set_data_size(slice.len());
        header.set_fragment_number(number);
        frames.push(header.with_data(slice).bytes());
    }
}

/// A packet of which parts have arrived.
#[derive(Debug)]
struct Incomplete {
    parts: Vec<Option<Box<[u8]>>>,
    bytes: usize,
    /// Order in which packets were begun.
    age: u64,
    /// A part has arrived since the last tick.
    is_fresh: bool,
}

/// The incomplete packets of one peer.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// By kind (true for a broadcast) and number.
    packets: BTreeMap<(bool, u16), Incomplete>,
    bytes: usize,
    begun: u64,
}

impl Parts {
    /// Memory of the parts, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a part if it needs at most `room` bytes; returns the packet when it is complete.
    pub(crate) fn take(&mut self, part: View<'_>, room: usize) -> Option<Message> {
        let (number, count) = (part.fragment_number(), part.fragment_count());
        let data = part.payload();
        if number == 0 || number > count || count > MAX_PARTS || data.is_empty() || data.len() > room {
            return None;
        }
        let key = (part.bcast_ack_invalid(), part.seqno());
        if self.packets.get(&key).is_some_and(|packet| packet.parts.len() != usize::from(count)) {
            self.remove(key); // the sender divides it differently now
        }
        while !self.packets.contains_key(&key)
            && (self.packets.len() >= MAX_PACKETS || self.bytes + data.len() > MAX_BYTES)
        {
            let oldest = self.packets.iter().min_by_key(|(_, packet)| packet.age).map(|(key, _)| *key)?;
            self.remove(oldest);
        }
        if self.bytes + data.len() > MAX_BYTES {
            return None;
        }
        self.begun += 1;
        let (age, len) = (self.begun, usize::from(count));
        let packet = self.packets.entry(key).or_insert_with(|| Incomplete {
            parts: vec![None; len],
            bytes: 0,
            age,
            is_fresh: true,
        });
        packet.is_fresh = true;
        let place = packet.parts.get_mut(usize::from(number) - 1)?;
        if place.is_none() {
            *place = Some(data.into());
            packet.bytes += data.len();
            self.bytes += data.len();
        }
        if packet.parts.iter().any(Option::is_none) {
            return None;
        }
        let whole: Vec<u8> = packet.parts.iter().flatten().flat_map(|part| part.iter().copied()).collect();
        self.remove(key);
        let view = View::parse(&whole).ok()?;
        // Parts of different divisions do not add up to the size in the header.
        let fits = view.size() == whole.len() && view.seqno() == key.1 && view.non_sequenced() == key.0;
        let may_be_inside = !matches!(view.user(), User::LinkProtocol | User::LinkConfig);
        (fits && may_be_inside && view.prev_node() == part.prev_node()).then(|| view.to_message())
    }

    /// Forgets packets of which nothing has arrived since the last call: they came in another way.
    pub(crate) fn tick(&mut self) {
        let stale: Vec<_> = self.packets.iter().filter(|(_, p)| !p.is_fresh).map(|(key, _)| *key).collect();
        stale.into_iter().for_each(|key| self.remove(key));
        self.packets.values_mut().for_each(|packet| packet.is_fresh = false);
    }

    fn remove(&mut self, key: (bool, u16)) {
        if let Some(packet) = self.packets.remove(&key) {
            self.bytes -= packet.bytes;
        }
    }
}
