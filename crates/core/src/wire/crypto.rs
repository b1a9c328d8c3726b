//! The unencrypted part of encrypted packets, and the message that distributes keys. Spec: tipc.md §12.2, §12.6.

use super::{Envelope, Message, User, View};
use crate::addr::{NodeAddr, NodeId};
use crate::error::WireError;

/// Protocol version that marks an encrypted packet.
pub const ENCRYPTED_VERSION: u8 = 7;
/// Size of the authentication tag at the end, bytes.
const TAG: usize = 16;
/// Size of the header before the source, bytes.
const FIXED: usize = 12;

/// An encrypted packet: the outer header, and the ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// User code in the clear: 7 for STATE, 13 for LINK_CONFIG, else 0.
    pub user: User,
    /// Addressed to one node, not to all.
    pub destined: bool,
    /// Slot of the sender's key; 0 is its master key.
    pub tx_slot: u8,
    /// The sender's active key for receiving.
    pub rx_slot: u8,
    /// The sender requests a message under its key, so that the key stays in use.
    pub keepalive: bool,
    /// The sender has a master key.
    pub has_master: bool,
    /// The sender has no key for receiving.
    pub no_rx_key: bool,
    /// The number is that of a utipc node: it comes from the clock and names the bearer (decision 40). Unused in Linux.
    pub timed: bool,
    /// Tells the lives of a utipc node apart: random for each start. Unused in Linux.
    pub life: u16,
    /// Sequence number under the key.
    pub seqno: u64,
    /// The sender.
    pub source: EncryptedSource,
    /// The encrypted message and the tag.
    pub ciphertext: &'a [u8],
}

/// The sender of an encrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptedSource {
    /// Its node address.
    Node(NodeAddr),
    /// Its node identity; used in discovery.
    Identity(NodeId),
}

impl<'a> Encrypted<'a> {
    /// True if a frame is marked as encrypted.
    #[must_use]
    pub fn is_encrypted(frame: &[u8]) -> bool {
        frame.first().is_some_and(|b| b >> 5 == ENCRYPTED_VERSION)
    }

    /// Reads the outer header.
    ///
    /// # Errors
    /// [`WireError`] if the packet is not marked as encrypted, or too short.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let truncated = |need| WireError::Truncated { need, have: frame.len() };
        let (head, rest) = frame.split_first_chunk::<FIXED>().ok_or(truncated(FIXED))?;
        let [b0, b1, b2, b3, seqno @ ..] = head;
        if b0 >> 5 != ENCRYPTED_VERSION {
            return Err(WireError::Version(b0 >> 5));
        }
        let user = User::from(b0 >> 1 & 0xf);
        let (source, ciphertext) = if user == User::LinkConfig {
            let (id, rest) = rest.split_first_chunk::<16>().ok_or(truncated(FIXED + 16))?;
            (EncryptedSource::Identity(NodeId(*id)), rest)
        } else {
            let (node, rest) = rest.split_first_chunk::<4>().ok_or(truncated(FIXED + 4))?;
            (EncryptedSource::Node(NodeAddr(u32::from_be_bytes(*node))), rest)
        };
        if ciphertext.len() <= TAG {
            return Err(truncated(frame.len() - ciphertext.len() + TAG + 1));
        }
        Ok(Self {
            user,
            destined: b0 & 1 != 0,
            tx_slot: b1 >> 6,
            rx_slot: b1 >> 4 & 3,
            keepalive: b1 & 8 != 0,
            has_master: b1 & 4 != 0,
            no_rx_key: b1 & 2 != 0,
            timed: b1 & 1 != 0,
            life: u16::from_be_bytes([*b2, *b3]),
            seqno: u64::from_be_bytes(*seqno),
            source,
            ciphertext,
        })
    }

    /// Encodes the packet.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_header(&mut bytes);
        bytes.extend_from_slice(self.ciphertext);
        bytes
    }

    /// Appends the outer header.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| u8::from(set) << bit;
        let flags = flag(self.keepalive, 3) | flag(self.has_master, 2) | flag(self.no_rx_key, 1);
        out.push(ENCRYPTED_VERSION << 5 | u8::from(self.user) << 1 | u8::from(self.destined));
        out.push(self.tx_slot << 6 | (self.rx_slot & 3) << 4 | flags | u8::from(self.timed));
        out.extend_from_slice(&self.life.to_be_bytes());
        out.extend_from_slice(&self.seqno.to_be_bytes());
        match self.source {
            EncryptedSource::Node(node) => out.extend_from_slice(&node.0.to_be_bytes()),
            EncryptedSource::Identity(id) => out.extend_from_slice(&id.0),
        }
    }
}

/// Length of the algorithm name, bytes.
const ALGORITHM: usize = 32;
/// Salt in a key blob, bytes.
const SALT: usize = 4;
/// Smallest and largest key blob, bytes: AES-128 or AES-256, with salt.
const KEY_BLOB: core::ops::RangeInclusive<usize> = 16 + SALT..=32 + SALT;

/// MSG_CRYPTO: hands a session key to another node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyDistribution<'a> {
    /// Counts the keys that the sender has distributed.
    pub generation: u16,
    /// 1: cluster key; 2: key of one node.
    pub mode: u8,
    /// Name of the algorithm, NUL padded.
    pub algorithm: &'a [u8; ALGORITHM],
    /// Key and salt, 20 to 36 bytes.
    pub key: &'a [u8],
}

impl core::fmt::Debug for KeyDistribution<'_> {
    /// Omits the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "KeyDistribution generation {} mode {}", self.generation, self.mode)
    }
}

impl<'a> KeyDistribution<'a> {
    /// Reads a MSG_CRYPTO message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or the lengths of key and message disagree or exceed the limits.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        super::expect_user(v, User::Crypto)?;
        super::expect_header(v)?;
        if v.kind() != 0 {
            return Err(WireError::Type { user: User::Crypto.into(), kind: v.kind() });
        }
        let data = v.payload();
        let truncated = WireError::Truncated { need: ALGORITHM + 4 + KEY_BLOB.start(), have: data.len() };
        let (algorithm, rest) = data.split_first_chunk::<ALGORITHM>().ok_or(truncated)?;
        let (len, key) = rest.split_first_chunk::<4>().ok_or(truncated)?;
        if key.len() < *KEY_BLOB.start() {
            return Err(truncated);
        }
        if u32::from_be_bytes(*len) as usize != key.len() || !KEY_BLOB.contains(&key.len()) {
            return Err(WireError::Malformed("key distribution: key length"));
        }
        let word = v.word(4);
        Ok(Self { generation: (word >> 16) as u16, mode: (word & 0xf) as u8, algorithm, key })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let len = (self.key.len() as u32).to_be_bytes();
        let data = [&self.algorithm[..], &len, self.key].concat();
        let mut m = envelope.message(User::Crypto, 0, &data);
        m.set_word(4, u32::from(self.generation) << 16 | u32::from(self.mode & 0xf));
        m
    }
}
