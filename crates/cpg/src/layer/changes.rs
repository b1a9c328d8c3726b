//! Members that come and go.

use std::collections::BTreeMap;

use utipc::PortId;

use super::{Event, Layer, Mate, address, sorted};
use crate::types::{CpgAddress, Reason};
use crate::wire::Process;

impl Layer {
    /// Members that have failed, or that go another way. Members on lost nodes are one change, as in Corosync.
    pub(super) fn lose(&mut self, gone: &[PortId], is_up: impl Fn(u32) -> bool) {
        let (mut with_node, mut alone) = (Vec::new(), Vec::new());
        let lost: Vec<(PortId, Mate)> =
            gone.iter().filter_map(|port| Some((*port, self.mates.remove(port)?))).collect();
        for (port, mate) in lost {
            self.assemblies.remove(&port);
            if mate.left || mate.name != self.name {
                continue;
            }
            let node = port.node.0;
            let stays = self.mates.keys().any(|other| other.node.0 == node);
            let cut_off = self.seniority.contains(&port);
            if !cut_off && (stays || is_up(node)) {
                alone.push(address(node, mate.pid, Reason::ProcDown));
            } else {
                with_node.push(address(node, mate.pid, Reason::NodeDown));
            }
        }
        // Each change still lists the members that the next one removes.
        let mut still_there = self.members();
        still_there.extend(alone.iter().map(|one| CpgAddress { reason: 0, ..*one }));
        if !with_node.is_empty() {
            self.show(sorted(still_there.clone()), sorted(with_node), Vec::new());
        }
        for one in sorted(alone) {
            still_there.retain(|member| (member.nodeid, member.pid) != (one.nodeid, one.pid));
            self.show(sorted(still_there.clone()), vec![one], Vec::new());
        }
    }

    /// A member has said that it leaves.
    pub(super) fn bye(&mut self, from: PortId, reason: Reason) {
        let Some(mate) = self.mates.get_mut(&from) else { return };
        mate.left = true;
        let gone = address(from.node.0, mate.pid, reason);
        self.assemblies.remove(&from);
        let members = self.members();
        self.show(members, vec![gone], Vec::new());
        self.left |= from == self.me;
    }

    /// This process has left without its goodbye having come back.
    pub(crate) fn force_left(&mut self) {
        if self.is_joined() {
            self.bye(self.me, Reason::Leave);
        }
        self.left = true;
    }

    /// Shows a view whose members are known: mates, and those that rosters name.
    pub(super) fn settle(&mut self, heard: &BTreeMap<PortId, (Process, bool)>) {
        if self.left {
            return;
        }
        if !heard.is_empty() {
            self.restart_pieces();
        }
        let mut shown = self.members();
        let (mut merged, mut young) = (Vec::new(), Vec::new());
        for port in self.seniority.clone() {
            let process = heard.get(&port);
            if let Some((process, _)) = process
                && !self.mates.contains_key(&port)
            {
                let mate = Mate { pid: process.pid, name: process.name.clone(), left: process.left };
                self.mates.insert(port, mate);
            } else if port != self.me || self.joined {
                continue;
            }
            let Some(mate) = self.mates.get(&port).filter(|mate| !mate.left && mate.name == self.name) else {
                continue;
            };
            if port == self.me || process.is_some_and(|(_, young)| *young) {
                young.push((port == self.me, address(port.node.0, mate.pid, Reason::Join)));
            } else {
                merged.push(address(port.node.0, mate.pid, Reason::NodeUp));
            }
        }
        let plain = |one: &CpgAddress| CpgAddress { reason: 0, ..*one };
        shown.extend(merged.iter().map(plain));
        if self.joined && !merged.is_empty() {
            self.show(sorted(shown.clone()), Vec::new(), sorted(merged));
        }
        // Each join is a separate change. A process that joins sees those from its own on.
        for (own, one) in young {
            shown.push(plain(&one));
            self.joined |= own;
            if self.joined {
                self.show(sorted(shown.clone()), Vec::new(), vec![one]);
            }
        }
        self.ring();
    }

    fn show(&mut self, members: Vec<CpgAddress>, left: Vec<CpgAddress>, joined: Vec<CpgAddress>) {
        if self.joined && !self.left {
            self.events.push_back(Event::Change { members, left, joined });
        }
    }

    /// Shows the ring if the nodes have changed.
    fn ring(&mut self) {
        let mut nodes: Vec<u32> = self.seniority.iter().map(|port| port.node.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes == self.nodes || !self.joined {
            return;
        }
        let first = self.nodes.is_empty();
        self.nodes.clone_from(&nodes);
        if !first || self.initial_ring {
            let nodeid = self.view.coordinator.node.0;
            self.events.push_back(Event::Ring { nodeid, seq: self.view.round, nodes });
        }
    }
}
