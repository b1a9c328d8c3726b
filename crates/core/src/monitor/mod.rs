//! Supervision in large clusters: the overlapping ring monitor of one bearer.
//!
//! With few peers every link probes its peer. Above a threshold each node supervises only its *domain* (the next √n
//! nodes of the ring of addresses) and the *heads* of the domains that cover the rest. All nodes report in STATE
//! messages which members of their domain are up. A peer that is not supervised is probed when others report that it is
//! lost. [`Monitor`] keeps the ring of one bearer, [`MonitorSession`] the state of one link, and [`Monitor::verdict`]
//! tells the link what to do. Spec: tipc.md §11.

mod record;
#[cfg(test)]
mod tests;

pub use record::{DomainRecord, MAX_DOMAIN, record_in_state};

use crate::addr::NodeAddr;
use crate::error::WireError;
use crate::wire::seq;

/// Default of the number of nodes, including this one, up to which every link supervises its peer. Spec: tipc.md §11.1.
pub const DEFAULT_THRESHOLD: usize = 32;
/// Loss reports after which a peer that does not answer probes is down. Spec: tipc.md §11.2.
const MAX_DOWN_REPORTS: u8 = 4;

/// The supervision of a peer that the monitor requests of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Silence of the peer counts: this node supervises it.
    pub supervised: bool,
    /// Probe at every tick: the peer may be lost, or has not acknowledged this node's record.
    pub probing: bool,
    /// The peer is down: reset the link.
    pub reset: bool,
}

/// Monitor state of one link. A link that is reset starts with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorSession {
    /// The peer's record was received: both generations are valid.
    synchronized: bool,
    /// Generation of the peer's record that was applied.
    peer_generation: u16,
    /// Generation of this node's record that the peer has applied.
    acked_generation: u16,
    /// The link has to probe, and has no reply yet.
    probing: bool,
}

#[derive(Clone, Debug)]
struct Node {
    addr: NodeAddr,
    record: Option<DomainRecord>,
    /// Leading members of the record that match the ring.
    applied: usize,
    down_reports: u8,
    up: bool,
    head: bool,
    /// Member of this node's domain.
    local: bool,
}

impl Node {
    fn new(addr: NodeAddr) -> Self {
        Self { addr, record: None, applied: 0, down_reports: 0, up: false, head: false, local: false }
    }
}

/// A node of the ring, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorNode {
    /// Address.
    pub addr: NodeAddr,
    /// True if it is up.
    pub up: bool,
    /// True if it is the head of a domain.
    pub head: bool,
    /// True if it is in this node's domain.
    pub local: bool,
    /// Leading members of its record that match the ring.
    pub applied: usize,
    /// The record received from it; for this node, the record sent.
    pub record: Option<DomainRecord>,
}

/// The ring of all nodes known on one bearer.
#[derive(Clone, Debug)]
pub struct Monitor {
    own: NodeAddr,
    threshold: usize,
    /// Number of changes of the ring.
    changes: u32,
    /// All nodes by address, including this one.
    ring: Vec<Node>,
    /// The record that this node sends.
    domain: DomainRecord,
}

impl Monitor {
    /// The monitor of a bearer of node `own`, without peers. It is active with more than `threshold` nodes.
    #[must_use]
    pub fn new(own: NodeAddr, threshold: usize) -> Self {
        let this = Node { up: true, head: true, ..Node::new(own) };
        Self { own, threshold, changes: 0, ring: vec![this], domain: DomainRecord::default() }
    }

    /// Sets the node's address; call it before there are peers.
    pub fn set_own(&mut self, own: NodeAddr) {
        *self = Self::new(own, self.threshold);
    }

    /// Sets the number of nodes above which the monitor is active.
    pub fn set_threshold(&mut self, threshold: usize) {
        self.threshold = threshold;
        self.refresh(0);
    }

    /// True if records are exchanged; otherwise every node supervises all its peers.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.ring.len() > self.threshold
    }

    /// Number of nodes in the ring, including this one.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.ring.len()
    }

    /// Number of changes of the ring since the start.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The ring, this node first.
    #[must_use]
    pub fn nodes(&self) -> Vec<MonitorNode> {
        self.nodes_from(0).collect()
    }

    /// The nodes of the ring whose address is at least `distance` above this node's, in the order of the ring.
    pub fn nodes_from(&self, distance: u32) -> impl Iterator<Item = MonitorNode> {
        let own = self.find(self.own).unwrap_or(0);
        let first = NodeAddr(self.own.0.wrapping_add(distance));
        let at = self.ring.partition_point(|n| n.addr < first);
        // Addresses below the own one come last.
        let skipped = if first < self.own { self.ring.len() - own + at } else { at - own.min(at) };
        let all = (skipped..self.ring.len()).filter_map(move |n| self.ring.get((own + n) % self.ring.len()));
        all.map(|n| MonitorNode {
            addr: n.addr,
            up: n.up,
            head: n.head,
            local: n.local,
            applied: n.applied,
            record: if n.addr == self.own { Some(self.domain.clone()) } else { n.record.clone() },
        })
    }

    /// The record that this node sends.
    #[must_use]
    pub fn domain(&self) -> &DomainRecord {
        &self.domain
    }

    /// A link to `peer` over this bearer came up.
    pub fn peer_up(&mut self, peer: NodeAddr) {
        let at = match self.ring.binary_search_by_key(&peer, |n| n.addr) {
            Ok(at) => at,
            Err(at) => {
                self.ring.insert(at, Node::new(peer));
                at
            }
        };
        if let Some(node) = self.ring.get_mut(at) {
            node.up = true;
        }
        self.refresh(at);
    }

    /// The link to `peer` over this bearer went down.
    pub fn peer_down(&mut self, peer: NodeAddr) {
        let Some(at) = self.find(peer).filter(|_| peer != self.own) else { return };
        let Some(node) = self.ring.get_mut(at) else { return };
        let before = node.record.take();
        let (applied, head) = (node.applied, node.head);
        *node = Node::new(peer);
        if let Some(before) = before.filter(|_| head) {
            self.find_lost(at, &before, applied);
        }
        self.refresh(at);
    }

    /// The peer's link on this bearer was removed.
    pub fn remove_peer(&mut self, peer: NodeAddr) {
        let Some(at) = self.find(peer).filter(|_| peer != self.own) else { return };
        self.ring.remove(at);
        self.refresh(at);
    }

    /// The monitor record of the next STATE on a link: empty if not active, a short record if the peer already has the
    /// current one, otherwise the whole record.
    #[must_use]
    pub fn record(&self, session: &MonitorSession) -> Vec<u8> {
        if !self.is_active() {
            return Vec::new();
        }
        let known = session.synchronized && session.acked_generation == self.domain.generation;
        self.domain.build(session.peer_generation, !known)
    }

    /// Processes the monitor record of a STATE of `peer`.
    ///
    /// # Errors
    /// [`WireError`] if the record is malformed; the rest of the STATE is valid. Spec: tipc.md §11.1.
    pub fn receive(
        &mut self,
        peer: NodeAddr,
        session: &mut MonitorSession,
        data: &[u8],
    ) -> Result<(), WireError> {
        let probing = core::mem::take(&mut session.probing);
        let arrived = DomainRecord::parse(data)?;
        let Some(at) = self.find(peer).filter(|_| peer != self.own) else { return Ok(()) };
        let Some((record, acked)) = arrived else {
            // A peer whose monitor is not active answers probes without a record.
            if probing {
                self.confirm(at);
            }
            return Ok(());
        };
        if !session.synchronized {
            session.synchronized = true;
            session.peer_generation = record.generation.wrapping_sub(1);
            session.acked_generation = acked;
        }
        if seq::gt(acked, session.acked_generation) {
            session.acked_generation = acked;
        }
        let is_new = seq::gt(record.generation, session.peer_generation);
        if is_new || probing {
            self.confirm(at);
        }
        if is_new && self.ring.get(at).is_some_and(|n| n.up) {
            session.peer_generation = record.generation;
            self.take_over(at, record);
        }
        Ok(())
    }

    /// The supervision of `peer` that its link has to perform at this tick.
    pub fn verdict(&self, peer: NodeAddr, session: &mut MonitorSession) -> Verdict {
        let node = self.find(peer).and_then(|at| self.ring.get(at));
        let Some(node) = node.filter(|_| self.is_active()) else {
            session.probing = false;
            return Verdict { supervised: true, probing: false, reset: false };
        };
        let unacked = !session.synchronized || session.acked_generation != self.domain.generation;
        session.probing = unacked || node.down_reports > 0;
        Verdict {
            supervised: node.local || node.head,
            probing: session.probing,
            reset: node.down_reports >= MAX_DOWN_REPORTS,
        }
    }

    fn find(&self, addr: NodeAddr) -> Option<usize> {
        self.ring.binary_search_by_key(&addr, |n| n.addr).ok()
    }

    /// Positions after `at` round the ring, ending with `at`.
    fn after(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let len = self.ring.len();
        (1..=len).map(move |n| (at + n) % len.max(1))
    }

    fn confirm(&mut self, at: usize) {
        if let Some(node) = self.ring.get_mut(at) {
            node.down_reports = 0;
        }
    }

    fn take_over(&mut self, at: usize, record: DomainRecord) {
        let Some(node) = self.ring.get_mut(at) else { return };
        let before = node.record.replace(record);
        let applied = node.applied;
        self.apply(at);
        if let Some(before) = before {
            self.find_lost(at, &before, applied);
        }
        self.assign_roles();
    }

    /// Updates everything that depends on the ring after a change at position `at`.
    fn refresh(&mut self, at: usize) {
        self.changes = self.changes.wrapping_add(1);
        if !self.is_active() {
            // Records stay: a peer that counts more nodes sends its record once, also before this node counts as many.
            self.ring.iter_mut().for_each(|node| node.down_reports = 0);
        }
        self.update_domain();
        // The records of the nodes before the change may match the ring to a different extent now.
        let len = self.ring.len();
        for back in 0..=MAX_DOMAIN.min(len - 1) {
            self.apply((at + len - back) % len);
        }
        self.assign_roles();
    }

    /// Recomputes this node's domain: the next √n nodes, and which of them are up.
    fn update_domain(&mut self) {
        let Some(own) = self.find(self.own) else { return };
        let size = domain_size(self.ring.len()) - 1;
        let members: Vec<(NodeAddr, bool)> =
            self.after(own).take(size).filter_map(|n| self.ring.get(n)).map(|n| (n.addr, n.up)).collect();
        let same = members.len() == self.domain.members.len()
            && members.iter().zip(0..).all(|(m, i)| self.domain.member(i) == Some(*m));
        if !same {
            self.domain.set(self.domain.generation.wrapping_add(1), &members);
            // The domain grows with the ring, also by changes far from it.
            self.apply(own);
        }
    }

    /// Counts the leading members of a node's record that follow it in the ring.
    fn apply(&mut self, at: usize) {
        let Some(node) = self.ring.get(at) else { return };
        let members = match &node.record {
            _ if node.addr == self.own => &self.domain.members,
            Some(record) if node.up => &record.members,
            _ => return,
        };
        let agree = |(member, n): &(&NodeAddr, usize)| self.ring.get(*n).is_some_and(|n| n.addr == **member);
        let applied = members.iter().zip(self.after(at)).take_while(agree).count();
        if let Some(node) = self.ring.get_mut(at) {
            node.applied = applied;
        }
    }

    /// Marks members of a node's previous record `before` (`applied` of them matched) that it now reports as down.
    fn find_lost(&mut self, at: usize, before: &DomainRecord, applied: usize) {
        let Some(node) = self.ring.get(at) else { return };
        let (now, now_applied) = (node.record.clone(), node.applied);
        for (i, member) in self.after(at).take(applied).enumerate() {
            let Some(member) = self.ring.get_mut(member).filter(|m| m.addr != self.own) else { continue };
            let was_up = before.member(i).is_some_and(|(_, up)| up);
            // This node supervises the nodes in its own domain itself, and does not use reports about them.
            if !member.up || !was_up || member.local {
                continue;
            }
            match now.as_ref().and_then(|r| r.member(i)).filter(|_| i < now_applied) {
                None => member.down_reports = 1,
                Some((_, false)) => member.down_reports = member.down_reports.saturating_add(1),
                Some((_, true)) => {}
            }
        }
    }

    /// Walks the ring from this node: nodes in a head's domain are covered; the next node that is up becomes a head.
    fn assign_roles(&mut self) {
        let Some(own) = self.find(self.own) else { return };
        let mut covered = self.ring.get(own).map_or(0, |n| n.applied);
        let mut local = true;
        for at in self.after(own).take(self.ring.len() - 1) {
            let Some(node) = self.ring.get_mut(at) else { return };
            node.local = local && covered > 0;
            node.head = covered == 0 && node.up;
            if covered > 0 {
                covered -= 1;
            } else if node.up {
                local = false;
                covered = node.applied;
            }
        }
    }
}

/// Size of a domain in a cluster of `nodes`, including its owner: the smallest number whose square covers them.
fn domain_size(nodes: usize) -> usize {
    (1..MAX_DOMAIN).find(|d| d * d >= nodes).unwrap_or(MAX_DOMAIN)
}
