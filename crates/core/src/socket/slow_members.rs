//! A socket in a group with a policy: sending without waiting for slow members, and evictions. Spec: tipc.md §9.8.

use super::endpoint::Endpoint;
use super::error::SendError;
use super::group::{describe, is_after_loss, member_id};
use super::types::{Destination, GroupMessage, GroupMessageKind};
use super::uplink::Uplink;
use crate::addr::{NodeAddr, PortId};
use crate::group::{CopyOf, GroupRequest, Kept, Refused, Spread};
use crate::time::Time;
use crate::wire::{MULTICAST_HEADER, Message, blocks};

impl Endpoint {
    /// Sets the time of the next call about the group.
    pub(crate) fn group_now(&mut self, now: Time) {
        if let Some(group) = &mut self.group {
            group.set_now(now);
        }
    }

    /// Handles members that are late.
    pub(super) fn group_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {
        if let Some(group) = self.group.as_mut().filter(|group| group.deadline().is_some_and(|at| at <= now))
        {
            group.handle_timeout(now);
            self.settle_group(uplink);
        }
    }

    /// Sends `data` to members as without a policy, except that no send waits for a member's window. A member without
    /// room gets the message later, or not at all; a congested link still makes the send wait.
    pub(super) fn send_without_waiting(
        &mut self,
        to: Option<Destination>,
        data: &[u8],
        key: u64,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        let cost = blocks(MULTICAST_HEADER + data.len());
        let own = uplink.own_node();
        let Some(group) = &mut self.group else { return Err(SendError::HostUnreachable) };
        let member = match to {
            None => return self.spread(None, data, (cost, key), uplink),
            Some(Destination::Range(range)) if range.is_valid() => {
                return self.spread(Some(range.lower), data, (cost, key), uplink);
            }
            Some(Destination::Range(_)) => return Err(SendError::InvalidDestination),
            Some(Destination::Port(port)) => member_id(port, own),
            Some(Destination::Service { addr, .. }) => {
                let congested = &self.congested;
                let is_congested = |node: NodeAddr| congested.contains(&node.or(own));
                match group.choose(addr.instance, cost, is_congested) {
                    Ok(member) | Err(Refused::Window(member)) => member,
                    Err(refused) => return self.refused_by_group(refused, uplink),
                }
            }
        };
        let node = member.node.or(own);
        if self.congested.contains(&node) {
            return self.would_block(self.link_reason(node));
        }
        let (is_slow, is_joining) = (group.is_slow(member, cost), group.is_joining(member));
        if !is_slow {
            return match self.send_to_member(member, data, cost, uplink) {
                // Nothing but a binding of the group's type: not a member, or not yet.
                Err(SendError::WouldBlock) if !is_joining && self.group_reason().is_some() => {
                    self.blocked = None;
                    if let Some(group) = &mut self.group {
                        group.forget_refused();
                    }
                    Err(SendError::HostUnreachable)
                }
                sent => sent,
            };
        }
        if let Some(group) = &mut self.group {
            group.forget_refused();
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.skip_members(&[member], data, CopyOf::Unicast, (cost, key), uplink);
        Ok(data.len())
    }

    /// Sends to all members, or to those with `instance`, that have room.
    fn spread(
        &mut self,
        instance: Option<u32>,
        data: &[u8],
        (cost, key): (u32, u64),
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        if let Some(node) = self.congested.first() {
            return self.would_block(self.link_reason(*node));
        }
        let Some(group) = &mut self.group else { return Err(SendError::HostUnreachable) };
        let copies = match group.spread(instance, cost) {
            Err(refused) => return self.refused_by_group(refused, uplink),
            Ok(_) if data.is_empty() => return Ok(0),
            Ok(Spread::All) => {
                let only = instance.and_then(|instance| {
                    let mut found = group.with_instance(instance).map(|(port, _)| port);
                    let only = found.next()?;
                    found.next().is_none().then_some(only)
                });
                return match only {
                    Some(only) => self.send_to_member(only, data, cost, uplink),
                    None => self.send_to_members(instance, data, cost, uplink),
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
            if !has_room || self.submit_to_member(member, data, copy_of, cost, uplink).is_err() {
                skipped.push(member);
            }
        }
        self.skip_members(&skipped, data, copy_of, (cost, key), uplink);
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    fn skip_members(
        &mut self,
        members: &[PortId],
        data: &[u8],
        copy_of: CopyOf,
        (cost, key): (u32, u64),
        uplink: &mut dyn Uplink,
    ) {
        if members.is_empty() {
            return;
        }
        let data = data.to_vec();
        let kept = match self.user() {
            Some(user) => uplink.keep(user, data).ok(),
            None => Some(data),
        };
        let kept = kept.map(std::sync::Arc::new);
        for member in members {
            let room = self.room();
            match (&mut self.group, &kept) {
                (Some(group), Some(data)) => {
                    group.skip(*member, key, Kept { data: data.clone(), copy_of, cost }, room);
                }
                (Some(group), None) => group.lost_kept(*member),
                (None, _) => {}
            }
        }
        if kept.is_none() {
            self.count_over_memory();
        }
        self.settle_group(uplink);
    }

    /// Sends the messages kept for members that now have room.
    pub(super) fn send_kept(&mut self, uplink: &mut dyn Uplink) {
        let own = uplink.own_node();
        loop {
            let Some(group) = &mut self.group else { return };
            let congested = &self.congested;
            let is_congested = |node: NodeAddr| congested.contains(&node.or(own));
            let Some((member, kept)) = group.take_kept(is_congested) else { return };
            if self.submit_to_member(member, &kept.data, kept.copy_of, kept.cost, uplink).is_err()
                && let Some(group) = &mut self.group
            {
                group.lost_kept(member);
            }
        }
    }

    /// The socket was evicted: its binding is withdrawn.
    pub(super) fn withdraw_membership(&mut self, request: GroupRequest, uplink: &mut dyn Uplink) {
        let group = self.group.take();
        let _ = self.unbind(Some((request.member.into(), request.scope)), uplink);
        self.group = group;
    }

    /// What the socket is told of a message of its group, and whether earlier ones are missing. Linux knows neither
    /// evictions nor losses, so that only sockets with a policy learn of them.
    pub(super) fn told(&self, msg: &Message) -> (Option<GroupMessage>, bool) {
        let has_news = self.group.as_ref().is_some_and(|group| group.policy().has_news());
        let told = describe(msg).map(|told| match told.kind {
            GroupMessageKind::Evicted if !has_news => GroupMessage { kind: GroupMessageKind::Left, ..told },
            _ => told,
        });
        (told, has_news && is_after_loss(msg))
    }
}
