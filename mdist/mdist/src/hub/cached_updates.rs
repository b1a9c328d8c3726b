//! Updates into the cache, applied in batches.
//!
//! The records of 100,000 items are not in the processor's cache, and fetching one from memory takes longer
//! than applying an update. So updates wait a little and are applied together: first all records are touched,
//! so that they are fetched at the same time. The delay has no effect outside, because the hub applies the
//! waiting updates before it does anything else.

use std::hint::black_box;

use super::ids::ItemId;
use super::state::{Hub, PORTION};
use crate::cache::Record;

/// Maximum number of updates that wait: enough to hide the memory's latency, and few enough that the fetched lines are
/// still in the cache.
const MAX_PENDING: usize = 32;
/// Longest message that waits, in bytes.
const MAX_PENDING_LEN: usize = 1024;

impl Hub {
    /// Applies an update to the cache, with some others at once if it is short.
    #[inline]
    pub(super) fn cache_update(&mut self, id: ItemId, message: &[u8]) {
        if message.len() > MAX_PENDING_LEN {
            self.apply_pending_first();
            self.apply_update(id, message);
            return self.evict();
        }
        self.values.pending.bytes.extend_from_slice(message);
        self.values.pending.list.push((id, message.len()));
        if self.values.pending.list.len() >= MAX_PENDING {
            self.apply_pending();
        }
    }

    /// Applies the updates that wait. To be called before anything except an update is handled.
    #[inline]
    pub(super) fn apply_pending_first(&mut self) {
        if !self.values.pending.list.is_empty() {
            self.apply_pending();
        }
    }

    fn apply_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.values.pending);
        let records = || pending.list.iter().filter_map(|(id, _)| self.values.get(*id));
        // Prefetch in two rounds: the second one reads addresses from the memory that the first one has fetched.
        black_box(records().map(Record::touch).sum::<usize>());
        black_box(records().map(Record::touch_values).sum::<usize>());
        let mut rest = pending.bytes.as_slice();
        for (id, len) in pending.list.drain(..) {
            let Some((message, after)) = rest.split_at_checked(len) else { break };
            rest = after;
            self.apply_update(id, message);
        }
        pending.bytes.clear();
        self.values.pending = pending;
        self.evict();
    }

    #[inline]
    fn apply_update(&mut self, id: ItemId, message: &[u8]) {
        if self.values.message(id, message).is_err() {
            self.uncache(id);
        }
    }

    /// Drops records of items that no side holds, a portion at most, if the cache exceeds its budget. An image that is
    /// needed later comes from upstream.
    #[inline]
    pub(super) fn evict(&mut self) {
        for _ in 0..PORTION {
            let Some(id) = self.values.to_evict() else { return };
            self.values.remove(id);
            self.stats.evictions += 1;
            self.route_updates(id);
        }
    }
}
