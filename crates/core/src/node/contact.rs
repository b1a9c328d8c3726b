//! Links coming up and going down. Spec: tipc.md §5.11 to §5.13, §6.4, §6.6.

use super::peer::{Ctx, Notice, Peer};
use super::state::Event;
use crate::limits::MAX_BEARERS;
use crate::link::{self, DownReason};
use crate::outbox::BearerId;

impl Peer {
    /// The link of `bearer` comes up: sends a STATE first, then establishes contact or synchronises with the first
    /// link.
    pub(super) fn link_up(&mut self, bearer: BearerId, ctx: &mut Ctx<'_>) {
        let Some(slot) = self.slot_mut(bearer) else { return };
        if slot.link.is_up() {
            return;
        }
        slot.link.establish();
        if !slot.link.is_up() {
            return;
        }
        slot.up_as = slot.link.id();
        slot.mtu = slot.link.mtu();
        let (mtu, now) = (slot.mtu, ctx.now);
        self.notices.push(Notice::LinkUp { bearer, mtu });
        self.with_link(bearer, ctx, |link, io| {
            link.send_state(io);
            link.probe_path(now, io);
        });

        let Some(old) = self.active[0] else {
            self.active = [Some(bearer); 2];
            self.event(Event::SelfEstablished);
            self.notices.push(Notice::ContactUp);
            return;
        };
        let priority = |peer: &Peer, b| peer.slot(b).map_or(0, |s| s.link.config().priority);
        let (new_priority, old_priority) = (priority(self, bearer), priority(self, old));
        if new_priority > old_priority {
            self.active = [Some(bearer); 2];
        } else if new_priority == old_priority {
            self.active[1] = Some(bearer);
        }
        self.start_synch(old, bearer, ctx);
    }

    /// Takes the link of `bearer` down if it is up; its traffic fails over to another link, or contact is lost.
    pub(crate) fn take_down(&mut self, bearer: BearerId, reason: DownReason, ctx: &mut Ctx<'_>) {
        let Some(slot) = self.slot_mut(bearer) else { return };
        if slot.link.state() == link::State::Establishing {
            slot.link.reset(&mut Vec::new());
            slot.link.event(link::Event::LocalReset);
        }
        if slot.link.is_reset() {
            return;
        }
        let (name, up_as, mtu) = (slot.link.name(), slot.up_as, slot.mtu);
        self.notices.push(Notice::LinkDown { bearer, mtu, name, reason });
        self.select_active(bearer);
        if let Some(tunnel) = self.active[0] {
            self.notices.push(Notice::LinkGone(up_as));
            self.start_failover(bearer, tunnel, ctx);
            return;
        }
        let Some(slot) = self.slot_mut(bearer) else { return };
        if slot.link.state() == link::State::PeerReset {
            self.event(Event::PeerLost);
        }
        self.event(Event::SelfLost);
        let mut wakeups = core::mem::take(&mut self.wakeups);
        if let Some(slot) = self.slot_mut(bearer) {
            slot.link.event(link::Event::LocalReset);
            slot.link.reset(&mut wakeups);
        }
        self.wakeups = wakeups;
        self.send_setup(bearer, true, ctx);
        for slot in self.slots.iter_mut().flatten() {
            slot.link.event(link::Event::FailoverEnd);
        }
        self.down_since = ctx.now;
        self.notices.extend([Notice::ContactLost, Notice::LinkGone(up_as)]);
    }

    /// Takes every link down: the broadcast side found the peer failed, or the node stops.
    pub(crate) fn take_all_down(&mut self, reason: DownReason, ctx: &mut Ctx<'_>) {
        for bearer in 0..MAX_BEARERS as BearerId {
            self.take_down(bearer, reason, ctx);
        }
    }

    /// Selects the links that carry traffic among those that are up, except that of `lost`: the link with the highest
    /// priority; two links with equal priority take a slot each.
    fn select_active(&mut self, lost: BearerId) {
        let mut highest = 0;
        let mut active = [None; 2];
        for (bearer, slot) in self.links() {
            if bearer == lost || !slot.link.is_up() || slot.link.config().priority < highest {
                continue;
            }
            if active[0].is_none() || slot.link.config().priority > highest {
                highest = slot.link.config().priority;
                active = [Some(bearer); 2];
            } else {
                active[1] = Some(bearer);
            }
        }
        self.active = active;
    }
}
