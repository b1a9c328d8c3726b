//! Socket options, numbered as in level 271; `settings.rs` and `calls.rs` set and read them. Spec: tipc.md §8.9.

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u32)]
pub enum SocketOption {
    /// Importance of messages sent, 0 to 3.
    Importance = 127,
    /// Messages may be dropped under congestion. Not on STREAM.
    SourceDroppable = 128,
    /// Undeliverable messages are dropped, not returned.
    DestDroppable = 129,
    /// Connect timeout, milliseconds (16 bits); 0 selects the default of 8000.
    ConnectTimeout = 130,
    /// Always 0; read-only.
    NodeReceiveQueueDepth = 131,
    /// Messages in the receive queue; read-only.
    ReceiveQueueDepth = 132,
    /// Send all multicasts by broadcast; no value.
    MulticastBroadcast = 133,
    /// Send all multicasts by replicast; no value.
    MulticastReplicast = 134,
    /// The group that the socket is in, 0 if none; set by [`super::Endpoint::join`].
    GroupJoin = 135,
    /// Leave the group; no value.
    GroupLeave = 136,
    /// Bytes in the receive queue, including overhead; read-only.
    ReceiveQueueUsed = 137,
    /// STREAM: disables Nagle's algorithm; write-only.
    NoDelay = 138,
    /// Receive buffer, 512 KiB to 16 MiB (SO_RCVBUF of level SOL_SOCKET); values outside are clamped.
    ReceiveBuffer = 1008,
    /// STREAM: fewest bytes for which a blocking receive returns (SO_RCVLOWAT of level SOL_SOCKET), at least 1.
    ReceiveLowWater = 1018,
    /// The end of a connection hangs the descriptor up at once, as on Linux, and not after the last message. Accepted
    /// sockets have the setting of their listener. Of this implementation only.
    ExactHangUp = 2000,
}

impl SocketOption {
    /// The option of level 271 with this number.
    #[must_use]
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            127 => Self::Importance,
            128 => Self::SourceDroppable,
            129 => Self::DestDroppable,
            130 => Self::ConnectTimeout,
            131 => Self::NodeReceiveQueueDepth,
            132 => Self::ReceiveQueueDepth,
            133 => Self::MulticastBroadcast,
            134 => Self::MulticastReplicast,
            135 => Self::GroupJoin,
            136 => Self::GroupLeave,
            137 => Self::ReceiveQueueUsed,
            138 => Self::NoDelay,
            _ => return None,
        })
    }
}

/// Value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OptionValue {
    /// No value: only for options that are plain switches.
    None,
    /// A number; for booleans zero or nonzero.
    Number(u32),
}
