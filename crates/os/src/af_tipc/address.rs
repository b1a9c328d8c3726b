//! `sockaddr_tipc`: 16 bytes, host order. Spec: tipc.md §8.1.

/// Bytes of an address.
pub(super) const LEN: usize = 16;

/// AF_TIPC.
pub(super) const FAMILY: u16 = libc::AF_TIPC as u16;

/// `addrtype` of a service range, a service address and a socket.
const RANGE: u8 = 1;
const SERVICE: u8 = 2;
const PORT: u8 = 3;

/// An address of family AF_TIPC: of a binding, or the source or destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// All sockets bound to a service range.
    Range {
        /// Service type.
        service: u32,
        /// First instance.
        lower: u32,
        /// Last instance.
        upper: u32,
    },
    /// One of the sockets bound to a service address.
    Service {
        /// Service type.
        service: u32,
        /// Instance.
        instance: u32,
        /// Node to look the service up on, 0 for all nodes.
        domain: u32,
    },
    /// One socket.
    Port {
        /// Port number.
        port: u32,
        /// Node, 0 for this node.
        node: u32,
    },
}

impl Address {
    /// Encodes it for the kernel. `scope` matters for a binding only: 2 cluster, 3 node, negative to withdraw.
    pub(super) fn to_bytes(self, scope: i8) -> [u8; LEN] {
        let (kind, words) = match self {
            Self::Range { service, lower, upper } => (RANGE, [service, lower, upper]),
            Self::Service { service, instance, domain } => (SERVICE, [service, instance, domain]),
            Self::Port { port, node } => (PORT, [port, node, 0]),
        };
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&FAMILY.to_ne_bytes());
        bytes[2] = kind;
        bytes[3] = scope.to_ne_bytes()[0];
        for (at, word) in words.iter().enumerate() {
            bytes[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Decodes an address that the kernel wrote; `None` for another family or type.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u16::from_ne_bytes([bytes[0], bytes[1]]) != FAMILY {
            return None;
        }
        match bytes[2] {
            RANGE => Some(Self::Range { service: word(4), lower: word(8), upper: word(12) }),
            SERVICE => Some(Self::Service { service: word(4), instance: word(8), domain: word(12) }),
            PORT => Some(Self::Port { port: word(4), node: word(8) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_encoding() {
        let all = [
            Address::Range { service: 18888, lower: 1, upper: 9 },
            Address::Service { service: 18888, instance: 17, domain: 0x0100_1001 },
            Address::Port { port: 0xdead_beef, node: 0x0100_1002 },
        ];
        for address in all {
            assert_eq!(Address::from_bytes(&address.to_bytes(2)), Some(address));
        }
        assert_eq!(all[0].to_bytes(-2)[..8], [30, 0, 1, 0xfe, 0xc8, 0x49, 0, 0]);
        assert_eq!(Address::from_bytes(&[0; 16]), None, "another family");
        assert_eq!(Address::from_bytes(&all[0].to_bytes(2)[..15]), None, "too short");
    }
}
