//! Requests at which an upstream ends its connection: held back from the second time on, so that one item does not make
//! all others stale again and again.

use super::ids::{Now, UpstreamId};
use super::state::Hub;

/// Time for which the only request without an answer at two ends in a row is held back; doubled after each further end.
const HELD: Now = Now::from_secs(60);
/// Maximum number of doublings of this time: to 16 minutes.
const DOUBLINGS: u8 = 4;
/// Time for which half of several such requests are held back: the next end tells which half has the cause.
const HALF_HELD: Now = Now::from_secs(5);

impl Hub {
    /// Holds requests back that an upstream had not answered when its connection ended, and that had the same fate
    /// before. Items that have had an image are not suspected.
    pub(super) fn hold_unanswered_back(&mut self, up: UpstreamId) {
        if self.upstreams.get(usize::from(up.0)).is_none_or(|up| up.publishes || up.recovers) {
            return;
        }
        let unanswered = self.items.open_where(|item| {
            let is_unanswered = item.is_at(up) && item.is_requested() && !item.image.is_known();
            // The others were lost with an earlier connection.
            is_unanswered && self.sweeps.have_reached(item)
        });
        let count = unanswered.len();
        for (place, id) in unanswered.into_iter().enumerate() {
            let Some(item) = self.items.get_mut(id) else { continue };
            let before = item.unanswered_ends;
            item.unanswered_ends = before.saturating_add(1);
            if before == 0 {
                continue;
            }
            if count == 1 {
                item.held_back = HELD * (1 << (before - 1).min(DOUBLINGS));
                self.stats.held_back += 1;
            } else if place >= count / 2 {
                item.held_back = HALF_HELD;
            }
        }
    }
}
