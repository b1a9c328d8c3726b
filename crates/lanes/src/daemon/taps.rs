//! Taps on all lanes, for captures.

use utipc_attach::LaneId;

use super::pairs::{Pairs, side};
use super::table::Table;
use crate::{Tap, Tapped};
use utipc_os::many::Many;

/// Approximate number of records that one call visits in all lanes: a hostile writer must not make turns long. The call
/// after continues with the next lane.
const CALL_RECORDS: usize = 16_384;

/// Number of lanes that one call checks for new ones.
const CALL_LANES: usize = 256;

/// Taps of a capture.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// The taps with the ports of writer and reader, during a capture of lanes.
    of: Option<Many<LaneId, (Tap, [u32; 2])>>,
    /// The lane that was visited last.
    last: Option<LaneId>,
    /// New lanes up to this one have taps.
    known: Option<LaneId>,
    /// The lanes that existed when the capture began have taps.
    has_begun: bool,
}

impl Taps {
    /// Reports what was written into lanes since the last call, with the ports of writer and reader; 0 is the node.
    /// The first call begins the taps and reports nothing from existing lanes.
    pub(super) fn read(
        &mut self,
        lanes: &Table,
        pairs: &Pairs,
        report: &mut dyn FnMut([u32; 2], Tapped<'_>),
    ) {
        self.add(lanes, pairs);
        let Some(taps) = &mut self.of else { return };
        let mut left = CALL_RECORDS;
        for _ in 0..taps.len() {
            let next = taps.next_after(self.last).or_else(|| taps.first());
            let Some((id, (tap, ports))) = next.and_then(|id| Some((id, taps.get_mut(&id)?))) else { return };
            let lane = lanes.get(&id);
            let largest = lane.map_or(0, |lane| lane.class);
            left = left.saturating_sub(1 + tap.scan(largest, &mut |found| report(*ports, found)));
            if lane.is_none() {
                taps.remove(&id);
            }
            self.last = Some(id);
            if left == 0 {
                break;
            }
        }
    }

    /// Adds taps on new lanes.
    fn add(&mut self, lanes: &Table, pairs: &Pairs) {
        let Taps { of, known, has_begun, .. } = self;
        let taps = of.get_or_insert_default();
        for _ in 0..CALL_LANES {
            let Some(id) = lanes.next_after(*known) else {
                (*known, *has_begun) = (None, true);
                return;
            };
            *known = Some(id);
            let (Some(lane), Some(pair)) = (lanes.get(&id), pairs.get(id.pair)) else { continue };
            let ports = [lane.from, lane.to];
            // The slot of an ended lane may hold a new one.
            if taps.get(&id).is_some_and(|(_, known)| *known == ports) {
                continue;
            }
            if let Some(tap) = pair.arena.tap(side(id.writer), id.slot.into(), !*has_begun) {
                taps.insert(id, (tap, ports));
            }
        }
    }
}
