//! Puts fragmented messages together again. Spec: rssl.md §1.6

use super::frame::Part;

/// Messages of one connection that may be under way in fragments at the same time.
const ASSEMBLIES_MAX: usize = 32;
/// Room that is kept for the next message instead of being given back.
const KEPT_BYTES: usize = 256 << 10;

/// One message under way.
#[derive(Debug)]
struct Assembly {
    id: u16,
    total: usize,
    bytes: Vec<u8>,
}

/// All fragmented messages of one connection that are not complete. Memory grows with the bytes that arrive, never
/// with the length that is announced.
#[derive(Debug)]
pub(super) struct Assembler {
    open: Vec<Assembly>,
    /// Limit of a message, and of all that is held.
    limit: usize,
    held: usize,
    spare: Vec<u8>,
    /// Messages given up: too long, too many at once, or without their beginning.
    pub(super) dropped: u64,
}

impl Assembler {
    pub(super) fn new(limit: usize) -> Self {
        Assembler { open: Vec::new(), limit, held: 0, spare: Vec::new(), dropped: 0 }
    }

    /// Takes a fragment; true if it completed a message, which is then in `done`. A fragment whose message is not
    /// known (its beginning was too long to be kept, or never came) is skipped, as stock receivers do; so is a
    /// message whose beginning is repeated.
    pub(super) fn take(&mut self, part: Part, bytes: &[u8], done: &mut Vec<u8>) -> bool {
        let id = match part {
            Part::Whole => return false,
            Part::First { id, total } => {
                self.forget(id);
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
            self.forget(id);
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
        if last.capacity() <= KEPT_BYTES {
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

    /// Gives up what is under way with this id.
    fn forget(&mut self, id: u16) {
        if let Some(at) = self.open.iter().position(|a| a.id == id) {
            let gone = self.open.swap_remove(at);
            self.held -= gone.bytes.len();
            self.dropped += 1;
        }
    }
}
