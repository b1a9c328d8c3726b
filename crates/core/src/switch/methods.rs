//! The method by which each socket sends multicasts. Spec: tipc.md §7.6.

use std::collections::BTreeMap;

use super::manage::{PropertyError, check};
use crate::addr::ServiceRange;
use crate::broadcast::{Choice, ClusterView, MulticastPolicy, SocketMethods};
use crate::time::Time;
use crate::wire::Method;

/// The methods of all sockets, and the policy of the node.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    policy: MulticastPolicy,
    of: BTreeMap<u32, SocketMethods>,
}

impl Methods {
    pub(super) fn policy(&self) -> MulticastPolicy {
        self.policy
    }

    /// Sets the policy of the node.
    ///
    /// # Errors
    /// [`PropertyError::Range`].
    pub(crate) fn set_policy(&mut self, policy: MulticastPolicy) -> Result<(), PropertyError> {
        if let MulticastPolicy::Auto { ratio } = policy {
            check((1..=100).contains(&ratio), "ratio", "1 to 100 percent")?;
        }
        self.policy = policy;
        Ok(())
    }

    /// A socket sends by this method only, or again by the one that suits.
    pub(crate) fn force(&mut self, port: u32, method: Option<Method>) {
        self.of.entry(port).or_default().force(method);
    }

    /// Chooses the method for a multicast of a socket to `nodes` nodes.
    pub(super) fn choose(
        &mut self,
        now: Time,
        port: u32,
        range: ServiceRange,
        nodes: usize,
        cluster: &ClusterView,
    ) -> Choice {
        self.of.entry(port).or_default().choose(now, range, nodes, cluster)
    }

    pub(super) fn forget(&mut self, port: u32) {
        self.of.remove(&port);
    }
}
