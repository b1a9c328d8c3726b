//! Memory of a table shared with several readers, like a daemon's, within one process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::replica::{Areas, Memory, NoMemory, Size, View};

/// The segment that a reader has mapped.
#[derive(Debug)]
pub(super) struct Segment {
    leaves: Vec<AtomicU64>,
    branches: Vec<AtomicU64>,
    records: Vec<AtomicU64>,
    cursors: Vec<AtomicU64>,
}

impl Segment {
    fn new(size: Size) -> Arc<Self> {
        let fresh = |len| std::iter::repeat_with(AtomicU64::default).take(len).collect();
        let (leaves, branches) = (fresh(size.leaves), fresh(size.branches));
        Arc::new(Self { leaves, branches, records: fresh(size.records), cursors: fresh(size.cursors) })
    }

    pub(super) fn areas(&self) -> Areas<'_> {
        let Self { leaves, branches, records, cursors } = self;
        Areas { leaves, branches, records, cursors }
    }

    pub(super) fn view(&self) -> View<'_> {
        View::new(self.areas())
    }
}

/// The current segment, for readers.
#[derive(Clone, Debug)]
pub(super) struct Source {
    current: Arc<Mutex<Arc<Segment>>>,
    full: Arc<AtomicBool>,
}

impl Source {
    pub(super) fn current(&self) -> Arc<Segment> {
        Arc::clone(&self.current.lock().unwrap())
    }

    /// Refuses memory from now on.
    pub(super) fn refuse(&self) {
        self.full.store(true, Ordering::Relaxed);
    }
}

/// The writer's side; starts small, so that it soon grows.
#[derive(Debug)]
pub(super) struct Shared {
    segment: Arc<Segment>,
    source: Source,
}

impl Shared {
    pub(super) fn new() -> (Self, Source) {
        let segment = Segment::new(Size { leaves: 2000, branches: 2000, records: 200, cursors: 50 });
        let current = Arc::new(Mutex::new(Arc::clone(&segment)));
        let source = Source { current, full: Arc::default() };
        (Self { segment, source: source.clone() }, source)
    }
}

impl Memory for Shared {
    fn areas(&self) -> Areas<'_> {
        self.segment.areas()
    }

    fn grow(&mut self, size: Size, carry: &mut dyn FnMut(Areas<'_>, Areas<'_>)) -> Result<(), NoMemory> {
        if self.source.full.load(Ordering::Relaxed) {
            return Err(NoMemory("refused by the test".to_owned()));
        }
        let new = Segment::new(size);
        carry(self.segment.areas(), new.areas());
        *self.source.current.lock().unwrap() = Arc::clone(&new);
        self.segment.areas().supersede();
        self.segment = new;
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.segment.areas().close();
    }
}
