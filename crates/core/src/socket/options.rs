//! Options of a socket, by the numbers of level 271. Spec: tipc.md §8.9.

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum SocketOption {
    /// Importance of messages sent, 0 to 3.
    Importance = 127,
    /// Messages may be dropped under congestion. Not on STREAM.
    SourceDroppable = 128,
    /// Undeliverable messages are dropped, not returned.
    DestDroppable = 129,
    /// Connect timeout, milliseconds (16 bits).
    ConnectTimeout = 130,
    /// Always 0.
    NodeReceiveQueueDepth = 131,
    /// Messages in the receive queue; read-only.
    ReceiveQueueDepth = 132,
    /// All multicasts by broadcast; no value.
    MulticastBroadcast = 133,
    /// All multicasts by replicast; no value.
    MulticastReplicast = 134,
    /// Join a group.
    GroupJoin = 135,
    /// Leave the group; no value.
    GroupLeave = 136,
    /// Bytes in the receive queue; read-only.
    ReceiveQueueUsed = 137,
    /// STREAM: no Nagle.
    NoDelay = 138,
    /// Receive buffer, bytes (SO_RCVBUF of level SOL_SOCKET).
    ReceiveBuffer = 1008,
    /// STREAM: least bytes that a receive waits for (SO_RCVLOWAT of level SOL_SOCKET).
    ReceiveLowWater = 1018,
}

/// Value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// No value: the options that are switches, and only those.
    None,
    /// A number; booleans are 0 and not 0.
    Number(u32),
}
