//! The node's binding table in shared memory, which other processes map for their lookups.

use std::sync::{Arc, Mutex, PoisonError};

use utipc_core::names::replica::{Areas, Memory, NoMemory, Size};
use utipc_core::stack::Stack;
use utipc_os::OsError;
use utipc_os::replica::Publisher;

/// Name of the segments in `/proc/PID/maps`.
const NAME: &str = "utipc table";

/// Sizes of the first segment, in words: room for some 100,000 bindings. Only used pages take memory.
const FIRST: [usize; 3] = [16_384 * 80, 512 * 464, 131_072 * 4];
/// Round-robin cursors never move, so there is one for every range that a table can have.
const CURSORS: usize = (1 << 20) + (1 << 16);

/// Reason why a table is not shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The system refused the first segment.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The system refused a segment that is large enough.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// A daemon's binding table in shared memory, for its clients. Clones are handles on the same table.
///
/// When the table outgrows its segment, it moves to a larger one before the call that made it grow returns.
/// Later lookups in the old segment return that it is superseded; the processes then request the new one.
#[derive(Clone, Debug)]
pub struct SharedTable {
    current: Arc<Mutex<Arc<Publisher>>>,
}

impl SharedTable {
    /// Moves the table of `stack` to memory that can be shared.
    ///
    /// # Errors
    /// See [`ShareError`]; then the node keeps its own table.
    pub fn share(stack: &mut Stack) -> Result<Self, ShareError> {
        let publisher = Arc::new(Publisher::new(NAME, FIRST, CURSORS)?);
        let table = Self { current: Arc::new(Mutex::new(Arc::clone(&publisher))) };
        stack.share_names(Box::new(Segment { publisher, table: table.clone() }))?;
        Ok(table)
    }

    /// The current segment: clients map its descriptors, and it holds the congestion state. A change of the table may
    /// replace it, so call this each time.
    #[must_use]
    pub fn publisher(&self) -> Arc<Publisher> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The memory of the table, as the core sees it.
#[derive(Debug)]
struct Segment {
    publisher: Arc<Publisher>,
    table: SharedTable,
}

fn areas(publisher: &Publisher) -> Areas<'_> {
    let [leaves, branches, records] = [0, 1, 2].map(|number| publisher.area(number));
    Areas { leaves, branches, records, cursors: publisher.open_area() }
}

impl Memory for Segment {
    fn areas(&self) -> Areas<'_> {
        areas(&self.publisher)
    }

    fn grow(&mut self, size: Size, carry: &mut dyn FnMut(Areas<'_>, Areas<'_>)) -> Result<(), NoMemory> {
        let Size { leaves, branches, records, cursors } = size;
        if cursors > CURSORS {
            return Err(NoMemory(format!("{CURSORS} ranges are the limit")));
        }
        let next = self.publisher.successor(NAME, [leaves, branches, records]);
        let next = Arc::new(next.map_err(|refused| NoMemory(refused.to_string()))?);
        carry(areas(&self.publisher), areas(&next));
        *self.table.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        self.areas().supersede();
        self.publisher = next;
        Ok(())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.areas().close();
    }
}

#[cfg(test)]
mod tests;
