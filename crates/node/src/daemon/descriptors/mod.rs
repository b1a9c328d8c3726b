//! The descriptors that applications poll in place of sockets: packet socket pairs of which the daemon has the far ends.
//!
//! A byte in the near end makes it readable, a full send buffer unwritable, the far end's shutdown hangs it up. The
//! daemon adds what makes it readable and takes away what makes it unwritable; the library does the opposite, and then
//! looks once more at whatever the daemon may have told it of before: its bell, its lanes. So the bell is rung before the
//! byte is added, and a byte that is there already is one that the library has not looked behind.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use utipc_attach::{Failure, LaneEnd, LaneId, Reply};
use utipc_core::socket::Readiness;
use utipc_os::fdpass::Channel;
use utipc_os::packets;
use utipc_os::reactor::Interest;

use crate::daemon::attachments::attachment::AttachmentId;
use crate::daemon::dispatcher::{Dispatcher, token};

/// The far end of a descriptor.
#[derive(Debug)]
pub(in crate::daemon) struct Far {
    channel: Channel,
    hung_up: bool,
    /// The inode of the near end, if the program owns it: see `keeping.rs`.
    inode: Option<u64>,
}

/// Far ends, by port.
pub(in crate::daemon) type Fars = HashMap<u32, Far>;

impl Far {
    /// Brings the near end up to date, as far as that is up to this end.
    pub(in crate::daemon) fn level(&mut self, readiness: Readiness) {
        if self.hung_up {
            return;
        }
        if readiness.hung_up {
            self.hung_up = true;
            return self.channel.shut();
        }
        if readiness.readable {
            self.flag();
        }
        if readiness.writable {
            self.unplug();
        }
    }

    pub(in crate::daemon) fn keep(&mut self, inode: u64) {
        self.inode = Some(inode);
    }

    /// Whether the program owns the near end.
    pub(in crate::daemon) fn is_kept(&self) -> bool {
        self.inode.is_some()
    }

    /// Whether this end has hung up.
    pub(in crate::daemon) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// This end.
    pub(in crate::daemon) fn end(&self) -> &Channel {
        &self.channel
    }

    /// Makes the near end writable.
    pub(in crate::daemon) fn unplug(&self) {
        packets::drain(&self.channel);
    }

    /// Makes the near end readable, unless it is.
    pub(in crate::daemon) fn flag(&self) {
        if !packets::is_flagged(&self.channel) {
            // It fails only if nobody holds the near end any more.
            let _ = self.channel.send(&[IoSlice::new(&[1])], &[], false);
        }
    }
}

impl Dispatcher {
    /// A descriptor for a socket; an older one hangs up.
    pub(in crate::daemon) fn descriptor(
        &mut self,
        id: AttachmentId,
        port: u32,
        near: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        self.held(id, port)?;
        self.drop_far(port);
        let limit = self.limits.descriptors_per_attachment;
        let Some(attachment) = self.attachments.get_mut(&id).filter(|a| a.descriptors < limit) else {
            return Err(Failure::Limit(format!("{limit} descriptors of sockets of one process")));
        };
        let (own, channel) = packets::pair().map_err(|e| Failure::Limit(e.to_string()))?;
        let token = token::DESCRIPTOR | u64::from(port);
        self.reactor.add(&channel, token, Interest::End).map_err(|e| Failure::Limit(e.to_string()))?;
        attachment.descriptors += 1;
        let readiness = self.readiness(port);
        if !readiness.writable {
            packets::fill(&own);
        }
        let mut far = Far { channel, hung_up: false, inode: None };
        far.level(readiness);
        self.fars.insert(port, far);
        near.push(own.into_fd());
        Ok(Reply::Done)
    }

    /// The process has read the byte away, or filled the buffer: both are looked at anew.
    pub(in crate::daemon) fn rearm(&mut self, id: AttachmentId, port: u32) -> Result<Readiness, Failure> {
        self.held(id, port)?;
        let readiness = self.readiness(port);
        if let Some(holding) = self.sockets.get_mut(&port) {
            holding.seen = readiness;
        }
        self.level_far(port, readiness);
        Ok(readiness)
    }

    /// The process has read the byte away; `more`: a lane has something.
    pub(in crate::daemon) fn settle(
        &mut self,
        id: AttachmentId,
        port: u32,
        more: bool,
    ) -> Result<Reply, Failure> {
        let readiness = self.rearm(id, port)?;
        if more && let Some(far) = self.fars.get(&port) {
            far.flag();
        }
        Ok(Reply::Number(readiness.readable.into()))
    }

    /// The readiness of a socket may have changed.
    pub(in crate::daemon) fn level(&mut self, port: u32, readiness: Readiness) {
        if readiness.readable && self.fars.contains_key(&port) {
            self.ring_holder(port);
        }
        self.level_far(port, readiness);
    }

    /// A notice about a lane that the socket reads or writes waits: its process shall call.
    pub(in crate::daemon) fn stir(&mut self, port: u32, end: LaneEnd) {
        if self.fars.contains_key(&port) {
            self.ring_holder(port);
        }
        match (self.fars.get(&port), end) {
            (Some(far), LaneEnd::Reader) => far.flag(),
            (Some(far), LaneEnd::Writer) => far.unplug(),
            (None, _) => {}
        }
    }

    fn ring_holder(&mut self, port: u32) {
        let owner = self.sockets.get(&port).map(|h| h.owner);
        if let Some(attachment) = owner.and_then(|owner| self.attachments.get_mut(&owner)) {
            attachment.ring();
        }
    }

    /// One end of a lane has something for the other, which waits for its descriptor.
    pub(in crate::daemon) fn wake(&mut self, id: AttachmentId, lane: LaneId) -> Result<Reply, Failure> {
        let Some(lane) = self.broker.lanes.get(&lane) else { return Err(Failure::State) };
        let (from, to) = (lane.from, lane.to);
        let (writes, reads) = (lane.from_owner == id, lane.to_owner == id);
        if writes && let Some(far) = self.fars.get_mut(&to) {
            far.flag();
        }
        if reads && let Some(far) = self.fars.get_mut(&from) {
            far.unplug();
        }
        if writes || reads { Ok(Reply::Done) } else { Err(Failure::State) }
    }

    /// Nobody holds the near end of a descriptor any more, or its socket is gone.
    pub(in crate::daemon) fn drop_far(&mut self, port: u32) {
        let Some(far) = self.fars.remove(&port) else { return };
        // A process that was forked meanwhile may hold a copy.
        let _ = self.reactor.remove(&far.channel);
        far.channel.shut();
        if let Some(inode) = far.inode {
            self.kept.forget(inode);
        }
        let owner = self.sockets.get(&port).map(|h| h.owner);
        if let Some(attachment) = owner.and_then(|owner| self.attachments.get_mut(&owner)) {
            attachment.descriptors -= 1;
        }
    }
}
