//! Congestion of an endpoint: the nodes to which it sends nothing until they wake it up. Spec: tipc.md §8.5.

use std::collections::BTreeMap;

use super::uplink::Submitted;
use crate::addr::NodeAddr;
use crate::limits::MESSAGE_OVERHEAD;

/// The nodes whose links are congested; the own node while a local receiver is full. Bounded by the number of peers.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    /// By node: bytes of this endpoint's messages that the link has taken beyond its limit.
    nodes: BTreeMap<NodeAddr, u64>,
    /// Their sum.
    excess: u64,
    hold: Hold,
}

/// What has to wait while the own node passes the endpoint's last message on to many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    Nothing,
    /// Messages to this node, the own one.
    Node(NodeAddr),
    /// All messages: receivers are being collected, on this node and on others.
    All(NodeAddr),
}

impl Congestion {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(crate) fn contains(&self, node: NodeAddr) -> bool {
        self.nodes.contains_key(&node)
    }

    /// One of the nodes.
    pub(super) fn first(&self) -> Option<NodeAddr> {
        self.nodes.first_key_value().map(|(node, _)| *node)
    }

    /// Bytes of messages that congested links have taken beyond their limits.
    pub(super) fn excess(&self) -> u64 {
        self.excess
    }

    /// Sends to `node` wait from now on.
    pub(crate) fn begin(&mut self, node: NodeAddr) {
        self.nodes.entry(node).or_default();
    }

    /// A message of `size` bytes was submitted.
    #[inline]
    pub(crate) fn submitted(&mut self, submitted: Submitted, size: usize) {
        if let Submitted::Congested(node) = submitted {
            let size = (size + MESSAGE_OVERHEAD) as u64;
            *self.nodes.entry(node).or_default() += size;
            self.excess += size;
        }
    }

    /// The link to `node` has taken everything within its limit again.
    pub(super) fn end(&mut self, node: NodeAddr) {
        self.excess -= self.nodes.remove(&node).unwrap_or(0);
        if let Hold::Node(own) | Hold::All(own) = self.hold
            && own == node
        {
            self.begin(own);
        }
    }

    /// The own node passes the last message on to many: sends to it wait until [`Self::release`], whatever ends before,
    /// or `all` sends.
    pub(crate) fn hold(&mut self, own: NodeAddr, all: bool) {
        self.hold = if all { Hold::All(own) } else { Hold::Node(own) };
        self.begin(own);
    }

    /// Only messages to the own node wait still.
    pub(crate) fn release_others(&mut self) {
        if let Hold::All(own) = self.hold {
            self.hold = Hold::Node(own);
        }
    }

    /// The last message is passed on to all. [`Self::end`] of the own node follows.
    pub(crate) fn release(&mut self) {
        self.hold = Hold::Nothing;
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold != Hold::Nothing
    }

    /// Whether all messages wait.
    pub(super) fn holds_all(&self) -> bool {
        matches!(self.hold, Hold::All(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeAddr = NodeAddr(1);
    const B: NodeAddr = NodeAddr(2);

    #[test]
    fn excess_ends_with_the_congestion_of_its_node() {
        let mut congestion = Congestion::default();
        congestion.submitted(Submitted::Done, 1000);
        assert!(congestion.is_empty());
        for node in [A, B, A] {
            congestion.submitted(Submitted::Congested(node), 1000);
        }
        let size = (1000 + MESSAGE_OVERHEAD) as u64;
        assert_eq!(congestion.excess(), 3 * size);
        congestion.end(A);
        assert_eq!((congestion.excess(), congestion.first()), (size, Some(B)));
        congestion.end(A);
        congestion.end(B);
        assert_eq!((congestion.excess(), congestion.is_empty()), (0, true));
    }

    #[test]
    fn endpoint_may_wait_for_a_node_without_excess() {
        let mut congestion = Congestion::default();
        congestion.begin(A);
        assert!(congestion.contains(A) && !congestion.contains(B));
        assert_eq!(congestion.excess(), 0);
        congestion.submitted(Submitted::Congested(A), 1);
        congestion.begin(A);
        assert!(congestion.excess() > 0, "a second cause keeps the excess");
    }

    #[test]
    fn node_that_passes_a_message_on_stays_congested_until_it_has_done_so() {
        let mut congestion = Congestion::default();
        congestion.hold(A, true);
        congestion.submitted(Submitted::Congested(A), 1);
        congestion.end(A);
        assert!(congestion.contains(A) && congestion.holds_all());
        assert_eq!(congestion.excess(), 0);
        congestion.release_others();
        assert!(congestion.is_held() && !congestion.holds_all());
        congestion.release();
        congestion.release_others();
        assert!(congestion.contains(A) && !congestion.is_held());
        congestion.end(A);
        assert!(congestion.is_empty());
    }
}
