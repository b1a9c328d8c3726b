//! The attacks of hostile peers: what each sends, and why it could hurt.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An attack of a hostile peer on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
