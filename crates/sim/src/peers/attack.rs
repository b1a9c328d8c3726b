//! The attacks of hostile peers: what each sends, and why it could hurt.

use std::str::FromStr;

/// An attack of a hostile peer on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// Packets of the link with gaps before them: the node keeps early packets.
    Deferred,
    /// Broadcast packets with gaps, and announcements of broadcasts that were never sent.
    BroadcastGaps,
    /// Discovery messages of invented nodes, with addresses of other nodes, and with changing signatures and places.
    Discovery,
    /// Discovery messages of invented nodes, each with its own identity, address and often host: the table
    /// of known nodes is full.
    Identities,
    /// STATE messages that report everything as missing, with gap blocks, and ask for replies.
    Nacks,
    /// Nothing is acknowledged, and every message sent causes the node to send one.
    Silence,
    /// Publications, withdrawals, huge ranges, and numbered updates after a missing one.
    Bindings,
    /// Connections to the topology server and subscriptions to everything.
    Subscriptions,
    /// First and middle fragments of the largest messages, never the last one.
    Fragments,
    /// Failover and synchronisation packets with inner packets that are early, unfinished or malformed.
    Tunnel,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Self; 10] = [
        Self::Deferred,
        Self::BroadcastGaps,
        Self::Discovery,
        Self::Identities,
        Self::Nacks,
        Self::Silence,
        Self::Bindings,
        Self::Subscriptions,
        Self::Fragments,
        Self::Tunnel,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::BroadcastGaps => "broadcast-gaps",
            Self::Discovery => "discovery",
            Self::Identities => "identities",
            Self::Nacks => "nacks",
            Self::Silence => "silence",
            Self::Bindings => "bindings",
            Self::Subscriptions => "subscriptions",
            Self::Fragments => "fragments",
            Self::Tunnel => "tunnel",
        }
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|attack| attack.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|attack| attack.name()).collect();
            format!("unknown attack {name} (use {})", known.join(", "))
        })
    }
}
