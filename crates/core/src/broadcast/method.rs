//! Chooses between broadcast and a copy per destination. Spec: tipc.md §7.6.

use std::collections::VecDeque;

use crate::addr::ServiceRange;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, Method};

/// Time for which a socket keeps its method if a change cannot be announced, milliseconds. Spec: tipc.md §7.6.
const HOLD_MS: u64 = 5000;
/// Default of the largest share of peers reached by replicast, percent; more destinations use broadcast. Spec: tipc.md
/// §7.6.
pub const DEFAULT_RATIO: u32 = 10;

/// Administrator's choice of the multicast method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastPolicy {
    /// Replicast to at most `1 + peers × ratio / 100` destinations.
    Auto {
        /// Percentage of the peers.
        ratio: u32,
    },
    /// Always this method, where possible.
    Forced(Method),
}

impl Default for MulticastPolicy {
    fn default() -> Self {
        Self::Auto { ratio: DEFAULT_RATIO }
    }
}

/// Conditions of the choice that do not depend on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// The bearers in use can broadcast.
    pub has_broadcast: bool,
    /// Every known node has BCAST_RCAST.
    pub all_replicast: bool,
    /// Every known node has MCAST_RBCTL.
    pub all_switch: bool,
    /// Linked peers.
    pub peers: usize,
    /// Administrator's choice.
    pub policy: MulticastPolicy,
}

/// State of the choice for a sending socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodCookie {
    /// Method of its last multicast.
    last: Option<Method>,
    /// Method requested by the socket.
    forced: Option<Method>,
    /// No change before this time if it cannot be announced.
    hold_until: Time,
}

/// The method of one multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// The method differs from that of the socket's previous multicast; see [`start_switch`].
    pub changed: bool,
}

impl MethodCookie {
    /// The socket requests a method; `None` leaves the choice to the node.
    pub fn force(&mut self, method: Option<Method>) {
        self.forced = method;
    }

    /// Chooses the method for a multicast to `destinations` nodes.
    pub fn choose(&mut self, now: Time, destinations: usize, cluster: &ClusterView) -> Choice {
        let method = self.pick(now, destinations, cluster);
        let changed = self.last.is_some_and(|last| last != method);
        self.last = Some(method);
        Choice { method, changed }
    }

    fn pick(&mut self, now: Time, destinations: usize, cluster: &ClusterView) -> Method {
        if !cluster.has_broadcast {
            return Method::Replicast;
        }
        if !cluster.all_replicast {
            return Method::Broadcast;
        }
        let held = now < self.hold_until;
        self.hold_until = now.plus_millis(HOLD_MS);
        if let Some(forced) = self.forced {
            return forced;
        }
        if let Some(last) = self.last.filter(|_| held && !cluster.all_switch) {
            return last;
        }
        match cluster.policy {
            MulticastPolicy::Forced(method) => method,
            MulticastPolicy::Auto { ratio } => {
                let share = cluster.peers.saturating_mul(ratio as usize) / 100;
                if destinations <= 1 + share { Method::Replicast } else { Method::Broadcast }
            }
        }
    }
}

/// Maximum number of ranges for which a socket stores the method. Our own limit, which bounds memory; a range that was
/// dropped costs one unnecessary announcement.
const REMEMBERED: usize = 16;

/// The methods of one sending socket, by range. A change is announced only to the sockets of the message's range, so
/// each range changes on its own.
#[derive(Clone, Debug, Default)]
pub struct SocketMethods {
    forced: Option<Method>,
    /// Most recently used at the back.
    ranges: VecDeque<(ServiceRange, MethodCookie)>,
    /// A range was forgotten: an unknown range may have used any method.
    forgot: bool,
}

impl SocketMethods {
    /// The socket requests a method; `None` leaves the choice to the node.
    pub fn force(&mut self, method: Option<Method>) {
        self.forced = method;
    }

    /// Chooses the method for a multicast to `range`, which has sockets on `destinations` nodes.
    pub fn choose(
        &mut self,
        now: Time,
        range: ServiceRange,
        destinations: usize,
        cluster: &ClusterView,
    ) -> Choice {
        let known = self.ranges.iter().position(|(r, _)| *r == range).and_then(|i| self.ranges.remove(i));
        let unsure = known.is_none() && self.forgot;
        let mut cookie = known.map(|(_, cookie)| cookie).unwrap_or_default();
        cookie.force(self.forced);
        let choice = cookie.choose(now, destinations, cluster);
        if self.ranges.len() >= REMEMBERED {
            self.ranges.pop_front();
            self.forgot = true;
        }
        self.ranges.push_back((range, cookie));
        Choice { changed: choice.changed || unsure, ..choice }
    }
}

/// Marks `message` with its method. If the method changes, returns the announcement: a dummy that must be sent to the
/// same destinations by the *other* method, before `message`. Spec: tipc.md §7.6.
#[must_use]
pub fn start_switch(message: &mut Message, choice: Choice, cluster: &ClusterView) -> Option<Message> {
    message.set_is_replicast(choice.method == Method::Replicast);
    if !choice.changed || !cluster.all_switch || message.message_type() != MessageType::Mcast {
        return None;
    }
    message.set_syn(true);
    let mut dummy = message.clone();
    dummy.truncate_data(0);
    dummy.set_is_replicast(choice.method != Method::Replicast);
    dummy.set_error_code(ErrorCode::NoPort);
    Some(dummy)
}
