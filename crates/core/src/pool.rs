//! Recycled buffers of large messages. Fresh memory costs page faults, which cost as much as two copies (decision 9).
//! Small messages are left to the allocator, which handles them fast.

use crate::limits::MAX_MESSAGE;
use crate::memory::{MessageMemory, Shared};
use crate::time::Time;
use crate::wire::Message;

/// Smallest buffer kept, bytes; each class is twice as large as the previous one.
const SMALLEST: usize = 8 << 10;
/// Size classes: 8, 16, 32 and 64 KiB, and the largest message.
const CLASSES: usize = 5;
/// Maximum number of bytes kept. Ours: the need of a window of the largest messages on a fast link.
const MAX_BYTES: usize = 2 << 20;
/// Interval at which unused buffers are freed, milliseconds.
const TRIM_MS: u64 = 1000;

/// Free buffers by size class.
#[derive(Debug)]
pub struct Pool {
    /// Where they come from, and where messages wait.
    pub(crate) memory: Box<dyn MessageMemory>,
    free: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
    /// Smallest number of free buffers since the last [`Self::trim`], by class.
    unused: [usize; CLASSES],
    /// The earliest time of the next [`Self::trim`].
    trim_at: Time,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of(Box::new(Shared))
    }
}

impl Pool {
    /// No buffers yet, and where they come from.
    pub(crate) fn of(memory: Box<dyn MessageMemory>) -> Self {
        Self { memory, free: Default::default(), bytes: 0, unused: [0; CLASSES], trim_at: Time::ZERO }
    }

    /// An empty buffer with room for `size` bytes.
    pub(crate) fn take(&mut self, size: usize) -> Vec<u8> {
        let Some(class) = class_for(size) else { return Vec::with_capacity(size) };
        let Some(free) = self.free.get_mut(class) else { return Vec::with_capacity(size) };
        let Some(memory) = free.pop() else { return self.memory.buffer(capacity(class)) };
        self.bytes -= memory.capacity();
        if let Some(unused) = self.unused.get_mut(class) {
            *unused = free.len().min(*unused);
        }
        memory
    }

    /// Recycles the buffer of a message.
    pub(crate) fn put(&mut self, message: Message) {
        let mut memory = message.into_bytes();
        let fits = |class: &usize| memory.capacity() == capacity(*class);
        let Some(class) = class_for(memory.capacity()).filter(fits) else { return };
        if self.bytes + memory.capacity() > MAX_BYTES {
            return;
        }
        if let Some(free) = self.free.get_mut(class) {
            memory.clear();
            self.memory.disown(&memory);
            self.bytes += memory.capacity();
            free.push(memory);
        }
    }

    /// When [`Self::trim_timeout`] is due.
    pub(crate) fn trim_due(&self) -> Time {
        if self.needs_trim() { self.trim_at } else { Time::NEVER }
    }

    /// Frees unused buffers at intervals.
    pub(crate) fn trim_timeout(&mut self, now: Time) {
        if self.trim_at <= now {
            self.trim();
            self.trim_at = now.plus_millis(TRIM_MS);
        }
    }

    /// Whether [`Self::trim`] has memory to give back, now or the next time, that the system gets.
    pub(crate) fn needs_trim(&self) -> bool {
        self.memory.needs_trim()
    }

    /// Frees the buffers that were not needed since the last call.
    pub(crate) fn trim(&mut self) {
        for (free, unused) in self.free.iter_mut().zip(&mut self.unused) {
            for memory in free.drain(..(*unused).min(free.len())) {
                self.bytes -= memory.capacity();
            }
            *unused = free.len();
        }
        self.memory.trim();
    }
}

/// The class of a buffer of `size` bytes; `None` for sizes that are not kept.
fn class_for(size: usize) -> Option<usize> {
    if size <= SMALLEST / 2 || size > MAX_MESSAGE {
        return None;
    }
    (0..CLASSES).find(|class| size <= capacity(*class))
}

fn capacity(class: usize) -> usize {
    (SMALLEST << class).min(MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::User;

    fn message(pool: &mut Pool, data: usize) -> Message {
        let memory = pool.take(data + 24);
        Message::build_in(memory, User::Low, 0, 24, &vec![1; data])
    }

    #[test]
    fn buffers_of_large_messages_are_recycled_within_bounds() {
        let mut pool = Pool::default();
        let first = message(&mut pool, 66_000);
        let place = first.bytes().as_ptr();
        pool.put(first);
        let again = message(&mut pool, 65_900);
        assert_eq!(again.bytes().as_ptr(), place);
        assert_eq!((again.data().len(), pool.bytes), (65_900, 0));
        let many: Vec<Message> = (0..100).map(|_| message(&mut pool, 66_000)).collect();
        many.into_iter().for_each(|m| pool.put(m));
        assert!(pool.bytes <= MAX_BYTES && pool.bytes > MAX_BYTES / 2);
        let small = message(&mut pool, 100);
        let before = pool.bytes;
        pool.put(small);
        assert_eq!(pool.bytes, before, "small buffers are not kept");
    }

    #[test]
    fn unneeded_buffers_are_freed_at_the_second_trim() {
        let mut pool = Pool::default();
        let many: Vec<Message> = (0..10).map(|_| message(&mut pool, 10_000)).collect();
        many.into_iter().for_each(|m| pool.put(m));
        pool.trim();
        assert_eq!(pool.free[1].len(), 10);
        let three: Vec<Message> = (0..3).map(|_| message(&mut pool, 10_000)).collect();
        three.into_iter().for_each(|m| pool.put(m));
        pool.trim();
        assert_eq!(pool.free[1].len(), 3);
        pool.trim();
        assert_eq!((pool.free[1].len(), pool.bytes), (0, 0));
    }
}
