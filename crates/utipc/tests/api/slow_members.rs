//! Policies for slow members of groups through both engines: an embedded node, and processes of a daemon.

use std::time::{Duration, Instant};

use crate::common::{Engine, LIMIT, alone, on_each_engine, pair};
use utipc::{
    Error, Group, GroupIncoming, GroupPolicy, GroupRequest, JoinError, Node, Scope, SendError, SentTo,
    ServiceAddress, SlowCounters, SlowMember,
};

on_each_engine!(
    a_sender_that_drops_does_not_wait_and_counts,
    a_slow_member_gets_the_newest_message_of_each_key,
    a_slow_member_is_evicted_and_all_learn_why,
    a_socket_that_never_joins_blocks_no_sender,
    policies_out_of_range_are_refused,
);

const DROP: GroupPolicy = GroupPolicy::new(SlowMember::Drop);

fn member(node: &Node, instance: u32, policy: GroupPolicy) -> Group {
    let request = GroupRequest::new(4300, instance).with_events();
    let group = Group::join_with_policy(node.rdm().unwrap(), request, policy).unwrap();
    group.socket().set_receive_timeout(Some(LIMIT));
    group.socket().set_send_timeout(Some(LIMIT));
    group
}

/// Waits until this number of members is known.
fn known(group: &Group, members: usize) {
    for _ in 0..members {
        assert!(group.receive().unwrap().joined().is_some(), "a member joins");
    }
}

/// The next message: its first bytes as text, to whom it was sent, and whether messages before it are missing.
fn message(group: &Group) -> (String, SentTo, bool) {
    match group.receive_with_loss().unwrap() {
        (GroupIncoming::Message { data, to, .. }, after_loss) => {
            let text: Vec<u8> = data.into_iter().take_while(|byte| *byte != 0).collect();
            (String::from_utf8(text).unwrap(), to, after_loss)
        }
        other => panic!("{other:?}"),
    }
}

fn long(text: &str) -> Vec<u8> {
    let mut data = text.as_bytes().to_vec();
    data.resize(60_000, 0);
    data
}

fn counters(group: &Group, of: &Group) -> SlowCounters {
    let members = group.members().unwrap();
    members.iter().find(|member| member.port == of.socket().port()).expect("it is a member").slow
}

fn a_sender_that_drops_does_not_wait_and_counts(engine: Engine) {
    const MESSAGES: u64 = 60;
    let [red, blue] = pair(engine);
    let sender = member(&red, 1, DROP);
    let reads = member(&red.again(), 2, GroupPolicy::LINUX);
    let slow = member(&blue, 3, DROP);
    for group in [&sender, &reads, &slow] {
        known(group, 2);
    }
    for number in 0..MESSAGES {
        sender.broadcast(&long(&number.to_string())).unwrap();
        // A copy is a broadcast for its receiver.
        assert_eq!(message(&reads), (number.to_string(), SentTo::All, false));
    }
    let SlowCounters { dropped, conflated, kept } = counters(&sender, &slow);
    assert!(dropped > 30 && (conflated, kept) == (0, 0), "{dropped}");
    assert_eq!(counters(&sender, &reads), SlowCounters::default());
    for number in 0..MESSAGES - dropped {
        assert_eq!(message(&slow), (number.to_string(), SentTo::All, false), "of {dropped}");
    }
    // What was read gives room again, as soon as the sender learns of it.
    let deadline = Instant::now() + LIMIT;
    while counters(&sender, &slow).dropped > dropped || sender_has_no_room(&sender, &slow) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.send(slow.socket().port(), b"one").unwrap();
    sender.broadcast(b"all").unwrap();
    assert_eq!(message(&slow), ("one".to_owned(), SentTo::Member, true));
    assert_eq!(message(&slow), ("all".to_owned(), SentTo::All, false));
    assert_eq!(message(&reads).0, "all");
}

fn sender_has_no_room(sender: &Group, member: &Group) -> bool {
    let members = sender.members().unwrap();
    members.iter().any(|info| info.port == member.socket().port() && info.window < 65)
}

fn a_slow_member_gets_the_newest_message_of_each_key(engine: Engine) {
    let [red, blue] = pair(engine);
    let sender = member(&red, 1, GroupPolicy::new(SlowMember::CONFLATE));
    let slow = member(&blue, 2, DROP);
    known(&sender, 1);
    known(&slow, 1);
    for round in 0..30 {
        for key in 0..4 {
            sender.broadcast_keyed(key, &long(&format!("{key}:{round}"))).unwrap();
        }
    }
    let SlowCounters { dropped, conflated, kept } = counters(&sender, &slow);
    assert_eq!((dropped, kept), (0, 4));
    let all: Vec<_> = (0..120 - conflated).map(|_| message(&slow)).collect();
    let last: Vec<&str> = all[all.len() - 4..].iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(last, ["0:29", "1:29", "2:29", "3:29"]);
    assert_eq!(all.iter().filter(|(.., after_loss)| *after_loss).count(), 1);
    sender.send_keyed(slow.socket().port(), 9, b"one").unwrap();
    sender.multicast_keyed(2, 9, b"two").unwrap();
    assert_eq!((message(&slow).0, message(&slow).0), ("one".to_owned(), "two".to_owned()));
    // Without a policy the key has no effect.
    slow.broadcast_keyed(9, b"back").unwrap();
    assert_eq!(message(&sender).0, "back");
}

fn a_slow_member_is_evicted_and_all_learn_why(engine: Engine) {
    let [red, blue] = pair(engine);
    let policy = GroupPolicy::new(SlowMember::Evict { after_ms: 300 });
    let sender = member(&red, 1, policy);
    let reads = member(&blue, 2, DROP);
    let slow = member(&blue.again(), 3, policy);
    for group in [&sender, &reads, &slow] {
        known(group, 2);
    }
    let mut sent = 0;
    while !sender.members().unwrap().iter().all(|member| member.port != slow.socket().port()) {
        assert!(sent < 100, "its windows are not that large");
        // The send that waits for the slow member goes on without it.
        sender.broadcast(&long(&sent.to_string())).unwrap();
        while let Ok((GroupIncoming::Message { .. }, _)) =
            reads.socket().within(Duration::from_millis(1)).receive_in_group_with_loss()
        {}
        sent += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let evicted = GroupIncoming::Evicted(utipc::Member { port: slow.socket().port(), instance: 3 });
    assert_eq!(sender.receive().unwrap(), evicted);
    let refused = slow.broadcast(b"x").unwrap_err();
    assert!(matches!(refused, Error::Send { why: SendError::Evicted, .. }), "{refused}");
    let told = loop {
        match slow.receive().unwrap() {
            GroupIncoming::Message { .. } => {}
            other => break other,
        }
    };
    assert_eq!(told, evicted);
    // It joins again with the same socket.
    let socket = slow.leave().unwrap();
    let slow = Group::join_with_policy(socket, GroupRequest::new(4300, 4), policy).unwrap();
    assert_eq!(sender.receive().unwrap().joined().expect("it joins again").instance, 4);
    sender.multicast(4, b"again").unwrap();
    slow.socket().set_receive_timeout(Some(LIMIT));
    assert_eq!(message(&slow).0, "again");
}

fn a_socket_that_never_joins_blocks_no_sender(engine: Engine) {
    let [red, blue] = pair(engine);
    let sender = member(&red, 1, GroupPolicy::new(SlowMember::Wait));
    let reader = member(&blue, 2, GroupPolicy::LINUX);
    known(&sender, 1);
    known(&reader, 1);
    let stranger = blue.rdm().unwrap();
    stranger.bind(ServiceAddress::new(4300, 9), Scope::Cluster).unwrap();
    let deadline = Instant::now() + LIMIT;
    while sender.members().unwrap().len() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    // It may still join; the sends wait for that, and no longer.
    for text in ["first", "second"] {
        sender.broadcast(text.as_bytes()).unwrap();
        assert_eq!(message(&reader).0, text);
    }
    let members = sender.members().unwrap();
    let state = members.iter().find(|member| member.instance == 9).unwrap().state;
    assert_eq!(state.name(), "stranger");
}

fn policies_out_of_range_are_refused(engine: Engine) {
    let node = alone(engine);
    let socket = node.rdm().unwrap();
    assert!(matches!(socket.group_members(), Err(Error::Leave(_))));
    let policy = GroupPolicy::new(SlowMember::Conflate { keys: 0, bytes: 1 });
    let refused = socket.join_with_policy(GroupRequest::new(4300, 1), policy).unwrap_err();
    assert!(matches!(refused, Error::Join { why: JoinError::Policy, .. }), "{refused}");
    socket.join_with_policy(GroupRequest::new(4300, 1), DROP).unwrap();
    assert_eq!(socket.group_members().unwrap(), []);
    assert!(socket.send_keyed(b"x", None, 7).unwrap_err().is_unreachable());
}
