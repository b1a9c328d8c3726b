//! The one packet of a connection between two nodes of a host: who connects, and the memory of their link.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use utipc_os::fdpass::{Channel, Got, Put};
use utipc_os::{OsError, Result};

use super::directory::HostAddress;

const MAGIC: [u8; 8] = *b"utipcHST";
const VERSION: u32 = 1;
/// Magic, version, address, two bytes of zero.
const LEN: usize = 20;
/// The arena, and the wakers of the connecting and of the accepting node.
const FDS: usize = 3;

/// The hello of a connecting node.
pub(super) struct Hello {
    /// Address of the connecting node.
    pub(super) from: HostAddress,
    pub(super) arena: OwnedFd,
    /// Wakes the node that connects.
    pub(super) theirs: OwnedFd,
    /// Wakes the node that accepts.
    pub(super) ours: OwnedFd,
}

impl Hello {
    /// Sends a hello: `theirs` and `ours` as the accepting node sees them.
    ///
    /// # Errors
    /// The node does not accept.
    pub(super) fn send(&self, channel: &Channel) -> Result<()> {
        let mut bytes = [0; LEN];
        let address = self.from.0;
        let fields = MAGIC.iter().chain(&VERSION.to_le_bytes()).chain(&address).copied().collect::<Vec<_>>();
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        let fds = [self.arena.as_fd(), self.theirs.as_fd(), self.ours.as_fd()];
        match channel.send(&[IoSlice::new(&bytes)], &fds, false)? {
            Put::Sent => Ok(()),
            Put::Full | Put::Busy | Put::Gone => {
                Err(broken("it does not accept connections", ErrorKind::ConnectionReset))
            }
        }
    }

    /// Reads the hello of a connection; `None` if it has not come yet.
    ///
    /// # Errors
    /// The connection has ended, or its first packet is not a hello of this version.
    pub(super) fn receive(channel: &Channel) -> Result<Option<Hello>> {
        let (mut bytes, mut fds) = ([0; LEN], Vec::new());
        match channel.receive(&mut bytes, &mut fds, FDS, false)? {
            Got::Packet(LEN) => {}
            Got::Packet(_) => return Err(broken("its first packet is not a hello", ErrorKind::InvalidData)),
            Got::Nothing => return Ok(None),
            Got::End => {
                return Err(broken("it ended before its hello", ErrorKind::ConnectionReset));
            }
        }
        let [m @ .., v0, v1, v2, v3, a, b, c, d, e, f, _, _] = bytes;
        if m != MAGIC {
            return Err(broken("its first packet is not a hello", ErrorKind::InvalidData));
        }
        if u32::from_le_bytes([v0, v1, v2, v3]) != VERSION {
            return Err(broken("it speaks another version: use the same release", ErrorKind::Unsupported));
        }
        let Ok([arena, theirs, ours]) = <[OwnedFd; FDS]>::try_from(fds) else {
            return Err(broken("its hello lacks descriptors", ErrorKind::InvalidData));
        };
        Ok(Some(Hello { from: HostAddress([a, b, c, d, e, f]), arena, theirs, ours }))
    }
}

fn broken(what: &'static str, kind: ErrorKind) -> OsError {
    OsError::new("connect to", "a node on this host", std::io::Error::new(kind, what))
}
