//! Which lanes report to a receiver that does not check them, and checks for messages without a receive.

use utipc_core::socket::SocketKind;

use utipc_attach::LaneId;

use super::{Next, Receiver, note_wakeup};
use crate::ReadyLanes;
use crate::inbound::Check;

impl Receiver {
    /// From now on, has the daemon notified when an armed lane gets something.
    pub fn tell_daemon(&mut self) {
        self.telling = true;
        for place in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[place] else { continue };
            lane.reader.tell_daemon(true);
            // It may be armed without that; its next turn arms it again.
            if !self.polled.contains(&place) {
                self.list(place);
            }
        }
    }

    /// A lane that was read to its end and has to be left.
    pub fn lane_at_end(&mut self) -> Option<LaneId> {
        let Self { lanes, polled, .. } = self;
        polled.iter().find_map(|place| {
            lanes[*place].as_mut().and_then(|lane| (lane.check() == Check::Ended).then_some(lane.id))
        })
    }

    /// What a receive finds without the node; a corrupt lane counts as something. Arms no lane.
    pub fn check(&mut self, ready: &ReadyLanes) -> Check {
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        if !self.returned.is_empty() || self.begun.is_some() || !self.listed.is_empty() {
            return Check::Something;
        }
        let Self { lanes, polled, to_wake, .. } = self;
        let mut all = Check::Nothing;
        for place in polled.iter() {
            let Some(lane) = &mut lanes[*place] else { continue };
            let found = lane.check();
            note_wakeup(lane, to_wake);
            match found {
                Check::Something => return found,
                Check::Ended => all = found,
                Check::Nothing => {}
            }
        }
        all
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

    /// Whether a check of the lanes finds every message of them: there are some, and none needs a report.
    #[must_use]
    pub fn checks_all_lanes(&self) -> bool {
        !self.places.is_empty() && self.places.len() == self.polled.len()
    }

    /// Cancels [`Receiver::arm_all`]; returns whether a writer has answered it already, by a wake-up that may be on its
    /// way.
    pub fn disarm_all(&mut self) -> bool {
        if !std::mem::take(&mut self.armed) {
            return false;
        }
        let Self { lanes, polled, .. } = self;
        // `fold`, not `any`: every lane has to be disarmed.
        polled.iter().fold(false, |told, place| match &mut lanes[*place] {
            Some(lane) => !lane.reader.disarm() || told,
            None => told,
        })
    }

    /// Before sleeping: asks every writer to wake this process, until a check of a lane finds something.
    pub fn arm_all(&mut self, kind: SocketKind, ready: &ReadyLanes) -> Check {
        self.armed = true;
        for at in 0..self.polled.len() {
            let place = self.polled[at];
            if let Some(lane) = &mut self.lanes[place] {
                let found = lane.arm();
                note_wakeup(lane, &mut self.to_wake);
                if found != Check::Nothing {
                    return found;
                }
            }
        }
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        let something = !self.listed.is_empty() || !self.returned.is_empty() || self.node_counts(kind);
        if something { Check::Something } else { Check::Nothing }
    }
}
