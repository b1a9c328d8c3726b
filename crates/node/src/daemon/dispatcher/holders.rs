//! Sockets with several holders or none: forks, descriptors that programs pass on, and orphaned sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Notice, Reply, Request};
use utipc_core::Time;

use super::requests::Done;
use super::{Answer, Dispatcher};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::descriptors::NearEnd;
use crate::daemon::inheritance::InheritanceId;
use crate::daemon::sockets::{Holder, Release};

impl Dispatcher {
    /// Carries out a request by which a process shares sockets; `passed` is the descriptor that came with it.
    pub(super) fn share(
        &mut self,
        now: Time,
        id: AttachmentId,
        request: Request,
        passed: Option<OwnedFd>,
        answer: &mut Answer,
    ) -> Done {
        match request {
            Request::Fork => self.fork(now, id, answer),
            Request::Inherit { inheritance, nonce } => self.inherit(id, inheritance, nonce),
            Request::Keep { port } => {
                answer.fds.push(self.give_descriptor(id, port)?);
                Ok(Reply::Done)
            }
            Request::Claim { .. } => self.claim(now, id, passed),
            _ => Err(Failure::State),
        }
    }

    /// A process is about to fork: the child's descriptor holds all its sockets too.
    fn fork(&mut self, now: Time, id: AttachmentId, answer: &mut Answer) -> Done {
        let peer = self.attachments.peer(id).ok_or(Failure::State)?;
        let limit = self.rules.limits().descriptors_per_attachment;
        let ports = self.sockets.ports_of(id);
        let (number, near) = self.inheritances.open(&self.reactor, peer.uid, limit, ports.clone())?;
        self.attachments.forget_lanes_to_read(id);
        for port in ports {
            self.with_lanes(now, |lanes, context| lanes.host_for_sharing(context, port));
            self.sockets.add_inheritance(port, number);
        }
        answer.fds.push(near);
        Ok(Reply::Number(number))
    }

    /// A process claims the sockets that it has inherited.
    fn inherit(&mut self, id: AttachmentId, number: InheritanceId, nonce: u64) -> Done {
        let inherited = self.inheritances.redeem(number, nonce).ok_or(Failure::State)?;
        let ports: Vec<u32> = inherited.iter().copied().filter(|port| self.sockets.contains(*port)).collect();
        self.check_socket_limit(id, ports.len())?;
        for port in &ports {
            if !self.sockets.is_held_by(*port, id) {
                self.sockets.join(*port, id);
            }
        }
        Ok(Reply::Number(u32::try_from(ports.len()).unwrap_or(u32::MAX)))
    }

    /// The last copy of an inheritance's descriptor was closed.
    pub(super) fn end_inheritance(&mut self, now: Time, number: InheritanceId) {
        let ports = self.inheritances.close(&self.reactor, number);
        self.release_all(now, ports, Holder::Inheritance(number));
    }

    /// Makes a descriptor for a socket that the program owns.
    fn give_descriptor(&mut self, id: AttachmentId, port: u32) -> Result<OwnedFd, Failure> {
        let near = self.open_descriptor(id, port)?;
        let given = self.descriptors.give_to_program(&self.reactor, port, &near);
        given.map_err(|e| Failure::Limit(e.to_string()))?;
        Ok(near)
    }

    /// A process that has the descriptor of a socket becomes a holder of the socket.
    fn claim(&mut self, now: Time, id: AttachmentId, passed: Option<OwnedFd>) -> Done {
        let port = passed.and_then(|passed| self.descriptors.find(&passed));
        let port = port.filter(|port| self.sockets.contains(*port)).ok_or(Failure::NoSocket(0))?;
        if self.sockets.is_held_by(port, id) {
            return Ok(Reply::Claimed { port });
        }
        self.check_socket_limit(id, 1)?;
        if self.sockets.join(port, id)
            && self.lanes.is_direct(port)
            && let Some(owner) = self.sockets.owner(port)
        {
            // The owner has not noticed that its program passed the descriptor on; otherwise it would have
            // returned its lanes.
            self.with_lanes(now, |lanes, context| lanes.host_for_sharing(context, port));
            self.attachments.notify(owner, Notice::Share { port });
        }
        Ok(Reply::Claimed { port })
    }

    /// Releases a socket for one holder; false if it was the last one: then the caller ends the socket.
    pub(super) fn release(&mut self, now: Time, port: u32, holder: Holder) -> bool {
        match self.sockets.release(port, holder) {
            Release::Unknown => false,
            Release::Shared => true,
            Release::Sole(owner) => {
                let takes_lanes = self.attachments.knows_sole_holder(owner) && self.lanes.takes_lanes(owner);
                if takes_lanes && !self.lanes.is_direct(port) {
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
            NearEnd::Unknown => self.orphans.add(now, port),
        }
        self.with_lanes(now, |lanes, context| lanes.host_for_sharing(context, port));
        self.sockets.disown(port);
        true
    }

    /// Ends orphaned sockets that no process has claimed in time.
    pub(super) fn expire_orphans(&mut self, now: Time) {
        while let Some(port) = self.orphans.expire(now) {
            if self.sockets.is_orphaned(port) {
                self.end_sockets(now, &[port]);
            }
        }
    }
}
