//! Communication groups through both engines: an embedded node, and processes of a daemon.

use std::thread;

use crate::common::{Engine, LIMIT, TestNode, alone, on_each_engine, pair, three_daemons};
use utipc::{
    Error, Group, GroupIncoming, GroupRequest, JoinError, Member, Node, Scope, SentTo, ServiceAddress,
};

on_each_engine!(
    four_kinds_of_messages_reach_members_on_two_nodes,
    a_member_that_does_not_read_blocks_the_sender_until_it_does,
    order_is_kept_over_all_kinds_under_load,
    a_socket_that_has_exchanged_messages_joins_and_leaves,
    a_member_of_a_large_group_joins_leaves_and_joins_again_at_once,
    refusals_have_reasons,
);

fn member(node: &Node, instance: u32) -> Group {
    let group = Group::join(node, GroupRequest::new(4300, instance).with_events()).unwrap();
    group.socket().set_receive_timeout(Some(LIMIT));
    group.socket().set_send_timeout(Some(LIMIT));
    group
}

/// Members that know each other: two of one node, and one of another.
fn three([red, blue]: &[TestNode; 2], far: u32) -> ([Group; 3], Vec<Member>) {
    let (sender, near, far) = (member(red, 1), member(&red.again(), 2), member(blue, far));
    let members = known(&sender, 2);
    known(&near, 2);
    known(&far, 2);
    ([sender, near, far], members)
}

/// Waits until this number of members is known.
fn known(group: &Group, members: usize) -> Vec<Member> {
    (0..members).map(|_| group.receive().unwrap().joined().expect("a member joins")).collect()
}

fn message(group: &Group) -> (String, SentTo) {
    match group.receive().unwrap() {
        GroupIncoming::Message { data, to, .. } => (String::from_utf8(data).unwrap(), to),
        other => panic!("{other:?}"),
    }
}

fn four_kinds_of_messages_reach_members_on_two_nodes(engine: Engine) {
    let nodes = pair(engine);
    let ([sender, near, far], all) = three(&nodes, 2);
    assert_eq!(sender.broadcast(b"all").unwrap(), 3);
    assert_eq!(sender.multicast(2, b"two").unwrap(), 3);
    for other in [&near, &far] {
        assert_eq!(message(other), ("all".to_owned(), SentTo::All));
        assert_eq!(message(other), ("two".to_owned(), SentTo::Instance));
    }
    sender.anycast(2, b"any").unwrap();
    sender.anycast(2, b"any").unwrap();
    for other in [&near, &far] {
        assert_eq!(message(other), ("any".to_owned(), SentTo::Member));
    }
    for other in &all {
        sender.send(other.port, b"one").unwrap();
    }
    for other in [&near, &far] {
        assert_eq!(message(other), ("one".to_owned(), SentTo::Member));
    }
    drop(far);
    let left = sender.receive().unwrap().left().unwrap();
    assert!(all.contains(&left) && left.port.node == nodes[1].address());
}

fn a_member_that_does_not_read_blocks_the_sender_until_it_does(engine: Engine) {
    let [red, blue] = pair(engine);
    let sender = member(&red, 1);
    let reader = member(&blue, 2);
    known(&sender, 1);
    known(&reader, 1);
    let data = vec![7; 60_000];
    sender.socket().set_nonblocking(true);
    let (mut sent, mut opened) = (0, 0);
    let reason = loop {
        match sender.broadcast(&data) {
            Ok(_) => sent += 1,
            Err(Error::WouldBlock { reason: Some(reason), .. }) => break reason,
            // An acknowledgement has arrived between the send and the question for the reason.
            Err(Error::WouldBlock { .. }) => opened += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 30, "the windows of a member that does not read are not that large");
        assert!(opened < 100, "a send that waits has a reason");
    };
    assert!(reason.to_string().contains("of the group"), "{reason}");
    sender.socket().set_nonblocking(false);
    thread::scope(|scope| {
        scope.spawn(|| (0..sent + 20).for_each(|_| assert_eq!(message_len(&reader), 60_000)));
        for _ in 0..20 {
            sender.broadcast(&data).unwrap();
        }
    });
}

fn message_len(group: &Group) -> usize {
    match group.receive().unwrap() {
        GroupIncoming::Message { data, .. } => data.len(),
        other => panic!("{other:?}"),
    }
}

fn order_is_kept_over_all_kinds_under_load(engine: Engine) {
    const MESSAGES: u32 = 600;
    let nodes = pair(engine);
    let ([sender, near, far], members) = three(&nodes, 3);
    let to = members.iter().find(|m| m.instance == 3).unwrap().port;
    thread::scope(|scope| {
        let reads = |group: &Group, expected: Vec<u32>| {
            for number in expected {
                let GroupIncoming::Message { data, .. } = group.receive().unwrap() else {
                    panic!("no message")
                };
                assert_eq!(data[..4], number.to_le_bytes());
            }
        };
        let is_broadcast = |number: &u32| number % 7 < 4;
        let (near, far) = (&near, &far);
        scope.spawn(move || reads(near, (0..MESSAGES).filter(is_broadcast).collect()));
        scope.spawn(move || reads(far, (0..MESSAGES).collect()));
        for number in 0..MESSAGES {
            let mut data = number.to_le_bytes().to_vec();
            data.resize(4 + (number as usize * 37) % 3000, 0);
            match number % 7 {
                0..4 => sender.broadcast(&data).unwrap(),
                4 => sender.send(to, &data).unwrap(),
                _ => sender.anycast(3, &data).unwrap(),
            };
        }
    });
}

fn a_socket_that_has_exchanged_messages_joins_and_leaves(engine: Engine) {
    let [red, _blue] = pair(engine);
    let service = ServiceAddress::new(4400, 1);
    let (client, server) = (red.rdm().unwrap(), red.again().rdm().unwrap());
    for socket in [&client, &server] {
        socket.set_receive_timeout(Some(LIMIT));
        socket.set_send_timeout(Some(LIMIT));
    }
    server.bind(service, Scope::Cluster).unwrap();
    red.wait_for_service(service, LIMIT).unwrap();
    for _ in 0..5 {
        client.send_to(b"plain", service).unwrap();
        assert_eq!(server.receive().unwrap().data, b"plain");
    }
    // Both have a lane now, which the group does not use.
    let client = Group::join_with(client, GroupRequest::new(4300, 1).with_events()).unwrap();
    let server = Group::join_with(server, GroupRequest::new(4300, 2).with_events()).unwrap();
    known(&client, 1);
    known(&server, 1);
    client.broadcast(b"in group").unwrap();
    assert_eq!(message(&server).0, "in group");
    let stranger = red.rdm().unwrap();
    stranger.send_to(b"from outside", client.socket().port()).unwrap();
    server.broadcast(b"answer").unwrap();
    assert_eq!(message(&client).0, "answer", "what a socket outside the group sends is dropped");
    let client = client.leave().unwrap();
    assert!(server.receive().unwrap().left().is_some());
    stranger.send_to(b"plain again", client.port()).unwrap();
    assert_eq!(client.receive().unwrap().data, b"plain again");
    assert!(matches!(client.leave(), Err(Error::Leave(_))));
}

/// A daemon tells so many members in steps; requests wait for them.
fn a_member_of_a_large_group_joins_leaves_and_joins_again_at_once(engine: Engine) {
    const MEMBERS: u32 = 200;
    let node = alone(engine);
    let all: Vec<Group> =
        (0..MEMBERS).map(|instance| Group::join(&node, GroupRequest::new(4300, instance)).unwrap()).collect();
    all.iter().for_each(|group| group.socket().set_receive_timeout(Some(LIMIT)));
    let mut socket = node.rdm().unwrap();
    socket.set_send_timeout(Some(LIMIT));
    for round in 0..5 {
        let member = Group::join_with(socket, GroupRequest::new(4300, 1000 + round)).unwrap();
        member.broadcast(b"hello").unwrap();
        for group in &all {
            assert_eq!(message(group), ("hello".to_owned(), SentTo::All), "round {round}");
        }
        socket = member.leave().unwrap();
        if round == 3 {
            // Left at once, and joined at once by the next round.
            socket = Group::join_with(socket, GroupRequest::new(4300, 999)).unwrap().leave().unwrap();
        }
    }
    drop(socket);
    all[0].broadcast(b"end").unwrap();
    for group in &all[1..] {
        assert_eq!(message(group), ("end".to_owned(), SentTo::All));
    }
}

fn refusals_have_reasons(engine: Engine) {
    let node = alone(engine);
    let reserved = Group::join(&node, GroupRequest::new(63, 1)).unwrap_err();
    assert!(matches!(reserved, Error::Join { group: 63, why: JoinError::Reserved }), "{reserved}");
    assert_eq!(reserved.errno(), 13);
    let only = member(&node, 1);
    assert!(only.broadcast(b"x").unwrap_err().is_unreachable());
    assert!(only.multicast(2, b"x").unwrap_err().is_unreachable());
    assert!(only.anycast(2, b"x").unwrap_err().is_unreachable());
    let again = only.socket().join(GroupRequest::new(4301, 1)).unwrap_err();
    assert!(matches!(again, Error::Join { why: JoinError::AlreadyJoined, .. }), "{again}");
    let stream = node.stream().unwrap().join(GroupRequest::new(4301, 1)).unwrap_err();
    assert!(matches!(stream, Error::Join { why: JoinError::WrongKind, .. }), "{stream}");
    assert!(matches!(
        only.socket().bind(ServiceAddress::new(4400, 1), Scope::Cluster),
        Err(Error::Bind { .. })
    ));
}

#[test]
fn three_daemons_and_their_processes_are_one_group() {
    let nodes = three_daemons();
    let groups: Vec<Group> = nodes.iter().map(|node| member(node, 1)).collect();
    for group in &groups {
        known(group, 2);
    }
    for (number, sender) in groups.iter().enumerate() {
        sender.broadcast(format!("{number}").as_bytes()).unwrap();
        for (other, receiver) in groups.iter().enumerate() {
            if other != number {
                assert_eq!(message(receiver).0, format!("{number}"));
            }
        }
    }
}
