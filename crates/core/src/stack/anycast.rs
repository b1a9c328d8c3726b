//! Anycasts: the choice of the least loaded receiver. Decision 50.

use std::collections::BTreeSet;

use super::endpoints::Endpoints;
use crate::Load;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::names::Lookup;
use crate::names::replica::Choice;
use crate::socket::{Destination, Resolved, WaitReason};
use crate::switch::Switch;

/// The receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The receiver; `None` leaves the lookup to the endpoint.
    pub(super) found: Option<Resolved>,
    /// It was chosen among several.
    pub(super) from_several: bool,
}

impl Chosen {
    const NONE: Self = Self { found: None, from_several: false };

    fn of(choice: Choice) -> Self {
        let Lookup { port, node, scope } = choice.found;
        Self { found: Some(Resolved { port, node, scope }), from_several: choice.has_others() }
    }
}

/// All receivers of an anycast are full: the sender waits for any of them.
#[derive(Debug)]
pub(super) struct AllFull {
    /// Those on this node, by port.
    pub(super) ports: BTreeSet<u32>,
    pub(super) reason: WaitReason,
}

/// What the choice for a message of `bytes` that `sender` sends depends on.
#[derive(Clone, Copy)]
pub(super) struct Choosing<'a> {
    pub(super) endpoints: &'a Endpoints,
    pub(super) switch: &'a Switch,
    pub(super) sender: u32,
    pub(super) bytes: usize,
}

impl Choosing<'_> {
    /// Chooses the receiver if the message is an anycast without a connection and a group.
    ///
    /// # Errors
    /// [`AllFull`].
    pub(super) fn receiver(self, to: Option<Destination>) -> Result<Chosen, AllFull> {
        let sender = self.endpoints.get(self.sender).filter(|endpoint| endpoint.sends_datagrams());
        let to = sender.and_then(|endpoint| to.or(endpoint.default_destination()));
        let Some(Destination::Service { addr, domain }) = to else { return Ok(Chosen::NONE) };
        Ok(self.choose(addr, domain, |_| false)?.map_or(Chosen::NONE, Chosen::of))
    }

    /// The receiver of an anycast for which the sender's process has found the local socket `found`, to which no lane
    /// leads. The process does not know how loaded receivers without lanes are: if this one has unread messages,
    /// another one may get the message.
    ///
    /// # Errors
    /// [`AllFull`].
    pub(super) fn instead_of(self, found: Resolved, to: Destination) -> Result<Chosen, AllFull> {
        let keep = Chosen { found: Some(found), from_several: false };
        let Destination::Service { addr, domain } = to else { return Ok(keep) };
        let lookup = Lookup { port: found.port, node: found.node, scope: found.scope };
        let has_lane = |port| self.switch.delivery.has_lane(self.sender, port);
        let datagrams = self.endpoints.get(self.sender).is_some_and(|endpoint| endpoint.sends_datagrams());
        let is_here = found.node == self.switch.own_node() && self.endpoints.get(found.port).is_some();
        if !datagrams || !is_here || has_lane(found.port) {
            return Ok(keep);
        }
        let load = self.load_of(lookup);
        if load == Load::IDLE {
            return Ok(keep);
        }
        match self.choose(addr, domain, has_lane)? {
            Some(choice) if choice.load < load => Ok(Chosen::of(choice)),
            Some(choice) => Ok(Chosen { from_several: choice.has_others(), ..keep }),
            None => Ok(keep),
        }
    }

    /// Chooses a receiver, without those that are excluded by their ports.
    fn choose(
        self,
        addr: ServiceAddr,
        domain: NodeAddr,
        is_excluded: impl Fn(u32) -> bool,
    ) -> Result<Option<Choice>, AllFull> {
        let own = self.switch.own_node();
        let mut ports = BTreeSet::new();
        let choice = self.switch.table().choose(addr, domain, |found| {
            if found.node == own && is_excluded(found.port) {
                return Load::Silent;
            }
            let load = self.load_of(found);
            if load == Load::Full && found.node == own {
                ports.insert(found.port);
            }
            load
        });
        match choice {
            Some(choice) if choice.has_others() && choice.load == Load::Full => {
                let reason = WaitReason::ReceiversFull { service: addr, receivers: choice.receivers };
                Err(AllFull { ports, reason })
            }
            choice => Ok(choice),
        }
    }

    /// The load of one receiver as the sender sees it. Of a receiver on another node only the link is known.
    fn load_of(self, found: Lookup) -> Load {
        let Some(from) = self.endpoints.get(self.sender) else { return Load::IDLE };
        let importance = from.importance();
        if found.node != self.switch.own_node() {
            return match () {
                () if from.congestion().contains(found.node) => Load::Full,
                () if self.switch.is_congested(found.node, importance) => Load::Brimming,
                () => Load::IDLE,
            };
        }
        match self.endpoints.get(found.port) {
            Some(receiver)
                if receiver.is_full() || !self.switch.senders.receivers.has_turn(self.sender, found.port) =>
            {
                Load::Full
            }
            Some(receiver) => receiver.load(self.bytes, importance),
            // Sending finds that it is gone.
            None => Load::IDLE,
        }
    }
}
