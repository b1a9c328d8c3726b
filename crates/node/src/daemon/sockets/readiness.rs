//! Readiness of sockets, and how it is reported: by notices and by the descriptors that processes poll.

use utipc_attach::{LaneEnd, Notice, Reply};
use utipc_core::socket::{Endpoint, Readiness};
use utipc_lanes::daemon::is_datagram;

use super::{Done, Sockets};

/// Readiness of a socket that has ended in the node.
const GONE: Readiness = Readiness { readable: true, writable: false, read_closed: true, hung_up: true };

impl Sockets {
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
    pub(super) fn update(&mut self, port: u32) {
        self.with_lanes(|lanes, context| lanes.carry(context, port));
        let readiness = self.readiness(port);
        if readiness.readable && self.descriptors.contains(port) {
            self.ring_owner(port);
        }
        self.update_descriptor(port, readiness);
        let (sends, receives) = self.lanes.serves(port);
        // Without a connection, commands carry some messages too.
        let by_lane = if is_datagram(&self.driver.stack, port) { (false, false) } else { (sends, receives) };
        self.with_lanes(|lanes, context| lanes.open_unopened(context, port));
        let Self { holders, attachments, .. } = self;
        for (id, noted) in holders.update(port, readiness, by_lane) {
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
        if let Some(owner) = self.holders.owner(port).filter(|_| self.lanes.is_direct(port)) {
            self.attachments.notify(owner, Notice::GroupChanged { port });
            self.attachments.ring(owner);
            if self.lanes.count_of(port) > 0 {
                self.report_lane(port, LaneEnd::Writer);
            }
        }
    }

    fn ring_owner(&self, port: u32) {
        if let Some(owner) = self.holders.owner(port) {
            self.attachments.ring(owner);
        }
    }

    /// Updates the poll result of a socket's descriptor.
    fn update_descriptor(&mut self, port: u32, mut readiness: Readiness) {
        if !self.descriptors.contains(port) {
            return;
        }
        // Messages behind a lane that has ended count as readable: a receive call reads the lane first, then
        // finds them.
        let stack = &self.driver.stack;
        let waits = || stack.endpoint(port).is_some_and(|endpoint| endpoint.readiness().readable);
        readiness.readable |= self.lanes.follows_a_lane(stack, port) && waits();
        if self.descriptors.update(port, readiness) && self.holders.is_orphaned(port) {
            self.orphans.add(self.now, port);
        }
    }

    /// Handles that the process has read the byte, or filled the buffer, of a descriptor: updates its poll result.
    pub(crate) fn rearm(&mut self, port: u32) -> Readiness {
        let readiness = self.readiness(port);
        self.holders.set_seen(port, readiness);
        self.update_descriptor(port, readiness);
        readiness
    }

    /// The process has read the byte of a descriptor; `more` if it found something in a lane.
    pub(crate) fn acknowledge_poll(&mut self, port: u32, more: bool) -> Done {
        let readiness = self.rearm(port);
        if more {
            self.descriptors.set_readable(port);
        }
        Ok(Reply::Number(readiness.readable.into()))
    }
}
