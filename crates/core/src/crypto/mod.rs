//! Encryption: the layer between links and bearers (decision 30). Spec: tipc.md §12.
//!
//! `Encryption` seals the frames of a node and opens those that arrive. `sending` and `receiving` hold the keys of this
//! node and of each peer, `slots` is the table of their roles, `replay` and `proof` refuse recorded frames, `frame` and
//! `aead` turn a message into a frame. Without a key the layer does nothing.

mod aead;
mod entropy;
mod frame;
mod info;
mod key;
mod layer;
mod open;
mod proof;
mod receiving;
mod replay;
mod sending;
mod slots;
#[cfg(test)]
mod tests;
mod window;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::addr::NodeId;

pub use aead::Aead;
pub use frame::{OVERHEAD, open as open_frame, seal as seal_frame, variation};
pub use info::{EncryptionInfo, EncryptionStats, Introduced, KeyInfo, KeyRole, PeerKeys};
pub use key::{ALGORITHM, ALGORITHM_LEN, Key, KeyError, MAX_KEY, Mode};
pub(crate) use layer::{Encryption, Own};
pub(crate) use open::{Sender, Verdict};
pub use sending::REKEYING_MINUTES;
pub use slots::Slots;

/// What encryption needs from outside, and its policy.
#[derive(Clone, Debug, Default)]
pub struct EncryptionConfig {
    /// Once a key is set, refuse everything that is not encrypted. Linux accepts it.
    pub strict: bool,
    /// The wall clock at [`crate::Time::ZERO`], nanoseconds since 1970. Numbers of frames start at the clock: a node
    /// that restarts with the same key repeats none. 0: number from 1 and ask for no proof, as Linux does.
    pub clock_at_zero: u64,
    /// Randomness of the system, from which session keys are made; without it there is no rekeying.
    pub secret: Option<Zeroizing<[u8; MAX_KEY]>>,
}

/// Use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// All nodes send and receive with it.
    Cluster,
    /// All nodes have it, and use it only until they have handed each other session keys.
    Master,
    /// This node sends with it if the identity is its own, otherwise it receives with it from that node.
    Node(NodeId),
}

/// Reason why a key was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetKeyError {
    /// Another key is being introduced, so there is no new session key now.
    #[error("another key is being introduced (`utipc node get key` shows when it is active)")]
    Busy,
    /// The node has no identity, with which the key's owner could be compared.
    #[error("the node has no identity yet (set it, or enable a bearer first)")]
    NoIdentity,
    /// As many peers as the node stores have keys.
    #[error("too many nodes have keys (flush them)")]
    TooMany,
    /// There is no key to replace.
    #[error("there is no key to replace (set one first)")]
    NoKey,
    /// The node was configured without randomness.
    #[error("the node has no randomness for new keys")]
    NoEntropy,
}
