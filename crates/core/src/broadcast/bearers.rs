//! The bearers that broadcasts are sent over. Spec: tipc.md §7.2.

use std::collections::BTreeMap;

use crate::addr::NodeAddr;
use crate::limits::MAX_BEARERS;
use crate::outbox::BearerId;

/// MTU assumed without linked peers, bytes.
const INITIAL_MTU: usize = 1500;

#[derive(Clone, Debug, Default)]
struct Bearer {
    links: usize,
    /// Number of links, by MTU.
    mtus: BTreeMap<usize, usize>,
    has_broadcast: bool,
}

/// The bearers as far as the broadcast link needs to know them.
#[derive(Clone, Debug, Default)]
pub(super) struct Bearers {
    slots: [Bearer; MAX_BEARERS],
    primary: Option<BearerId>,
}

impl Bearers {
    /// A link over `bearer` came up with an MTU of `mtu` bytes; the smallest MTU of a bearer's links counts.
    pub(super) fn link_up(&mut self, bearer: BearerId, mtu: usize, has_broadcast: bool) {
        if let Some(slot) = self.slots.get_mut(usize::from(bearer)) {
            slot.links += 1;
            slot.has_broadcast = has_broadcast;
            *slot.mtus.entry(mtu).or_default() += 1;
        }
    }

    /// A link over `bearer` whose MTU was `mtu` bytes went down.
    pub(super) fn link_down(&mut self, bearer: BearerId, mtu: usize) {
        if let Some(slot) = self.slots.get_mut(usize::from(bearer)) {
            slot.links = slot.links.saturating_sub(1);
            if let Some(links) = slot.mtus.get_mut(&mtu) {
                *links -= 1;
            }
            slot.mtus.retain(|_, links| *links > 0);
        }
    }

    /// Selects a bearer that reaches all `peers`, if there is one; which of two is preferred differs by node.
    pub(super) fn select_primary(&mut self, peers: usize, own: NodeAddr) {
        self.primary = None;
        for (id, slot) in (0..).zip(&self.slots) {
            if slot.links == 0 || slot.links < peers {
                continue;
            }
            self.primary = Some(id);
            if (u32::from(id) ^ own.0) & 1 != 0 {
                break;
            }
        }
    }

    /// Bearers that a broadcast is sent over: the primary one, otherwise all with links.
    pub(super) fn targets(&self) -> impl Iterator<Item = BearerId> {
        self.used().filter(|(id, _)| self.primary.is_none_or(|primary| *id == primary)).map(|(id, _)| id)
    }

    /// Smallest MTU of the bearers with links, bytes.
    pub(super) fn mtu(&self) -> usize {
        self.used().filter_map(|(_, slot)| slot.mtus.keys().next().copied()).min().unwrap_or(INITIAL_MTU)
    }

    /// True if a broadcast takes one frame, which the medium copies.
    pub(super) fn has_broadcast(&self) -> bool {
        let target = |id: BearerId| self.primary.is_none_or(|primary| id == primary);
        self.used().filter(|(id, _)| target(*id)).all(|(_, slot)| slot.has_broadcast)
    }

    fn used(&self) -> impl Iterator<Item = (BearerId, &Bearer)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.links > 0)
    }
}
