//! Multicasts to many sockets of this node, in steps: the owner of the node makes the copies in the sender's turns.

use std::collections::BTreeSet;

use super::Stack;
use crate::quota::{Resource, UserId};
use crate::socket::{SubmitError, Submitted};
use crate::switch::{Collecting, Copy, Origin, SPREAD_STEP};
use crate::time::Time;
use crate::wire::ErrorCode;

impl Stack {
    /// The sender of a multicast that takes more than one step, or of what the members of a group are told, and the
    /// user who is charged: the caller goes on with [`Self::continue_spread`]. Only if turns are limited
    /// ([`Self::begin_turn`]).
    pub fn take_spread(&mut self) -> Option<(Origin, UserId)> {
        let (origin, user) = self.switch.spreads.next_report()?;
        Some((origin, user.unwrap_or(UserId::NETWORK)))
    }

    /// Whether messages or announcements of a socket wait for further steps.
    #[must_use]
    pub fn is_spreading(&self, port: u32) -> bool {
        self.switch.spreads.contains(Origin::Socket(port))
    }

    /// Whether the receivers of the last message of a socket are not all known yet; [`Self::take_collected`] tells when
    /// they are.
    #[must_use]
    pub fn is_collecting(&self, port: u32) -> bool {
        self.switch.is_collecting(port)
    }

    /// After [`Self::continue_spread`]: the socket of which all receivers are known now, and those of them that the
    /// message must reach over a lane, as [`Self::take_diverted`].
    pub fn take_collected(&mut self) -> Option<(u32, Vec<u32>)> {
        self.switch.spreads.take_collected()
    }

    /// Collects some receivers of a sender's multicast, or makes some copies; false if all are made.
    pub fn continue_spread(&mut self, now: Time, origin: Origin) -> bool {
        if let Some(collecting) = self.switch.spreads.take_collecting(origin) {
            self.collect(now, origin, collecting);
            self.process_pending(now);
            return true;
        }
        if let Some(announcement) = self.switch.spreads.take_announcement(origin) {
            self.continue_announcement(now, origin, announcement);
            self.process_pending(now);
            return true;
        }
        let mut left = SPREAD_STEP;
        while left > 0 {
            let Some(copy) = self.switch.spreads.next(origin) else {
                let has_more = self.switch.spreads.contains(origin);
                if !has_more {
                    self.end_spread(now, origin);
                }
                self.process_pending(now);
                return has_more;
            };
            left = left.saturating_sub(copy.cost());
            let Copy { port, message, charge } = copy;
            if let Some((user, memory)) = charge {
                self.ledger.release(user, Resource::Memory, memory);
            }
            self.handle_local(now, port, message);
        }
        self.process_pending(now);
        true
    }

    /// Collects some receivers; when all are known, sends the multicast to other nodes, and has the copies made.
    fn collect(&mut self, now: Time, origin: Origin, mut collecting: Box<Collecting>) {
        let before = collecting.memory();
        let is_over = self.switch.collect(&mut collecting);
        let more = collecting.memory() - before;
        let mut sent = Ok(Submitted::Done);
        if let Some((user, charged)) = &mut collecting.charge {
            match self.ledger.try_charge(*user, Resource::Memory, more) {
                Ok(()) => *charged += more,
                Err(_) => sent = Err(SubmitError::NoBuffers),
            }
        }
        if !is_over && sent.is_ok() {
            return self.switch.spreads.put_back(origin, collecting);
        }
        if sent.is_ok() {
            sent = self.switch.send_collected(now, &collecting);
        }
        let size = collecting.message.size();
        if let Origin::Socket(port) = origin {
            self.with_endpoint(now, port, |sender, _| {
                sender.congestion_mut().release_others();
                sender.congestion_mut().submitted(sent.unwrap_or(Submitted::Done), size);
            });
        }
        let unused = match sent {
            Ok(_) => {
                self.switch.spreads.note_collected(origin, core::mem::take(&mut collecting.diverted));
                self.switch.spreads.put_collected(origin, *collecting)
            }
            Err(error) => {
                let code = match error {
                    SubmitError::Unreachable => ErrorCode::NoName,
                    _ => ErrorCode::Overload,
                };
                self.switch.spreads.note_collected(origin, BTreeSet::new());
                self.switch.reject(now, collecting.message, code);
                collecting.charge
            }
        };
        if let Some((user, memory)) = unused {
            self.ledger.release(user, Resource::Memory, memory);
        }
    }

    /// A multicast begins to wait: its user is charged, and its sender waits until all copies are made. False if there
    /// is none.
    pub(super) fn begin_spread(&mut self, now: Time) -> bool {
        let Some((origin, is_first, memory)) = self.switch.spreads.next_begun() else { return false };
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
            self.switch.spreads.report(origin, user);
        }
        let collects = self.switch.spreads.collects_for_others(origin);
        self.let_sender_wait(now, origin, collects);
        true
    }

    /// The sender waits for this node until what it has sent has reached all; it may not send to others either while
    /// `collects`.
    pub(super) fn let_sender_wait(&mut self, now: Time, origin: Origin, collects: bool) {
        let own = self.own_node();
        match origin {
            Origin::Socket(port) => {
                self.with_endpoint(now, port, |sender, _| sender.congestion_mut().hold(own, collects));
            }
            Origin::Node(node) => self.switch.hold(node),
        }
    }

    /// All messages of a sender are passed on: it may send again.
    fn end_spread(&mut self, now: Time, origin: Origin) {
        match origin {
            Origin::Socket(port) => {
                let own = self.own_node();
                self.with_endpoint(now, port, |sender, _| sender.congestion_mut().release());
                self.switch.senders.wake(port, own);
            }
            Origin::Node(node) if !self.waits_for_room(node) => self.switch.resume(node),
            Origin::Node(_) => {}
        }
    }
}
