//! Limits that several modules share, with unit and source. Spec: tipc.md §15.

/// User data in one message, bytes. Spec: tipc.md §0.
pub const MAX_USER_DATA: usize = 66_000;
/// The largest header, bytes. Spec: tipc.md §0.
pub const MAX_HEADER: usize = 60;
/// The largest message, bytes.
pub const MAX_MESSAGE: usize = MAX_USER_DATA + MAX_HEADER;
/// Memory that a queued message is charged for beyond its bytes (allocation and bookkeeping), bytes. Spec: tipc.md
/// §8.7.
pub const MESSAGE_OVERHEAD: usize = 128;
/// Data kept in a returned message, bytes. Spec: tipc.md §2.5.
pub const MAX_RETURNED_DATA: usize = 1024;
/// Largest packet that every path is assumed to carry, bytes, without the IP and UDP headers. Source: RFC 8899,
/// BASE_PLPMTU.
pub const BASE_PACKET: u32 = 1200;
/// Bearers on one node. Spec: tipc.md §4.1.
pub const MAX_BEARERS: usize = 3;
/// Links to one peer. Spec: tipc.md §4.1.
pub const MAX_LINKS_PER_PEER: usize = 2;
/// Smallest bearer MTU before encapsulation, bytes. Spec: tipc.md §4.1.
pub const MIN_BEARER_MTU: u32 = 100;
/// Link tolerance, milliseconds: smallest. Spec: tipc.md §15.
pub const MIN_TOLERANCE_MS: u32 = 50;
/// Link tolerance, milliseconds: largest. Spec: tipc.md §15.
pub const MAX_TOLERANCE_MS: u32 = 30_000;
/// Link tolerance, milliseconds: default. Spec: tipc.md §15.
pub const DEFAULT_TOLERANCE_MS: u32 = 1500;
/// Link priority: default (0 to 31). Spec: tipc.md §15.
pub const DEFAULT_PRIORITY: u8 = 10;
/// Link window, packets: smallest and default minimum. Spec: tipc.md §15.
pub const MIN_WINDOW: u16 = 50;
/// Link window, packets: largest; also the window in which a receiver accepts packets. Spec: tipc.md §5.8.
pub const MAX_WINDOW: u16 = 8191;
/// Reserve in a link packet for a tunnel header, bytes. Spec: tipc.md §5.9.
pub const TUNNEL_RESERVE: usize = 40;
/// Capability bits that this implementation advertises. Spec: tipc.md §4.6.
pub const CAPABILITIES: u16 = 0xfff;
/// First service type that is not reserved. Spec: tipc.md §1.2.
pub const RESERVED_TYPES: u32 = 64;
/// Service type of the node-state bindings. Spec: tipc.md §1.2.
pub const NODE_STATE: u32 = 0;
/// Service type (and instance) of the topology server. Spec: tipc.md §10.1.
pub const TOPOLOGY_SERVER: u32 = 1;
/// Service type of the link-state bindings. Spec: tipc.md §1.2.
pub const LINK_STATE: u32 = 2;
/// Maximum number of peers that one node stores, including those that are down. This bounds memory under address
/// floods. Spec: tipc.md §14.2.
pub const MAX_PEERS: usize = 4096;

/// Capabilities of a peer, by bit. Spec: tipc.md §4.6.
pub mod capability {
    /// Listeners accept only messages with SYN set.
    pub const SYN_BIT: u16 = 0x001;
    /// The start of broadcast reception comes from BCAST_PROTOCOL alone.
    pub const BCAST_SYNCH: u16 = 0x002;
    /// Broadcast NACKs travel in STATE.
    pub const BCAST_STATE_NACK: u16 = 0x004;
    /// Connection flow control counts 1 KiB blocks.
    pub const BLOCK_FLOWCTL: u16 = 0x008;
    /// Can be reached by replicast.
    pub const BCAST_RCAST: u16 = 0x010;
    /// Has a 128-bit identity.
    pub const NODE_ID128: u16 = 0x020;
    /// Numbers its STATE messages.
    pub const LINK_PROTO_SEQNO: u16 = 0x040;
    /// Sends pairs of SYN messages when a socket changes its multicast method.
    pub const MCAST_RBCTL: u16 = 0x080;
    /// STATE carries a gap-ack record.
    pub const GAP_ACK_BLOCK: u16 = 0x100;
    /// SYNCH is one empty message; FAILOVER may be fragmented.
    pub const TUNNEL_ENHANCED: u16 = 0x200;
    /// Supports Nagle's algorithm on streams.
    pub const NAGLE: u16 = 0x400;
    /// Name updates are numbered and may be broadcast.
    pub const NAMED_BCAST: u16 = 0x800;
}
