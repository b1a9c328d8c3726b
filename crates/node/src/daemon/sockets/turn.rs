//! The sockets in a turn of the event loop.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_core::quota::{Resource, UserId};
use utipc_lanes::daemon::Tapped;
use utipc_os::fdpass::own_user;
use utipc_os::reactor::Event as Ready;

use super::Sockets;
use crate::daemon::attachments::Policy;
use crate::daemon::counters::DaemonCounters;
use crate::daemon::quotas;

/// Interval at which captures read lanes, and retry a slow reader, milliseconds.
const CAPTURE_MS: u64 = 1;

impl Sockets {
    /// Whether the next turn has work that waits for no event and is no job.
    pub(crate) fn has_work(&self) -> bool {
        self.lanes.is_ringing() || self.driver.stack.has_work()
    }

    /// Waits for events until `until` at most; returns whether there may be orders, `None` if the wait failed.
    pub(crate) fn wait(&mut self, until: Time, events: &mut Vec<Ready>) -> Option<bool> {
        let mut pause = self.driver.pause(self.now, until);
        if self.driver.prepare_sleep() {
            pause = Some(Duration::ZERO);
        }
        self.lanes.wait(&mut self.reactors.main, pause, events).ok()
    }

    /// Handles that the process of a pair has written or read something.
    pub(crate) fn serve_pair(&mut self, pair: PairId) {
        self.with_lanes(|lanes, context| lanes.serve(context, pair));
    }

    /// Serves the processes that do not wake the daemon, and continues waking those that wait for the node.
    pub(crate) fn serve_awake(&mut self) {
        self.with_lanes(|lanes, context| {
            lanes.step_ring();
            lanes.serve_awake(context);
        });
    }

    /// Notes which descriptors of a user were closed.
    pub(crate) fn collect_closed(&mut self, user: UserId) {
        self.descriptors.collect(user);
    }

    /// The next descriptor whose near end was closed, and its user.
    pub(crate) fn next_closed(&mut self) -> Option<(UserId, u32)> {
        self.descriptors.next_closed()
    }

    /// Handles the changes of sockets, and resumes those that waited until a lane was drained.
    pub(crate) fn update_changed(&mut self) {
        while let Some(port) = self.driver.stack.poll_ready() {
            self.update(port);
        }
        for (from, to) in self.lanes.take_drained() {
            self.update(to);
            self.with_lanes(|lanes, context| lanes.resume(context, (from, to)));
        }
        for port in self.lanes.take_finished() {
            self.update(port);
        }
    }

    /// Sends the frames, notices and replies of the turn.
    pub(crate) fn flush(&mut self) {
        if self.replica.update_congestion(&mut self.driver.stack) {
            self.lanes.ring_all();
        }
        self.driver.flush();
        if self.driver.observe() && self.driver.stack.address_is_final() {
            self.attachments.notify_address(self.driver.stack.own_node());
        }
        while let Some(port) = self.driver.stack.take_changed_group() {
            self.report_group(port);
        }
        let Self { attachments, holders, .. } = self;
        attachments.send_replies(|port, id| holders.take_noted(port, id));
    }

    /// Ends a turn: rings doorbells, and hands captures what they want.
    pub(crate) fn end_turn(&mut self) {
        let Self { attachments, driver, lanes, .. } = self;
        attachments.ring_due();
        if driver.captures.wants_lanes() {
            lanes.read_taps(&mut |ports, found| match found {
                Tapped::Message(message) => driver.captures.lane(ports, message),
                Tapped::Missed(bytes) => driver.captures.lane_missed(ports, bytes),
            });
        } else {
            lanes.end_taps();
        }
        driver.captures.flush();
    }

    /// Ends the captures of processes that may no longer manage the node.
    pub(crate) fn end_captures_unless(&mut self, policy: &Policy) {
        let Self { attachments, driver, .. } = self;
        let may = |owner| attachments.peer(owner).is_some_and(|peer| policy.may_manage(&peer, own_user()));
        driver.captures.end_unless(may);
    }

    /// When captures have something to do: the end of the turn serves them.
    pub(crate) fn capture_deadline(&self) -> Time {
        let captures = &self.driver.captures;
        if captures.wants_lanes() || captures.has_queued() {
            self.now.plus_millis(CAPTURE_MS)
        } else {
            Time::NEVER
        }
    }

    pub(crate) fn orphan_deadline(&self) -> Time {
        self.orphans.deadline()
    }

    /// Gives back memory of one of the [`PARTS`](utipc_os::many::PARTS) of tables that many entries have left.
    pub(crate) fn shrink(&mut self, part: usize) {
        self.holders.shrink(part);
        self.descriptors.shrink(part);
        self.lanes.shrink(part);
    }

    /// The counters of the sockets, their processes and the node. Users are charged for exactly what exists, with this
    /// number of inheritances; a debug build checks that, in proportion to the sockets.
    pub(crate) fn count(&self, inheritances: usize) -> DaemonCounters {
        let Self { driver, attachments, descriptors, .. } = self;
        let (ledger, lanes, tally) = (driver.stack.ledger(), self.lanes.counts(), attachments.tally());
        let used = |resource| ledger.total().used.get(resource);
        debug_assert!(driver.stack.is_balanced(), "{ledger:?}");
        debug_assert_eq!(used(Resource::Processes), attachments.served() as u64);
        debug_assert_eq!(used(Resource::Descriptors), (descriptors.len() + inheritances) as u64);
        debug_assert_eq!(used(Resource::Lanes), lanes.lanes as u64);
        DaemonCounters {
            attached: attachments.served(),
            attached_ever: tally.attached_ever,
            ended: tally.ended.clone(),
            requests: tally.answered,
            closing: attachments.closing(),
            sockets: self.holders.len() + self.ending,
            descriptors: descriptors.len(),
            lanes: lanes.lanes,
            pairs: lanes.pairs,
            lanes_corrupt: lanes.corrupt,
            quotas: quotas::counters(ledger),
            captures: driver.captures.counters(),
            node: driver.counters(),
            ..DaemonCounters::default()
        }
    }
}
