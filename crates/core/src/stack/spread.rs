//! Multicasts to many sockets of this node, in steps: the owner of the node makes the copies in the sender's turns.

use super::Stack;
use crate::quota::Resource;
use crate::switch::{Copy, Origin, SPREAD_STEP};
use crate::time::Time;
use crate::wire::ErrorCode;

impl Stack {
    /// The sender of a multicast that takes more than one step: the caller goes on with [`Self::continue_spread`]. Only
    /// if turns are limited ([`Self::begin_turn`]).
    pub fn take_spread(&mut self) -> Option<Origin> {
        self.switch.spreads.next_report()
    }

    /// Makes some copies of a sender's multicasts; false if all are made.
    pub fn continue_spread(&mut self, now: Time, origin: Origin) -> bool {
        for _ in 0..SPREAD_STEP {
            let Some(Copy { port, message, charge }) = self.switch.spreads.next(origin) else {
                self.end_spread(now, origin);
                self.process_pending(now);
                return false;
            };
            if let Some((user, memory)) = charge {
                self.ledger.release(user, Resource::Memory, memory);
            }
            self.handle_local(now, port, message);
        }
        self.process_pending(now);
        true
    }

    /// A multicast begins to wait: its user is charged, and its sender waits until all copies are made. False if there
    /// is none.
    pub(super) fn begin_spread(&mut self, now: Time) -> bool {
        let Some((origin, is_first, memory)) = self.switch.spreads.next_begun() else { return false };
        let own = self.own_node();
        let user = match origin {
            Origin::Socket(port) => self.user_of(port),
            Origin::Node(_) => None,
        };
        let charged =
            user.map(|user| self.ledger.try_charge(user, Resource::Memory, memory).map(|()| (user, memory)));
        if let Some(refused) = self.switch.spreads.settle(origin, charged.transpose().map_err(|_| ())) {
            self.switch.reject(now, refused, ErrorCode::Overload);
            return true;
        }
        if is_first {
            self.switch.spreads.report(origin);
        }
        match origin {
            Origin::Socket(port) => {
                self.with_endpoint(now, port, |sender, _| sender.set_spreading(own, true));
            }
            Origin::Node(node) => self.switch.hold(node),
        }
        true
    }

    /// All messages of a sender are passed on: it may send again.
    fn end_spread(&mut self, now: Time, origin: Origin) {
        match origin {
            Origin::Socket(port) => {
                let own = self.own_node();
                self.with_endpoint(now, port, |sender, _| sender.set_spreading(own, false));
                self.switch.woken.push_back((port, own));
            }
            Origin::Node(node) if !self.waits_for_room(node) => self.switch.resume(node),
            Origin::Node(_) => {}
        }
    }
}
