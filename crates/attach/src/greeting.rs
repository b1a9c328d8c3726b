//! The handshake of a process and its daemon, which agrees on a version.

use serde::{Deserialize, Serialize};
use utipc_core::addr::NodeAddr;

/// The newest supported version of the protocol.
pub const NEWEST: u16 = 1;
/// The oldest supported version.
pub const OLDEST: u16 = 1;

/// The first bytes of both sides, which distinguish them from foreign programs.
const MAGIC: [u8; 6] = *b"utipc\0";

/// The start of the first packet in either direction; its layout never changes: `MAGIC`, then newest and oldest version
/// as little-endian 16-bit numbers. The process's [`Hello`] follows it before a version is agreed, so older daemons
/// must be able to decode it; the daemon's reply is of the agreed version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Newest version that the sender supports.
    pub newest: u16,
    /// Oldest version that the sender supports.
    pub oldest: u16,
}

impl Greeting {
    /// The greeting of this code.
    pub const OWN: Self = Self { newest: NEWEST, oldest: OLDEST };
    /// Its size, bytes.
    pub const LEN: usize = 10;

    /// Encodes it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&MAGIC);
        bytes[6..8].copy_from_slice(&self.newest.to_le_bytes());
        bytes[8..].copy_from_slice(&self.oldest.to_le_bytes());
        bytes
    }

    /// Decodes the start of a packet; returns the greeting and the rest of the packet. `None` if the peer is not utipc.
    #[must_use]
    pub fn from_bytes(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = packet.split_first_chunk::<{ Self::LEN }>()?;
        let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        (head[..6] == MAGIC).then_some((Self { newest: number(6), oldest: number(8) }, rest))
    }
}

/// The newest version that both sides support; `None` if there is none.
#[must_use]
pub fn agree(own: Greeting, other: Greeting) -> Option<u16> {
    let newest = own.newest.min(other.newest);
    (newest >= own.oldest && newest >= other.oldest).then_some(newest)
}

/// The message of a process after its greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the program, for operators; the daemon keeps the first 64 bytes.
    pub program: String,
    /// Whether the process can use lanes: then its sockets are direct from the start. Otherwise they are hosted until
    /// it requests their data path ([`crate::SocketCall::Lend`]).
    pub takes_lanes: bool,
}

/// The daemon's reply that the process is attached. It comes with a descriptor, the page of the attachment's doorbell;
/// later versions may add others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The agreed version.
    pub version: u16,
    /// Number of the attachment on this daemon.
    pub attachment: u32,
    /// Address of the node; [`NodeAddr::NONE`] while it has none.
    pub node: NodeAddr,
    /// Release of the daemon, for operators.
    pub release: String,
}

/// Why the daemon refuses to attach the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// No common version.
    Version {
        /// The daemon's release.
        release: String,
    },
    /// The policy does not allow this user.
    NotAllowed {
        /// The user's number.
        uid: u32,
    },
    /// The limit of attached processes is reached.
    TooMany,
    /// The limit of attached processes of one user is reached.
    TooManyOfUser {
        /// The user's number.
        uid: u32,
        /// The limit.
        limit: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_common_version_is_agreed() {
        let of = |newest, oldest| Greeting { newest, oldest };
        assert_eq!(agree(of(3, 2), of(2, 1)), Some(2));
        assert_eq!(agree(of(2, 1), of(3, 2)), Some(2));
        assert_eq!(agree(of(3, 2), of(1, 1)), None);
        assert_eq!(agree(of(1, 1), of(3, 2)), None);
    }

    #[test]
    fn only_a_greeting_is_decoded() {
        let bytes = Greeting::OWN.to_bytes();
        assert_eq!(Greeting::from_bytes(&bytes), Some((Greeting::OWN, &[][..])));
        assert_eq!(Greeting::from_bytes(&bytes[..9]), None);
        assert_eq!(Greeting::from_bytes(b"GET / HTTP/1.1\r\n"), None);
    }
}
