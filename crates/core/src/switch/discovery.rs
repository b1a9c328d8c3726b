//! What bearers make of neighbours: replies, and the configurations of links. Spec: tipc.md §4.5.

use super::bearers::{Bearer, Bearers};
use crate::crypto::Own;
use crate::discovery::{Neighbour, OwnAddress};
use crate::link::{LinkConfig, base_name};
use crate::outbox::{BearerId, FrameBatch, Target};
use crate::time::Time;

impl Bearers {
    /// When the discovery of the first bearer is due.
    pub(super) fn discovery_deadline(&self) -> Time {
        let deadlines = self.iter().filter_map(|(_, bearer)| bearer.discoverer.deadline());
        deadlines.min().unwrap_or(Time::NEVER)
    }

    /// Answers a neighbour.
    pub(super) fn respond(
        &self,
        id: BearerId,
        own: &OwnAddress,
        neighbour: &Neighbour,
        frames: &mut FrameBatch,
    ) {
        let message = self.get(id).and_then(|bearer| bearer.discoverer.respond(own, neighbour));
        if let Some(message) = message {
            frames.push(id, Target::Unicast(neighbour.media), message.bytes());
        }
    }
}

impl Bearer {
    /// The configuration of a link to a neighbour over this bearer, which has the number `id`; without what depends on
    /// the node.
    pub(super) fn link_config(&self, id: BearerId, own: Own, neighbour: &Neighbour) -> LinkConfig {
        let interface = self.config.interface();
        LinkConfig {
            own: own.addr,
            peer: neighbour.addr,
            bearer: id,
            net_plane: id,
            interface: interface.to_owned(),
            name: base_name((&own.id, own.addr), interface, (&neighbour.id, neighbour.addr)),
            session: 0,
            mtu: self.config.mtu as u16,
            max_receive: self.config.max_receive as u16,
            min_mtu: self.config.min_mtu as u16,
            base_mtu: self.config.base_mtu.min(u32::from(u16::MAX)) as u16,
            overhead: 0,
            tolerance_ms: self.config.tolerance_ms,
            priority: self.config.priority,
            min_window: self.config.min_window,
            max_window: self.config.max_window,
            peer_capabilities: neighbour.capabilities,
            first_seqno: 0,
        }
    }
}
