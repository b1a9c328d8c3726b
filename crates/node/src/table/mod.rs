//! The node's binding table in memory that other processes map to look for themselves (DESIGN L8).

use std::sync::{Arc, Mutex, PoisonError};

use utipc_core::names::replica::{Areas, Memory, NoMemory, Size};
use utipc_core::stack::Stack;
use utipc_os::OsError;
use utipc_os::replica::Publisher;

/// Name of the segments in `/proc/PID/maps`.
const NAME: &str = "utipc table";

/// The first segment, in words: room for some 100,000 bindings. It costs what is in use of it.
const FIRST: [usize; 3] = [16_384 * 80, 512 * 464, 131_072 * 4];
/// Turns never move, so there is one for every range that a table can have.
const TURNS: usize = (1 << 20) + (1 << 16);

/// Why a table is not shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The system refused the first segment.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The system refused one that is large enough.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// What a daemon tells its clients of its table: where it is. Clones are the same.
///
/// When the table outgrows its segment it moves to a larger one before the call that made it grow returns. The old
/// segment says so to whoever looks something up there; whoever asks then finds the new one here.
#[derive(Clone, Debug)]
pub struct SharedTable {
    current: Arc<Mutex<Arc<Publisher>>>,
}

impl SharedTable {
    /// Moves the table of `stack` to memory that can be shared.
    ///
    /// # Errors
    /// See [`ShareError`]; the node goes on with its table as it was.
    pub fn share(stack: &mut Stack) -> Result<Self, ShareError> {
        let publisher = Arc::new(Publisher::new(NAME, FIRST, TURNS)?);
        let table = Self { current: Arc::new(Mutex::new(Arc::clone(&publisher))) };
        stack.share_names(Box::new(Segment { publisher, table: table.clone() }))?;
        Ok(table)
    }

    /// The segment that is current: its descriptors are what a client maps, and here congestion is told. A change of the
    /// table may replace it, so ask again each time.
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
        if cursors > TURNS {
            return Err(NoMemory(format!("{TURNS} ranges are the limit")));
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
