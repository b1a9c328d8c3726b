//! The descriptors that applications poll in place of sockets: packet socket pairs of which the daemon has the *far
//! ends*.
//!
//! The near end is readable while it has a byte to read, unwritable while its send buffer is full, and hung up
//! after the far end's shutdown. The daemon adds the byte and drains the buffer; the library reads the byte and
//! fills the buffer, and then checks its doorbell and lanes again. So the daemon rings the doorbell before it
//! adds the byte, and need not add one while there is one: the library has not checked yet.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use utipc_core::socket::Readiness;
use utipc_os::fdpass::Channel;
use utipc_os::packets;
use utipc_os::reactor::{Interest, Reactor};

use super::token;

/// The far end of a descriptor.
#[derive(Debug)]
struct FarEnd {
    channel: Channel,
    /// This end has hung up.
    hung_up: bool,
    /// The inode of the near end, if the program owns that: it may pass it on and keep it over an exec.
    inode: Option<u64>,
}

impl FarEnd {
    /// Makes the near end readable or writable, or hangs it up; the library does the opposite.
    fn update(&mut self, readiness: Readiness) {
        if self.hung_up {
            return;
        }
        if readiness.hung_up {
            self.hung_up = true;
            return self.channel.shut();
        }
        if readiness.readable {
            self.set_readable();
        }
        if readiness.writable {
            packets::drain(&self.channel);
        }
    }

    /// Makes the near end readable, unless it is.
    fn set_readable(&self) {
        if !packets::has_unread(&self.channel) {
            // It fails only if no process has the near end any more.
            let _ = self.channel.send(&[IoSlice::new(&[1])], &[], false);
        }
    }
}

/// Whether a near end that the program owns is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NearEnd {
    /// The program does not own it, or no process has it any more: the socket ends.
    Closed,
    /// A process has it.
    Open,
    /// The far end has hung up, so that the daemon cannot tell.
    Unknown,
}

/// Consequence of a hang-up that the event loop reports for a far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HangUp {
    /// None: the far end is unknown, or has hung up itself.
    Ignore,
    /// The library closed a descriptor of its own: the far end goes.
    Drop,
    /// The program owned it: the socket ends.
    EndSocket,
}

/// All far ends, by port.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    far_ends: HashMap<u32, FarEnd>,
    /// Ports of descriptors that programs own, by the inode of the near end.
    by_inode: HashMap<u64, u32>,
}

impl Descriptors {
    pub(super) fn contains(&self, port: u32) -> bool {
        self.far_ends.contains_key(&port)
    }

    /// Creates the descriptor of a socket that has none, and returns the near end.
    pub(super) fn open(
        &mut self,
        reactor: &Reactor,
        port: u32,
        readiness: Readiness,
    ) -> utipc_os::Result<OwnedFd> {
        let (near, channel) = packets::pair()?;
        reactor.add(&channel, token::DESCRIPTOR | u64::from(port), Interest::End)?;
        if !readiness.writable {
            packets::fill(&near);
        }
        let mut far = FarEnd { channel, hung_up: false, inode: None };
        far.update(readiness);
        self.far_ends.insert(port, far);
        Ok(near.into_fd())
    }

    /// The program owns the near end of a descriptor from now on.
    pub(super) fn give_to_program(
        &mut self,
        reactor: &Reactor,
        port: u32,
        near: &OwnedFd,
    ) -> utipc_os::Result<()> {
        let Some(far) = self.far_ends.get_mut(&port) else { return Ok(()) };
        packets::mark(&far.channel)?;
        let inode = packets::inode(near.as_fd())?;
        far.inode = Some(inode);
        if far.hung_up {
            let _ = reactor.remove(&far.channel);
        }
        self.by_inode.insert(inode, port);
        Ok(())
    }

    /// The port of a descriptor that a process has passed to the daemon.
    pub(super) fn find(&self, passed: &OwnedFd) -> Option<u32> {
        if !packets::is_marked(passed) {
            return None;
        }
        let inode = packets::inode(passed.as_fd()).ok()?;
        self.by_inode.get(&inode).copied()
    }

    /// A copy of a far end. Its holder can do what this end can (read, write, shut down, change the flags of the open
    /// file), so no call here relies on the far end's flags, or on bytes to be there.
    pub(super) fn share(&self, port: u32) -> Option<OwnedFd> {
        let far = self.far_ends.get(&port).filter(|far| !far.hung_up)?;
        far.channel.as_fd().try_clone_to_owned().ok()
    }

    /// Brings a descriptor up to date.
    pub(super) fn update(&mut self, reactor: &Reactor, port: u32, readiness: Readiness) {
        let Some(far) = self.far_ends.get_mut(&port) else { return };
        far.update(readiness);
        if far.inode.is_some() && far.hung_up {
            // From now on the end of this channel does not show whether the near end is open.
            let _ = reactor.remove(&far.channel);
        }
    }

    /// Makes a descriptor readable.
    pub(super) fn set_readable(&self, port: u32) {
        if let Some(far) = self.far_ends.get(&port) {
            far.set_readable();
        }
    }

    /// Makes a descriptor writable.
    pub(super) fn set_writable(&self, port: u32) {
        if let Some(far) = self.far_ends.get(&port) {
            packets::drain(&far.channel);
        }
    }

    /// Whether a process has the near end of a descriptor that its program owns.
    pub(super) fn near_end(&self, port: u32) -> NearEnd {
        match self.far_ends.get(&port).filter(|far| far.inode.is_some()) {
            Some(far) if far.hung_up => NearEnd::Unknown,
            Some(far) if !packets::is_peer_closed(&far.channel) => NearEnd::Open,
            Some(_) | None => NearEnd::Closed,
        }
    }

    /// The event loop has reported the end of a far end.
    pub(super) fn hang_up(&self, reactor: &Reactor, port: u32) -> HangUp {
        match self.far_ends.get(&port) {
            None => HangUp::Ignore,
            Some(far) if far.inode.is_none() => HangUp::Drop,
            Some(far) if far.hung_up => {
                // The far end itself has hung up; the near end may still be open.
                let _ = reactor.remove(&far.channel);
                HangUp::Ignore
            }
            Some(_) => HangUp::EndSocket,
        }
    }

    /// Hangs up a descriptor and removes it. Returns false if there is none.
    pub(super) fn close(&mut self, reactor: &Reactor, port: u32) -> bool {
        let Some(far) = self.far_ends.remove(&port) else { return false };
        // A process that was forked meanwhile may hold a copy.
        let _ = reactor.remove(&far.channel);
        far.channel.shut();
        if let Some(inode) = far.inode {
            self.by_inode.remove(&inode);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Readiness =
        Readiness { readable: false, writable: true, read_closed: false, hung_up: false };

    #[test]
    fn closed_descriptor_is_not_found_and_leaves_the_others() {
        let reactor = Reactor::new().unwrap();
        let mut descriptors = Descriptors::default();
        let near: Vec<OwnedFd> = [10, 20]
            .map(|port| {
                let near = descriptors.open(&reactor, port, READY).unwrap();
                descriptors.give_to_program(&reactor, port, &near).unwrap();
                near
            })
            .into();
        assert_eq!((descriptors.find(&near[0]), descriptors.find(&near[1])), (Some(10), Some(20)));
        assert_eq!((descriptors.near_end(10), descriptors.near_end(30)), (NearEnd::Open, NearEnd::Closed));
        assert!(descriptors.close(&reactor, 10) && !descriptors.close(&reactor, 10));
        assert_eq!((descriptors.find(&near[0]), descriptors.find(&near[1])), (None, Some(20)));
    }

    #[test]
    fn hang_up_of_a_descriptor_ends_the_socket_only_if_the_program_owns_it() {
        let reactor = Reactor::new().unwrap();
        let mut descriptors = Descriptors::default();
        let near = descriptors.open(&reactor, 10, READY).unwrap();
        assert_eq!(descriptors.hang_up(&reactor, 10), HangUp::Drop);
        descriptors.give_to_program(&reactor, 10, &near).unwrap();
        assert_eq!(descriptors.hang_up(&reactor, 10), HangUp::EndSocket);
        descriptors.update(&reactor, 10, Readiness { hung_up: true, ..READY });
        assert_eq!(descriptors.hang_up(&reactor, 10), HangUp::Ignore);
        assert_eq!(descriptors.near_end(10), NearEnd::Unknown);
        assert_eq!(descriptors.hang_up(&reactor, 11), HangUp::Ignore);
    }
}
