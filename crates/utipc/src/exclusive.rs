//! Bindings that no other socket shares (decision 34).

use std::collections::BTreeSet;
use std::time::Duration;

use utipc_core::Rng;
use utipc_os::{Deadline, Left, Wait};

use crate::{Call, Error, Node, PortId, Result, Scope, ServiceRange, Socket};

/// Service type of claims. A claim is a binding to the wanted instances of this type, whatever the wanted type is.
const CLAIMS: u32 = 0xffff_fff0;

/// Longest pause before the first further attempt, milliseconds; it doubles with each, [`DOUBLINGS`] times.
const PAUSE_MS: u64 = 4;
const DOUBLINGS: u32 = 6;

/// Time for a look at the binding table, which the node answers at once.
const LOOK: Duration = Duration::from_millis(1);

/// Contents of the binding table in the range of an exclusive binding.
struct Found {
    /// Another call has a claim there.
    claimed: bool,
    /// A socket that is bound there.
    holder: Option<PortId>,
}

impl Socket {
    /// Binds the socket to a service address or range that no socket is bound to, anywhere in the cluster, or with
    /// [`Scope::Node`] on this node. At most one of several concurrent calls succeeds, on any nodes.
    ///
    /// This holds among exclusive bindings, and between nodes in contact. [`Socket::bind`] does not check, as in
    /// Linux, and each half of a divided cluster may have a holder: a subscription to the range ([`Node::topology`])
    /// reports the second socket. The binding ends like any other, with [`Socket::unbind`], the socket or its node.
    /// The call waits on non-blocking sockets too.
    ///
    /// ```
    /// # fn main() -> utipc::Result<()> {
    /// # use std::time::Duration;
    /// use utipc::{Error, Node, Scope, ServiceAddress};
    /// let node = Node::builder().isolated().start()?;
    /// let leader = ServiceAddress::new(2003, 1);
    /// let (red, blue) = (node.rdm()?, node.rdm()?);
    /// red.bind_exclusive(leader, Scope::Cluster, Duration::from_secs(5))?;
    /// let refused = blue.bind_exclusive(leader, Scope::Cluster, Duration::from_secs(5));
    /// assert!(matches!(refused, Err(Error::Taken { by, .. }) if by == red.port()));
    ///
    /// drop(red);
    /// blue.bind_exclusive(leader, Scope::Cluster, Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Taken`] names the socket that is bound to the range or a part of it. [`Error::Awaited`] names nodes
    /// that have not answered within `limit`; [`Error::TimedOut`] if concurrent calls had claims all the time. Errors
    /// of [`Socket::bind`] and, with [`Scope::Cluster`], of [`Node::barrier`].
    pub fn bind_exclusive(&self, to: impl Into<ServiceRange>, scope: Scope, limit: Duration) -> Result<()> {
        let range = to.into();
        let end = Wait::AtMost(limit).start();
        let mut random = Rng::new(u64::from(self.port().port) << 32 | u64::from(self.port().node.0));
        for attempt in 0.. {
            if self.attempt(range, scope, end)? {
                return Ok(());
            }
            let left = left(end);
            if left.is_zero() {
                break;
            }
            let longest = PAUSE_MS << DOUBLINGS.min(attempt);
            std::thread::sleep(left.min(Duration::from_micros(random.below(longest * 1000))));
        }
        Err(Error::TimedOut { call: Call::BindExclusive, reason: None, node: None })
    }

    /// Binds the socket unless another one is bound in the range. Returns false, and withdraws the claim, if it finds
    /// another claim.
    ///
    /// Of two concurrent attempts at least one finds the other's claim after its barrier: the node of the one that
    /// looks later had applied that claim when the other's barrier ended.
    fn attempt(&self, range: ServiceRange, scope: Scope, end: Deadline) -> Result<bool> {
        let claim = self.node().rdm()?;
        let claimed = ServiceRange::new(CLAIMS, range.lower, range.upper);
        claim.bind(claimed, scope).map_err(|error| match error {
            Error::Bind { why, .. } => Error::Bind { range, why },
            other => other,
        })?;
        // Without the first look every refused call would wait for a barrier.
        for last in [false, true] {
            if last && scope != Scope::Node {
                self.node().barrier(left(end))?;
            }
            let found = find(self.node(), range, claimed, claim.port(), end)?;
            if let Some(by) = found.holder {
                return Err(Error::Taken { range, by });
            }
            if found.claimed {
                return Ok(false);
            }
        }
        // The claim ends after the binding begins, so that other nodes always have one of the two.
        self.bind(range, scope)?;
        drop(claim);
        Ok(true)
    }
}

fn left(end: Deadline) -> Duration {
    match end.left() {
        Left::Nothing => Duration::ZERO,
        Left::Time(left) => left.unwrap_or(Duration::MAX),
    }
}

/// Reads claims first and bindings second, so that a claim that becomes a binding meanwhile is not overlooked.
fn find(
    node: &Node,
    range: ServiceRange,
    claimed: ServiceRange,
    own: PortId,
    end: Deadline,
) -> Result<Found> {
    let mut topology = node.topology()?;
    let claims = topology.services(claimed)?;
    let holders = topology.services(range)?;
    // Events come in the order of the subscriptions, and the own claim is certain to cause one for this subscription:
    // the first one ends the list.
    let last = topology.services(claimed)?;
    let (mut claimants, mut bound) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let timed_out = || Error::TimedOut { call: Call::AwaitBindings, reason: None, node: None };
        // The server answers at once: a call whose time is over still gets its answer.
        let event = topology.next(left(end).max(LOOK))?.ok_or_else(timed_out)?;
        if event.subscription == last {
            break;
        }
        let set = if event.subscription == claims { &mut claimants } else { &mut bound };
        debug_assert!(event.subscription == claims || event.subscription == holders);
        if event.is_up() {
            set.insert(event.port);
        } else {
            set.remove(&event.port);
        }
    }
    claimants.remove(&own);
    Ok(Found { claimed: !claimants.is_empty(), holder: bound.first().copied() })
}
