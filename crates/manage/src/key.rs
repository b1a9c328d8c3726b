//! Keys as attributes.

use std::fmt;

use zeroize::Zeroizing;

use crate::attribute::{Nest, Writer};
use crate::errno::{Errno, Refusal};
use crate::family::node;

/// Length of an algorithm's name, bytes, NUL padded.
const ALGORITHM: usize = 32;
/// Maximum number of bytes of a key with its salt. Linux has room for 72 and uses 36.
const MOST: usize = 36;

/// The interval that stands for "now".
pub const REKEY_NOW: u32 = u32::MAX;

/// A change of the node's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// The key to set.
    pub key: Option<Secret>,
    /// It is a master key.
    pub master: bool,
    /// The node that encrypts with it; `None`: all nodes.
    pub identity: Option<[u8; 16]>,
    /// Interval of new session keys, minutes; 0 for none, [`REKEY_NOW`] for a new key now.
    pub rekeying: Option<u32>,
}

/// A key; its bytes are overwritten with zeros when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Key and salt.
    pub bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Secret {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret for {} of {} bytes", self.algorithm, self.bytes.len())
    }
}

impl KeyChange {
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        if let Some(identity) = &self.identity {
            out.bytes(node::ID, identity);
        }
        if let Some(secret) = &self.key {
            let mut value = Zeroizing::new(vec![0; ALGORITHM + 4 + secret.bytes.len()]);
            let (name, rest) = value.split_at_mut(ALGORITHM);
            name.iter_mut()
                .zip(secret.algorithm.bytes().take(ALGORITHM - 1))
                .for_each(|(to, from)| *to = from);
            let (len, bytes) = rest.split_at_mut(4);
            len.copy_from_slice(&u32::try_from(secret.bytes.len()).unwrap_or(u32::MAX).to_ne_bytes());
            bytes.copy_from_slice(&secret.bytes);
            out.bytes(node::KEY, &value);
        }
        out.flag(node::KEY_MASTER, self.master);
        out.optional_u32(node::REKEYING, self.rekeying);
    }

    pub(crate) fn read(nest: Nest<'_>) -> Result<Self, Refusal> {
        let key = nest.value(node::KEY).map(Secret::read).transpose()?;
        let rekeying = nest.u32(node::REKEYING)?;
        if key.is_none() && rekeying.is_none() {
            return Err(Errno::NO_DATA.into());
        }
        let identity = nest.value(node::ID).map(|id| id.try_into().map_err(|_| Errno::INVALID));
        Ok(Self { key, master: nest.flag(node::KEY_MASTER), identity: identity.transpose()?, rekeying })
    }
}

impl Secret {
    /// Reads name, length and key; the length must be exactly the key's.
    fn read(value: &[u8]) -> Result<Self, Refusal> {
        let (name, rest) = value.split_first_chunk::<ALGORITHM>().ok_or(Errno::INVALID)?;
        let (len, bytes) = rest.split_first_chunk::<4>().ok_or(Errno::INVALID)?;
        if u32::from_ne_bytes(*len) as usize != bytes.len() || bytes.len() > MOST {
            return Err(Refusal::new(Errno::INVALID, "incorrect key length (20, 28 or 36 octets?)"));
        }
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let algorithm = String::from_utf8_lossy(name).into_owned();
        Ok(Self { algorithm, bytes: Zeroizing::new(bytes.to_vec()) })
    }
}
