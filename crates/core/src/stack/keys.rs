//! Keys of a running node. Spec: tipc.md §12, §13.

use super::Stack;
use crate::crypto::{EncryptionInfo, EncryptionStats, Key, KeyUse, SetKeyError};
use crate::time::Time;

impl Stack {
    /// Sets a key. From the first key of its own on the node sends nothing in clear text. While another key is being
    /// introduced, which takes 10 s, the new one waits ([`crate::crypto::KeyRole::Waiting`]).
    ///
    /// # Errors
    /// See [`SetKeyError`].
    pub fn set_key(&mut self, now: Time, key_use: KeyUse, key: Key) -> Result<(), SetKeyError> {
        self.switch.set_key(now, key_use, key)?;
        self.process_pending(now);
        Ok(())
    }

    /// Removes all keys: the node sends clear text again.
    pub fn flush_keys(&mut self) {
        self.switch.flush_keys();
    }

    /// Makes a new session key now, and hands it to the peers. It has the length of the key in use.
    ///
    /// # Errors
    /// See [`SetKeyError`].
    pub fn rekey(&mut self, now: Time) -> Result<(), SetKeyError> {
        self.switch.rekey(now)?;
        self.process_pending(now);
        Ok(())
    }

    /// Sets the interval of new session keys, minutes; default [`crate::crypto::REKEYING_MINUTES`], 0 for none.
    pub fn set_rekeying(&mut self, now: Time, minutes: u32) {
        self.switch.set_rekeying(now, minutes);
    }

    /// Sets whether clear text is refused once a key is set.
    pub fn set_strict(&mut self, strict: bool) {
        self.switch.set_strict(strict);
    }

    /// The counters of encryption.
    #[must_use]
    pub fn encryption_stats(&self) -> EncryptionStats {
        self.switch.encryption_stats()
    }

    /// The keys in use, and the counters of encryption.
    #[must_use]
    pub fn encryption(&self) -> EncryptionInfo {
        self.switch.encryption_info()
    }
}
