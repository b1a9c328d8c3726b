//! Discovered neighbours become peers and links. Spec: tipc.md §4.5.

use super::{PeerEntry, Switch};
use crate::discovery::{Neighbour, Output, Refusal, Relation, evaluate};
use crate::event::{Drop, Event};
use crate::link::{Link, LinkConfig, base_name};
use crate::node::peer::Peer;
use crate::outbox::{BearerId, Target};
use crate::time::Time;
use crate::wire::View;

impl Switch {
    pub(super) fn receive_discovery(&mut self, now: Time, id: BearerId, view: View<'_>) -> Result<(), Drop> {
        let mut outputs = Vec::new();
        let bearer = self.bearers.get_mut(id);
        let (Some(bearer), Some(own)) = (bearer, self.own.as_mut()) else { return Err(Drop::NoLink) };
        let result = bearer.discoverer.receive(now, view, own, &self.peers, &mut outputs);
        self.act_on_discovery(now, id, outputs);
        match result {
            Ok(()) | Err(Refusal::Own | Refusal::Phase) => Ok(()),
            Err(refusal) => {
                if matches!(refusal, Refusal::DuplicateAddress(_)) {
                    self.event(Event::DuplicateAddress(view.prev_node()));
                }
                Err(Drop::Discovery(refusal))
            }
        }
    }

    pub(super) fn act_on_discovery(&mut self, now: Time, id: BearerId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Broadcast(message) => self.frames.push(id, Target::Broadcast, message.bytes()),
                Output::Unicast(to, message) => self.frames.push(id, Target::Unicast(to), message.bytes()),
                Output::AddressFinal(_) => self.address_final(now),
                Output::Neighbour(neighbour) => self.handle_neighbour(now, id, &neighbour),
            }
        }
    }

    /// Evaluates a neighbour: creates or changes a link, responds, or does nothing.
    fn handle_neighbour(&mut self, now: Time, id: BearerId, neighbour: &Neighbour) {
        let addr = neighbour.addr;
        if let Relation::OtherAddress(old) = neighbour.relation {
            if self.peers.get(&old).is_some_and(|m| m.peer.is_up()) {
                // two nodes with one identity, or a node that changed its address too early: the first one stays
                return;
            }
            self.remove_peer(old);
        }
        if !self.peers.contains_key(&addr) {
            if let Some(stranger) = self.peers.to_replace() {
                self.remove_peer(stranger);
            }
            let peer = Peer::new(now, addr, neighbour.id, neighbour.capabilities);
            self.peers.insert(PeerEntry::new(peer, self.own_node()));
        }
        let Some(PeerEntry { peer, .. }) = self.peers.get(&addr) else { return };
        let slot = peer.slot(id);
        let signature_same = peer.signature == Some(neighbour.signature);
        let address_same = slot.is_some_and(|s| s.media == neighbour.media);
        let link_up = slot.is_some_and(|s| s.link.is_up());
        let linked = slot.is_some();
        let verdict = evaluate(signature_same, address_same, link_up);
        if verdict.duplicate {
            return self.event(Event::DuplicateAddress(addr));
        }
        let can_link = peer.can_link();
        if verdict.store_signature {
            self.peers.renew(neighbour);
        }
        let mut respond = verdict.respond;
        if verdict.accept_address && linked {
            self.with_peer(now, addr, |peer, ctx| peer.move_link(id, neighbour.media, ctx));
        } else if verdict.accept_address && !can_link {
            respond = false; // two links are enough
        } else if verdict.accept_address {
            self.make_link(now, id, neighbour);
        }
        if respond {
            self.respond(id, neighbour);
            self.with_peer(now, addr, |peer, ctx| peer.try_again(id, ctx));
        }
    }

    fn respond(&mut self, id: BearerId, neighbour: &Neighbour) {
        let (Some(bearer), Some(own)) = (self.bearers.get(id), self.own.as_ref()) else { return };
        if let Some(message) = bearer.discoverer.respond(own, neighbour) {
            self.frames.push(id, Target::Unicast(neighbour.media), message.bytes());
        }
    }

    fn make_link(&mut self, now: Time, id: BearerId, neighbour: &Neighbour) {
        let random = self.rng.next_u32() as u16;
        let session = self.config.first_session.unwrap_or(random);
        let own = self.own_node();
        let own_id = self.identity().unwrap_or_default();
        let Some(bearer) = self.bearers.get(id) else { return };
        let interface = bearer.config.interface();
        let name = base_name((&own_id, own), interface, (&neighbour.id, neighbour.addr));
        let config = LinkConfig {
            own,
            peer: neighbour.addr,
            bearer: id,
            net_plane: id,
            interface: interface.to_owned(),
            name,
            session,
            mtu: bearer.config.mtu as u16,
            max_receive: bearer.config.max_receive as u16,
            min_mtu: bearer.config.min_mtu as u16,
            base_mtu: bearer.config.base_mtu.min(u32::from(u16::MAX)) as u16,
            overhead: self.encryption.overhead() as u16,
            tolerance_ms: bearer.config.tolerance_ms,
            priority: bearer.config.priority,
            min_window: bearer.config.min_window,
            max_window: bearer.config.max_window,
            peer_capabilities: neighbour.capabilities,
            first_seqno: self.config.first_seqno,
        };
        let link = Link::new(config);
        self.with_peer(now, neighbour.addr, |peer, ctx| peer.add_link(id, link, neighbour.media, ctx));
    }
}
