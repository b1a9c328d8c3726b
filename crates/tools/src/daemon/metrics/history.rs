//! Events of links, nodes and services, found by comparing each snapshot with the previous one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use utipc::NodeAddr;
use utipc_manage::Publication;

use super::snapshot::{Snapshot, millis};

/// Maximum number of events that are kept.
const EVENTS: usize = 500;

/// The first service type of programs; those below report nodes and links, which have separate events.
const FIRST_TYPE: u32 = 64;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Counts from 1.
    pub(super) number: u64,
    /// Milliseconds since 1970. Exact for links that went down; otherwise when it was noticed, up to a second later.
    pub(super) time: u64,
    /// `link-up`, `link-down`, `node-up`, `node-down`, `service-up` or `service-down`.
    pub(super) kind: &'static str,
    /// The node concerned.
    pub(super) node: u32,
    /// The link or the service.
    pub(super) what: String,
    /// Why a link went down; otherwise empty.
    pub(super) reason: String,
}

/// The service of a binding: type, lower, upper, node and port. A socket may bind a range several times.
type Service = (u32, u32, u32, u32, u32);

/// The last events, and what the next snapshot is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Oldest first.
    events: VecDeque<Arc<Event>>,
    last_number: u64,
    has_begun: bool,
    links: BTreeMap<String, bool>,
    nodes: BTreeMap<u32, bool>,
    services: Arc<BTreeSet<Service>>,
    /// Link, peer and time of the failures that are known.
    failures: BTreeSet<(u64, String)>,
}

impl History {
    /// The events after this number, oldest first.
    pub(super) fn since(&self, number: u64) -> Vec<Arc<Event>> {
        self.events.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// Adds what differs from the snapshot before. The first snapshot gives only the failures of links that the daemon
    /// remembers.
    pub(super) fn update(&mut self, snapshot: &Snapshot) {
        let time = snapshot.taken.map_or(0, millis);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.compare_nodes(snapshot, time, is_first);
        self.compare_links(snapshot, time, is_first);
        // A truncated list may lack an entry that exists.
        if snapshot.names.is_complete {
            self.compare_services(snapshot, time, is_first);
        }
    }

    fn add(&mut self, time: u64, kind: &'static str, node: u32, what: String, reason: String) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.last_number += 1;
        self.events.push_back(Arc::new(Event { number: self.last_number, time, kind, node, what, reason }));
    }

    fn compare_nodes(&mut self, snapshot: &Snapshot, time: u64, is_first: bool) {
        let nodes: BTreeMap<u32, bool> =
            snapshot.nodes.entries.iter().map(|node| (node.address, node.up)).collect();
        let before = std::mem::replace(&mut self.nodes, nodes.clone());
        let all: BTreeSet<u32> = before.keys().chain(nodes.keys()).copied().collect();
        for node in all.into_iter().filter(|_| !is_first) {
            let is_up = |nodes: &BTreeMap<u32, bool>| nodes.get(&node).copied().unwrap_or(false);
            match (is_up(&before), is_up(&nodes)) {
                (false, true) => self.add(time, "node-up", node, NodeAddr(node).to_string(), String::new()),
                (true, false) => self.add(time, "node-down", node, NodeAddr(node).to_string(), String::new()),
                _ => {}
            }
        }
    }

    fn compare_links(&mut self, snapshot: &Snapshot, time: u64, is_first: bool) {
        let mut failures = BTreeSet::new();
        let mut failed = BTreeSet::new();
        for link in &snapshot.failures.entries {
            let Some(down) = &link.down else { continue };
            let key = (down.time, link.name.clone());
            if !self.failures.contains(&key) {
                failed.insert(link.name.clone());
                self.add(down.time, "link-down", link.destination, link.name.clone(), down.reason.clone());
            }
            failures.insert(key);
        }
        self.failures = failures;
        let links = snapshot.links.entries.iter().filter(|link| !link.broadcast);
        let links: BTreeMap<String, bool> = links.map(|link| (link.name.clone(), link.up)).collect();
        let before = std::mem::replace(&mut self.links, links.clone());
        for (name, _) in links.into_iter().filter(|(_, is_up)| *is_up && !is_first) {
            // A link may have failed and come back between two snapshots.
            if !before.get(&name).copied().unwrap_or(false) || failed.contains(&name) {
                let peer = snapshot.peer_of(&name).unwrap_or(0);
                self.add(time, "link-up", peer, name, String::new());
            }
        }
    }

    fn compare_services(&mut self, snapshot: &Snapshot, time: u64, is_first: bool) {
        let of_programs = snapshot.names.entries.iter().filter(|name| name.service >= FIRST_TYPE);
        let now: BTreeSet<Service> = of_programs.map(service).collect();
        let before = std::mem::replace(&mut self.services, Arc::new(now));
        let now = Arc::clone(&self.services);
        if is_first {
            return;
        }
        let text = |(kind, lower, upper, node, port): Service| {
            let range = if lower == upper { lower.to_string() } else { format!("{lower},{upper}") };
            format!("{{{kind},{range}}} of socket {}:{port}", NodeAddr(node))
        };
        for gone in before.difference(&now) {
            self.add(time, "service-down", gone.3, text(*gone), String::new());
        }
        for new in now.difference(&before) {
            self.add(time, "service-up", new.3, text(*new), String::new());
        }
    }
}

fn service(p: &Publication) -> Service {
    (p.service, p.lower, p.upper, p.node, p.port)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use utipc_manage::{Down, Link, Node};

    use super::super::snapshot::List;
    use super::*;

    fn list<T>(entries: Vec<T>) -> List<T> {
        List { entries, is_complete: true }
    }

    fn link(up: bool) -> Link {
        Link { name: "a:udp-b:udp".to_owned(), up, ..Link::default() }
    }

    fn failure(time: u64) -> Link {
        let down = Some(Down { reason: "peer silent".to_owned(), time });
        Link { destination: 2, down, ..link(false) }
    }

    fn snapshot(up: bool, failures: Vec<Link>, services: &[u32]) -> Snapshot {
        let names = services.iter().map(|service| Publication {
            service: *service,
            node: 2,
            ..Publication::default()
        });
        Snapshot {
            taken: Some(SystemTime::now()),
            nodes: list(vec![Node { address: 2, up, identity: None, contact: None }]),
            links: list(vec![link(up)]),
            failures: list(failures),
            names: list(names.collect()),
            ..Snapshot::default()
        }
    }

    #[test]
    fn differences_between_snapshots_become_events_once() {
        let mut history = History::default();
        let kinds = |history: &mut History, snapshot: &Snapshot| {
            let last = history.last_number;
            history.update(snapshot);
            history.since(last).iter().map(|event| event.kind).collect::<Vec<_>>()
        };
        assert!(kinds(&mut history, &snapshot(true, vec![], &[1000])).is_empty(), "the first");
        assert!(kinds(&mut history, &snapshot(true, vec![], &[1000])).is_empty());
        let down = snapshot(false, vec![failure(7)], &[]);
        assert_eq!(kinds(&mut history, &down), ["node-down", "link-down", "service-down"]);
        let event = &history.since(1)[0];
        assert_eq!((event.time, event.node, &*event.reason), (7, 2, "peer silent"));
        assert!(kinds(&mut history, &down).is_empty());
        let up = snapshot(true, vec![failure(7)], &[1000, 1001]);
        assert_eq!(kinds(&mut history, &up), ["node-up", "link-up", "service-up", "service-up"]);
        let flapped = snapshot(true, vec![failure(7), failure(9)], &[1000, 1001]);
        assert_eq!(kinds(&mut history, &flapped), ["link-down", "link-up"], "between two snapshots");
        let mut cut = snapshot(true, vec![failure(9)], &[]);
        cut.names.is_complete = false;
        assert!(kinds(&mut history, &cut).is_empty(), "a list that is cut");
    }

    #[test]
    fn oldest_events_are_dropped() {
        let mut history = History::default();
        for n in 0..EVENTS as u32 + 100 {
            history.update(&snapshot(n % 2 == 0, vec![], &[]));
        }
        assert_eq!(history.since(0).len(), EVENTS);
        assert_eq!(history.since(history.last_number - 3).len(), 3);
    }
}
