//! The state of a joined group, without sockets and clocks: views and messages of the ordered group in, events for
//! `cpg_dispatch` out.
//!
//! Members that move together from one view to the next have the same state. They are *mates*. When a view has other
//! members, each side's most senior mate multicasts a *roster*: the processes of its mates. All members show the change
//! at the view's place in the order, so messages of the view wait until the rosters name all of its members. If the
//! next view comes first, the change has not happened: messages of mates are delivered, others are dropped. Decision 36
//! has the proof.

mod changes;
mod pieces;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use utipc::PortId;
use utipc::ordered::{View, ViewId};

use crate::name::Name;
use crate::types::{CpgAddress, Reason};
use crate::wire::{Message, Process};
use pieces::{Assembly, Cutter};

/// Maximum number of bytes of messages that wait for rosters. Members send nothing while they wait, so that only
/// messages already in flight wait: less than two windows.
const MAX_HELD: usize = 16 << 20;

/// An event that the program gets by a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message.
    Deliver { nodeid: u32, pid: u32, data: Vec<u8> },
    /// Processes have joined or left.
    Change { members: Vec<CpgAddress>, left: Vec<CpgAddress>, joined: Vec<CpgAddress> },
    /// The members' nodes have changed: the ring of Totem.
    Ring { nodeid: u32, seq: u64, nodes: Vec<u32> },
}

/// A member with the same state as this one.
#[derive(Clone, Debug)]
struct Mate {
    pid: u32,
    name: Name,
    left: bool,
}

/// A view that waits for rosters.
#[derive(Debug, Default)]
struct Merge {
    /// Processes from rosters, with the mark that they are new.
    heard: BTreeMap<PortId, (Process, bool)>,
    held: Vec<(PortId, Vec<u8>)>,
    held_bytes: usize,
}

/// A joined group.
#[derive(Debug)]
pub(crate) struct Layer {
    me: PortId,
    name: Name,
    /// Whether the program wants to learn the first ring.
    initial_ring: bool,
    /// The join of this process has been shown.
    joined: bool,
    /// The leave of this process has been shown.
    left: bool,
    mates: BTreeMap<PortId, Mate>,
    view: ViewId,
    /// Members of the view by seniority.
    seniority: Vec<PortId>,
    nodes: Vec<u32>,
    merge: Option<Merge>,
    assemblies: BTreeMap<PortId, Assembly>,
    cutter: Cutter,
    /// Rosters and goodbyes, not yet sent.
    to_send: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    /// Malformed messages, and those that are impossible.
    pub(crate) refused: u64,
}

impl Layer {
    pub(crate) fn new(me: PortId, pid: u32, name: Name, initial_ring: bool) -> Self {
        let mate = Mate { pid, name: name.clone(), left: false };
        Self {
            me,
            name,
            initial_ring,
            joined: false,
            left: false,
            mates: BTreeMap::from([(me, mate)]),
            view: ViewId::default(),
            seniority: Vec::new(),
            nodes: Vec::new(),
            merge: None,
            assemblies: BTreeMap::new(),
            cutter: Cutter::default(),
            to_send: VecDeque::new(),
            events: VecDeque::new(),
            refused: 0,
        }
    }

    /// A new view. `is_up` tells whether a node is in contact.
    pub(crate) fn view(&mut self, view: &View, is_up: impl Fn(u32) -> bool) {
        if let Some(merge) = self.merge.take() {
            for (from, bytes) in merge.held {
                self.apply(from, &bytes);
            }
        }
        // A roster of an earlier view is useless; a goodbye is not.
        self.to_send.retain(|message| !matches!(Message::parse(message), Some(Message::Roster { .. })));
        self.view = view.id;
        self.seniority = view.members.iter().map(|member| member.port).collect();
        let stays = |port: &PortId| {
            *port == self.me || view.contains(*port) && view.together.iter().any(|m| m.port == *port)
        };
        let gone: Vec<PortId> = self.mates.keys().filter(|port| !stays(port)).copied().collect();
        self.lose(&gone, is_up);
        if self.seniority.iter().all(|port| self.mates.contains_key(port)) {
            self.settle(&BTreeMap::new());
            return;
        }
        self.merge = Some(Merge::default());
        if self.seniority.iter().find(|port| self.mates.contains_key(port)) == Some(&self.me) {
            let roster = self.roster();
            self.to_send.push_front(roster);
        }
    }

    fn roster(&self) -> Vec<u8> {
        let process = |(port, mate): (&PortId, &Mate)| Process {
            port: *port,
            pid: mate.pid,
            name: mate.name.clone(),
            left: mate.left,
        };
        let processes = self.mates.iter().map(process).collect();
        Message::Roster { view: self.view, young: !self.joined, processes }.encode()
    }

    /// A message in the order of the group, sent in `view`. False if waiting messages take too much memory, which no
    /// correct member causes.
    pub(crate) fn message(&mut self, from: PortId, view: ViewId, bytes: Vec<u8>) -> bool {
        if self.merge.is_none() {
            self.apply(from, &bytes);
            return true;
        }
        if let Some(Message::Roster { view: of, young, processes }) = Message::parse(&bytes) {
            if of == self.view && view == of && processes.iter().any(|process| process.port == from) {
                self.hear(processes, young);
            }
            return true;
        }
        let Some(merge) = &mut self.merge else { return true };
        merge.held_bytes += bytes.len();
        merge.held.push((from, bytes));
        merge.held_bytes <= MAX_HELD
    }

    fn hear(&mut self, processes: Vec<Process>, young: bool) {
        let Some(merge) = &mut self.merge else { return };
        for process in processes {
            if self.seniority.contains(&process.port) {
                merge.heard.entry(process.port).or_insert((process, young));
            }
        }
        if self.seniority.iter().all(|port| merge.heard.contains_key(port)) {
            let Merge { heard, held, .. } = self.merge.take().unwrap_or_default();
            self.settle(&heard);
            for (from, bytes) in held {
                self.apply(from, &bytes);
            }
        }
    }

    /// Handles a message at its place.
    fn apply(&mut self, from: PortId, bytes: &[u8]) {
        // Members of other names are mates too, but nothing of theirs is shown.
        let shown = self.mates.get(&from).filter(|mate| !mate.left && mate.name == self.name);
        let Some(pid) = shown.map(|mate| mate.pid) else { return };
        let data = match Message::parse(bytes) {
            Some(Message::Whole(data)) => data.to_vec(),
            Some(Message::Piece { number, offset, total, bytes }) => {
                let Some(data) = self.piece(from, number, offset, total, bytes) else { return };
                data
            }
            Some(Message::Bye(reason)) => return self.bye(from, reason),
            // This member knew its sender before, as a view without rosters shows.
            Some(Message::Roster { .. }) => return,
            None => {
                self.refused += 1;
                return;
            }
        };
        if !self.left {
            self.events.push_back(Event::Deliver { nodeid: from.node.0, pid, data });
        }
    }

    /// The members, as the order of the group has them now.
    pub(crate) fn members(&self) -> Vec<CpgAddress> {
        if !self.joined {
            return Vec::new();
        }
        let shown = self.mates.iter().filter(|(_, mate)| !mate.left && mate.name == self.name);
        sorted(shown.map(|(port, mate)| address(port.node.0, mate.pid, Reason::Undefined)).collect())
    }

    /// Whether this process is a member.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined && !self.left
    }

    /// Whether the leave of this process has been shown.
    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    /// Whether the program may send a message now.
    pub(crate) fn can_send(&self) -> bool {
        self.is_joined() && self.merge.is_none() && self.to_send.is_empty() && !self.cutter.is_busy()
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`Layer::send_next`] has something.
    pub(crate) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty() || self.merge.is_none() && self.cutter.next().is_some()
    }

    /// Sends everything pending, until `send` returns false.
    pub(crate) fn send_next(&mut self, mut send: impl FnMut(&[u8], bool) -> bool) {
        while let Some(message) = self.to_send.front() {
            if !send(message, false) {
                return;
            }
            self.to_send.pop_front();
        }
        // Pieces would be dropped when the rosters have arrived.
        while self.merge.is_none()
            && let Some(piece) = self.cutter.next()
        {
            if !send(&piece.encode(), self.cutter.is_safe()) {
                return;
            }
            self.cutter.advance();
        }
    }

    /// Announces that this process leaves.
    pub(crate) fn say_bye(&mut self, reason: Reason) {
        self.to_send.push_back(Message::Bye(reason).encode());
    }
}

fn address(nodeid: u32, pid: u32, reason: Reason) -> CpgAddress {
    CpgAddress { nodeid, pid, reason: reason as u32 }
}

fn sorted(mut list: Vec<CpgAddress>) -> Vec<CpgAddress> {
    list.sort_unstable_by_key(|member| (member.nodeid, member.pid));
    list
}
