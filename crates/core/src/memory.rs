//! The memory of messages that wait in sockets, as the owner of the node provides it.

use core::fmt;

use crate::quota::UserId;

/// Memory of messages by user. A message that waits in a socket lies in the memory of the socket's user, so that what a
/// user takes is known, and is free when the user has left, whatever messages of others still wait.
///
/// Buffers are freed by dropping them. [`Shared`] does without: a node whose sockets have no users needs nothing else.
pub trait MessageMemory: fmt::Debug + Send {
    /// An empty buffer for a message of `size` bytes of more than 4 KiB, which [`Self::keep`] need not copy.
    fn buffer(&mut self, size: usize) -> Vec<u8>;
    /// Moves a message to the memory of a user, which may grow by at most `growth` bytes for it.
    ///
    /// # Errors
    /// The message: the memory may not grow so far, or there is none.
    fn keep(&mut self, user: UserId, message: Vec<u8>, growth: u64) -> Result<Vec<u8>, Vec<u8>>;
    /// Takes a buffer of [`Self::buffer`] from the user that it was moved to.
    fn disown(&mut self, buffer: &[u8]);
    /// The next user whose memory has changed since it was last returned, and the bytes that it takes.
    fn take_changed(&mut self) -> Option<(UserId, u64)>;
    /// Whether the system refuses memory now.
    fn is_short(&mut self) -> bool;
    /// Whether [`Self::trim`] has something to do, now or the next time.
    fn needs_trim(&self) -> bool;
    /// Gives back what was not used since the last time. The node calls it about once a second.
    fn trim(&mut self);
}

/// Memory that all messages share: that of the program's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared;

impl MessageMemory for Shared {
    fn buffer(&mut self, size: usize) -> Vec<u8> {
        Vec::with_capacity(size)
    }

    fn keep(&mut self, _user: UserId, message: Vec<u8>, _growth: u64) -> Result<Vec<u8>, Vec<u8>> {
        Ok(message)
    }

    fn disown(&mut self, _buffer: &[u8]) {}

    fn take_changed(&mut self) -> Option<(UserId, u64)> {
        None
    }

    fn is_short(&mut self) -> bool {
        false
    }

    fn needs_trim(&self) -> bool {
        false
    }

    fn trim(&mut self) {}
}
