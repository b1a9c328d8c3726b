//! Code points of the common header. Unknown ones keep their number. Spec: tipc.md §2.2, §2.3, §3.

macro_rules! code_points {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
            /// An unknown number.
            Other(u8),
        }
        impl From<u8> for $name {
            fn from(n: u8) -> Self {
                match n { $($value => Self::$variant,)* other => Self::Other(other) }
            }
        }
        impl From<$name> for u8 {
            fn from(v: $name) -> u8 {
                match v { $($name::$variant => $value,)* $name::Other(n) => n }
            }
        }
    };
}

code_points! {
    /// Message user, 4 bits. 0 to 3 are payload, by importance. Spec: tipc.md §3.
    User {
        /// Payload of importance low.
        Low = 0,
        /// Payload of importance medium.
        Medium = 1,
        /// Payload of importance high.
        High = 2,
        /// Payload of importance critical.
        Critical = 3,
        /// Synchronisation of the broadcast link.
        BcastProtocol = 5,
        /// Several messages in one packet.
        Bundler = 6,
        /// Link supervision.
        LinkProtocol = 7,
        /// Connection probes and acknowledgements.
        ConnManager = 8,
        /// Group membership and windows.
        GroupProtocol = 9,
        /// Packets carried for another link.
        Tunnel = 10,
        /// Bindings.
        NameDistributor = 11,
        /// A slice of a message.
        Fragmenter = 12,
        /// Neighbour discovery.
        LinkConfig = 13,
        /// Key distribution (on the wire only when encrypted).
        Crypto = 14,
        /// Local pseudo user, never on the wire.
        TopologyServer = 15,
    }
}

impl User {
    /// True for payload (users 0 to 3).
    #[must_use]
    pub fn is_data(self) -> bool {
        u8::from(self) <= 3
    }
}

code_points! {
    /// Type of a payload message, 3 bits. Spec: tipc.md §2.2.
    MessageType {
        /// On an established connection.
        Conn = 0,
        /// Service multicast.
        Mcast = 1,
        /// Anycast to a service address.
        Named = 2,
        /// To a socket address.
        Direct = 3,
        /// Membership event, local only.
        GroupEvent = 4,
        /// To all group members.
        GroupBcast = 5,
        /// To all group members with an instance.
        GroupMcast = 6,
        /// To one group member.
        GroupUcast = 7,
    }
}

code_points! {
    /// Error code of a returned message, 4 bits. Spec: tipc.md §2.3.
    ErrorCode {
        /// No error.
        Ok = 0,
        /// No socket is bound to the service address.
        NoName = 1,
        /// No such socket.
        NoPort = 2,
        /// Contact with the node was lost.
        NoNode = 3,
        /// The receive queue is full.
        Overload = 4,
        /// The peer shut the connection down.
        ConnShutdown = 5,
    }
}

code_points! {
    /// Type of a LINK_PROTOCOL message. Spec: tipc.md §3.1.
    LinkProtocolType {
        /// Acknowledgement, gaps, probes.
        State = 0,
        /// The link starts over.
        Reset = 1,
        /// The peer's reset was received.
        Activate = 2,
        /// A part of a packet that the path does not carry whole. Only utipc; Linux ignores it. Spec: tipc.md §4.7.
        Part = 7,
    }
}

/// Method of sending multicasts; on the wire `is_replicast`. Spec: tipc.md §7.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Over the broadcast link.
    #[default]
    Broadcast,
    /// A copy per destination node.
    Replicast,
}
