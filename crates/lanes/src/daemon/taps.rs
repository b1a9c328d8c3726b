//! Taps on all lanes, for captures.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use utipc_attach::LaneId;

use super::{Lanes, pairs};
use crate::{Tap, Tapped};

/// Records that one call visits in all lanes, about: a hostile writer must not make turns long. The call after goes on
/// with the next lane.
const CALL_RECORDS: usize = 16_384;

/// Taps of a capture.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// Present while there is a capture of lanes: the taps with the ports of writer and reader.
    of: Option<BTreeMap<LaneId, (Tap, [u32; 2])>>,
    /// The lane that was visited last.
    last: Option<LaneId>,
}

impl Lanes {
    /// Reports what was written into lanes since the last call, with the ports of writer and reader; 0 is the node.
    /// The first call begins the taps and reports nothing of lanes that exist.
    pub fn read_taps(&mut self, report: &mut dyn FnMut([u32; 2], Tapped<'_>)) {
        let is_first = self.taps.of.is_none();
        let taps = self.taps.of.get_or_insert_default();
        for (id, lane) in &self.lanes {
            let ports = [lane.from, lane.to];
            // The slot of a lane that has ended may have a new one.
            if taps.get(id).is_some_and(|(_, known)| *known == ports) {
                continue;
            }
            let Some(pair) = self.pairs.get(id.pair) else { continue };
            if let Some(tap) = pair.arena.tap(pairs::side(id.writer), id.slot.into(), is_first) {
                taps.insert(*id, (tap, ports));
            }
        }
        let after = self.taps.last.map_or(Unbounded, Excluded);
        let order: Vec<LaneId> =
            taps.range((after, Unbounded)).chain(taps.iter()).map(|(id, _)| *id).take(taps.len()).collect();
        let mut left = CALL_RECORDS;
        for id in order {
            let Some((tap, ports)) = taps.get_mut(&id) else { continue };
            let lane = self.lanes.get(&id);
            let largest = lane.map_or(0, |lane| lane.class);
            left = left.saturating_sub(1 + tap.look(largest, &mut |found| report(*ports, found)));
            if lane.is_none() {
                taps.remove(&id);
            }
            self.taps.last = Some(id);
            if left == 0 {
                break;
            }
        }
    }

    /// Ends the taps.
    pub fn end_taps(&mut self) {
        self.taps = Taps::default();
    }
}
