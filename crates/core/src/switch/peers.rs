//! The known nodes, with what discovery asks about all of them. One host can send thousands of discovery messages a
//! second in the name of as many nodes, so no such message may cost a look at every known node.

use core::ops::RangeBounds;
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};

use super::deferral::Deferred;
use super::hold::Hold;
use crate::addr::{NodeAddr, NodeId};
use crate::broadcast::BroadcastReceiver;
use crate::discovery::{KnownNodes, Neighbour};
use crate::limits::{CAPABILITIES, MAX_PEERS};
use crate::link::Parts;
use crate::names::{Bulk, NameReceiver};
use crate::node::peer::Peer;
use crate::time::Time;

/// Time for which a node that is down is remembered, milliseconds. Spec: tipc.md §6.6.
const RETENTION_MS: u64 = 300_000;

/// A peer node, with the state that other modules keep for it.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(super) peer: Peer,
    /// Receives its broadcasts.
    pub(super) receiver: BroadcastReceiver,
    /// Receives its bindings and applies them to the table.
    pub(super) names: NameReceiver,
    /// Its number among the peers that have never had a link.
    pub(super) stranger: Option<u64>,
    /// Its packets that arrive in parts.
    pub(super) parts: Parts,
    /// Its delivered messages are being dispatched.
    pub(super) dispatching: bool,
    /// Congested levels last reported for it; see [`Peer::congestion`].
    pub(super) congestion: u8,
    /// Whether its messages wait for a full receiver.
    pub(super) hold: Hold,
    /// Memory of its early packets.
    pub(super) deferred: Deferred,
    /// Number of the present or last contact.
    pub(super) contact: u64,
    /// By link selector: number of the next update that was not sent on that link.
    pub(super) next_unsent: [u64; 2],
    /// What is left of the bulk for it.
    pub(super) bulk: Option<Bulk>,
}

impl PeerEntry {
    pub(super) fn new(peer: Peer, own: NodeAddr) -> Self {
        Self {
            receiver: BroadcastReceiver::new(own, peer.capabilities),
            peer,
            names: NameReceiver::new(),
            stranger: None,
            parts: Parts::default(),
            dispatching: false,
            congestion: 0,
            hold: Hold::default(),
            deferred: Deferred::default(),
            contact: 0,
            next_unsent: [0; 2],
            bulk: None,
        }
    }
}

/// All peers, by address.
///
/// The identity and the capabilities of a peer change by [`Self::renew`] only.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: BTreeMap<NodeAddr, PeerEntry>,
    /// A host can claim one identity at several addresses.
    identities: BTreeSet<(NodeId, NodeAddr)>,
    /// Number of peers that lack each capability.
    lacking: [usize; u16::BITS as usize],
    /// Peers that have never had a link, oldest first: any host can invent some.
    strangers: BTreeSet<(u64, NodeAddr)>,
    /// Peers added since the start.
    added: u64,
    /// When the timers of each are due.
    ticks: BTreeSet<(Time, NodeAddr)>,
    /// Contacts since the start.
    contacts: u64,
    /// Those to which contact was lost, until groups are told.
    lost: VecDeque<NodeAddr>,
}

impl Peers {
    /// Adds a peer.
    pub(super) fn insert(&mut self, mut entry: PeerEntry) {
        let addr = entry.peer.addr;
        self.remove(addr);
        self.added += 1;
        entry.stranger = Some(self.added);
        self.strangers.insert((self.added, addr));
        self.identities.insert((entry.peer.id, addr));
        self.count_capabilities(entry.peer.capabilities, 1);
        self.ticks.insert((entry.peer.next_tick, addr));
        self.all.insert(addr, entry);
    }

    /// Removes a peer.
    pub(super) fn remove(&mut self, addr: NodeAddr) -> Option<PeerEntry> {
        let entry = self.all.remove(&addr)?;
        if let Some(number) = entry.stranger {
            self.strangers.remove(&(number, addr));
        }
        self.identities.remove(&(entry.peer.id, addr));
        self.ticks.remove(&(entry.peer.next_tick, addr));
        self.count_capabilities(entry.peer.capabilities, -1);
        Some(entry)
    }

    /// The timers of a peer are due at another time.
    pub(super) fn reschedule(&mut self, addr: NodeAddr, before: Time, after: Time) {
        if before != after {
            self.ticks.remove(&(before, addr));
            self.ticks.insert((after, addr));
        }
    }

    /// When the timers of the first peer are due.
    pub(super) fn next_tick(&self) -> Time {
        self.ticks.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Whether a peer has been down for so long that nothing of it is remembered.
    pub(super) fn is_forgotten(&self, now: Time, addr: NodeAddr) -> bool {
        let peer = self.all.get(&addr).map(|entry| &entry.peer);
        peer.is_none_or(|peer| !peer.is_up() && now >= peer.down_since.plus_millis(RETENTION_MS))
    }

    /// Takes out a peer whose timers are due: [`Self::reschedule`] puts it back.
    pub(super) fn take_tick(&mut self, now: Time) -> Option<NodeAddr> {
        let (at, addr) = self.ticks.first().copied().filter(|(at, _)| *at <= now)?;
        self.ticks.remove(&(at, addr));
        Some(addr)
    }

    /// A contact with a peer begins: it gets the next number. False if the peer is not known.
    pub(super) fn begin_contact(&mut self, addr: NodeAddr) -> bool {
        let Some(entry) = self.all.get_mut(&addr) else { return false };
        self.contacts += 1;
        entry.contact = self.contacts;
        true
    }

    /// Contact with a peer is lost.
    pub(super) fn note_lost(&mut self, addr: NodeAddr) {
        self.lost.push_back(addr);
    }

    /// The next peer to which contact was lost since the last call.
    pub(crate) fn next_lost(&mut self) -> Option<NodeAddr> {
        self.lost.pop_front()
    }

    /// A peer has a link: it exists, and keeps its place.
    pub(super) fn has_answered(&mut self, addr: NodeAddr) {
        if let Some(number) = self.all.get_mut(&addr).and_then(|entry| entry.stranger.take()) {
            self.strangers.remove(&(number, addr));
        }
    }

    /// If the table is full: the peer that gives its place to a new one.
    pub(super) fn to_replace(&self) -> Option<NodeAddr> {
        let is_full = self.all.len() >= MAX_PEERS;
        self.strangers.first().filter(|_| is_full).map(|(_, addr)| *addr)
    }

    /// A peer has restarted: adopts its signature, identity and capabilities.
    pub(super) fn renew(&mut self, neighbour: &Neighbour) {
        let (addr, id, capabilities) = (neighbour.addr, neighbour.id, neighbour.capabilities);
        let Some(entry) = self.all.get_mut(&addr) else { return };
        entry.peer.signature = Some(neighbour.signature);
        let old_id = core::mem::replace(&mut entry.peer.id, id);
        let old_capabilities = entry.peer.capabilities;
        entry.peer.set_capabilities(capabilities);
        entry.receiver.set_capabilities(capabilities);
        if old_id != id {
            self.identities.remove(&(old_id, addr));
            self.identities.insert((id, addr));
        }
        self.count_capabilities(old_capabilities, -1);
        self.count_capabilities(capabilities, 1);
    }

    fn count_capabilities(&mut self, capabilities: u16, change: isize) {
        for (bit, lacking) in self.lacking.iter_mut().enumerate() {
            if capabilities >> bit & 1 == 0 {
                *lacking = lacking.saturating_add_signed(change);
            }
        }
    }

    /// The capabilities common to this node and all known ones, up or down. Spec: tipc.md §4.6.
    pub(super) fn common_capabilities(&self) -> u16 {
        let has_all = |(bit, lacking): (usize, &usize)| u16::from(*lacking == 0) << bit;
        self.lacking.iter().enumerate().map(has_all).fold(0, |all, bit| all | bit) & CAPABILITIES
    }

    pub(super) fn get(&self, addr: &NodeAddr) -> Option<&PeerEntry> {
        self.all.get(addr)
    }

    pub(super) fn get_mut(&mut self, addr: &NodeAddr) -> Option<&mut PeerEntry> {
        self.all.get_mut(addr)
    }

    pub(super) fn contains_key(&self, addr: &NodeAddr) -> bool {
        self.all.contains_key(addr)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, NodeAddr, PeerEntry> {
        self.all.iter()
    }

    pub(super) fn keys(&self) -> btree_map::Keys<'_, NodeAddr, PeerEntry> {
        self.all.keys()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, NodeAddr, PeerEntry> {
        self.all.values()
    }

    pub(super) fn values_mut(&mut self) -> btree_map::ValuesMut<'_, NodeAddr, PeerEntry> {
        self.all.values_mut()
    }

    pub(super) fn range(
        &self,
        addrs: impl RangeBounds<NodeAddr>,
    ) -> btree_map::Range<'_, NodeAddr, PeerEntry> {
        self.all.range(addrs)
    }
}

impl KnownNodes for Peers {
    fn identity_of(&self, addr: NodeAddr) -> Option<NodeId> {
        self.all.get(&addr).map(|m| m.peer.id)
    }

    fn address_of(&self, id: &NodeId) -> Option<NodeAddr> {
        let mut with_identity = self.identities.range((*id, NodeAddr::NONE)..=(*id, NodeAddr(u32::MAX)));
        with_identity.next().map(|(_, addr)| *addr)
    }

    fn has_room(&self) -> bool {
        self.all.len() < MAX_PEERS || !self.strangers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Relation;
    use crate::rng::Rng;
    use crate::wire::MediaAddr;

    fn neighbour(rng: &mut Rng) -> Neighbour {
        Neighbour {
            addr: NodeAddr(1 + rng.below(20) as u32),
            id: NodeId::from_legacy(NodeAddr(rng.below(10) as u32)),
            // Most peers have most capabilities.
            capabilities: CAPABILITIES & !(1 << rng.below(40).min(15)),
            signature: 7,
            net_hash: 0,
            media: MediaAddr::Udp(([127, 0, 0, 1], 6118).into()),
            is_request: true,
            relation: Relation::New,
        }
    }

    #[test]
    fn counts_and_identities_match_a_look_at_every_peer() {
        let (mut peers, mut rng) = (Peers::default(), Rng::new(1));
        assert_eq!(peers.common_capabilities(), CAPABILITIES);
        for step in 0..5000 {
            let new = neighbour(&mut rng);
            match rng.below(3) {
                0 => drop(peers.remove(new.addr)),
                1 => {
                    let peer = Peer::new(Time::ZERO, new.addr, new.id, new.capabilities);
                    peers.insert(PeerEntry::new(peer, NodeAddr(99)));
                }
                _ => peers.renew(&new),
            }
            let all = peers.values().fold(CAPABILITIES, |all, m| all & m.peer.capabilities);
            assert_eq!(peers.common_capabilities(), all, "step {step}");
            for number in 0..10 {
                let id = NodeId::from_legacy(NodeAddr(number));
                let found = peers.values().find(|m| m.peer.id == id).map(|m| m.peer.addr);
                assert_eq!(peers.address_of(&id), found, "step {step}");
            }
            assert_eq!(peers.identities.len(), peers.all.len());
            assert_eq!(peers.strangers.len(), peers.all.len());
        }
    }

    #[test]
    fn oldest_peer_that_never_answered_gives_its_place() {
        let mut peers = Peers::default();
        let add = |peers: &mut Peers, number: u32| {
            let addr = NodeAddr(number);
            let peer = Peer::new(Time::ZERO, addr, NodeId::from_legacy(addr), CAPABILITIES);
            peers.insert(PeerEntry::new(peer, NodeAddr(99)));
        };
        let most = MAX_PEERS as u32;
        (1..=most).for_each(|number| add(&mut peers, number));
        peers.has_answered(NodeAddr(1));
        peers.renew(&Neighbour { addr: NodeAddr(2), ..neighbour(&mut Rng::new(1)) });
        assert!(peers.has_room());
        assert_eq!(peers.to_replace(), Some(NodeAddr(2)));
        peers.remove(NodeAddr(2));
        assert_eq!(peers.to_replace(), None, "there is room");
        add(&mut peers, most + 1);
        assert_eq!(peers.to_replace(), Some(NodeAddr(3)));
        (1..=most + 1).for_each(|number| peers.has_answered(NodeAddr(number)));
        assert!(!peers.has_room() && peers.to_replace().is_none());
    }
}
