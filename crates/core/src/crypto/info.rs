//! Information for operators: which keys are in use, and what was refused. Keys themselves are never shown.

use super::key::Mode;
use crate::addr::{NodeAddr, NodeId};
use crate::time::Time;

/// Counters of encryption since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncryptionStats {
    /// Frames encrypted.
    pub sealed: u64,
    /// Frames decrypted.
    pub opened: u64,
    /// Frames not sent because there is no key for them.
    pub unsealed: u64,
    /// Frames for whose key slot this node has no key.
    pub no_key: u64,
    /// Frames that were altered, or encrypted with a key that this node does not have.
    pub wrong_key: u64,
    /// Frames whose number was received before or is too old.
    pub replayed: u64,
    /// Frames in clear text, refused in strict mode.
    pub clear_text: u64,
    /// Keys that came into use, own and of peers.
    pub switches: u64,
    /// Own keys sent to peers.
    pub distributed: u64,
    /// Keys accepted from peers.
    pub received: u64,
}

impl EncryptionStats {
    /// The counters with their names.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("sealed", self.sealed),
            ("opened", self.opened),
            ("unsealed", self.unsealed),
            ("no_key", self.no_key),
            ("wrong_key", self.wrong_key),
            ("replayed", self.replayed),
            ("clear_text", self.clear_text),
            ("switches", self.switches),
            ("distributed", self.distributed),
            ("received", self.received),
        ]
    }
}

/// Role of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRole {
    /// Set by the operator, and introduced as soon as the one before it is in use.
    Waiting,
    /// Used only until nodes have handed each other session keys.
    Master,
    /// Waits to be used.
    Pending,
    /// In use.
    Active,
    /// Used before; late frames are decrypted with it.
    Passive,
}

/// How a node came to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Introduced {
    /// The operator has set it.
    Operator,
    /// A cluster key of this node, under which the peer's frames opened.
    Cluster,
    /// The node has made it, to replace the key before.
    Rekeying,
    /// The peer has sent it.
    Peer,
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its slot, 0 to 3.
    pub slot: u8,
    /// Its role.
    pub role: KeyRole,
    /// Which nodes send with it.
    pub mode: Mode,
    /// Of an own key: the peers that receive with it.
    pub users: u32,
    /// A number that tells it from other keys: the same on all nodes, and no secret.
    pub fingerprint: u64,
    /// Time since which the node has it.
    pub since: Time,
    /// How the node came to it.
    pub introduced: Introduced,
}

/// The keys of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerKeys {
    /// Its identity.
    pub id: NodeId,
    /// Its address; none if no frame of it has been decrypted.
    pub addr: NodeAddr,
    /// The keys with which its frames are decrypted.
    pub keys: Vec<KeyInfo>,
    /// The slot of this node's key with which it decrypts; 0 for none.
    pub receives_with: u8,
}

/// State of encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionInfo {
    /// True once a key is set: everything that is sent is encrypted.
    pub is_on: bool,
    /// Clear text is refused while a key is set.
    pub strict: bool,
    /// The keys that this node sends with.
    pub keys: Vec<KeyInfo>,
    /// The keys of peers.
    pub peers: Vec<PeerKeys>,
    /// Interval of new keys, minutes; 0 for none.
    pub rekeying_minutes: u32,
    /// Counters.
    pub stats: EncryptionStats,
}
