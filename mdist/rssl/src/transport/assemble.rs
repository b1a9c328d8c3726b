//! Assembles fragmented messages. Spec: rssl.md §1.6

use super::frame::Part;

/// Maximum number of messages of one connection that are assembled at the same time.
const ASSEMBLIES_MAX: usize = 32;
/// Capacity of a buffer that is reused for the next message instead of freed, in bytes.
const MAX_SPARE_BYTES: usize = 256 << 10;

/// One incomplete message.
#[derive(Debug)]
struct Assembly {
    id: u16,
    total: usize,
    bytes: Vec<u8>,
}

/// The incomplete messages of one connection. Memory grows with the received bytes, not with the announced length.
#[derive(Debug)]
pub(super) struct Assembler {
    open: Vec<Assembly>,
    /// Limit for one message and for all incomplete ones together, in bytes.
    limit: usize,
    /// Bytes of all incomplete messages.
    held: usize,
    spare: Vec<u8>,
    /// Messages dropped: too long, too many at once, or without their first fragment.
    pub(super) dropped: u64,
}

impl Assembler {
    pub(super) fn new(limit: usize) -> Self {
        Assembler { open: Vec::new(), limit, held: 0, spare: Vec::new(), dropped: 0 }
    }

    /// Adds a fragment to its message. Returns whether the message, then in `done`, is complete. A
    /// fragment of an unknown message (the first one announced too much, or was not received) is skipped, as
    /// stock receivers do; a repeated first fragment drops the message so far.
    pub(super) fn take(&mut self, part: Part, bytes: &[u8], done: &mut Vec<u8>) -> bool {
        let id = match part {
            Part::Whole => return false,
            Part::First { id, total } => {
                self.discard(id);
                if !self.begin(id, total as usize) {
                    self.dropped += 1;
                    return false;
                }
                id
            }
            Part::Next { id } => id,
        };
        let Some(at) = self.open.iter().position(|a| a.id == id) else {
            self.dropped += 1;
            return false;
        };
        let Some(assembly) = self.open.get_mut(at) else { return false };
        if assembly.bytes.len() + bytes.len() > assembly.total || self.held + bytes.len() > self.limit {
            self.discard(id);
            return false;
        }
        assembly.bytes.extend_from_slice(bytes);
        self.held += bytes.len();
        if assembly.bytes.len() < assembly.total {
            return false;
        }
        let finished = self.open.swap_remove(at);
        self.held -= finished.bytes.len();
        let mut last = std::mem::replace(done, finished.bytes);
        if last.capacity() <= MAX_SPARE_BYTES {
            last.clear();
            self.spare = last;
        }
        true
    }

    fn begin(&mut self, id: u16, total: usize) -> bool {
        if total == 0 || total > self.limit || self.open.len() >= ASSEMBLIES_MAX {
            return false;
        }
        self.open.push(Assembly { id, total, bytes: std::mem::take(&mut self.spare) });
        true
    }

    /// Drops the incomplete message with the id `id`.
    fn discard(&mut self, id: u16) {
        if let Some(at) = self.open.iter().position(|a| a.id == id) {
            let gone = self.open.swap_remove(at);
            self.held -= gone.bytes.len();
            self.dropped += 1;
        }
    }
}
