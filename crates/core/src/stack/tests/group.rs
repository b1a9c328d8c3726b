//! Groups of sockets on several nodes. Spec: tipc.md §9.

mod announcements;
mod by_lane;
mod charges;

use super::*;
use crate::addr::PortId;
use crate::group::{GroupRequest, MemberState};
use crate::socket::{BindError, GroupMessageKind, WaitReason};

const GROUP: u32 = 4300;

/// A letter for the kind of what a member receives.
pub(super) fn letter(kind: GroupMessageKind) -> char {
    match kind {
        GroupMessageKind::Unicast => 'u',
        GroupMessageKind::Multicast => 'm',
        GroupMessageKind::Broadcast => 'b',
        GroupMessageKind::Joined => '+',
        GroupMessageKind::Left => '-',
        GroupMessageKind::Evicted => '!',
        GroupMessageKind::Unknown => '#',
    }
}

impl Lan {
    fn member(&mut self, node: usize, request: GroupRequest) -> u32 {
        let port = self.nodes[node].open(self.now, SocketKind::Rdm).unwrap();
        self.nodes[node].join(self.now, port, request).unwrap();
        self.run(20);
        port
    }

    fn at(&self, node: usize, port: u32) -> PortId {
        PortId { port, node: self.nodes[node].own_node() }
    }

    /// Everything that a member has received: a letter for its kind, and the data.
    fn all(&mut self, node: usize, port: u32) -> Vec<String> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 66_000];
        while let Ok(got) = self.nodes[node].recv(self.now, port, &mut buffer, RecvOptions::default()) {
            let kind = letter(got.group.unwrap().kind);
            all.push(format!("{kind}{}", String::from_utf8_lossy(&buffer[..got.len])));
            self.exchange();
        }
        all
    }

    fn tell_all(&mut self, node: usize, port: u32, data: &[u8]) -> Result<usize, SendError> {
        let sent = self.nodes[node].send(self.now, port, data, None);
        self.exchange();
        sent
    }

    fn states(&self, node: usize, port: u32) -> Vec<MemberState> {
        self.nodes[node].endpoint(port).unwrap().group().unwrap().members().map(|m| m.state).collect()
    }
}

#[test]
fn members_find_each_other_and_exchange_all_kinds_of_messages() {
    let mut lan = Lan::new(3);
    lan.run(3000);
    let ports: Vec<u32> =
        (0..3).map(|node| lan.member(node, GroupRequest::new(GROUP, node as u32).with_events())).collect();
    lan.run(100);
    assert_eq!(lan.all(0, ports[0]), ["+", "+"]);
    assert_eq!(lan.all(2, ports[2]), ["+", "+"]);
    assert_eq!(lan.tell_all(0, ports[0], b"all"), Ok(3));
    let at = lan.at(1, ports[1]);
    for to in [at.into(), Destination::service(GROUP, 1), ServiceRange::new(GROUP, 1, 1).into()] {
        lan.nodes[0].send(lan.now, ports[0], b"one", Some(to)).unwrap();
    }
    lan.run(100);
    assert_eq!(lan.all(1, ports[1]), ["+", "+", "ball", "uone", "uone", "uone"]);
    assert_eq!(lan.all(2, ports[2]), ["ball"]);
    assert_eq!(lan.all(0, ports[0]), [""; 0]);
}

#[test]
fn one_sender_keeps_one_order_over_broadcasts_and_unicasts() {
    let mut lan = Lan::new(5);
    lan.run(3000);
    let ports: Vec<u32> = (0..5).map(|node| lan.member(node, GroupRequest::new(GROUP, 7))).collect();
    lan.run(100);
    let to = lan.at(4, ports[4]);
    let mut sent = 0;
    let mut received = Vec::new();
    for round in 0..4000 {
        let data = format!("{sent}");
        // Bursts of each kind: replicast with acknowledgements, broadcast link, and unicasts behind both.
        let destination = if round / 5 % 2 == 0 { None } else { Some(Destination::Port(to)) };
        match lan.nodes[0].send(lan.now, ports[0], data.as_bytes(), destination) {
            Ok(_) => sent += 1,
            Err(SendError::WouldBlock) => lan.run(10),
            Err(error) => panic!("{error}"),
        }
        if round % 50 == 0 {
            lan.run(5);
            received.extend(lan.all(4, ports[4]));
            for (node, port) in ports.iter().enumerate().take(4).skip(1) {
                lan.all(node, *port);
            }
        }
    }
    lan.run(1000);
    received.extend(lan.all(4, ports[4]));
    assert!(sent > 2000, "{sent}");
    let numbers: Vec<usize> = received.iter().map(|text| text[1..].parse().unwrap()).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert!(received.iter().any(|text| text.starts_with('u')));
}

#[test]
fn many_broadcasts_use_the_broadcast_link() {
    let mut lan = Lan::new(5);
    lan.run(3000);
    let ports: Vec<u32> = (0..5).map(|node| lan.member(node, GroupRequest::new(GROUP, 7))).collect();
    lan.run(100);
    for number in 0..10 {
        assert_eq!(lan.tell_all(0, ports[0], format!("{number}").as_bytes()), Ok(1));
        lan.run(10);
    }
    for (node, port) in ports.iter().enumerate().skip(1) {
        assert_eq!(lan.all(node, *port), (0..10).map(|n| format!("b{n}")).collect::<Vec<_>>());
    }
    let group = lan.nodes[0].endpoint(ports[0]).unwrap().group().unwrap();
    assert!(!group.must_replicast());
}

#[test]
fn a_member_whose_node_is_cut_off_leaves_and_blocks_nobody() {
    let mut lan = Lan::new(3);
    lan.run(3000);
    let ports: Vec<u32> =
        (0..3).map(|node| lan.member(node, GroupRequest::new(GROUP, 1).with_events())).collect();
    lan.run(100);
    lan.all(0, ports[0]);
    lan.cut.push((2, 0));
    // The first broadcast awaits an acknowledgement that does not come.
    assert_eq!(lan.tell_all(0, ports[0], b"x"), Ok(1));
    assert_eq!(lan.tell_all(0, ports[0], b"y"), Err(SendError::WouldBlock));
    let waits = lan.nodes[0].endpoint(ports[0]).unwrap().wait_reason().unwrap();
    assert_eq!(waits, WaitReason::MemberAck { member: lan.at(2, ports[2]) });
    lan.run(10_000);
    assert_eq!(lan.all(0, ports[0]), ["-"], "{:?}", lan.events);
    assert_eq!(lan.tell_all(0, ports[0], b"y"), Ok(1));
    lan.run(100);
    assert_eq!(lan.all(1, ports[1]), ["+", "+", "bx", "-", "by"]);
    // It comes back: the members join again.
    lan.cut.clear();
    lan.run(10_000);
    assert_eq!(lan.all(0, ports[0]), ["+"]);
    assert_eq!(lan.tell_all(0, ports[0], b"z"), Ok(1));
    lan.run(100);
    assert_eq!(lan.all(2, ports[2]).last().unwrap(), "bz");
}

#[test]
fn a_closed_member_leaves_and_its_messages_arrive_before() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let a = lan.member(0, GroupRequest::new(GROUP, 1).with_events());
    let b = lan.member(1, GroupRequest::new(GROUP, 2));
    lan.run(100);
    assert_eq!(lan.tell_all(1, b, b"last"), Ok(4));
    let now = lan.now;
    lan.nodes[1].close(now, b);
    lan.run(100);
    assert_eq!(lan.all(0, a), ["+", "blast", "-"]);
    assert_eq!(lan.states(0, a), []);
    assert_eq!(lan.tell_all(0, a, b"x"), Err(SendError::HostUnreachable));
    // A node closes all sockets of a process that ends.
    let b = lan.member(1, GroupRequest::new(GROUP, 2));
    let now = lan.now;
    lan.nodes[1].close_all(now, &[b]);
    lan.run(100);
    assert_eq!(lan.all(0, a), ["+", "-"]);
}

#[test]
fn groups_of_node_scope_stay_on_their_node() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let local = GroupRequest::new(GROUP, 1).on_this_node();
    let a = lan.member(0, local);
    let b = lan.member(0, local);
    let other_node = lan.member(1, local);
    let cluster = lan.member(0, GroupRequest::new(GROUP, 1));
    assert_eq!(lan.tell_all(0, a, b"here"), Ok(4));
    lan.run(100);
    assert_eq!(lan.all(0, b), ["bhere"]);
    assert_eq!(lan.states(1, other_node), []);
    assert_eq!(lan.states(0, cluster), [], "another scope is another group");
    assert_eq!(lan.tell_all(1, other_node, b"x"), Err(SendError::HostUnreachable));
}

#[test]
fn loopback_returns_own_messages_in_order() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let a = lan.member(0, GroupRequest::new(GROUP, 1).with_loopback().with_events());
    let b = lan.member(1, GroupRequest::new(GROUP, 2));
    lan.run(100);
    assert_eq!(lan.all(0, a), ["+", "+"], "the socket sees itself join");
    for data in [b"1", b"2", b"3"] {
        assert_eq!(lan.tell_all(0, a, data), Ok(1));
        lan.run(20);
    }
    assert_eq!(lan.all(0, a), ["b1", "b2", "b3"]);
    assert_eq!(lan.all(1, b), ["b1", "b2", "b3"]);
}

#[test]
fn members_that_join_before_the_address_is_final_stay_members() {
    let mut lan = Lan::new(2);
    let a = lan.member(0, GroupRequest::new(GROUP, 1));
    let b = lan.member(0, GroupRequest::new(GROUP, 2));
    assert_eq!(lan.tell_all(0, a, b"early"), Ok(5));
    lan.run(3000);
    assert!(lan.nodes[0].address_is_final());
    let c = lan.member(1, GroupRequest::new(GROUP, 3));
    lan.run(100);
    assert_eq!(lan.tell_all(0, a, b"late"), Ok(4));
    lan.run(100);
    assert_eq!(lan.all(0, b), ["bearly", "blate"]);
    assert_eq!(lan.all(1, c), ["blate"]);
    let at = lan.at(0, b);
    assert_eq!(lan.nodes[0].send(lan.now, a, b"to you", Some(at.into())), Ok(6));
    assert_eq!(lan.all(0, b), ["uto you"]);
}

#[test]
fn a_plain_binding_of_the_type_blocks_broadcasts_until_it_is_withdrawn() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let a = lan.member(0, GroupRequest::new(GROUP, 1));
    let b = lan.member(1, GroupRequest::new(GROUP, 2));
    let now = lan.now;
    let stranger = lan.nodes[1].open(now, SocketKind::Rdm).unwrap();
    let range = ServiceRange::new(GROUP, 9, 9);
    lan.nodes[1].bind(now, stranger, range, Scope::Cluster).unwrap();
    lan.run(100);
    assert_eq!(lan.tell_all(0, a, b"x"), Err(SendError::WouldBlock));
    let reason = lan.nodes[0].endpoint(a).unwrap().wait_reason().unwrap();
    let member = lan.at(1, stranger);
    assert_eq!(reason, WaitReason::MemberWindow { member, joined: false, window: 0 });
    assert!(reason.to_string().ends_with("never joined the group"), "{reason}");
    let now = lan.now;
    lan.nodes[1].unbind(now, stranger, Some((range, Scope::Cluster))).unwrap();
    lan.run(100);
    assert_eq!(lan.tell_all(0, a, b"x"), Ok(1));
    lan.run(100);
    assert_eq!(lan.all(1, b), ["bx"]);
}

#[test]
fn a_member_that_joins_while_another_one_sends_gets_everything_from_its_join_on() {
    let mut lan = Lan::new(4);
    lan.run(3000);
    let a = lan.member(0, GroupRequest::new(GROUP, 1));
    let b = lan.member(1, GroupRequest::new(GROUP, 2));
    lan.run(100);
    let mut joined = None;
    let mut sent = 0;
    let (mut at_b, mut at_c) = (Vec::new(), Vec::new());
    for round in 0..400 {
        if lan.tell_all(0, a, format!("{sent}").as_bytes()).is_ok() {
            sent += 1;
        }
        if round == 100 {
            let now = lan.now;
            let c = lan.nodes[2].open(now, SocketKind::Rdm).unwrap();
            lan.nodes[2].join(now, c, GroupRequest::new(GROUP, 3)).unwrap();
            joined = Some(c);
        }
        lan.run(1);
        at_b.extend(lan.all(1, b));
        at_c.extend(joined.map(|c| lan.all(2, c)).unwrap_or_default());
    }
    lan.run(100);
    at_b.extend(lan.all(1, b));
    at_c.extend(lan.all(2, joined.unwrap()));
    assert_eq!(at_b.len(), sent);
    assert!(at_c.len() > 200, "{}", at_c.len());
    assert_eq!(at_c, at_b[sent - at_c.len()..]);
}

#[test]
fn bindings_of_members_are_charged_and_released() {
    let mut lan = Lan::new(1);
    let now = lan.now;
    let user = crate::quota::UserId(7);
    let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].set_user(port, user);
    lan.nodes[0].join(now, port, GroupRequest::new(GROUP, 1)).unwrap();
    assert!(lan.nodes[0].is_balanced());
    assert_eq!(lan.nodes[0].bind(now, port, RANGE, Scope::Cluster), Err(BindError::InGroup));
    lan.nodes[0].leave(now, port).unwrap();
    assert!(lan.nodes[0].is_balanced());
    assert_eq!(lan.nodes[0].endpoint(port).unwrap().binding_count(), 0);
    lan.nodes[0].join(now, port, GroupRequest::new(GROUP, 1)).unwrap();
    lan.nodes[0].unbind(now, port, None).unwrap();
    assert!(lan.nodes[0].endpoint(port).unwrap().group().is_none(), "without bindings it is no member");
    assert!(!lan.nodes[0].groups.contains(GROUP));
}
