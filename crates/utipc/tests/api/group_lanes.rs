//! Members of a group on one daemon exchange messages by lanes (decision 50). Each member is an attachment of its own,
//! as in another process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, TestNode, alone, pair};
use utipc::{
    Error, Group, GroupIncoming, GroupPolicy, GroupRequest, Node, SendError, SentTo, SlowMember, WaitReason,
};

const GROUP: u32 = 4300;

fn join(node: &Node, request: GroupRequest) -> Group {
    let group = Group::join(node, request).unwrap();
    group.socket().set_receive_timeout(Some(LIMIT));
    group.socket().set_send_timeout(Some(LIMIT));
    group
}

fn member(node: &Node, instance: u32) -> Group {
    join(node, GroupRequest::new(GROUP, instance))
}

fn watcher(node: &Node, instance: u32) -> Group {
    join(node, GroupRequest::new(GROUP, instance).with_events())
}

/// Members with instances from 1 on, which have exchanged a message each with all others.
fn members(host: &TestNode, count: u32) -> Vec<Group> {
    let all: Vec<Group> = (1..=count).map(|instance| member(&host.again(), instance)).collect();
    for (number, sender) in all.iter().enumerate() {
        sender.broadcast(b"warm").unwrap();
        for (other, receiver) in all.iter().enumerate() {
            if number != other {
                assert_eq!(message(receiver).0, b"warm");
            }
        }
    }
    all
}

fn message(group: &Group) -> (Vec<u8>, SentTo) {
    match group.receive().unwrap() {
        GroupIncoming::Message { data, to, .. } => (data, to),
        other => panic!("{other:?}"),
    }
}

fn number(group: &Group) -> u32 {
    u32::from_le_bytes(message(group).0[..4].try_into().unwrap())
}

#[test]
fn messages_of_all_kinds_make_no_request() {
    const ROUNDS: u32 = 100;
    let host = alone(Engine::Daemon);
    let all = members(&host, 3);
    let to = all[1].socket().port();
    let before = host.daemon_counters().requests;
    for _ in 0..ROUNDS {
        all[0].broadcast(b"all").unwrap();
        all[0].multicast(2, b"two").unwrap();
        all[0].anycast(2, b"any").unwrap();
        all[0].send(to, b"one").unwrap();
        let got: Vec<_> = (0..4).map(|_| message(&all[1])).collect();
        let expected: [(&[u8], SentTo); 4] = [
            (b"all", SentTo::All),
            // Only one member has the instance.
            (b"two", SentTo::Member),
            (b"any", SentTo::Member),
            (b"one", SentTo::Member),
        ];
        assert_eq!(got, expected.map(|(data, to)| (data.to_vec(), to)));
        assert_eq!(message(&all[2]), (b"all".to_vec(), SentTo::All));
    }
    // Some for the rings of the lanes.
    let requests = host.daemon_counters().requests - before;
    assert!(requests < u64::from(ROUNDS), "{requests} requests");
    let stats = all[0].socket().stats();
    assert_eq!(stats.sent_messages, u64::from(4 * ROUNDS + 1));
}

#[test]
fn a_multicast_reaches_the_members_with_its_instance_and_loopback_the_sender() {
    let host = alone(Engine::Daemon);
    let sender = join(&host.again(), GroupRequest::new(GROUP, 7).with_loopback());
    let others = [7, 7, 8].map(|instance| member(&host.again(), instance));
    for round in 0..50_u32 {
        sender.multicast(7, &round.to_le_bytes()).unwrap();
        sender.broadcast(&round.to_le_bytes()).unwrap();
        for receiver in [&sender, &others[0], &others[1]] {
            assert_eq!(message(receiver), (round.to_le_bytes().to_vec(), SentTo::Instance));
            assert_eq!(message(receiver), (round.to_le_bytes().to_vec(), SentTo::All));
        }
        assert_eq!(message(&others[2]), (round.to_le_bytes().to_vec(), SentTo::All));
    }
}

#[test]
fn order_is_kept_while_members_on_another_node_come_and_go() {
    const MESSAGES: u32 = 60_000;
    let [red, blue] = pair(Engine::Daemon);
    let sender = watcher(&red, 1);
    let near = member(&red.again(), 2);
    assert!(sender.receive().unwrap().joined().is_some());
    let to = near.socket().port();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_over, near, blue) = (&is_over, &near, &blue);
        scope.spawn(move || {
            for expected in 0..MESSAGES {
                assert_eq!(number(near), expected);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            let mut far_ones = 0;
            while !is_over.load(Ordering::Relaxed) {
                let far = member(blue, 3);
                far.socket().set_receive_timeout(Some(Duration::from_millis(50)));
                // All that it gets is in order as well.
                let mut last = None;
                for _ in 0..200 {
                    let Ok(GroupIncoming::Message { data, .. }) = far.receive() else { break };
                    let this = u32::from_le_bytes(data[..4].try_into().unwrap());
                    assert!(last.is_none_or(|last| this > last));
                    last = Some(this);
                }
                drop(far);
                far_ones += 1;
                thread::sleep(Duration::from_millis(5));
            }
            assert!(far_ones > 1);
        });
        for number in 0..MESSAGES {
            let data = number.to_le_bytes();
            match number % 3 {
                0 => sender.send(to, &data).unwrap(),
                1 => sender.anycast(2, &data).unwrap(),
                _ => sender.broadcast(&data).unwrap(),
            };
        }
    });
}

#[test]
fn the_event_that_a_member_has_left_follows_its_last_message() {
    const MESSAGES: u32 = 300;
    let host = alone(Engine::Daemon);
    let reader = watcher(&host.again(), 1);
    for round in 0..60 {
        let sender = member(&host.again(), 2);
        assert!(reader.receive().unwrap().joined().is_some(), "round {round}");
        // It blocks when the lane is full: the reader has to read meanwhile.
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    sender.broadcast(&number.to_le_bytes()).unwrap();
                }
                match round % 3 {
                    0 => drop(sender.leave().unwrap()),
                    _ => drop(sender),
                }
            });
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            for expected in 0..MESSAGES {
                assert_eq!(number(&reader), expected, "round {round}");
            }
        });
        assert!(reader.receive().unwrap().left().is_some(), "round {round}");
    }
}

#[test]
fn a_member_gets_everything_that_is_sent_after_it_has_learnt_of_the_sender() {
    let host = alone(Engine::Daemon);
    let all = members(&host, 2);
    for round in 0..200_u32 {
        let new = watcher(&host.again(), 3);
        for _ in 0..2 {
            assert!(new.receive().unwrap().joined().is_some());
        }
        all[0].broadcast(&round.to_le_bytes()).unwrap();
        assert_eq!((number(&new), number(&all[1])), (round, round));
    }
}

#[test]
fn a_member_that_does_not_read_blocks_the_sender_which_names_it() {
    let host = alone(Engine::Daemon);
    let all = members(&host, 3);
    let sender = &all[0];
    sender.socket().set_nonblocking(true);
    let mut sent = 0_u32;
    let reason = loop {
        match sender.broadcast(&sent.to_le_bytes()) {
            Ok(_) => sent += 1,
            Err(Error::WouldBlock { reason, .. }) => break reason,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(number(&all[1]) + 1, sent);
        assert!(sent < 1_000_000, "a lane is not that large");
    };
    let slow = all[2].socket().port();
    let Some(WaitReason::MemberWindow { member, joined: true, .. }) = reason else { panic!("{reason:?}") };
    assert_eq!(member.port, slow.port);
    // The refused message has reached no member.
    for number_of in 0..sent {
        assert_eq!(number(&all[2]), number_of);
    }
    sender.socket().set_nonblocking(false);
    sender.broadcast(&sent.to_le_bytes()).unwrap();
    assert_eq!((number(&all[1]), number(&all[2])), (sent, sent));
}

#[test]
fn anycasts_avoid_a_member_that_does_not_read() {
    let host = alone(Engine::Daemon);
    let sender = watcher(&host.again(), 1);
    let [slow, fast] = [(); 2].map(|()| member(&host.again(), 2));
    for _ in 0..2 {
        assert!(sender.receive().unwrap().joined().is_some());
    }
    fast.socket().set_nonblocking(true);
    slow.socket().set_nonblocking(true);
    let mut read = 0;
    for _ in 0..4000 {
        sender.anycast(2, &[0; 1000]).unwrap();
        while fast.receive().is_ok() {
            read += 1;
        }
    }
    let mut left = 0;
    while slow.receive().is_ok() {
        left += 1;
    }
    assert_eq!(read + left, 4000);
    assert!(left < 400, "{left} messages went to the member that does not read");
}

#[test]
fn large_messages_and_partly_read_ones_keep_their_order_when_the_reader_leaves() {
    let host = alone(Engine::Daemon);
    let all = members(&host, 2);
    let (sender, reader) = (&all[0], &all[1]);
    let data = |number: u32| [number.to_le_bytes().to_vec(), vec![7; 20_000]].concat();
    // As much as a member may send to one that has not read.
    for number in 0..3 {
        sender.broadcast(&data(number)).unwrap();
    }
    assert_eq!(number(reader), 0);
    let mut all = all;
    let reader = all.pop().unwrap().leave().unwrap();
    // What had arrived before can be read after it has left.
    for number in 1..3 {
        assert_eq!(reader.receive().unwrap().data, data(number));
    }
}

#[test]
fn members_beyond_the_group_of_lanes_use_the_node() {
    let host = alone(Engine::Daemon);
    let all = members(&host, 2);
    // A member with a policy: everything goes through the node, until it has left.
    let policy = GroupPolicy::new(SlowMember::Drop);
    let third =
        Group::join_with_policy(host.again().rdm().unwrap(), GroupRequest::new(GROUP, 3), policy).unwrap();
    third.socket().set_receive_timeout(Some(LIMIT));
    let requests_of = |rounds: u32, third: Option<&Group>| {
        let before = host.daemon_counters().requests;
        for round in 0..rounds {
            all[0].broadcast(&round.to_le_bytes()).unwrap();
            assert_eq!(number(&all[1]), round);
            if let Some(third) = third {
                assert_eq!(number(third), round);
            }
        }
        host.daemon_counters().requests - before
    };
    assert!(requests_of(50, Some(&third)) >= 50);
    drop(third);
    assert!(requests_of(400, None) > 0);
    let by_lanes = requests_of(200, None);
    assert!(by_lanes < 50, "{by_lanes} requests");
}

#[test]
fn a_destination_that_is_no_member_is_unreachable() {
    let host = alone(Engine::Daemon);
    let all = members(&host, 2);
    let outsider = host.rdm().unwrap();
    for refused in [all[0].send(outsider.port(), b"x"), all[0].anycast(9, b"x"), all[0].multicast(9, b"x")] {
        assert!(matches!(refused, Err(Error::Send { why: SendError::HostUnreachable, .. })), "{refused:?}");
    }
    all[0].broadcast(b"on").unwrap();
    assert_eq!(message(&all[1]).0, b"on");
}
