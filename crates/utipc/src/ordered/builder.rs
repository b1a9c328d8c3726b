//! Settings of a membership.

use std::time::Duration;

use utipc_vsync as vsync;

use super::Ordered;
use crate::{Error, GroupRequest, Node, Result};

/// When messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// In one total order, as soon as their place is known.
    #[default]
    Agreed,
    /// In one total order, once every member of the view has the message. A message that one member delivers is
    /// delivered by all that stay in the group, even if the first one fails at once.
    Safe,
}

/// What happens when a group is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Partition {
    /// The component with the majority of the last view's votes goes on; the others wait, and join it again when they
    /// can. Exactly one member may found the group, once.
    #[default]
    Primary,
    /// Each component goes on; their views merge when they meet, and the application resolves the differences.
    All,
}

/// Settings of a member of an ordered group; made by [`Ordered::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    request: GroupRequest,
    config: vsync::Config,
    max_state: usize,
    slow_limit: Duration,
}

/// Smallest and largest window, bytes.
const WINDOW: core::ops::RangeInclusive<u32> = 65_536..=1 << 28;

impl Builder {
    pub(super) fn new(service: u32) -> Self {
        let config = vsync::Config { state_transfer: false, ..vsync::Config::default() };
        let slow_limit = Duration::from_secs(10);
        Self { request: GroupRequest::new(service, 0).with_events(), config, max_state: 64 << 20, slow_limit }
    }

    /// Sets the instance of this member, a number for the application: other members see it as
    /// [`Member::instance`](crate::Member::instance). Several may have the same one. Default 0.
    #[must_use]
    pub fn instance(mut self, instance: u32) -> Self {
        self.request.member.instance = instance;
        self
    }

    /// Limits the group to this node.
    #[must_use]
    pub fn on_this_node(mut self) -> Self {
        self.request = self.request.on_this_node();
        self
    }

    /// Sets when messages are delivered. Default [`Order::Agreed`]. All members must agree.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.config.ordering = match order {
            Order::Agreed => vsync::Ordering::Agreed,
            Order::Safe => vsync::Ordering::Safe,
        };
        self
    }

    /// Sets what happens when the group is divided. Default [`Partition::Primary`]. All members must agree.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.config.components = match partition {
            Partition::Primary => vsync::Components::Primary,
            Partition::All => vsync::Components::All,
        };
        self
    }

    /// Lets this member found the group if it finds none within twice the settle time. With [`Partition::Primary`]
    /// exactly one member of the group may do this, at its first start: two founders that do not see each other found
    /// two groups.
    #[must_use]
    pub fn founder(mut self) -> Self {
        self.config.founding = vsync::Founding::Alone;
        self
    }

    /// Lets members that join receive the application's state. Default off: they begin with the messages after their
    /// first view. All members must agree.
    #[must_use]
    pub fn state_transfer(mut self) -> Self {
        self.config.state_transfer = true;
        self
    }

    /// Sets the votes of this member in the choice of the primary component. Default 1; 0 for a member that never
    /// counts.
    #[must_use]
    pub fn weight(mut self, weight: u16) -> Self {
        self.config.weight = weight;
        self
    }

    /// Sets how many bytes all members together may have sent that some member has not acknowledged, 64 KiB to
    /// 256 MiB; each member has an equal share. Default 4 MiB. All members must agree.
    #[must_use]
    pub fn window(mut self, bytes: u32) -> Self {
        self.config.window = bytes;
        self
    }

    /// Sets the longest state that this member gives or receives, bytes. Default 64 MiB.
    #[must_use]
    pub fn max_state(mut self, bytes: usize) -> Self {
        self.max_state = bytes;
        self
    }

    /// Sets how long senders wait for this member if its program does not receive; after that it leaves. Default 10 s.
    #[must_use]
    pub fn slow_limit(mut self, limit: Duration) -> Self {
        self.slow_limit = limit;
        self
    }

    /// Sets how long this member waits for the others in a change of the view before it tries without those that do not
    /// answer. Default 500 ms; raise it for hosts on which a program may not run for so long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// Sets how long a coordinator gathers joiners before it changes the view, and half of the time that a founder
    /// looks for a group. Default 20 ms.
    #[must_use]
    pub fn settle(mut self, settle: Duration) -> Self {
        self.config.settle = settle;
        self
    }

    /// Joins the group. The call does not wait for others: the first [`View`](super::View) is received when they have
    /// agreed.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for the window, a time above one hour, or a founder without votes; errors of
    /// [`Group::join`](crate::Group::join); [`Error::System`] without a descriptor or thread.
    pub fn join(self, node: &Node) -> Result<Ordered> {
        let refuse = |what, remedy| Err(Error::OutOfRange { what, remedy });
        if !WINDOW.contains(&self.config.window) {
            return refuse("the window of an ordered group", "64 KiB to 256 MiB");
        }
        let hour = Duration::from_secs(3600);
        let times = [self.slow_limit, self.config.patience, self.config.settle];
        if times.iter().any(|time| *time > hour) || self.config.patience < Duration::from_millis(1) {
            return refuse("a time of an ordered group", "at most one hour; a patience of at least 1 ms");
        }
        if self.config.weight == 0 && self.config.founding == vsync::Founding::Alone {
            return refuse("the weight of a founder", "at least 1");
        }
        Ordered::start(
            node,
            self.request,
            self.config,
            super::Limits { max_state: self.max_state, slow: self.slow_limit },
        )
    }
}
