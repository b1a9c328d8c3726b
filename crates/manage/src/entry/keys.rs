//! Entries about encryption keys, without the keys. A utipc extension.

use super::{MAX_TEXT, required};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{key_state, node};

/// State of a key of the node, or of a key with which it decrypts the frames of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The peer whose frames it decrypts; `None` for a key with which the node encrypts.
    pub peer: Option<[u8; 16]>,
    /// Its slot, 0 to 3; the master key and a waiting key have 0.
    pub slot: u32,
    /// `waiting`, `master`, `pending`, `active` or `passive`.
    pub state: String,
    /// `cluster` or `node`: which nodes encrypt with it.
    pub mode: String,
    /// Distinguishes it from other keys; the same on all nodes, and not secret.
    pub fingerprint: u64,
    /// Time for which the node has it, milliseconds.
    pub age_ms: u64,
    /// Peers that decrypt with it.
    pub users: u32,
    /// `operator`, `rekeying`, `cluster-key` or `peer`: how the node got it.
    pub introduced_by: String,
}

impl KeyState {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        if let Some(peer) = &self.peer {
            out.bytes(node::ID, peer);
        }
        out.u32(key_state::SLOT, self.slot);
        out.text(key_state::STATE, &self.state);
        out.text(key_state::MODE, &self.mode);
        out.u64(key_state::FINGERPRINT, self.fingerprint);
        out.u64(key_state::AGE, self.age_ms);
        out.u32(key_state::USERS, self.users);
        out.text(key_state::INTRODUCED_BY, &self.introduced_by);
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let text = |kind| nest.text(kind, MAX_TEXT)?.ok_or(Errno::INVALID);
        let number = |kind| nest.u64(kind).map(Option::unwrap_or_default);
        Ok(Self {
            peer: nest.value(node::ID).and_then(|id| id.try_into().ok()),
            slot: required(nest, key_state::SLOT)?,
            state: text(key_state::STATE)?,
            mode: text(key_state::MODE)?,
            fingerprint: number(key_state::FINGERPRINT)?,
            age_ms: number(key_state::AGE)?,
            users: required(nest, key_state::USERS)?,
            introduced_by: text(key_state::INTRODUCED_BY)?,
        })
    }
}
