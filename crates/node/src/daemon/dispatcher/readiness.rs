//! Readiness of sockets, and how it is reported: by notices and by the descriptors that processes poll.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, Reply};
use utipc_core::Time;
use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::{Endpoint, Readiness};
use utipc_lanes::daemon::is_datagram;

use super::Dispatcher;
use super::requests::Done;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::descriptors::HangUp;

/// Readiness of a socket that has ended in the node.
const GONE: Readiness = Readiness { readable: true, writable: false, read_closed: true, hung_up: true };

/// The number that the kernel reports for every user that this user namespace does not know.
const UNMAPPED: u32 = 65_534;

/// Whether two processes belong to one user: then neither gains power over the other by a copy of its far end.
fn is_same_user(one: Option<u32>, other: Option<u32>) -> bool {
    one == other && one.is_some_and(|uid| uid != UNMAPPED)
}

impl Dispatcher {
    /// Readiness of a socket for the requests of its process.
    pub(super) fn readiness(&self, port: u32) -> Readiness {
        let stack = &self.driver.stack;
        let endpoint = stack.endpoint(port);
        let mut readiness = endpoint.map_or(GONE, Endpoint::readiness);
        if readiness.hung_up
            && endpoint.is_some_and(|endpoint| endpoint.defers_hang_up(true))
            && self.lanes.has_unread(port)
        {
            readiness.hung_up = false;
            // A sender that waits learns of the end: its next send fails.
            readiness.writable = true;
        }
        // These messages arrive by the lane as soon as it has room, without a request.
        let by_lane = is_datagram(stack, port) && self.lanes.comes_by_lane(stack, port);
        readiness.readable &= !by_lane && !self.lanes.follows_a_lane(stack, port);
        readiness
    }

    /// Handles a change of a socket: continues its lanes, and notifies its processes if its readiness has
    /// grown.
    pub(super) fn update_socket(&mut self, now: Time, port: u32) {
        self.with_lanes(now, |lanes, context| lanes.carry(context, port));
        let readiness = self.readiness(port);
        if readiness.readable && self.descriptors.contains(port) {
            self.ring_owner(port);
        }
        self.update_descriptor(now, port, readiness);
        let (sends, receives) = self.lanes.serves(port);
        // Without a connection, commands carry some messages too.
        let by_lane = if is_datagram(&self.driver.stack, port) { (false, false) } else { (sends, receives) };
        self.with_lanes(now, |lanes, context| lanes.open_unopened(context, port));
        let Self { sockets, attachments, .. } = self;
        for (id, noted) in sockets.update(port, readiness, by_lane) {
            attachments.notify_ready(id, port, noted);
        }
    }

    /// A notice about a lane that a socket reads or writes waits: its descriptor reports it.
    pub(super) fn report_lane(&mut self, port: u32, end: LaneEnd) {
        if !self.descriptors.contains(port) {
            return;
        }
        self.ring_owner(port);
        match end {
            LaneEnd::Reader => self.descriptors.set_readable(port),
            LaneEnd::Writer => self.descriptors.set_writable(port),
        }
    }

    /// A member of a socket's group has come or gone, or takes lanes from now on. Its process learns of it before any
    /// other process gets a reply of this turn, so that no member gets a message of a new member before the event.
    pub(super) fn report_group(&mut self, port: u32) {
        if let Some(owner) = self.sockets.owner(port).filter(|_| self.lanes.is_direct(port)) {
            self.attachments.notify(owner, Notice::GroupChanged { port });
            self.attachments.ring(owner);
            if self.lanes.count_of(port) > 0 {
                self.report_lane(port, LaneEnd::Writer);
            }
        }
    }

    fn ring_owner(&self, port: u32) {
        if let Some(owner) = self.sockets.owner(port) {
            self.attachments.ring(owner);
        }
    }

    /// Updates the poll result of a socket's descriptor.
    fn update_descriptor(&mut self, now: Time, port: u32, mut readiness: Readiness) {
        if !self.descriptors.contains(port) {
            return;
        }
        // Messages behind a lane that has ended count as readable: a receive call reads the lane first, then
        // finds them.
        let stack = &self.driver.stack;
        let waits = || stack.endpoint(port).is_some_and(|endpoint| endpoint.readiness().readable);
        readiness.readable |= self.lanes.follows_a_lane(stack, port) && waits();
        if self.descriptors.update(port, readiness) && self.sockets.is_orphaned(port) {
            self.orphans.add(now, port);
        }
    }

    /// Hangs up some descriptors of a user that are waiting for it; false if no others wait.
    pub(super) fn hang_up_some(&mut self, now: Time, user: UserId) -> bool {
        let (ports, has_more) = self.descriptors.hang_up_some(user);
        for port in ports {
            if self.sockets.is_orphaned(port) {
                self.orphans.add(now, port);
            }
        }
        has_more
    }

    /// Hangs up an older descriptor of a socket that gets a new one, and checks the limits; returns the user that is to
    /// be charged.
    pub(super) fn make_way_for_descriptor(&mut self, id: AttachmentId, port: u32) -> Result<UserId, Failure> {
        self.close_descriptor(port);
        let limit = self.rules.limits().descriptors_per_attachment;
        if self.sockets.descriptors_of(self.sockets.owner(port).unwrap_or(id)) >= limit {
            return Err(Failure::Limit(format!(
                "{limit} descriptors of sockets of one process (close some)"
            )));
        }
        // The node may have ended the socket.
        let user = self.driver.stack.user_of(port).map_or_else(|| self.user(id), Ok)?;
        self.check_quota(user, Resource::Descriptors, 1)?;
        Ok(user)
    }

    /// Notes a new descriptor of a socket, and the user that is charged for it.
    pub(super) fn has_descriptor(&mut self, port: u32, user: UserId) {
        self.driver.stack.ledger_mut().charge(user, Resource::Descriptors, 1);
        self.sockets.set_descriptor(port, true);
        self.lanes.set_polled(port, true);
    }

    /// Makes a descriptor for a socket; an older one hangs up.
    pub(super) fn open_descriptor(&mut self, id: AttachmentId, port: u32) -> Result<OwnedFd, Failure> {
        let user = self.make_way_for_descriptor(id, port)?;
        let readiness = self.readiness(port);
        let opened = self.descriptors.open(&mut self.reactors, (port, user), readiness);
        let near = opened.map_err(|e| Failure::Limit(e.to_string()))?;
        self.has_descriptor(port, user);
        Ok(near)
    }

    /// A copy of the far end of the descriptor of a lane's reader, for the writer if both belong to the same user.
    /// Decision 19.
    pub(super) fn far_end_of_reader(&self, id: AttachmentId, lane: LaneId) -> Result<OwnedFd, Failure> {
        let (reader, port) = self.lanes.reader(id, lane).ok_or(Failure::State)?;
        let user = |id| self.attachments.peer(id).map(|peer| peer.uid);
        if !is_same_user(user(id), user(reader)) {
            return Err(Failure::State);
        }
        self.descriptors.share(port).ok_or(Failure::State)
    }

    /// Hangs up the descriptor of a socket, if it has one.
    pub(super) fn close_descriptor(&mut self, port: u32) {
        let user = self.descriptors.user(port);
        if self.descriptors.close(&mut self.reactors, port) {
            if let Some(user) = user {
                self.driver.stack.ledger_mut().release(user, Resource::Descriptors, 1);
            }
            self.sockets.set_descriptor(port, false);
            self.lanes.set_polled(port, false);
        }
    }

    /// Handles that the process has read the byte, or filled the buffer, of a descriptor: updates its poll result.
    pub(super) fn rearm(&mut self, now: Time, port: u32) -> Readiness {
        let readiness = self.readiness(port);
        self.sockets.set_seen(port, readiness);
        self.update_descriptor(now, port, readiness);
        readiness
    }

    /// The process has read the byte of a descriptor; `more` if it found something in a lane.
    pub(super) fn acknowledge_poll(&mut self, now: Time, port: u32, more: bool) -> Done {
        let readiness = self.rearm(now, port);
        if more {
            self.descriptors.set_readable(port);
        }
        Ok(Reply::Number(readiness.readable.into()))
    }

    /// Handles a near end whose last copy was closed.
    pub(super) fn end_closed(&mut self, now: Time, port: u32) {
        match self.descriptors.consequence(port) {
            HangUp::EndSocket if self.sockets.contains(port) => {
                self.begin_unbind(now, port, true, None);
            }
            HangUp::Drop | HangUp::EndSocket => self.close_descriptor(port),
            HangUp::Ignore => {}
        }
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
