//! Sockets with several holders or none: forks, descriptors that programs pass on, and orphaned sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Notice, Reply};
use utipc_core::Time;
use utipc_core::quota::Resource;
use utipc_lanes::daemon::Work;
use utipc_os::packets;

use super::lane_tasks::Then;
use super::requests::Done;
use super::tasks::Task;
use super::{Answer, Dispatcher};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::descriptors::NearEnd;
use crate::daemon::inheritance::InheritanceId;
use crate::daemon::quotas::INHERITED_SOCKET;
use crate::daemon::sockets::{Holder, Release};

/// Maximum number of orphaned sockets that end in one turn.
const ORPHANS_PER_TURN: usize = 64;

impl Dispatcher {
    /// A process is about to fork: the child's descriptor holds all its sockets too.
    pub(super) fn fork(&mut self, now: Time, id: AttachmentId, answer: &mut Answer) -> Done {
        let user = self.user(id)?;
        self.check_quota(user, Resource::Descriptors, 1)?;
        self.check_quota(user, Resource::Memory, self.sockets.count_of(id) as u64 * INHERITED_SOCKET)?;
        let (number, near) = self.inheritances.open(&mut self.reactors, user)?;
        self.driver.stack.ledger_mut().charge(user, Resource::Descriptors, 1);
        self.attachments.forget_lanes_to_read(id);
        self.begin_task(now, user, Task::Fork { id, user, number, near, after: 0 });
        answer.comes_later = true;
        Ok(Reply::Done)
    }

    /// A process claims the sockets that it has inherited.
    pub(super) fn inherit(
        &mut self,
        now: Time,
        id: AttachmentId,
        (number, nonce): (InheritanceId, u64),
        answer: &mut Answer,
    ) -> Done {
        let user = self.user(id)?;
        if !self.inheritances.redeem(number, nonce) {
            return Err(Failure::State);
        }
        self.begin_task(now, user, Task::Inherit { id, number, after: 0, claimed: 0 });
        answer.comes_later = true;
        Ok(Reply::Done)
    }

    /// The last copy of an inheritance's descriptor was closed.
    pub(super) fn end_inheritance(&mut self, now: Time, number: InheritanceId) {
        if let Some((user, ports)) = self.inheritances.end(&mut self.reactors, number) {
            self.release_left(now, user, ports, (Holder::Inheritance(number), None));
        }
    }

    /// Makes a descriptor for a socket that the program owns.
    pub(super) fn give_descriptor(&mut self, id: AttachmentId, port: u32) -> Result<OwnedFd, Failure> {
        let near = self.open_descriptor(id, port)?;
        // Also names the far end, as `give_to_library` does.
        let given = self.descriptors.give_to_program(port, &near);
        given.map_err(|e| Failure::Limit(e.to_string()))?;
        Ok(near)
    }

    /// A socket that resumes keeps the descriptor that it had from an earlier daemon.
    pub(super) fn adopt(
        &mut self,
        id: AttachmentId,
        port: u32,
        near: bool,
        passed: &mut Option<OwnedFd>,
    ) -> Done {
        if near {
            let adopted = self.descriptors.adopt_near(port, passed.as_ref().ok_or(Failure::State)?);
            return if adopted.map_err(|e| Failure::Limit(e.to_string()))? {
                Ok(Reply::Done)
            } else {
                Err(Failure::State)
            };
        }
        if !passed.as_ref().is_some_and(packets::hold_far_end) {
            return Err(Failure::State);
        }
        let user = self.make_way_for_descriptor(id, port)?;
        let readiness = self.readiness(port);
        let adopted = self.descriptors.adopt_far(&mut self.reactors, (port, user), passed, readiness);
        if !adopted.map_err(|e| Failure::Limit(e.to_string()))? {
            return Err(Failure::State);
        }
        self.has_descriptor(port, user);
        Ok(Reply::Done)
    }

    /// A process that has the descriptor of a socket becomes a holder of the socket.
    pub(super) fn claim(
        &mut self,
        now: Time,
        id: AttachmentId,
        passed: Option<&OwnedFd>,
        answer: &mut Answer,
    ) -> Done {
        let port = passed.and_then(|passed| self.descriptors.find(passed));
        let port = port.filter(|port| self.sockets.contains(*port)).ok_or(Failure::NoSocket(0))?;
        if self.sockets.is_held_by(port, id) {
            return Ok(Reply::Claimed { port });
        }
        self.check_socket_limit(id, 1)?;
        self.orphans.remove(port);
        if self.sockets.join(port, id)
            && self.lanes.is_direct(port)
            && let Some(owner) = self.sockets.owner(port)
        {
            // The owner has not noticed that its program passed the descriptor on; otherwise it would have
            // returned its lanes.
            self.attachments.notify(owner, Notice::Share { port });
            let then = Then::Reply(id, Reply::Claimed { port });
            return self.work_for_request(now, id, (Work::share(port), then), answer);
        }
        Ok(Reply::Claimed { port })
    }

    /// Releases a socket for one holder; false if it was the last one: then the caller ends the socket.
    pub(super) fn release(&mut self, now: Time, port: u32, holder: Holder) -> bool {
        match self.sockets.release(port, holder) {
            Release::Unknown => false,
            Release::Shared => true,
            Release::Sole(owner) => {
                if self.lanes.takes_lanes(owner) && !self.lanes.is_direct(port) {
                    self.attachments.notify(owner, Notice::SoleHolder { port });
                }
                true
            }
            Release::Last => self.orphan(now, port),
        }
    }

    /// Orphans a socket without holders if a process may have its descriptor; false if not.
    fn orphan(&mut self, now: Time, port: u32) -> bool {
        match self.descriptors.near_end(port) {
            NearEnd::Closed => return false,
            NearEnd::Open => {}
            NearEnd::HungUp => self.orphans.add(now, port),
        }
        let user = self.owner_of(port);
        self.begin_task(now, user, Task::Lanes { work: vec![Work::share(port)], then: Then::Nothing });
        self.sockets.disown(port);
        true
    }

    /// Ends orphaned sockets that no process has claimed in time.
    pub(super) fn expire_orphans(&mut self, now: Time) {
        for _ in 0..ORPHANS_PER_TURN {
            let Some(port) = self.orphans.expire(now) else { return };
            let (user, task) = (self.owner_of(port), self.end_sockets(vec![port], None));
            self.begin_task(now, user, task);
        }
    }
}
