//! A socket in a group with a policy: sending without waiting for slow members. Spec: tipc.md §9.8.

use super::{GroupCall, member_id, wait_reason};
use crate::addr::{NodeAddr, PortId};
use crate::group::{CopyOf, Kept, Refused, Spread};
use crate::socket::error::SendError;
use crate::socket::types::Destination;
use crate::wire::{MULTICAST_HEADER, blocks};

/// A message that slow members may get later.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    data: &'a [u8],
    /// It replaces one with the same key.
    key: u64,
    /// Blocks.
    cost: u32,
}

impl GroupCall<'_> {
    /// Sends `data` to members as without a policy, except that no send waits for a member's window. A member without
    /// room gets the message later, or not at all; a congested link still makes the send wait.
    pub(super) fn send_without_waiting(
        &mut self,
        to: Option<Destination>,
        data: &[u8],
        key: u64,
    ) -> Result<usize, SendError> {
        let cost = blocks(MULTICAST_HEADER + data.len());
        let message = Keyed { data, key, cost };
        let own = self.call.own();
        let member = match to {
            None => return self.spread(None, message),
            Some(Destination::Range(range)) if range.is_valid() => {
                return self.spread(Some(range.lower), message);
            }
            Some(Destination::Range(_)) => return Err(SendError::InvalidDestination),
            Some(Destination::Port(port)) => member_id(port, own),
            Some(Destination::Service { addr, .. }) => match self.choose(addr.instance, cost) {
                Ok(member) | Err(Refused::Window(member)) => member,
                Err(refused) => return self.refused(refused),
            },
        };
        self.call.base.check_link(member.node.or(own))?;
        if self.group.is_slow(member, cost) {
            self.group.forget_refused();
            if !data.is_empty() {
                self.skip_members(&[member], message, CopyOf::Unicast);
            }
            return Ok(data.len());
        }
        let is_joining = self.group.is_joining(member);
        match self.send_to_member(member, data, cost) {
            // Nothing but a binding of the group's type: not a member, or not yet.
            Err(SendError::WouldBlock) if !is_joining && wait_reason(self.group).is_some() => {
                self.call.base.set_wait(None);
                self.group.forget_refused();
                Err(SendError::HostUnreachable)
            }
            sent => sent,
        }
    }

    /// Sends to all members, or to those with `instance`, that have room.
    fn spread(&mut self, instance: Option<u32>, message: Keyed<'_>) -> Result<usize, SendError> {
        let Keyed { data, cost, .. } = message;
        self.call.base.check_links()?;
        let copies = match self.group.spread(instance, cost) {
            Err(refused) => return self.refused(refused),
            Ok(_) if data.is_empty() => return Ok(0),
            Ok(Spread::All) => {
                let only = instance.and_then(|instance| {
                    let mut found = self.group.with_instance(instance);
                    let only = found.next()?;
                    found.next().is_none().then_some(only)
                });
                return match only {
                    Some(only) => self.send_to_member(only, data, cost),
                    None => self.send_to_all(instance, data, cost),
                };
            }
            Ok(Spread::Copies(copies)) => copies,
        };
        let copy_of = match instance {
            None => CopyOf::Broadcast,
            Some(_) if copies.len() == 1 => CopyOf::Unicast,
            Some(_) => CopyOf::Multicast,
        };
        let mut skipped = Vec::new();
        for (member, has_room) in copies {
            // A message that the memory of the user does not allow is dropped as for a slow member.
            if !has_room || self.submit_to_member(member, data, copy_of, cost).is_err() {
                skipped.push(member);
            }
        }
        self.skip_members(&skipped, message, copy_of);
        Ok(self.call.base.sent(data))
    }

    fn skip_members(&mut self, members: &[PortId], message: Keyed<'_>, copy_of: CopyOf) {
        if members.is_empty() {
            return;
        }
        let Keyed { data, key, cost } = message;
        let data = data.to_vec();
        let kept = match self.call.base.account.user() {
            Some(user) => self.call.uplink.keep(user, data).ok(),
            None => Some(data),
        };
        let kept = kept.map(std::sync::Arc::new);
        for member in members {
            match &kept {
                Some(data) => {
                    let room = self.room();
                    self.group.skip(*member, key, Kept { data: data.clone(), copy_of, cost }, room);
                }
                None => self.group.lost_kept(*member),
            }
        }
        if kept.is_none() {
            self.call.base.account.refuse();
        }
        self.flush();
    }

    /// Sends the messages kept for members that now have room.
    pub(in crate::socket) fn send_kept(&mut self) {
        let own = self.call.own();
        loop {
            let congestion = &self.call.base.congestion;
            let is_congested = |node: NodeAddr| congestion.contains(node.or(own));
            let Some((member, kept)) = self.group.take_kept(is_congested) else { return };
            if self.submit_to_member(member, &kept.data, kept.copy_of, kept.cost).is_err() {
                self.group.lost_kept(member);
            }
        }
    }
}
