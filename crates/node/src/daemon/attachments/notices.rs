//! Telling processes what has changed: which notices arise, and how they travel with replies.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use utipc_attach::{Envelope, encode};
use utipc_core::Time;
use utipc_core::socket::{Endpoint, Readiness};
use utipc_os::fdpass::Put;

use crate::daemon::attachments::attachment::Holder;
use crate::daemon::counters::Cut;
use crate::daemon::dispatcher::{Dispatcher, Outgoing};

/// What a socket offers that has ended in the node.
const GONE: Readiness = Readiness { readable: true, writable: false, read_closed: true, hung_up: true };

/// True if `new` offers something that `old` did not: whoever waits for a socket waits for what it did not offer.
fn has_grown(old: Readiness, new: Readiness) -> bool {
    new.readable && !old.readable
        || new.writable && !old.writable
        || new.read_closed && !old.read_closed
        || new.hung_up && !old.hung_up
}

impl Dispatcher {
    /// What a socket can do now.
    pub(in crate::daemon) fn readiness(&self, port: u32) -> Readiness {
        let mut readiness = self.driver.stack.endpoint(port).map_or(GONE, Endpoint::readiness);
        // It is there as soon as the lane has room, without being asked for.
        let by_lane = self.is_datagram(port) && self.comes_by_lane(port);
        readiness.readable &= !by_lane && !self.follows_a_lane(port);
        readiness
    }

    /// Something happened to a socket: tells its process if that may matter to it.
    pub(in crate::daemon) fn note(&mut self, time: Time, port: u32) {
        self.carry(time, port);
        let mut now = self.readiness(port);
        self.level(port, now);
        let (sends, delivers) = self.node_lanes.serves(port);
        // Without a connection there are messages that still go by commands.
        let (sends, delivers) = (sends && !self.is_datagram(port), delivers && !self.is_datagram(port));
        let Some(holding) = self.sockets.get_mut(&port) else { return };
        if !holding.unopened.is_empty() {
            self.open_lanes(port);
        }
        let Some(holding) = self.sockets.get_mut(&port) else { return };
        // What goes by a lane is told there.
        if sends {
            now.writable = holding.seen.writable;
        }
        if delivers {
            now.readable = holding.seen.readable;
        }
        let tell = holding.watched && !delivers || has_grown(holding.seen, now);
        holding.seen = now;
        if !tell {
            return;
        }
        let sharers = holding.sharers.iter_mut().filter_map(|sharer| match sharer.who {
            Holder::Process(id) => Some((id, &mut sharer.noted)),
            Holder::Heritage(_) => None,
        });
        for (id, noted) in std::iter::once((holding.owner, &mut holding.noted)).chain(sharers) {
            let Some(attachment) = self.attachments.get_mut(&id) else { continue };
            if !std::mem::replace(noted, true) {
                attachment.note_ready(port);
            }
            // Also if a notice waits already: it may ride on a reply that was decided before this.
            if !std::mem::replace(&mut attachment.rings, true) {
                self.rung.push(id);
            }
        }
    }

    /// Sends the replies of this turn, each with the notices that wait for its receiver.
    pub(in crate::daemon) fn answer(&mut self) {
        let mut replies = std::mem::take(&mut self.replies);
        let mut head = std::mem::take(&mut self.head);
        for outgoing in replies.drain(..) {
            head.clear();
            self.post(outgoing, &mut head);
        }
        self.head = head;
        self.replies = replies;
    }

    fn post(&mut self, outgoing: Outgoing, head: &mut Vec<u8>) {
        let Outgoing { to, reply, payload, fds } = outgoing;
        let Some(attachment) = self.attachments.get_mut(&to) else { return };
        let mut notices = Vec::new();
        let sockets = &mut self.sockets;
        let more = attachment
            .take_notices(&mut notices, |port| sockets.get_mut(&port).is_some_and(|h| h.take_noted(to)));
        encode(&Envelope { notices, more, reply }, &[], head);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let parts = [IoSlice::new(head), IoSlice::new(&payload)];
        match attachment.channel.send(&parts, &fds, false) {
            Ok(Put::Sent) => self.counters.requests += 1,
            Ok(Put::Full) => self.ended.push((to, Cut::Unread)),
            Ok(Put::Gone) => self.ended.push((to, Cut::Closed)),
            Err(_) => self.ended.push((to, Cut::System)),
        }
    }
}
