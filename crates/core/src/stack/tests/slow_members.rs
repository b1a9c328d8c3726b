//! Members that do not read, and policies for them, between nodes. Spec: tipc.md §9.8.

use super::group::letter;
use super::*;
use crate::addr::PortId;
use crate::group::{GroupPolicy, GroupRequest, MemberState, SlowCounters, SlowMember};
use crate::socket::WaitReason;

const GROUP: u32 = 4300;
const DROP: GroupPolicy = GroupPolicy::new(SlowMember::Drop);
const CONFLATE: GroupPolicy = GroupPolicy::new(SlowMember::CONFLATE);
const EVICT: GroupPolicy = GroupPolicy::new(SlowMember::Evict { after_ms: 500 });

/// Members of one group, one on each node.
struct Members {
    lan: Lan,
    ports: Vec<u32>,
}

impl Members {
    fn new(policies: &[GroupPolicy]) -> Self {
        let mut lan = Lan::new(policies.len());
        lan.run(3000);
        let mut ports = Vec::new();
        for (node, policy) in policies.iter().enumerate() {
            let port = lan.nodes[node].open(lan.now, SocketKind::Rdm).unwrap();
            let request = GroupRequest::new(GROUP, node as u32).with_events();
            lan.nodes[node].join_with(lan.now, port, request, *policy).unwrap();
            ports.push(port);
            lan.run(20);
        }
        lan.run(100);
        let mut members = Self { lan, ports };
        for node in 0..policies.len() {
            members.read(node);
        }
        members
    }

    /// Everything that a member has received: a letter for its kind, `?` for missing messages before it, and the data.
    fn read(&mut self, node: usize) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(text) = self.read_one(node) {
            all.push(text);
        }
        all
    }

    fn read_one(&mut self, node: usize) -> Option<String> {
        let Self { lan, ports } = self;
        let mut buffer = vec![0; 66_000];
        let got = lan.nodes[node].recv(lan.now, ports[node], &mut buffer, RecvOptions::default()).ok()?;
        let kind = letter(got.group.unwrap().kind);
        lan.exchange();
        let text = String::from_utf8_lossy(&buffer[..got.len]);
        let text = text.trim_end_matches('\0');
        Some(format!("{}{kind}{text}", if got.after_loss { "?" } else { "" }))
    }

    /// Sends to all members, with a key.
    fn tell(&mut self, node: usize, text: &str, size: usize, key: u64) -> Result<usize, SendError> {
        let mut data = text.as_bytes().to_vec();
        data.resize(size.max(data.len()), 0);
        let Self { lan, ports } = self;
        let sent = lan.nodes[node].send_keyed(lan.now, ports[node], &data, None, key);
        lan.exchange();
        sent
    }

    fn send(&mut self, node: usize, text: &str, to: Destination) -> Result<usize, SendError> {
        let sent = self.lan.nodes[node].send(self.lan.now, self.ports[node], text.as_bytes(), Some(to));
        self.lan.exchange();
        sent
    }

    fn at(&self, node: usize) -> PortId {
        PortId { port: self.ports[node], node: self.lan.nodes[node].own_node() }
    }

    fn slow(&self, node: usize, member: usize) -> SlowCounters {
        let group = self.lan.nodes[node].endpoint(self.ports[node]).unwrap().group().unwrap();
        group.members().find(|info| info.port == self.at(member)).unwrap().slow
    }

    fn states(&self, node: usize) -> Vec<MemberState> {
        let group = self.lan.nodes[node].endpoint(self.ports[node]).unwrap().group().unwrap();
        group.members().map(|member| member.state).collect()
    }
}

#[test]
fn dropped_messages_delay_no_member_and_the_receiver_sees_the_gap() {
    let mut m = Members::new(&[DROP, DROP, GroupPolicy::LINUX]);
    for number in 0..50 {
        while m.tell(0, &format!("{number}"), 10_000, 0) == Err(SendError::WouldBlock) {
            m.lan.run(5); // an acknowledgement
        }
        m.lan.run(5);
        assert_eq!(m.read(1), [format!("b{number}")], "member 1 reads and gets all, as what was sent");
    }
    let dropped = m.slow(0, 2).dropped;
    assert!(dropped > 20, "{dropped}");
    assert_eq!((m.slow(0, 1), m.slow(0, 2).kept), (SlowCounters::default(), 0));
    let read = m.read(2);
    assert_eq!(read.len() as u64 + dropped, 50);
    assert_eq!(read, (0..read.len()).map(|n| format!("b{n}")).collect::<Vec<_>>());
    m.lan.run(50);
    m.tell(0, "late", 4, 0).unwrap();
    m.lan.run(50);
    assert_eq!((m.read(1), m.read(2)), (vec!["blate".into()], vec!["blate".into()]), "Linux is not told");
    assert_eq!(m.slow(0, 2).dropped, dropped);
}

#[test]
fn a_receiver_with_a_policy_sees_that_messages_are_missing() {
    let mut m = Members::new(&[DROP, DROP]);
    let to = Destination::Port(m.at(1));
    let long = "x".repeat(60_000);
    assert_eq!(m.send(0, &long, to), Ok(60_000));
    assert_eq!(m.send(0, &long, to), Ok(60_000), "dropped");
    assert_eq!(m.send(0, "anycast", Destination::service(GROUP, 1)), Ok(7), "it fits");
    assert_eq!(m.slow(0, 1).dropped, 1);
    m.lan.run(50);
    assert_eq!(m.read(1)[1..], ["?uanycast"]);
    assert_eq!(m.send(0, "next", ServiceRange::new(GROUP, 1, 1).into()), Ok(4));
    m.lan.run(50);
    assert_eq!(m.read(1), ["unext"]);
    assert_eq!(m.send(0, "x", Destination::service(GROUP, 9)), Err(SendError::HostUnreachable));
    let absent = PortId { port: 1, ..m.at(1) };
    assert_eq!(m.send(0, "x", absent.into()), Err(SendError::HostUnreachable));
}

#[test]
fn a_slow_member_gets_the_newest_message_of_each_key_when_it_reads() {
    let mut m = Members::new(&[CONFLATE, CONFLATE, CONFLATE]);
    for round in 0..20 {
        for key in 0..5 {
            while m.tell(0, &format!("{key}:{round}"), 5000, key) == Err(SendError::WouldBlock) {
                m.lan.run(5);
            }
        }
        m.lan.run(5);
        assert_eq!(m.read(1).len(), 5);
    }
    let SlowCounters { dropped, conflated, kept } = m.slow(0, 2);
    assert_eq!((dropped, kept), (0, 5));
    let mut all = Vec::new();
    for _ in 0..10 {
        all.extend(m.read(2));
        m.lan.run(20);
    }
    assert_eq!(all.len() as u64, 100 - conflated);
    let last: Vec<&str> = all[all.len() - 5..].iter().map(|text| text.trim_start_matches('?')).collect();
    assert_eq!(last, ["b0:19", "b1:19", "b2:19", "b3:19", "b4:19"]);
    assert_eq!(all.iter().filter(|text| text.starts_with('?')).count(), 1, "one gap");
    assert_eq!(m.slow(0, 2).kept, 0);
    assert!(m.lan.nodes.iter().all(Stack::is_balanced));
}

#[test]
fn kept_messages_are_charged_to_the_user_and_released() {
    let mut m = Members::new(&[CONFLATE, CONFLATE]);
    let user = crate::quota::UserId(7);
    m.lan.nodes[0].set_user(m.ports[0], user);
    for key in 0..100 {
        let _ = m.tell(0, "x", 10_000, key);
        m.lan.run(2);
    }
    let kept = m.slow(0, 1).kept;
    assert!(kept > 50, "{kept}");
    let memory = m.lan.nodes[0].endpoint(m.ports[0]).unwrap().memory();
    assert!(memory > u64::from(kept) * 10_000, "{memory}");
    assert!(m.lan.nodes[0].is_balanced());
    let now = m.lan.now;
    m.lan.nodes[0].leave(now, m.ports[0]).unwrap();
    assert_eq!(m.lan.nodes[0].endpoint(m.ports[0]).unwrap().memory(), 0);
    assert!(m.lan.nodes[0].is_balanced());
}

#[test]
fn a_slow_member_that_accepts_it_is_evicted_for_all() {
    let mut m = Members::new(&[EVICT, EVICT, EVICT, DROP, GroupPolicy::LINUX]);
    m.tell(0, "last", 66_000, 0).unwrap();
    m.lan.run(50);
    for node in [1, 3, 4] {
        assert_eq!(m.read(node), ["blast"]);
    }
    m.lan.run(50);
    assert_eq!(m.tell(0, "next", 4, 0), Err(SendError::WouldBlock));
    let reason = WaitReason::MemberWindow { member: m.at(2), joined: true, window: 0 };
    assert_eq!(m.lan.nodes[0].endpoint(m.ports[0]).unwrap().wait_reason(), Some(reason));
    m.lan.run(400);
    assert_eq!(m.tell(0, "next", 4, 0), Err(SendError::WouldBlock));
    m.lan.run(200);
    assert_eq!(m.tell(0, "next", 4, 0), Ok(4));
    m.lan.run(100);
    assert_eq!(m.read(0), ["!"]);
    assert_eq!((m.read(1), m.read(3)), (vec!["!".into(), "bnext".into()], vec!["!".into(), "bnext".into()]));
    assert_eq!(m.read(4), ["-", "bnext"], "Linux sees a member that leaves");
    assert_eq!((m.states(0).len(), m.states(1).len(), m.states(4).len()), (3, 3, 3));
    // The member reads what has arrived, then learns it.
    assert_eq!(m.tell(2, "x", 1, 0), Err(SendError::Evicted));
    assert_eq!(m.read(2), ["blast", "!"]);
    let group = m.lan.nodes[2].endpoint(m.ports[2]).unwrap().group().unwrap();
    assert_eq!(group.evicted_by(), Some(m.at(0)));
    assert_eq!(m.lan.nodes[2].endpoint(m.ports[2]).unwrap().binding_count(), 0);
    assert!(m.lan.nodes.iter().all(Stack::is_balanced));
    // It joins again.
    let (now, port) = (m.lan.now, m.ports[2]);
    assert!(m.lan.nodes[2].join(now, port, GroupRequest::new(GROUP, 2)).is_err());
    m.lan.nodes[2].leave(now, port).unwrap();
    m.lan.nodes[2].join_with(now, port, GroupRequest::new(GROUP, 2), EVICT).unwrap();
    m.lan.run(100);
    while m.tell(0, "again", 5, 0) == Err(SendError::WouldBlock) {
        m.lan.run(10);
    }
    m.lan.run(100);
    assert_eq!(m.read(2), ["bagain"]);
}

#[test]
fn a_slow_member_that_does_not_know_evict_sees_its_evictor_leave() {
    let mut m = Members::new(&[EVICT, GroupPolicy::LINUX, GroupPolicy::LINUX]);
    m.tell(0, "last", 66_000, 0).unwrap();
    m.lan.run(50);
    m.read(1);
    m.lan.run(50);
    assert_eq!(m.tell(0, "next", 4, 0), Err(SendError::WouldBlock));
    m.lan.run(600);
    assert_eq!(m.tell(0, "next", 4, 0), Ok(4));
    m.lan.run(100);
    assert_eq!((m.read(0), m.read(1)), (vec!["!".into()], vec!["bnext".into()]));
    assert_eq!(m.read(2), ["blast", "-"]);
    assert_eq!((m.states(1).len(), m.states(2).len()), (2, 1), "the others are still members of each other");
    assert_eq!(m.tell(2, "to one", 6, 0), Ok(6));
    m.lan.run(100);
    assert_eq!((m.read(0), m.read(1)), (vec![], vec!["bto one".into()]));
}

#[test]
fn a_plain_binding_blocks_no_member_with_a_policy() {
    for policy in [GroupPolicy::new(SlowMember::Wait), DROP, CONFLATE, EVICT] {
        let mut m = Members::new(&[policy, GroupPolicy::LINUX]);
        let now = m.lan.now;
        let stranger = m.lan.nodes[1].open(now, SocketKind::Rdm).unwrap();
        m.lan.nodes[1].bind(now, stranger, ServiceRange::new(GROUP, 9, 9), Scope::Cluster).unwrap();
        m.lan.run(100);
        let first = m.tell(0, "first", 5, 0);
        assert_eq!(first.is_ok(), policy.slow == SlowMember::Drop || policy.slow == SlowMember::CONFLATE);
        m.lan.run(2100);
        assert_eq!(m.tell(0, "second", 6, 0), Ok(6), "{policy:?}");
        m.lan.run(100);
        assert_eq!(m.read(1).last().unwrap(), "bsecond");
        assert_eq!(m.states(0).iter().filter(|state| **state == MemberState::Stranger).count(), 1);
        // It joins later, and is a member like others.
        let now = m.lan.now;
        m.lan.nodes[1].join(now, stranger, GroupRequest::new(GROUP, 8)).unwrap();
        m.lan.run(100);
        while m.tell(0, "third", 5, 0) == Err(SendError::WouldBlock) {
            m.lan.run(10);
        }
        m.lan.run(100);
        m.ports[1] = stranger;
        assert_eq!(m.read(1), ["bthird"], "{policy:?}");
    }
}

#[test]
fn invalid_policies_are_refused() {
    let mut lan = Lan::new(1);
    let (now, request) = (lan.now, GroupRequest::new(GROUP, 1));
    let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    let policy = GroupPolicy::new(SlowMember::Evict { after_ms: 0 });
    let refused = lan.nodes[0].join_with(now, port, request, policy);
    assert_eq!(refused, Err(crate::group::JoinError::Policy));
}

/// Members read at random, and send all kinds of messages. What one member gets of another is in the order in which it
/// was sent, nothing comes twice, and exactly the gaps of a sender that drops are announced.
#[test]
fn order_and_gaps_hold_with_slow_members_of_every_policy() {
    for seed in 0..6 {
        let mut rng = crate::rng::Rng::new(seed);
        let policies = [DROP, CONFLATE, DROP, GroupPolicy::new(SlowMember::Wait)];
        let mut m = Members::new(&policies);
        let mut sent = [0_u64; 4];
        let mut last = [[None::<u64>; 4]; 4];
        // The numbers of all messages from a sender to a receiver that have yet to come.
        let mut awaited = [(); 4].map(|()| [(); 4].map(|()| std::collections::VecDeque::<u64>::new()));
        let mut gaps = 0;
        let mut read = |m: &mut Members,
                        awaited: &mut [[std::collections::VecDeque<u64>; 4]; 4],
                        node: usize,
                        most: usize| {
            for _ in 0..most {
                let Some(text) = m.read_one(node) else { break };
                let after_loss = text.starts_with('?');
                let mut words = text.trim_start_matches('?')[1..].split(' ');
                let from: usize = words.next().unwrap().parse().unwrap();
                let number: u64 = words.next().unwrap().parse().unwrap();
                let previous = last[node][from].replace(number);
                assert!(previous.is_none_or(|previous| previous < number), "{previous:?} then {text}");
                let queue = &mut awaited[from][node];
                let missing =
                    queue.iter().position(|next| *next == number).expect("it was sent to this member");
                queue.drain(..=missing);
                gaps += missing;
                if policies[from] == CONFLATE {
                    // The gap may be further on, between messages that were kept.
                    continue;
                }
                assert_eq!(after_loss, missing > 0, "{missing} before {text}");
            }
        };
        for _ in 0..1500 {
            let node = rng.next_u32() as usize % 4;
            let size = [20, 1000, 30_000][rng.next_u32() as usize % 3];
            match rng.next_u32() % 6 {
                0..=3 => {
                    let mut data = format!("{node} {} ", sent[node]).into_bytes();
                    data.resize(size, b' ');
                    let to = match rng.next_u32() % 4 {
                        0 => Some(m.at((node + 1) % 4).into()),
                        1 => Some(ServiceRange::new(GROUP, 2, 2).into()).filter(|_| node != 2),
                        _ => None,
                    };
                    let (now, port) = (m.lan.now, m.ports[node]);
                    let key = u64::from(rng.next_u32() % 4);
                    match m.lan.nodes[node].send_keyed(now, port, &data, to, key) {
                        Ok(_) => {
                            for other in (0..4).filter(|other| *other != node) {
                                let is_meant = match to {
                                    None => true,
                                    Some(Destination::Port(port)) => port == m.at(other),
                                    Some(_) => other == 2,
                                };
                                if is_meant {
                                    awaited[node][other].push_back(sent[node]);
                                }
                            }
                            sent[node] += 1;
                        }
                        Err(SendError::WouldBlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                    m.lan.exchange();
                }
                4 => read(&mut m, &mut awaited, node, 1 + rng.next_u32() as usize % 4),
                _ => m.lan.run(u64::from(rng.next_u32() % 20)),
            }
        }
        for _ in 0..100 {
            for node in 0..4 {
                read(&mut m, &mut awaited, node, 1000);
            }
            m.lan.run(20);
        }
        // All have caught up: the next message of each member reaches all others.
        for node in 0..4 {
            awaited[node].iter_mut().for_each(|queue| queue.push_back(sent[node]));
            while m.tell(node, &format!("{node} {} ", sent[node]), 10, 0) == Err(SendError::WouldBlock) {
                m.lan.run(10);
            }
            m.lan.run(50);
        }
        for node in 0..4 {
            read(&mut m, &mut awaited, node, 1000);
        }
        for (node, last) in last.iter().enumerate() {
            let expected = (0..4).map(|from| (from != node).then_some(sent[from]));
            assert_eq!(last.to_vec(), expected.collect::<Vec<_>>(), "seed {seed}, node {node}");
        }
        assert!(gaps > 0, "no member was slow");
    }
}
