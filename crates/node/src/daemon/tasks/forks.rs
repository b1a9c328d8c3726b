//! The hand-over of sockets to a forked process, by an inheritance.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Reply};
use utipc_core::quota::{Resource, UserId};
use utipc_lanes::daemon::Work;

use super::{LANE_ITEMS, STEP_ITEMS, Task, Tasks, Then};
use crate::daemon::attachments::{AttachmentId, Outgoing};
use crate::daemon::holders::Holder;
use crate::daemon::inheritance::InheritanceId;
use crate::daemon::quotas::{self, INHERITED_SOCKET};
use crate::daemon::sockets::Sockets;

impl Tasks {
    /// A process is about to fork: the child's descriptor holds all its sockets too. The reply follows.
    pub(crate) fn fork(&mut self, sockets: &mut Sockets, id: AttachmentId) -> Result<(), Failure> {
        let user = sockets.user(id)?;
        sockets.check_quota(user, Resource::Descriptors, 1)?;
        let memory = sockets.holders().count_of(id) as u64 * INHERITED_SOCKET;
        sockets.check_quota(user, Resource::Memory, memory)?;
        let (number, near) = self.inheritances.open(sockets.reactors_mut(), user)?;
        sockets.stack_mut().ledger_mut().charge(user, Resource::Descriptors, 1);
        sockets.attachments_mut().forget_lanes_to_read(id);
        self.begin(sockets, user, Task::Fork { id, user, number, near, after: 0 });
        Ok(())
    }

    /// Hands over some sockets of a process that is about to fork, those behind `after`.
    pub(super) fn step_fork(
        &mut self,
        sockets: &mut Sockets,
        (id, user): (AttachmentId, UserId),
        (number, near): (InheritanceId, OwnedFd),
        after: u32,
    ) -> Option<Task> {
        let ports = sockets.holders().ports_after(id, after, STEP_ITEMS / LANE_ITEMS);
        for port in &ports {
            if let Err(failure) = self.hand_over(sockets, (user, *port), number) {
                // The inheritance ends with its descriptor.
                drop(near);
                sockets.reply(id, Err(failure));
                return None;
            }
        }
        let Some(after) = ports.last().copied() else {
            let attachments = sockets.attachments_mut();
            attachments.forget_lanes_to_read(id);
            attachments.reply(Outgoing { fds: vec![near], ..Outgoing::new(id, Reply::Number(number)) });
            return None;
        };
        let next = Task::Fork { id, user, number, near, after };
        let work = ports.iter().map(|port| Work::share(*port)).collect();
        self.step_lanes(sockets, work, Then::Task(Box::new(next)))
    }

    /// Adds a socket to an inheritance.
    fn hand_over(
        &mut self,
        sockets: &mut Sockets,
        (user, port): (UserId, u32),
        number: InheritanceId,
    ) -> Result<(), Failure> {
        let ledger = sockets.stack_mut().ledger_mut();
        if let Err(exceeded) = ledger.try_charge(user, Resource::Memory, INHERITED_SOCKET) {
            return Err(quotas::refuse(ledger, exceeded));
        }
        if !self.inheritances.add(number, port) {
            ledger.release(user, Resource::Memory, INHERITED_SOCKET);
            return Err(Failure::State);
        }
        sockets.add_inheritance(port, number);
        Ok(())
    }

    /// A process claims the sockets that it has inherited. The reply follows.
    pub(crate) fn inherit(
        &mut self,
        sockets: &mut Sockets,
        id: AttachmentId,
        (number, nonce): (InheritanceId, u64),
    ) -> Result<(), Failure> {
        let user = sockets.user(id)?;
        if !self.inheritances.redeem(number, nonce) {
            return Err(Failure::State);
        }
        self.begin(sockets, user, Task::Inherit { id, number, after: 0, claimed: 0 });
        Ok(())
    }

    /// Makes a process a holder of some sockets of an inheritance, those behind `after`.
    pub(super) fn step_inherit(
        &mut self,
        sockets: &mut Sockets,
        id: AttachmentId,
        number: InheritanceId,
        (after, mut claimed): (u32, u32),
    ) -> Option<Task> {
        let ports = self.inheritances.ports_after(number, after, STEP_ITEMS);
        let last = ports.last().copied();
        for port in ports {
            if !sockets.holders().contains(port) {
                continue;
            }
            if let Err(failure) = sockets.check_limit(id) {
                sockets.reply(id, Err(failure));
                return None;
            }
            if !sockets.holders().is_held_by(port, id) {
                sockets.join(port, id);
            }
            claimed += 1;
        }
        if let Some(after) = last {
            return Some(Task::Inherit { id, number, after, claimed });
        }
        sockets.reply(id, Ok(Reply::Number(claimed)));
        None
    }

    /// The last copy of an inheritance's descriptor was closed.
    pub(crate) fn end_inheritance(&mut self, sockets: &mut Sockets, number: InheritanceId) {
        if let Some((user, ports)) = self.inheritances.end(sockets.reactors_mut(), number) {
            let holder = Holder::Inheritance(number);
            self.begin(sockets, user, Task::Left { holder, ports, process: None });
        }
    }
}
