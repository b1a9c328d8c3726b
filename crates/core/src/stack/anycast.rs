//! Anycasts: the choice of the least loaded receiver, and the wait when all are full. Decision 38.

use std::collections::BTreeSet;

use super::Stack;
use super::full::room;
use crate::Load;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::names::Lookup;
use crate::names::replica::Choice;
use crate::socket::{Destination, Resolved, SendError, WaitReason};
use crate::time::Time;

/// The receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The receiver; `None` leaves the lookup to the endpoint.
    pub(super) found: Option<Resolved>,
    /// It was chosen among several.
    pub(super) from_several: bool,
}

impl Chosen {
    pub(super) const NONE: Self = Self { found: None, from_several: false };

    fn of(choice: Choice) -> Self {
        let Lookup { port, node, scope } = choice.found;
        Self { found: Some(Resolved { port, node, scope }), from_several: choice.has_others() }
    }
}

impl Stack {
    /// Chooses the receiver of a message of `sender` if that is an anycast without a connection and a group.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`]: all receivers are full. The sender is woken when one of them takes messages.
    pub(super) fn choose_receiver(
        &mut self,
        now: Time,
        sender: u32,
        bytes: usize,
        to: Option<Destination>,
    ) -> Result<Chosen, SendError> {
        let Some(endpoint) = self.endpoints.get(&sender).filter(|endpoint| endpoint.sends_datagrams()) else {
            return Ok(Chosen::NONE);
        };
        let Some(Destination::Service { addr, domain }) = to.or(endpoint.default_destination()) else {
            return Ok(Chosen::NONE);
        };
        match self.choose(now, sender, bytes, (addr, domain), |_, _| false)? {
            Some(choice) => Ok(Chosen::of(choice)),
            None => Ok(Chosen::NONE),
        }
    }

    /// The receiver of an anycast for which the sender's process has found the local socket `found`, to which no lane
    /// leads. The process does not know how loaded receivers without lanes are: if this one has unread messages,
    /// another one may get the message.
    ///
    /// # Errors
    /// As [`Stack::choose_receiver`].
    pub(super) fn choose_instead(
        &mut self,
        now: Time,
        sender: u32,
        bytes: usize,
        to: Destination,
        found: Resolved,
    ) -> Result<Chosen, SendError> {
        let keep = Chosen { found: Some(found), from_several: false };
        let Destination::Service { addr, domain } = to else { return Ok(keep) };
        let lookup = Lookup { port: found.port, node: found.node, scope: found.scope };
        let has_lane = |stack: &Self, port| stack.switch.delivery.has_lane(sender, port);
        let datagrams = self.endpoints.get(&sender).is_some_and(|endpoint| endpoint.sends_datagrams());
        let is_here = found.node == self.own_node() && self.endpoints.contains_key(&found.port);
        if !datagrams || !is_here || has_lane(self, found.port) {
            return Ok(keep);
        }
        let load = self.load_of(sender, bytes, lookup);
        if load == Load::IDLE {
            return Ok(keep);
        }
        match self.choose(now, sender, bytes, (addr, domain), has_lane)? {
            Some(choice) if choice.load < load => Ok(Chosen::of(choice)),
            Some(choice) => Ok(Chosen { from_several: choice.has_others(), ..keep }),
            None => Ok(keep),
        }
    }

    /// Chooses a receiver, without those that are excluded by their ports.
    fn choose(
        &mut self,
        now: Time,
        sender: u32,
        bytes: usize,
        (addr, domain): (ServiceAddr, NodeAddr),
        is_excluded: impl Fn(&Self, u32) -> bool,
    ) -> Result<Option<Choice>, SendError> {
        let own = self.own_node();
        let mut full = BTreeSet::new();
        let choice = self.switch.table().choose(addr, domain, |found| {
            if found.node == own && is_excluded(self, found.port) {
                return Load::Silent;
            }
            let load = self.load_of(sender, bytes, found);
            if load == Load::Full && found.node == own {
                full.insert(found.port);
            }
            load
        });
        match choice {
            Some(choice) if choice.has_others() && choice.load == Load::Full => {
                self.wait_for_any(now, sender, &full, (addr, choice.receivers));
                Err(SendError::WouldBlock)
            }
            choice => Ok(choice),
        }
    }

    /// The load of one receiver as `sender` sees it. Of a receiver on another node only the link is known.
    fn load_of(&self, sender: u32, bytes: usize, found: Lookup) -> Load {
        let Some(from) = self.endpoints.get(&sender) else { return Load::IDLE };
        let importance = from.importance();
        if found.node != self.own_node() {
            return match () {
                () if from.congestion().contains(found.node) => Load::Full,
                () if self.switch.is_congested(found.node, importance) => Load::Brimming,
                () => Load::IDLE,
            };
        }
        match self.endpoints.get(&found.port) {
            Some(receiver)
                if receiver.is_full() || !self.switch.senders.waiters.has_turn(sender, found.port) =>
            {
                Load::Full
            }
            Some(receiver) => receiver.load(bytes, importance),
            // Sending finds that it is gone.
            None => Load::IDLE,
        }
    }

    fn wait_for_any(
        &mut self,
        now: Time,
        sender: u32,
        full: &BTreeSet<u32>,
        (service, receivers): (ServiceAddr, u32),
    ) {
        for port in full {
            if let Some(room) = self.endpoints.get(port).map(room) {
                self.switch.senders.waiters.wait_for_any(now, sender, *port, room);
            }
        }
        let reason = WaitReason::ReceiversFull { service, receivers };
        // A refused call is no news, except for the readiness that it changes.
        self.change_endpoint(now, sender, |endpoint, _| endpoint.wait_for_any(reason), |()| false);
    }
}
