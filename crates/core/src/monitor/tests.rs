use std::collections::BTreeMap;

use super::*;
use crate::limits::CAPABILITIES;
use crate::rng::Rng;
use crate::vectors;
use crate::wire::{LinkProtocolType, User};

fn node(n: u32) -> NodeAddr {
    NodeAddr::legacy(1, 1, n)
}

/// A full mesh of monitors that exchange records without loss, in rounds: one STATE from each node to each other.
struct Mesh {
    nodes: BTreeMap<NodeAddr, (Monitor, BTreeMap<NodeAddr, MonitorSession>)>,
}

impl Mesh {
    fn new(n: u32, threshold: usize) -> Self {
        let addrs: Vec<NodeAddr> = (1..=n).map(node).collect();
        let mut nodes = BTreeMap::new();
        for own in &addrs {
            let mut monitor = Monitor::new(*own, threshold);
            let peers = addrs.iter().filter(|p| *p != own);
            let sessions = peers.map(|p| (*p, MonitorSession::default())).collect::<BTreeMap<_, _>>();
            sessions.keys().for_each(|p| monitor.peer_up(*p));
            nodes.insert(*own, (monitor, sessions));
        }
        Self { nodes }
    }

    fn round(&mut self) {
        let addrs: Vec<NodeAddr> = self.nodes.keys().copied().collect();
        for from in &addrs {
            for to in addrs.iter().filter(|to| *to != from) {
                let (monitor, sessions) = self.nodes.get_mut(from).unwrap();
                let Some(session) = sessions.get_mut(to) else { continue };
                monitor.verdict(*to, session);
                let bytes = monitor.record(session);
                let (monitor, sessions) = self.nodes.get_mut(to).unwrap();
                if let Some(session) = sessions.get_mut(from) {
                    monitor.receive(*from, session, &bytes).unwrap();
                }
            }
        }
    }

    fn verdict(&mut self, at: NodeAddr, peer: NodeAddr) -> Verdict {
        let (monitor, sessions) = self.nodes.get_mut(&at).unwrap();
        monitor.verdict(peer, sessions.get_mut(&peer).unwrap())
    }
}

#[test]
fn domain_size_grows_with_the_square_root_of_the_cluster() {
    let sizes = [1, 2, 4, 5, 9, 10, 16, 17, 33, 36, 37, 1000, 4096].map(domain_size);
    assert_eq!(sizes, [1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 32, 64]);
    assert_eq!(domain_size(100_000), MAX_DOMAIN);
}

#[test]
fn domain_that_grows_by_a_distant_node_is_supervised_whole() {
    let mut monitor = Monitor::new(node(1), DEFAULT_THRESHOLD);
    (2..=196).filter(|n| *n != 100).for_each(|n| monitor.peer_up(node(n)));
    monitor.peer_up(node(197));
    assert_eq!(monitor.domain().members.len(), 13);
    monitor.peer_up(node(100));
    assert_eq!(monitor.domain().members.len(), 14);
    let local: Vec<NodeAddr> = monitor.nodes().into_iter().filter(|n| n.local).map(|n| n.addr).collect();
    assert_eq!(local, (2..=15).map(node).collect::<Vec<_>>());
}

#[test]
fn below_the_threshold_all_peers_are_supervised_without_records() {
    let mut mesh = Mesh::new(32, DEFAULT_THRESHOLD);
    mesh.round();
    let (monitor, sessions) = &mesh.nodes[&node(1)];
    assert!(!monitor.is_active());
    assert!(monitor.record(&sessions[&node(2)]).is_empty());
    for peer in 2..=32 {
        let all = Verdict { supervised: true, probing: false, reset: false };
        assert_eq!(mesh.verdict(node(1), node(peer)), all);
    }
}

#[test]
fn above_the_threshold_few_peers_are_supervised_and_all_are_covered() {
    for n in [33, 64, 100] {
        let mut mesh = Mesh::new(n, DEFAULT_THRESHOLD);
        (0..3).for_each(|_| mesh.round());
        let d = domain_size(n as usize) as u32;
        for own in 1..=n {
            let monitor = &mesh.nodes[&node(own)].0;
            assert_eq!(monitor.domain().members.len() as u32, d - 1);
            let supervised: Vec<u32> =
                (1..=n).filter(|p| *p != own && mesh.verdict(node(own), node(*p)).supervised).collect();
            assert!(supervised.len() as u32 <= 2 * d, "{own} of {n} supervises {supervised:?}");
            // Every node is supervised by this node, or by a head whose report reaches it.
            for peer in (1..=n).filter(|p| *p != own && !supervised.contains(p)) {
                let by = |head: &&u32| (1..d).any(|i| (*head - 1 + i) % n + 1 == peer);
                assert!(supervised.iter().any(|head| by(&head)), "no node covers {peer} for {own}");
            }
            for peer in (1..=n).filter(|p| *p != own) {
                assert!(!mesh.verdict(node(own), node(peer)).probing, "{own} probes {peer} for nothing");
            }
        }
    }
}

#[test]
fn reported_loss_is_probed_and_confirmed_loss_resets() {
    let mut mesh = Mesh::new(36, DEFAULT_THRESHOLD);
    (0..3).for_each(|_| mesh.round());
    let lost = (2..=36).map(node).find(|p| !mesh.verdict(node(1), *p).supervised).unwrap();
    // The nodes that supervise it notice the loss one after another.
    let watchers: Vec<NodeAddr> = (2..=36)
        .map(node)
        .filter(|w| *w != lost && mesh.nodes[w].0.domain().members.contains(&lost))
        .collect();
    assert_eq!(watchers.len(), 5);
    let sessions = &mut mesh.nodes.get_mut(&lost).unwrap().1;
    sessions.clear(); // it neither receives nor sends
    let mut reports = 0;
    for watcher in watchers {
        mesh.nodes.get_mut(&watcher).unwrap().0.peer_down(lost);
        mesh.round();
        let seen = mesh.verdict(node(1), lost);
        reports += u8::from(seen.probing);
        assert!(seen.probing, "the report of {watcher} is not noticed");
        assert_eq!(
            seen.reset,
            mesh.nodes[&node(1)].0.ring[lost.0 as usize - node(1).0 as usize].down_reports >= 4
        );
    }
    assert!(reports > 0 && mesh.verdict(node(1), lost).reset);
    mesh.nodes.get_mut(&node(1)).unwrap().0.peer_down(lost);
    let (monitor, sessions) = mesh.nodes.get_mut(&node(1)).unwrap();
    let mut fresh = MonitorSession::default();
    assert!(!monitor.verdict(lost, &mut fresh).reset, "a link that comes back starts without reports");
    assert!(sessions.len() == 35);
}

#[test]
fn probe_reply_clears_loss_reports() {
    let mut monitor = Monitor::new(node(1), 2);
    (2..=9).for_each(|n| monitor.peer_up(node(n)));
    let mut head = MonitorSession::default();
    let record = |generation, up| {
        let members = [(node(5), up), (node(6), true)];
        let mut r = DomainRecord::default();
        r.set(generation, &members);
        r.build(monitor.domain().generation, true)
    };
    let (up, down, again) = (record(7, true), record(8, false), record(9, true));
    monitor.receive(node(4), &mut head, &up).unwrap();
    let mut session = MonitorSession {
        synchronized: true,
        acked_generation: monitor.domain().generation,
        ..MonitorSession::default()
    };
    let quiet = Verdict { supervised: false, probing: false, reset: false };
    assert_eq!(monitor.verdict(node(5), &mut session), quiet, "covered by node 4");
    monitor.receive(node(4), &mut head, &down).unwrap();
    assert_eq!(monitor.verdict(node(5), &mut session), Verdict { probing: true, ..quiet });
    monitor.receive(node(4), &mut head, &down).unwrap();
    assert_eq!(monitor.ring[4].down_reports, 1, "a repeated record counts once");
    monitor.receive(node(5), &mut session, &[]).unwrap();
    assert_eq!(monitor.verdict(node(5), &mut session), quiet);

    // The head itself is lost: the nodes it covered are probed at once, and covered by another.
    monitor.receive(node(4), &mut head, &again).unwrap();
    monitor.peer_down(node(4));
    assert!(monitor.verdict(node(5), &mut session).probing);
    assert!(monitor.verdict(node(5), &mut session).supervised, "no one else covers it");
}

#[test]
fn at_the_threshold_all_peers_are_supervised_again() {
    let mut mesh = Mesh::new(34, DEFAULT_THRESHOLD);
    (0..3).for_each(|_| mesh.round());
    let lost = [node(33), node(34)];
    let (monitor, _) = mesh.nodes.get_mut(&node(1)).unwrap();
    lost.iter().for_each(|n| monitor.peer_down(*n));
    assert!(monitor.is_active(), "a node that is down is still known");
    lost.iter().for_each(|n| monitor.remove_peer(*n));
    assert!(!monitor.is_active());
    assert!((2..=32).all(|n| mesh.verdict(node(1), node(n)).supervised));
}

#[test]
fn records_that_arrive_below_the_threshold_count_above_it() {
    let mut mesh = Mesh::new(33, DEFAULT_THRESHOLD);
    let own = node(1);
    let (monitor, sessions) = mesh.nodes.get_mut(&own).unwrap();
    // This node does not know the last two nodes yet, while the others know all, and send their records.
    *monitor = Monitor::new(own, DEFAULT_THRESHOLD);
    sessions.values_mut().for_each(|session| *session = MonitorSession::default());
    (2..=31).for_each(|n| monitor.peer_up(node(n)));
    (0..3).for_each(|_| mesh.round());
    for n in [32, 33] {
        mesh.nodes.get_mut(&own).unwrap().0.peer_up(node(n));
    }
    (0..3).for_each(|_| mesh.round());
    let monitor = &mesh.nodes[&own].0;
    assert!(monitor.is_active());
    assert!(monitor.nodes().iter().all(|n| n.applied == 5), "{:?}", monitor.nodes());
}

#[test]
fn records_equal_the_kernels() {
    // monitor-6: node 1.1.1's view; threshold 2; nodes join one by one, 1.1.4 vanishes.
    let own = node(1);
    let mut monitor = Monitor::new(own, 2);
    let mut sessions: BTreeMap<NodeAddr, MonitorSession> = BTreeMap::new();
    let mut compared = 0;
    for message in vectors::messages("monitor-6") {
        if message.user() != User::LinkProtocol || message.link_type() != LinkProtocolType::State {
            continue;
        }
        let view = message.view();
        let (from, to) = (view.prev_node(), view.dest_node().unwrap());
        let data = record_in_state(view, CAPABILITIES);
        if let Ok(Some((record, acked))) = DomainRecord::parse(data) {
            assert_eq!(record.build(acked, true), data);
        }
        if from == own {
            let is_first = !sessions.contains_key(&to);
            let session = sessions.entry(to).or_default();
            let ours = monitor.record(session);
            // With five nodes or more, this domain grows at once, the kernel's within minutes.
            if monitor.node_count() <= 4 {
                assert_eq!(DomainRecord::parse(&ours), DomainRecord::parse(data), "to {to}");
                compared += usize::from(!ours.is_empty());
            }
            if is_first {
                monitor.peer_up(to); // after the STATE that reports the link as up
            }
            monitor.verdict(to, session);
        } else if to == own {
            let session = sessions.get_mut(&from).unwrap();
            monitor.receive(from, session, data).unwrap();
        }
    }
    assert!(compared > 20, "only {compared} records compared");
    // The kernel noticed the loss itself before 1.1.3 reported it; here only the report counts.
    let reports: Vec<u8> = monitor.ring.iter().map(|n| n.down_reports).collect();
    assert_eq!(reports, [0, 0, 0, 1, 0, 0]);
    let verdict = monitor.verdict(node(4), sessions.get_mut(&node(4)).unwrap());
    assert!(verdict.probing && !verdict.reset);
}

#[test]
fn malformed_records_are_refused() {
    let mut good = DomainRecord::default();
    good.set(3, &[(node(2), true), (node(3), false)]);
    let bytes = good.build(9, true);
    assert_eq!(DomainRecord::parse(&bytes), Ok(Some((good.clone(), 9))));
    assert_eq!(good.member(1), Some((node(3), false)));
    assert_eq!(DomainRecord::parse(&[]), Ok(None));
    for cut in 1..bytes.len() {
        assert!(DomainRecord::parse(&bytes[..cut]).is_err(), "{cut} bytes");
    }
    let mut many = bytes.clone();
    many[6..8].copy_from_slice(&65u16.to_be_bytes());
    many.resize(16 + 65 * 4, 0);
    many[..2].copy_from_slice(&(16u16 + 65 * 4).to_be_bytes());
    assert!(DomainRecord::parse(&many).is_err());

    let mut monitor = Monitor::new(node(1), 0);
    monitor.peer_up(node(2));
    let mut session = MonitorSession::default();
    assert!(monitor.receive(node(2), &mut session, &many).is_err());
    assert_eq!(session, MonitorSession::default());
    assert_eq!(monitor.receive(node(77), &mut session, &bytes), Ok(()), "an unknown node");
}

#[test]
fn arbitrary_events_do_not_panic() {
    let mut rng = Rng::new(11);
    let mut monitor = Monitor::new(node(5), 3);
    let mut sessions = [MonitorSession::default(); 12];
    for _ in 0..20_000 {
        let n = rng.below(12) as u32;
        let session = &mut sessions[n as usize];
        match rng.below(6) {
            0 => monitor.peer_up(node(n)),
            1 => monitor.peer_down(node(n)),
            2 => monitor.remove_peer(node(n)),
            3 => drop(monitor.verdict(node(n), session)),
            4 => drop(monitor.record(session)),
            _ => {
                let members: Vec<_> =
                    (0..rng.below(5)).map(|_| (node(rng.below(12) as u32), rng.below(2) == 0)).collect();
                let mut record = DomainRecord::default();
                record.set(rng.next_u32() as u16, &members);
                monitor.receive(node(n), session, &record.build(rng.next_u32() as u16, true)).unwrap();
            }
        }
        assert_eq!(monitor.ring.iter().filter(|n| n.addr == node(5)).count(), 1);
        assert!(monitor.ring.is_sorted_by_key(|n| n.addr));
    }
}
