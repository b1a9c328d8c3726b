//! Which lanes report to a receiver that does not check them, and whether there is something without a receive.

use utipc_core::socket::SocketKind;

use utipc_attach::LaneId;

use super::{Next, Receiver, note_wakeup};
use crate::inbound::InboundLane;
use crate::{Peek, ReadyLanes};

impl Receiver {
    /// Asks from now on for the daemon to be told when an armed lane gets something.
    pub fn tell_daemon(&mut self) {
        self.telling = true;
        for place in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[place] else { continue };
            lane.reader.tell_daemon(true);
            // It may be armed without that: its next turn arms it again.
            if !self.polled.contains(&place) {
                self.list(place);
            }
        }
    }

    /// A lane that was read to its end and has to be left.
    pub fn lane_at_end(&mut self) -> Option<LaneId> {
        let Self { lanes, polled, .. } = self;
        polled
            .iter()
            .find_map(|place| lanes[*place].as_mut().and_then(|lane| lane.skip_to_end().then_some(lane.id)))
    }

    /// Whether a receive finds something without the node; a corrupt lane counts. Arms nothing.
    pub fn has_something_here(&mut self, ready: &ReadyLanes) -> bool {
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        if !self.returned.is_empty() || self.begun.is_some() || !self.listed.is_empty() {
            return true;
        }
        let Self { lanes, polled, to_wake, .. } = self;
        let mut has = |lane: &mut InboundLane| {
            let found = lane.reader.peek() != Ok(Peek::Empty);
            note_wakeup(lane, to_wake);
            found
        };
        polled.iter().any(|place| lanes[*place].as_mut().is_some_and(&mut has))
    }

    /// Asks the writer of a listed lane to report it, unless it has something already.
    pub(super) fn arm(&mut self, place: usize) -> Result<(), Next> {
        let Some(lane) = &mut self.lanes[place] else { return Ok(()) };
        let armed = lane.reader.arm();
        note_wakeup(lane, &mut self.to_wake);
        match armed {
            Ok(true) => self.listed.push_back(place),
            Ok(false) => lane.listed = false,
            Err(_) => return Err(Next::Corrupt(lane.id)),
        }
        Ok(())
    }

    /// Collects reports about armed lanes.
    pub(super) fn collect(&mut self, ready: &ReadyLanes) {
        for (pair, _) in &self.pairs {
            pair.dispatch();
        }
        ready.take(|id| {
            if let Some(&place) = self.places.get(&id)
                && !self.polled.contains(&place)
            {
                self.list(place);
            }
        });
    }

    /// Before sleeping: asks every writer to wake this process. Returns true if there is something already.
    pub fn arm_all(&mut self, kind: SocketKind, ready: &ReadyLanes) -> bool {
        for at in 0..self.polled.len() {
            let place = self.polled[at];
            if let Some(lane) = &mut self.lanes[place] {
                // The next receive reports a corrupt lane.
                let found = lane.reader.arm().unwrap_or(true);
                note_wakeup(lane, &mut self.to_wake);
                if found {
                    return true;
                }
            }
        }
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        !self.listed.is_empty() || !self.returned.is_empty() || self.node_counts(kind)
    }
}
