//! The descriptors that programs poll in place of sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, LaneId, Reply};
use utipc_core::quota::{Resource, UserId};
use utipc_os::packets;

use super::{Done, Sockets, limit};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::descriptors::HangUp;

/// The number that the kernel reports for every user that this user namespace does not know.
const UNMAPPED: u32 = 65_534;

/// Whether two processes belong to one user: then neither gains power over the other by a copy of its far end.
fn is_same_user(one: Option<u32>, other: Option<u32>) -> bool {
    one == other && one.is_some_and(|uid| uid != UNMAPPED)
}

impl Sockets {
    /// Makes a descriptor for a socket, which the program (`for_program`) or the library owns; an older one hangs up.
    pub(crate) fn open_descriptor(
        &mut self,
        id: AttachmentId,
        port: u32,
        for_program: bool,
    ) -> Result<OwnedFd, Failure> {
        let user = self.make_way_for_descriptor(id, port)?;
        let readiness = self.readiness(port);
        let near = self.descriptors.open(&mut self.reactors, (port, user), readiness).map_err(limit)?;
        self.has_descriptor(port, user);
        let given = if for_program {
            self.descriptors.give_to_program(port, &near)
        } else {
            self.descriptors.give_to_library(port)
        };
        given.map_err(limit)?;
        Ok(near)
    }

    /// A socket that resumes keeps the descriptor that it had from an earlier daemon.
    pub(crate) fn adopt(
        &mut self,
        id: AttachmentId,
        port: u32,
        near: bool,
        passed: &mut Option<OwnedFd>,
    ) -> Done {
        let adopted = if near {
            self.descriptors.adopt_near(port, passed.as_ref().ok_or(Failure::State)?).map_err(limit)?
        } else {
            if !passed.as_ref().is_some_and(packets::hold_far_end) {
                return Err(Failure::State);
            }
            let user = self.make_way_for_descriptor(id, port)?;
            let readiness = self.readiness(port);
            let adopted = self.descriptors.adopt_far(&mut self.reactors, (port, user), passed, readiness);
            let adopted = adopted.map_err(limit)?;
            if adopted {
                self.has_descriptor(port, user);
            }
            adopted
        };
        if adopted { Ok(Reply::Done) } else { Err(Failure::State) }
    }

    /// Hangs up an older descriptor of a socket that gets a new one, and checks the limits; returns the user that is to
    /// be charged.
    fn make_way_for_descriptor(&mut self, id: AttachmentId, port: u32) -> Result<UserId, Failure> {
        self.close_descriptor(port);
        let most = self.limits.descriptors_per_attachment;
        if self.holders.descriptors_of(self.holders.owner(port).unwrap_or(id)) >= most {
            return Err(limit(format!("{most} descriptors of sockets of one process (close some)")));
        }
        // The node may have ended the socket.
        let user = self.driver.stack.user_of(port).map_or_else(|| self.user(id), Ok)?;
        self.check_quota(user, Resource::Descriptors, 1)?;
        Ok(user)
    }

    /// Notes a new descriptor of a socket, and the user that is charged for it.
    fn has_descriptor(&mut self, port: u32, user: UserId) {
        self.driver.stack.ledger_mut().charge(user, Resource::Descriptors, 1);
        self.holders.set_descriptor(port, true);
        self.lanes.set_polled(port, true);
    }

    /// Hangs up the descriptor of a socket, if it has one.
    pub(super) fn close_descriptor(&mut self, port: u32) {
        let user = self.descriptors.user(port);
        if self.descriptors.close(&mut self.reactors, port) {
            if let Some(user) = user {
                self.driver.stack.ledger_mut().release(user, Resource::Descriptors, 1);
            }
            self.holders.set_descriptor(port, false);
            self.lanes.set_polled(port, false);
        }
    }

    /// Handles a near end whose last copy was closed; true if the socket ends.
    pub(crate) fn end_descriptor(&mut self, port: u32) -> bool {
        match self.descriptors.consequence(port) {
            HangUp::EndSocket if self.holders.contains(port) => return true,
            HangUp::Drop | HangUp::EndSocket => self.close_descriptor(port),
            HangUp::Ignore => {}
        }
        false
    }

    /// Hangs up some descriptors of a user that are waiting for it; false if no others wait.
    pub(super) fn hang_up_some(&mut self, user: UserId) -> bool {
        let (ports, has_more) = self.descriptors.hang_up_some(user);
        for port in ports {
            if self.holders.is_orphaned(port) {
                self.orphans.add(self.now, port);
            }
        }
        has_more
    }

    /// The socket of a descriptor that a process has passed to the daemon.
    pub(crate) fn find(&self, passed: &OwnedFd) -> Option<u32> {
        self.descriptors.find(passed).filter(|port| self.holders.contains(*port))
    }

    /// A copy of the far end of a socket's descriptor.
    pub(crate) fn far_end(&self, port: u32) -> Result<OwnedFd, Failure> {
        self.descriptors.share(port).ok_or(Failure::State)
    }

    /// A copy of the far end of the descriptor of a lane's reader, for the writer if both belong to the same user.
    /// Decision 19.
    pub(crate) fn far_end_of_reader(&self, id: AttachmentId, lane: LaneId) -> Result<OwnedFd, Failure> {
        let (reader, port) = self.lanes.reader(id, lane).ok_or(Failure::State)?;
        let user = |id| self.attachments.peer(id).map(|peer| peer.uid);
        if !is_same_user(user(id), user(reader)) {
            return Err(Failure::State);
        }
        self.far_end(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_are_not_one_user() {
        assert!(is_same_user(Some(0), Some(0)) && is_same_user(Some(1000), Some(1000)));
        for (one, other) in [(Some(0), Some(1000)), (Some(1000), Some(1001)), (Some(1000), None)] {
            assert!(!is_same_user(one, other) && !is_same_user(other, one));
        }
        assert!(!is_same_user(None, None) && !is_same_user(Some(UNMAPPED), Some(UNMAPPED)));
    }
}
