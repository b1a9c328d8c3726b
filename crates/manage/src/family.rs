//! The numbers of commands and attributes of the family TIPCv2. Source: linux/tipc_netlink.h; numbers from 128
//! on are utipc's own.

/// Name of the family.
pub const NAME: &str = "TIPCv2";
/// The version that the kernel speaks.
pub const VERSION: u8 = 1;
/// The version of a request whose reply may contain attributes that the kernel does not put into replies.
///
///
/// Most of them are utipc's own, with numbers from 128 on. Replies to version 1 never have them: the stock
/// `tipc` stores each attribute in an array that is sized for the kernel's attributes only.
pub const EXTENDED: u8 = 2;
/// The largest number among the top-level attributes.
pub const MAX_ATTRIBUTE: u32 = 10;
/// Name of the broadcast link. The name of the receiving side for a peer has `:` and the peer after it.
pub const BROADCAST_LINK: &str = "broadcast-link";

/// Lengths of the longest names, in bytes without the NUL.
pub mod longest {
    /// Bearer name.
    pub const BEARER: usize = 31;
    /// Link name.
    pub const LINK: usize = 67;
    /// Media name.
    pub const MEDIA: usize = 15;
}

/// Commands.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod command {
    pub const BEARER_DISABLE: u8 = 2;
    pub const BEARER_ENABLE: u8 = 3;
    pub const BEARER_GET: u8 = 4;
    pub const BEARER_SET: u8 = 5;
    pub const SOCK_GET: u8 = 6;
    pub const PUBL_GET: u8 = 7;
    pub const LINK_GET: u8 = 8;
    pub const LINK_SET: u8 = 9;
    pub const LINK_RESET_STATS: u8 = 10;
    pub const MEDIA_GET: u8 = 11;
    pub const MEDIA_SET: u8 = 12;
    pub const NODE_GET: u8 = 13;
    pub const NET_GET: u8 = 14;
    pub const NET_SET: u8 = 15;
    pub const NAME_TABLE_GET: u8 = 16;
    pub const MON_SET: u8 = 17;
    pub const MON_GET: u8 = 18;
    pub const MON_PEER_GET: u8 = 19;
    pub const PEER_REMOVE: u8 = 20;
    pub const BEARER_ADD: u8 = 21;
    pub const UDP_GET_REMOTEIP: u8 = 22;
    pub const KEY_SET: u8 = 23;
    pub const KEY_FLUSH: u8 = 24;
    pub const ADDR_LEGACY_GET: u8 = 25;
    /// utipc's own: recent link failures.
    pub const LINK_HISTORY: u8 = 128;
    /// utipc's own: what users use of the resources that have quotas.
    pub const QUOTA_GET: u8 = 129;
    /// utipc's own: begins a capture.
    pub const CAPTURE: u8 = 130;
    /// utipc's own: the sockets that are in groups.
    pub const GROUP_GET: u8 = 131;
    /// utipc's own: the members of a socket's group.
    pub const GROUP_MEMBER_GET: u8 = 132;
    /// utipc's own: the keys of the node, without the keys themselves.
    pub const KEY_GET: u8 = 133;
    /// utipc's own: removes a remote of a UDP bearer.
    pub const BEARER_REMOVE: u8 = 134;
    /// utipc's own: the counters of the node and its daemon.
    pub const COUNTERS_GET: u8 = 135;
}

/// Top-level attributes.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod top {
    pub const BEARER: u16 = 1;
    pub const SOCK: u16 = 2;
    pub const PUBL: u16 = 3;
    pub const LINK: u16 = 4;
    pub const MEDIA: u16 = 5;
    pub const NODE: u16 = 6;
    pub const NET: u16 = 7;
    pub const NAME_TABLE: u16 = 8;
    pub const MON: u16 = 9;
    pub const MON_PEER: u16 = 10;
}

/// Attributes of a bearer.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod bearer {
    pub const NAME: u16 = 1;
    pub const PROP: u16 = 2;
    pub const DOMAIN: u16 = 3;
    pub const UDP_OPTS: u16 = 4;
}

/// Attributes of a UDP bearer's addresses.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod udp {
    pub const LOCAL: u16 = 1;
    pub const REMOTE: u16 = 2;
    pub const MULTI_REMOTEIP: u16 = 3;
}

/// Properties of bearers, links and media.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod property {
    pub const PRIO: u16 = 1;
    pub const TOL: u16 = 2;
    pub const WIN: u16 = 3;
    pub const MTU: u16 = 4;
    pub const BROADCAST: u16 = 5;
    pub const BROADCAST_RATIO: u16 = 6;
}

/// Attributes of a socket.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod socket {
    pub const ADDR: u16 = 1;
    pub const REF: u16 = 2;
    pub const CON: u16 = 3;
    pub const HAS_PUBL: u16 = 4;
    pub const TYPE: u16 = 7;
    pub const UID: u16 = 9;
    /// utipc's own: process ID.
    pub const PID: u16 = 128;
    /// utipc's own: name of the program.
    pub const PROGRAM: u16 = 129;
    /// utipc's own: counters, a nest of 64-bit numbers.
    pub const COUNTERS: u16 = 130;
    /// utipc's own: what its sender waits for, as text; absent if it does not wait.
    pub const WAIT: u16 = 131;
    /// utipc's own: bytes of messages that its reader has not read at the node.
    pub const UNREAD: u16 = 132;
    /// utipc's own: bytes that its open lanes have carried, written and read by it.
    pub const LANE_SENT: u16 = 133;
    /// See [`LANE_SENT`].
    pub const LANE_RECEIVED: u16 = 134;
}

/// utipc's own: counters of a socket.
#[expect(missing_docs, reason = "the names are enough")]
pub mod counter {
    pub const SENT: u16 = 1;
    pub const SENT_BYTES: u16 = 2;
    pub const RECEIVED: u16 = 3;
    pub const RECEIVED_BYTES: u16 = 4;
    pub const RETURNED: u16 = 5;
    pub const REFUSED: u16 = 6;
}

/// Attributes of a connection.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod connection {
    pub const FLAG: u16 = 1;
    pub const NODE: u16 = 2;
    pub const SOCK: u16 = 3;
    pub const TYPE: u16 = 4;
    pub const INST: u16 = 5;
}

/// Attributes of a link.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod link {
    pub const NAME: u16 = 1;
    pub const DEST: u16 = 2;
    pub const MTU: u16 = 3;
    pub const BROADCAST: u16 = 4;
    pub const UP: u16 = 5;
    pub const ACTIVE: u16 = 6;
    pub const PROP: u16 = 7;
    pub const STATS: u16 = 8;
    pub const RX: u16 = 9;
    pub const TX: u16 = 10;
    /// utipc's own: reason of the last failure, as text.
    pub const DOWN_REASON: u16 = 128;
    /// utipc's own: time of the last failure, in milliseconds since 1970.
    pub const DOWN_TIME: u16 = 129;
    /// utipc's own: time at which the link came up, in milliseconds since 1970.
    pub const UP_TIME: u16 = 130;
    /// utipc's own: address of the peer.
    pub const PEER: u16 = 131;
    /// utipc's own: media address of the peer, as text.
    pub const PEER_MEDIA: u16 = 132;
    /// utipc's own: name of the bearer.
    pub const BEARER: u16 = 133;
    /// utipc's own: counters that do not fit the kernel's attributes, a nest of [`wide`](super::wide) numbers.
    pub const WIDE: u16 = 134;
}

/// utipc's own: numbers of a link. The counters in [`stats`] have their own number, and 64 bits.
#[expect(missing_docs, reason = "the names are enough")]
pub mod wide {
    pub const BEARER: u16 = 64;
    pub const MTU_LIMIT: u16 = 65;
    pub const RECEIVED: u16 = 66;
    pub const SENT: u16 = 67;
    pub const MALFORMED: u16 = 68;
    pub const QUEUE_SUM: u16 = 69;
    pub const QUEUE_SAMPLES: u16 = 70;
}

/// utipc's own: the attribute of the counters, in a nest of type [`top::NODE`].
pub mod counters {
    /// A JSON object, as text without a NUL.
    pub const JSON: u16 = 128;
}

/// utipc's own: attributes of a quota, in a nest of type [`top::NODE`].
#[expect(missing_docs, reason = "the names are enough")]
pub mod quota {
    /// The user; absent for all together.
    pub const USER: u16 = 128;
    /// Number of resources.
    pub const COUNT: u16 = 129;
    /// The first resource; each other has one of the next numbers.
    pub const FIRST: u16 = 256;
    pub const NAME: u16 = 1;
    pub const USED: u16 = 2;
    pub const LIMIT: u16 = 3;
    pub const REFUSED: u16 = 4;
}

/// utipc's own: attributes of a key's state, in a nest of type [`top::NODE`].
#[expect(missing_docs, reason = "the names are enough")]
pub mod key_state {
    pub const SLOT: u16 = 128;
    pub const STATE: u16 = 129;
    pub const MODE: u16 = 130;
    pub const FINGERPRINT: u16 = 131;
    /// Milliseconds.
    pub const AGE: u16 = 132;
    pub const USERS: u16 = 133;
    pub const INTRODUCED_BY: u16 = 134;
}

/// utipc's own: attributes of a socket in a group, and of a member, in a nest of type [`top::SOCK`].
#[expect(missing_docs, reason = "the names are enough")]
pub mod group {
    pub const PORT: u16 = 1;
    pub const NODE: u16 = 2;
    pub const TYPE: u16 = 3;
    pub const INSTANCE: u16 = 4;
    pub const SCOPE: u16 = 5;
    pub const LOOPBACK: u16 = 6;
    pub const EVENTS: u16 = 7;
    pub const MEMBERS: u16 = 8;
    pub const PID: u16 = 9;
    pub const UID: u16 = 10;
    pub const PROGRAM: u16 = 11;
    /// The condition that the last send waits for; absent if it does not wait.
    pub const WAIT: u16 = 12;
    pub const STATE: u16 = 13;
    /// Blocks that may be sent to the member.
    pub const WINDOW: u16 = 14;
    /// Blocks that the member may send.
    pub const GRANTED: u16 = 15;
    pub const UNREAD: u16 = 16;
    pub const DEFERRED: u16 = 17;
    /// The policy for slow members; absent if sends wait as on Linux.
    pub const POLICY: u16 = 18;
    /// The member that has evicted the socket; absent if none has.
    pub const EVICTED: u16 = 19;
    /// Messages that the member did not get because it is slow.
    pub const DROPPED: u16 = 20;
    /// Messages for it that newer messages with the same key have replaced.
    pub const CONFLATED: u16 = 21;
    /// Messages that wait until it has room.
    pub const KEPT: u16 = 22;
}

/// utipc's own: attributes of a capture, in a nest of type [`top::NODE`], and of its records.
pub mod capture {
    /// Of a request: the only bearer to capture.
    pub const ONLY_BEARER: u16 = 128;
    /// Of a request: also capture messages in lanes.
    pub const LANES: u16 = 129;
    /// Of a request: maximum number of bytes of a frame to copy.
    pub const SNAP: u16 = 130;
    /// Of a request: leave bearers out.
    pub const NO_BEARERS: u16 = 131;
    /// Of a record: time, nanoseconds since 1970.
    pub const TIME: u16 = 1;
    /// Of a record: name of the bearer; absent for a lane.
    pub const BEARER: u16 = 2;
    /// Of a record: the node sent it; if absent, received it.
    pub const SENT: u16 = 3;
    /// Of a record: media address of the sender: 6 bytes of Ethernet, or a `sockaddr`.
    pub const FROM: u16 = 4;
    /// Of a record: media address of the receiver, in the same form.
    pub const TO: u16 = 5;
    /// Of a record: the frame, or its beginning.
    pub const FRAME: u16 = 6;
    /// Of a record: length of the whole frame.
    pub const LENGTH: u16 = 7;
    /// Of a record: number of frames not copied since the previous record.
    pub const DROPPED: u16 = 8;
    /// Of a record of a lane: port of the sender.
    pub const FROM_PORT: u16 = 9;
    /// Of a record of a lane: port of the receiver.
    pub const TO_PORT: u16 = 10;
    /// Of a record of a lane without a frame: bytes of records that were overwritten before they could be copied.
    pub const MISSED: u16 = 11;
}

/// Attributes of a medium.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod media {
    pub const NAME: u16 = 1;
    pub const PROP: u16 = 2;
}

/// Attributes of a node.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod node {
    pub const ADDR: u16 = 1;
    pub const UP: u16 = 2;
    pub const ID: u16 = 3;
    pub const KEY: u16 = 4;
    pub const KEY_MASTER: u16 = 5;
    pub const REKEYING: u16 = 6;
    /// utipc's own: number of the state of contact.
    pub const STATE: u16 = 128;
    /// utipc's own: capability bits.
    pub const CAPABILITIES: u16 = 129;
}

/// Attributes of the own node and its cluster.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod net {
    pub const ID: u16 = 1;
    pub const ADDR: u16 = 2;
    pub const NODEID: u16 = 3;
    pub const NODEID_W1: u16 = 4;
    pub const ADDR_LEGACY: u16 = 5;
}

/// Attributes of an entry of the binding table, which is a nest of type 1.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod publication {
    pub const TYPE: u16 = 1;
    pub const LOWER: u16 = 2;
    pub const UPPER: u16 = 3;
    pub const SCOPE: u16 = 4;
    pub const NODE: u16 = 5;
    pub const REF: u16 = 6;
    pub const KEY: u16 = 7;
}

/// Attributes of the neighbour monitor.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod monitor {
    pub const THRESHOLD: u16 = 1;
    pub const REF: u16 = 2;
    pub const ACTIVE: u16 = 3;
    pub const BEARER_NAME: u16 = 4;
    pub const PEERCNT: u16 = 5;
    pub const LISTGEN: u16 = 6;
}

/// Attributes of a node in the neighbour monitor.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod monitor_peer {
    pub const ADDR: u16 = 1;
    pub const DOMGEN: u16 = 2;
    pub const APPLIED: u16 = 3;
    pub const UPMAP: u16 = 4;
    pub const MEMBERS: u16 = 5;
    pub const UP: u16 = 6;
    pub const HEAD: u16 = 7;
    pub const LOCAL: u16 = 8;
}

/// Counters of a link.
#[expect(missing_docs, reason = "the names are the kernel's")]
pub mod stats {
    pub const RX_INFO: u16 = 1;
    pub const RX_FRAGMENTS: u16 = 2;
    pub const RX_FRAGMENTED: u16 = 3;
    pub const RX_BUNDLES: u16 = 4;
    pub const RX_BUNDLED: u16 = 5;
    pub const TX_INFO: u16 = 6;
    pub const TX_FRAGMENTS: u16 = 7;
    pub const TX_FRAGMENTED: u16 = 8;
    pub const TX_BUNDLES: u16 = 9;
    pub const TX_BUNDLED: u16 = 10;
    pub const MSG_PROF_TOT: u16 = 11;
    pub const MSG_LEN_CNT: u16 = 12;
    pub const MSG_LEN_TOT: u16 = 13;
    pub const MSG_LEN_P0: u16 = 14;
    pub const RX_STATES: u16 = 21;
    pub const RX_PROBES: u16 = 22;
    pub const RX_NACKS: u16 = 23;
    pub const RX_DEFERRED: u16 = 24;
    pub const TX_STATES: u16 = 25;
    pub const TX_PROBES: u16 = 26;
    pub const TX_NACKS: u16 = 27;
    pub const TX_ACKS: u16 = 28;
    pub const RETRANSMITTED: u16 = 29;
    pub const DUPLICATES: u16 = 30;
    pub const LINK_CONGS: u16 = 31;
    pub const MAX_QUEUE: u16 = 32;
    pub const AVG_QUEUE: u16 = 33;
    /// Number of counters.
    pub const COUNT: u16 = 33;
}
