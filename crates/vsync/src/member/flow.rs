//! Queries of a driver about flow control, and the end of a member whose application does not keep up.

use utipc_core::Time;

use super::Member;
use crate::event::Cause;
use crate::state::State;
use crate::view::MemberId;

impl Member {
    /// Whether this member withholds its acknowledgement because its application does not take its messages. All
    /// senders of the view wait for it once the window is full.
    #[must_use]
    pub fn is_withholding(&self) -> bool {
        let reached = self.history.log().map_or(0, crate::log::Log::contiguous);
        self.state.is_in_view() && reached > self.order.acked() && self.acknowledged() <= self.order.acked()
    }

    /// Packets of this member that are not known to be stable.
    #[must_use]
    pub fn unstable(&self) -> u64 {
        self.history.log().map_or(0, |log| log.in_flight(self.rank()).0)
    }

    /// At the sequencer: the member that is furthest behind, if any. Other members do not know it.
    #[must_use]
    pub fn slowest(&self) -> Option<MemberId> {
        let view = self.view().filter(|view| view.sequencer() == Some(self.me))?;
        let reached = self.history.log()?.contiguous();
        let (member, acknowledged) = view.members().zip(self.order.acks()).min_by_key(|(_, ack)| **ack)?;
        (*acknowledged < reached).then_some(member)
    }

    /// Bytes for [`poll_transmit`](Member::poll_transmit). A caller that cannot send reads no more when they are many:
    /// each message of a peer can have an answer.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.outbox.bytes()
    }

    /// Ends the membership at once, for `cause`; [`Event::Excluded`](crate::Event::Excluded) follows. The other members
    /// go on as after a crash.
    pub fn abandon(&mut self, now: Time, cause: Cause) {
        if self.state != State::Idle {
            self.times.now = now;
            self.give_up(cause);
        }
    }
}
