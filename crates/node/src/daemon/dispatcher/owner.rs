//! Orders of the daemon's owner, and the counters.

use serde::Serialize;
use utipc_os::fdpass::own_user;

use super::Dispatcher;
use crate::daemon::counters::DaemonCounters;
use crate::daemon::orders::Order;
use crate::observe::Counters;

/// Maximum number of bytes of the counters as text: an attribute has at most 64 KiB.
const MAX_TEXT: usize = 65_000;

/// Counters as processes get them.
#[derive(Serialize)]
struct AllCounters {
    #[serde(flatten)]
    node: Counters,
    daemon: DaemonCounters,
}

impl Dispatcher {
    /// Carries out the orders of the daemon's owner.
    pub(super) fn carry_out_orders(&mut self) {
        for order in self.orders.take() {
            match order {
                Order::Stop => self.stop = true,
                Order::Change(policy, limits) => {
                    self.policy = *policy;
                    self.sockets.set_limits(limits);
                    self.sockets.end_captures_unless(&self.policy);
                }
                Order::Count(answer) => {
                    // It fails if the caller is gone.
                    let _ = answer.send(self.count());
                }
                Order::List(request, from, answer) => {
                    let access = self.sockets.access(&self.policy, None);
                    // It fails if the caller is gone.
                    let _ = answer.send(self.management.list(&access, &request, from));
                }
                Order::Run(command) => {
                    let now = self.sockets.now();
                    command(self.sockets.stack_mut(), now);
                }
            }
        }
    }

    /// The counters of the node and of the daemon, as JSON; `None` if that is too long.
    pub(super) fn counters_as_text(&self) -> Option<Vec<u8>> {
        let mut daemon = self.count();
        let all = AllCounters { node: std::mem::take(&mut daemon.node), daemon };
        serde_json::to_vec(&all).ok().filter(|text| text.len() <= MAX_TEXT)
    }

    /// The counters of the daemon and its node.
    fn count(&self) -> DaemonCounters {
        let counters = self.sockets.count(self.tasks.inheritances());
        DaemonCounters {
            release: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            user: own_user(),
            started: self.started,
            attached: counters.attached + self.tasks.leaving(),
            list_entries: self.management.visited(),
            turns: self.turns.counters().clone(),
            bindings_refused: self.requests.bindings_refused(),
            ..counters
        }
    }
}
