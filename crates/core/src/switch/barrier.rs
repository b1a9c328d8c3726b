//! Barriers: whether every peer has the bindings that this node had published when the barrier began. Decision 33.
//!
//! A node applies name messages before it acknowledges them, and never out of order. So it has them when it has
//! acknowledged everything that was sent to it until then, by its links and by the broadcast link. A kernel needs no
//! knowledge of it.

use core::time::Duration;
use std::collections::BTreeMap;

use super::peers::{PeerEntry, Peers};
use crate::addr::NodeAddr;
use crate::broadcast::BroadcastSender;
use crate::outbox::BearerId;
use crate::time::Time;

/// Pause between two questions for acknowledgements. Ours: some round trips; lost packets are repeated at the first.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until all peers have the bindings of this node; see [`Stack::begin_barrier`](crate::Stack::begin_barrier).
#[derive(Debug)]
pub struct Barrier {
    marks: BTreeMap<NodeAddr, Mark>,
    ask_at: Time,
}

/// What a peer has to acknowledge. It holds for one contact and one set of links: packets of a link that fails go on on
/// another one.
#[derive(Debug)]
struct Mark {
    contact: u64,
    /// Not all bindings have been sent to it.
    is_partial: bool,
    links: Vec<LinkMark>,
    broadcast: u64,
}

#[derive(Debug)]
struct LinkMark {
    bearer: BearerId,
    session: u16,
    packets: u64,
}

impl Mark {
    fn new(entry: &PeerEntry, bcast: &BroadcastSender) -> Self {
        let links = entry.peer.up_links().map(|(bearer, link)| LinkMark {
            bearer,
            session: link.session(),
            packets: link.progress().0,
        });
        Self {
            contact: entry.contact,
            is_partial: entry.bulk.is_some(),
            links: links.collect(),
            broadcast: bcast.position(),
        }
    }

    fn is_of(&self, entry: &PeerEntry) -> bool {
        let links = entry.peer.up_links().map(|(bearer, link)| (bearer, link.session()));
        !self.is_partial
            && self.contact == entry.contact
            && self.links.iter().map(|l| (l.bearer, l.session)).eq(links)
    }

    fn is_reached(&self, entry: &PeerEntry, bcast: &BroadcastSender) -> bool {
        let mut links = self.links.iter().zip(entry.peer.up_links());
        !self.is_partial
            && links.all(|(mark, (_, link))| link.progress().1 >= mark.packets)
            && bcast.acknowledged_by(entry.peer.addr) >= self.broadcast
            && (bcast.is_open(entry.peer.addr) || self.broadcast == 0)
    }
}

impl Barrier {
    /// The peers in contact, and what each has to acknowledge.
    pub(super) fn begin(now: Time, peers: &Peers, bcast: &BroadcastSender) -> Self {
        let up = peers.iter().filter(|(_, entry)| entry.peer.is_up());
        Self { marks: up.map(|(addr, entry)| (*addr, Mark::new(entry, bcast))).collect(), ask_at: now }
    }

    /// The peers that have not acknowledged yet, in order, without those that are down. A peer that has come up since
    /// the barrier began has received all bindings again, and has to acknowledge them.
    pub(super) fn awaited(&mut self, peers: &Peers, bcast: &BroadcastSender) -> Vec<NodeAddr> {
        let mut awaited = Vec::new();
        for (addr, entry) in peers.iter().filter(|(_, entry)| entry.peer.is_up()) {
            let mark = self.marks.entry(*addr).or_insert_with(|| Mark::new(entry, bcast));
            if !mark.is_of(entry) {
                *mark = Mark::new(entry, bcast);
            }
            if !mark.is_reached(entry, bcast) {
                awaited.push(*addr);
            }
        }
        awaited
    }

    /// Whether it is time to ask for acknowledgements again.
    pub(super) fn asks(&mut self, now: Time) -> bool {
        let asks = self.ask_at <= now;
        if asks {
            self.ask_at = now + ASK_AGAIN;
        }
        asks
    }
}
