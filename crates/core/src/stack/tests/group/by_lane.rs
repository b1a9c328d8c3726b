//! Members whose messages go by lanes: when they may, and what happens to messages when a lane ends. Decision 50.

use std::collections::BTreeSet;

use super::*;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::group::{CopyOf, GroupPolicy, IDLE_WINDOW, SlowMember};
use crate::socket::{Address, GroupAddress, SendOptions, header};
use crate::wire::MessageType;

/// A message as a member of this node writes it into a lane.
fn in_lane(from: u32, kind: MessageType, data: &[u8]) -> Vec<u8> {
    let member = ServiceAddr { service: GROUP, instance: 77 };
    let (scope, copy_of) = (Scope::Cluster, CopyOf::Unicast);
    let address =
        GroupAddress { kind, member, scope, seqno: 9, ack_request: true, copy_of, after_loss: true };
    let (own, to) = (PortId { port: from, node: NodeAddr::NONE }, PortId::default());
    let header = header(SendOptions::new(SocketKind::Rdm), own, to, Address::Group(address), data.len());
    header.with_data(Vec::new(), data).bytes().to_vec()
}

/// Two members of one node.
fn two_here() -> (Lan, u32, u32) {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let [one, two] = [1, 2].map(|instance| lan.member(0, GroupRequest::new(GROUP, instance)));
    (lan, one, two)
}

/// What a member receives that gets one message through the node before the messages in the lane, and one after them;
/// then what its windows are.
fn with_lane(bodies: Vec<Vec<u8>>, malformed: usize) -> (Vec<String>, Vec<(u32, u32)>) {
    let (mut lan, one, two) = two_here();
    let member = ServiceAddr { service: GROUP, instance: 1 };
    lan.tell_all(0, one, b"1").unwrap();
    lan.tell_all(0, one, b"4").unwrap();
    let (now, count) = (lan.now, bodies.len() - malformed);
    // The first message of the queue is older.
    assert_eq!(lan.nodes[0].adopt_of_member(now, (one, member), two, bodies, (1, 0)).0, malformed);
    let mut buffer = [0; 10];
    let received = (0..2 + count).map(|_| {
        let got = lan.nodes[0].recv(now, two, &mut buffer, RecvOptions::default()).unwrap();
        let group = got.group.unwrap();
        assert_eq!((group.member.instance, got.source.port), (1, one));
        assert!(!got.after_loss);
        format!("{}{}", letter(group.kind), String::from_utf8_lossy(&buffer[..got.len]))
    });
    let received = received.collect();
    lan.run(10);
    let group = lan.nodes[0].endpoint(two).unwrap().group().unwrap();
    (received, group.members().map(|member| (member.advertised, member.unread)).collect())
}

#[test]
fn unread_messages_of_a_lane_come_before_what_its_writer_has_sent_since() {
    let (_, one, two) = two_here();
    let bodies = vec![
        in_lane(one, MessageType::GroupBcast, b"_2"),
        in_lane(one, MessageType::GroupUcast, b"3"),
        in_lane(two, MessageType::GroupBcast, b"another origin"),
        in_lane(one, MessageType::Direct, b"another type"),
        b"no message".to_vec(),
    ];
    let (received, windows) = with_lane(bodies, 3);
    assert_eq!(received, ["b1", "b_2", "u3", "b4"]);
    let (received, without) = with_lane(Vec::new(), 0);
    assert_eq!(received, ["b1", "b4"]);
    let ([(advertised, unread)], [(most, 0)]) = (&windows[..], &without[..]) else { panic!() };
    assert!((IDLE_WINDOW.into()..=*most).contains(advertised), "reading them grants no window: {advertised}");
    assert_eq!(*unread, 0);
}

#[test]
fn one_copy_beyond_the_window_is_accepted_and_paid_for() {
    let (mut lan, one, two) = two_here();
    let everyone = Destination::Range(ServiceRange::new(GROUP, 0, u32::MAX));
    let found = PortId { port: two, node: NodeAddr::NONE };
    let large = vec![b'x'; 66_000];
    for _ in 0..20 {
        let mut sent = 0;
        while lan.tell_all(0, one, &large).is_ok() {
            sent += 1;
        }
        let now = lan.now;
        assert_eq!(lan.nodes[0].send_found(now, one, &large, everyone, found), Ok(66_000));
        lan.run(10);
        let all = lan.all(0, two);
        assert_eq!(all.len(), sent + 1);
        assert!(all.iter().all(|text| text.starts_with('b')), "the copy stands for a broadcast");
        lan.run(10);
    }
    assert_eq!(lan.nodes[0].endpoint(two).unwrap().stats().dropped, 0);
    let stranger = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    let found = PortId { port: stranger, ..found };
    let refused = lan.nodes[0].send_found(lan.now, one, b"x", everyone, found);
    assert_eq!(refused, Err(SendError::HostUnreachable));
}

#[test]
fn lanes_need_all_members_here_and_no_policy() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let one = lan.member(0, GroupRequest::new(GROUP, 1));
    assert_eq!(lan.nodes[0].members_here(one, 9), Some(vec![]));
    let two = lan.member(0, GroupRequest::new(GROUP, 2));
    let address = |instance| ServiceAddr { service: GROUP, instance };
    assert_eq!(lan.nodes[0].members_here(one, 9), Some(vec![(two, address(2))]));
    assert_eq!(lan.nodes[0].members_here(two, 1), Some(vec![(one, address(1))]));
    assert_eq!(lan.nodes[0].members_here(two, 0), None, "too many");
    lan.nodes[0].watch_groups();
    let far = lan.member(1, GroupRequest::new(GROUP, 3));
    lan.run(100);
    assert_eq!(lan.nodes[0].members_here(one, 9), None, "a member on another node");
    let changed: Vec<_> = std::iter::from_fn(|| lan.nodes[0].take_changed_group()).collect();
    assert_eq!(changed, BTreeSet::from([one, two]).into_iter().collect::<Vec<_>>());
    lan.nodes[1].close(lan.now, far);
    lan.run(100);
    assert!(lan.nodes[0].take_changed_group().is_some());
    assert!(lan.nodes[0].members_here(one, 9).is_some());
    // A binding of the group's type that never joins makes every send wait.
    let bound = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(lan.now, bound, ServiceRange::new(GROUP, 5, 5), Scope::Cluster).unwrap();
    assert_eq!(lan.nodes[0].members_here(one, 9), None, "a binding without a member");
    lan.nodes[0].close(lan.now, bound);
    let policy = GroupPolicy::new(SlowMember::Drop);
    let three = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].join_with(lan.now, three, GroupRequest::new(GROUP, 3), policy).unwrap();
    lan.run(10);
    for port in [one, two, three] {
        assert_eq!(lan.nodes[0].members_here(port, 9), None, "a member with a policy");
    }
}
