//! Sockets whose descriptor the program owns: it gives it other numbers, passes it to other processes, keeps it over an
//! exec. Such a socket lives until no attachment holds it and the last copy of the descriptor is closed. DESIGN L1.
//!
//! Between an exec, or the end of whoever passed it on, and the claim of the one who has it now it is an *orphan*: hosted,
//! held by nobody. The hang-up of the descriptor ends it; where the connection is over, so that the descriptor is hung up
//! anyway, time does.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use utipc_attach::{Failure, Notice, Reply};
use utipc_core::Time;
use utipc_os::packets;

use crate::daemon::attachments::attachment::{AttachmentId, Holder, NOBODY, Sharer};
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::lanes::end::Why;
use crate::daemon::lanes::node_lanes::End;

/// How long an orphan whose connection is over waits for its new process, ms: an exec, and the start of a program.
const ORPHAN_MS: u64 = 30_000;

/// What there is to know of such descriptors.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Kept {
    /// Ports, by the inode of the near end.
    by_inode: HashMap<u64, u32>,
    /// Orphans whose descriptor is hung up, oldest first, with the time when they end.
    orphans: VecDeque<(Time, u32)>,
}

impl Kept {
    pub(in crate::daemon) fn deadline(&self) -> Option<Time> {
        self.orphans.front().map(|(at, _)| *at)
    }

    pub(in crate::daemon) fn forget(&mut self, inode: u64) {
        self.by_inode.remove(&inode);
    }
}

impl Dispatcher {
    /// A descriptor for the program to own.
    pub(in crate::daemon) fn keep(
        &mut self,
        id: AttachmentId,
        port: u32,
        near: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let done = self.descriptor(id, port, near)?;
        let full = |e: utipc_os::OsError| Failure::Limit(e.to_string());
        let (Some(fd), Some(far)) = (near.last(), self.fars.get_mut(&port)) else {
            return Err(Failure::State);
        };
        packets::mark(far.end()).map_err(full)?;
        let inode = packets::inode(fd).map_err(full)?;
        far.keep(inode);
        if far.is_hung_up() {
            let _ = self.reactor.remove(far.end());
        }
        self.kept.by_inode.insert(inode, port);
        Ok(done)
    }

    /// A process has the descriptor of a socket, and wants to hold the socket too.
    pub(in crate::daemon) fn claim(
        &mut self,
        now: Time,
        id: AttachmentId,
        passed: Option<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let inode = passed.filter(|fd| packets::is_marked(fd)).and_then(|fd| packets::inode(fd.as_fd()).ok());
        let port = inode.and_then(|inode| self.kept.by_inode.get(&inode).copied());
        let port = port.filter(|port| self.sockets.contains_key(port)).ok_or(Failure::NoSocket(0))?;
        if self.held(id, port).is_ok() {
            return Ok(Reply::Claimed { port });
        }
        self.room_for_socket(id)?;
        let descriptors = usize::from(self.fars.contains_key(&port));
        let (Some(holding), Some(attachment)) = (self.sockets.get_mut(&port), self.attachments.get_mut(&id))
        else {
            return Err(Failure::State);
        };
        attachment.ports.insert(port);
        if holding.owner == NOBODY {
            holding.owner = id;
            holding.noted = false;
            attachment.bindings += holding.bindings;
            attachment.descriptors += descriptors;
            return Ok(Reply::Claimed { port });
        }
        let owner = holding.owner;
        holding.sharers.push(Sharer::new(Holder::Process(id)));
        if holding.direct {
            // It did not know that it passed the descriptor on, or it would have given its lanes back before.
            self.host_for_sharing(now, port);
            self.tell(owner, Notice::Share { port });
        }
        Ok(Reply::Claimed { port })
    }

    /// The last attachment that held a socket lets go of it: whether somebody has the descriptor still.
    pub(in crate::daemon) fn is_orphaned(&mut self, now: Time, port: u32) -> bool {
        let Some(far) = self.fars.get(&port).filter(|far| far.is_kept()) else { return false };
        if far.is_hung_up() {
            self.kept.orphans.push_back((now.plus_millis(ORPHAN_MS), port));
        } else if packets::is_left(far.end()) {
            return false;
        }
        self.host_for_sharing(now, port);
        if let Some(holding) = self.sockets.get_mut(&port) {
            let old = std::mem::replace(&mut holding.owner, NOBODY);
            let bindings = holding.bindings;
            if let Some(attachment) = self.attachments.get_mut(&old) {
                attachment.bindings -= bindings;
                attachment.descriptors -= 1;
            }
        }
        true
    }

    /// Ends orphans that nobody has claimed in time.
    pub(in crate::daemon) fn expire_orphans(&mut self, now: Time) {
        while let Some((_, port)) = self.kept.orphans.front().copied().filter(|(at, _)| *at <= now) {
            self.kept.orphans.pop_front();
            let unclaimed =
                self.sockets.get(&port).is_some_and(|h| h.owner == NOBODY && h.sharers.is_empty());
            if unclaimed {
                self.end_sockets(now, &[port]);
            }
        }
    }

    /// Nobody has the near end of a descriptor any more.
    pub(in crate::daemon) fn far_is_left(&mut self, now: Time, port: u32) {
        let Some(far) = self.fars.get(&port) else { return };
        if !far.is_kept() {
            return self.drop_far(port);
        }
        if far.is_hung_up() {
            // By this end: it says nothing about the other one.
            let _ = self.reactor.remove(far.end());
            return;
        }
        let Some(holding) = self.sockets.get(&port) else { return self.drop_far(port) };
        let holders: Vec<AttachmentId> = std::iter::once(holding.owner)
            .chain(holding.sharers.iter().filter_map(|sharer| match sharer.who {
                Holder::Process(id) => Some(id),
                Holder::Heritage(_) => None,
            }))
            .collect();
        self.end_lanes(now, port, Why::Closed);
        self.drop_far(port);
        let bindings = self.sockets.remove(&port).map_or(0, |holding| holding.bindings);
        for (at, id) in holders.into_iter().enumerate() {
            let Some(attachment) = self.attachments.get_mut(&id) else { continue };
            attachment.ports.remove(&port);
            if at == 0 {
                attachment.bindings -= bindings;
            }
        }
        self.end_socket(now, port, End::Close);
    }

    /// Brings a descriptor up to date.
    pub(in crate::daemon) fn level_far(&mut self, port: u32, mut readiness: utipc_core::socket::Readiness) {
        if !self.fars.contains_key(&port) {
            return;
        }
        // What waits behind a lane that is over is found by who looks at that one first.
        let waits = || self.driver.stack.endpoint(port).is_some_and(|endpoint| endpoint.readiness().readable);
        readiness.readable |= self.follows_a_lane(port) && waits();
        let Some(far) = self.fars.get_mut(&port) else { return };
        far.level(readiness);
        if far.is_kept() && far.is_hung_up() {
            // What hangs up now is no news.
            let _ = self.reactor.remove(far.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgetting_a_descriptor_leaves_the_others() {
        let mut kept = Kept::default();
        kept.by_inode.extend([(1, 10), (2, 20)]);
        kept.forget(1);
        assert_eq!(kept.by_inode.get(&2), Some(&20));
        assert_eq!((kept.by_inode.len(), kept.deadline()), (1, None));
    }
}
