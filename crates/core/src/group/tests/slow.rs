//! Policies for slow members. Spec: tipc.md §9.8.

use std::collections::BTreeSet;

use super::*;
use crate::time::Time;
use policy::{ACCEPTS_EVICT, TOO_SLOW};

const DROP: GroupPolicy = GroupPolicy::new(SlowMember::Drop);
const CONFLATE: GroupPolicy = GroupPolicy::new(SlowMember::Conflate { keys: 3, bytes: 100_000 });
const EVICT: GroupPolicy = GroupPolicy::new(SlowMember::Evict { after_ms: 500 });

fn with_policy(policy: GroupPolicy, members: u32) -> (Group, Vec<PortId>) {
    let mut group = group().with_policy(policy);
    let members = (1..=members).map(|number| join(&mut group, number)).collect();
    (group, members)
}

fn kept(mark: u8) -> Kept {
    Kept { data: vec![mark].into(), copy_of: CopyOf::Unicast, cost: 1 }
}

fn slow(group: &Group, member: PortId) -> (u64, u64, u32) {
    let SlowCounters { dropped, conflated, kept } = info(group, member).unwrap().slow;
    (dropped, conflated, kept)
}

/// The marks of everything that members have room for now.
fn take_kept(group: &mut Group) -> String {
    let mut all = String::new();
    while let Some((member, kept)) = group.take_kept(|_| false) {
        group.sent_to(member, kept.cost);
        all.push(char::from(kept.data[0]));
    }
    all
}

/// The news of members: `!` for an eviction.
fn news(group: &mut Group) -> String {
    let all = group.take_ready().into_iter().map(|item| match item {
        Ready::Event { evicted: true, .. } => '!',
        Ready::Event { kind: EventKind::Published, .. } => '+',
        Ready::Event { .. } => '-',
        Ready::Message(message) => char::from(message.data()[0]),
    });
    all.collect()
}

#[test]
fn a_message_to_all_is_one_broadcast_while_all_have_room() {
    let (mut group, members) = with_policy(DROP, 3);
    assert_eq!(group.spread(None, 1), Ok(Spread::All));
    group.sent_to(members[1], 65);
    let copies = |room: [bool; 3]| Spread::Copies(members.iter().copied().zip(room).collect());
    assert_eq!(group.spread(None, 1), Ok(copies([true, false, true])));
    assert_eq!(group.blocked_by(), None, "nothing waits");
    group.control(members[1], Control::Advertise { window: 1 });
    assert_eq!(group.spread(None, 1), Ok(Spread::All));
    assert_eq!(group.spread(None, 2), Ok(copies([true, false, true])));
}

#[test]
fn a_message_to_an_instance_goes_to_its_members_only_if_one_of_all_is_slow() {
    let (mut group, members) = with_policy(DROP, 2);
    group.published(port(3), 7);
    group.control(port(3), Control::Join { sync_point: 0, window: 65 });
    assert_eq!(group.spread(Some(2), 1), Ok(Spread::All));
    group.sent_to(port(3), 65);
    assert_eq!(group.spread(Some(2), 1), Ok(Spread::Copies(vec![(members[0], true), (members[1], true)])));
    assert_eq!(group.spread(Some(7), 1), Ok(Spread::Copies(vec![(port(3), false)])));
    assert_eq!(group.spread(Some(8), 1), Err(Refused::NoMember));
}

#[test]
fn acknowledgements_are_awaited_with_every_policy() {
    let (mut group, members) = with_policy(DROP, 1);
    group.sent_to_all(1);
    assert_eq!(group.spread(None, 1), Err(Refused::Ack(members[0])));
    assert!(group.blocked_by().is_some());
    group.control(members[0], Control::Ack { acked: 1 });
    assert_eq!((group.blocked_by(), group.spread(None, 1)), (None, Ok(Spread::All)));
}

#[test]
fn a_socket_that_has_not_joined_gets_no_copy_and_stops_nothing() {
    let (mut group, members) = with_policy(DROP, 1);
    group.published(port(9), 2);
    assert_eq!(group.spread(None, 1), Ok(Spread::Copies(vec![(members[0], true)])));
    assert!(!group.is_slow(port(9), 1));
    group.handle_timeout(Time::from_millis(2000));
    assert_eq!(state(&group, port(9)), Some(MemberState::Stranger));
    assert_eq!(group.spread(None, 1), Ok(Spread::All));
}

#[test]
fn the_first_window_of_a_member_is_awaited_for_a_limited_time() {
    for grants in [true, false] {
        for policy in [DROP, CONFLATE] {
            let (mut group, members) = with_policy(policy, 1);
            group.published(port(9), 7);
            group.control(port(9), Control::Join { sync_point: 0, window: 0 });
            assert!(group.is_joining(port(9)) && !group.is_slow(port(9), 1), "it is not slow");
            assert_eq!(group.spread(None, 1), Err(Refused::Window(port(9))));
            assert_eq!(group.spread(Some(2), 1), Ok(Spread::Copies(vec![(members[0], true)])));
            assert_eq!(group.spread(Some(7), 1), Err(Refused::Window(port(9))));
            assert!(group.blocked_by().is_some());
            if grants {
                group.control(port(9), Control::Advertise { window: 65 });
                assert_eq!((group.blocked_by(), group.deadline()), (None, None));
                assert_eq!(group.spread(None, 1), Ok(Spread::All));
            } else {
                group.handle_timeout(Time::ZERO + JOIN_TIME);
                assert_eq!((group.blocked_by(), group.deadline()), (None, None));
                let copies = vec![(members[0], true), (port(9), false)];
                assert_eq!(group.spread(None, 1), Ok(Spread::Copies(copies)));
            }
        }
    }
    // Nor is it evicted before it could grant one.
    let (mut group, _) = with_policy(EVICT, 0);
    group.published(port(9), 7);
    group.control(port(9), Control::Join { sync_point: 0, window: 0 });
    assert!(group.may_send_to_all(1).is_err());
    assert_eq!(group.deadline(), Some(Time::ZERO + JOIN_TIME));
}

#[test]
fn dropped_messages_are_counted_and_the_next_one_says_so() {
    let (mut group, members) = with_policy(DROP, 1);
    group.sent_to(members[0], 65);
    assert!(group.is_slow(members[0], 1) && !group.is_missing(members[0]));
    for mark in 0..3 {
        group.skip(members[0], 0, kept(mark), ROOM);
    }
    assert_eq!(slow(&group, members[0]), (3, 0, 0));
    group.control(members[0], Control::Advertise { window: 10 });
    // A message of its own, which can say that others are missing.
    assert_eq!(group.spread(None, 1), Ok(Spread::Copies(vec![(members[0], true)])));
    assert!(group.is_missing(members[0]));
    group.sent_to(members[0], 1);
    assert!(!group.is_missing(members[0]));
    assert_eq!(group.spread(None, 1), Ok(Spread::All));
}

#[test]
fn the_newest_message_of_each_key_follows_when_the_member_reads() {
    let (mut group, members) = with_policy(CONFLATE, 2);
    group.sent_to(members[0], 65);
    for (key, mark) in [(1, b'a'), (2, b'b'), (1, b'c')] {
        group.skip(members[0], key, kept(mark), ROOM);
    }
    assert_eq!(slow(&group, members[0]), (0, 1, 2));
    assert_eq!(take_kept(&mut group), "");
    assert!(group.is_missing(members[0]));
    group.control(members[0], Control::Advertise { window: 1 });
    assert_eq!(take_kept(&mut group), "b");
    assert!(group.is_slow(members[0], 1), "an earlier message waits");
    group.control(members[0], Control::Advertise { window: 5 });
    assert!(group.is_slow(members[0], 1), "a new message does not overtake it");
    assert_eq!(group.choose(2, 1, |_| false), Ok(members[1]));
    assert_eq!(take_kept(&mut group), "c");
    assert!(!group.is_slow(members[0], 1));
    assert_eq!((group.slow.kept_bytes(), group.slow.members().1.len()), (0, 0));
}

#[test]
fn kept_messages_wait_for_congested_links() {
    let (mut group, members) = with_policy(CONFLATE, 1);
    group.sent_to(members[0], 65);
    group.skip(members[0], 1, kept(b'a'), ROOM);
    group.control(members[0], Control::Advertise { window: 5 });
    assert_eq!(group.take_kept(|node| node == PEER), None);
    assert_eq!(take_kept(&mut group), "a");
}

#[test]
fn keys_and_memory_of_a_member_are_bounded() {
    let (mut group, members) = with_policy(CONFLATE, 2);
    for member in &members {
        group.sent_to(*member, 65);
        for number in 0..100_u64 {
            group.skip(*member, number, kept(number as u8), ROOM);
        }
        assert_eq!(slow(&group, *member), (97, 0, 3));
    }
    let bytes = group.slow.kept_bytes();
    group.skip(members[0], 1000, kept(1), 0);
    assert!(group.slow.kept_bytes() <= bytes, "no memory is left to the user");
    group.control(members[0], Control::Leave { sync_point: 0 });
    assert_eq!(group.slow.kept_bytes(), bytes / 2);
    group.node_lost(PEER);
    assert_eq!((group.slow.kept_bytes(), group.slow.members().1.len()), (0, 0));
}

#[test]
fn a_slow_member_is_evicted_after_the_limit() {
    let (mut group, members) = with_policy(EVICT, 2);
    group.sent_to(members[0], 65);
    assert_eq!(group.deadline(), None, "no send waits yet");
    group.set_now(Time::from_millis(100));
    assert!(group.may_send_to_all(1).is_err());
    assert_eq!(group.deadline(), Some(Time::from_millis(600)));
    group.set_now(Time::from_millis(400));
    assert!(group.may_send_to_all(1).is_err());
    assert_eq!(
        group.deadline(),
        Some(Time::from_millis(600)),
        "the time runs since the first send that waits"
    );
    group.handle_timeout(Time::from_millis(599));
    assert!(group.blocked_by().is_some());
    group.handle_timeout(Time::from_millis(600));
    assert_eq!(state(&group, members[0]), Some(MemberState::Evicted));
    assert_eq!((group.blocked_by(), group.deadline()), (None, None));
    assert_eq!(group.may_send_to_all(1), Ok(()));
    assert_eq!(group.may_send_to(members[0], 1), Err(Refused::NoMember));
    assert_eq!(news(&mut group), "!");
    // It has not said that it accepts EVICT: it sees this socket leave.
    assert_eq!(group.take_controls(), [(members[0], Control::Leave { sync_point: 0 })]);
    assert!(!group.receive(members[0], broadcast(0, b'a'), ROOM), "it is no member any more");
    group.sent_to_all(1);
    assert_eq!(group.sending.awaited(), 1, "no acknowledgement of it is awaited");
}

#[test]
fn a_member_that_reads_in_time_is_not_evicted() {
    let (mut group, members) = with_policy(EVICT, 1);
    for round in 0..10 {
        group.set_now(Time::from_millis(1000 * round));
        group.sent_to(members[0], u32::from(info(&group, members[0]).unwrap().window));
        assert!(group.may_send_to(members[0], 9).is_err());
        group.handle_timeout(Time::from_millis(1000 * round + 499));
        group.control(members[0], Control::Advertise { window: 8 });
        assert!(group.deadline().is_some(), "not enough for the send that waits");
        group.control(members[0], Control::Advertise { window: 1 });
        assert_eq!(group.deadline(), None);
        group.handle_timeout(Time::from_millis(1000 * round + 900));
        assert_eq!(state(&group, members[0]), Some(MemberState::Joined));
    }
}

#[test]
fn all_slow_members_are_late_at_the_same_time() {
    let (mut group, members) = with_policy(EVICT, 3);
    group.sent_to(members[0], 65);
    group.sent_to(members[2], 65);
    assert!(group.may_send_to_all(1).is_err());
    group.handle_timeout(Time::from_millis(500));
    assert_eq!(news(&mut group), "!!");
    assert_eq!(group.may_send_to_all(1), Ok(()));
}

#[test]
fn a_member_that_does_not_acknowledge_is_evicted_too() {
    let (mut group, members) = with_policy(EVICT, 2);
    group.sent_to_all(1);
    group.control(members[1], Control::Ack { acked: 1 });
    assert_eq!(group.may_send_to_all(1), Err(Refused::Ack(members[0])));
    group.handle_timeout(Time::from_millis(500));
    assert_eq!((state(&group, members[0]), group.sending.awaited()), (Some(MemberState::Evicted), 0));
    assert_eq!(group.may_send_to_all(1), Ok(()));
}

#[test]
fn eviction_frees_the_place_and_the_deferred_messages_of_a_member() {
    let (mut group, members) = with_policy(EVICT, 1);
    send_and_read(&mut group, members[0], 10);
    assert!(group.receive(members[0], broadcast(5, b'a'), ROOM));
    assert!(group.members.counts().1 > 0 && group.places.taken() == 1);
    group.sent_to(members[0], 65);
    assert!(group.may_send_to(members[0], 1).is_err());
    group.handle_timeout(Time::from_millis(500));
    assert_eq!((group.members.counts().1, group.places.counts()), (0, [0; 3]));
    group.withdrawn(members[0], true);
    assert_eq!(group.members().count(), 0);
    assert_eq!(news(&mut group), "!", "it is reported once");
}

#[test]
fn an_evicted_member_that_joins_again_is_a_member_again() {
    for leave_first in [false, true] {
        let (mut group, members) = with_policy(EVICT, 1);
        group.sent_to(members[0], 65);
        assert!(group.may_send_to(members[0], 1).is_err());
        group.handle_timeout(Time::from_millis(500));
        if leave_first {
            group.control(members[0], Control::Leave { sync_point: 0 });
        }
        group.withdrawn(members[0], true);
        group.published(members[0], 2);
        group.control(members[0], Control::Join { sync_point: 0, window: 65 });
        assert_eq!(state(&group, members[0]), Some(MemberState::Joined));
        assert_eq!(news(&mut group), "!+");
        assert_eq!(group.may_send_to(members[0], 65), Ok(()));
    }
}

#[test]
fn a_member_that_accepts_it_gets_evict_and_leaves_with_a_reason() {
    let (mut group, _) = with_policy(EVICT, 0);
    group.published(port(1), 2);
    group.control_with(port(1), Control::Join { sync_point: 0, window: 65 }, ACCEPTS_EVICT);
    group.sent_to(port(1), 65);
    assert!(group.may_send_to(port(1), 1).is_err());
    group.take_controls();
    group.handle_timeout(Time::from_millis(500));
    assert_eq!(group.take_controls(), [(port(1), Control::Evict)]);
    assert_eq!(group.extension(Control::Evict), TOO_SLOW);

    // The member itself.
    let (mut member, others) = with_policy(EVICT, 2);
    assert_eq!(member.extension(Control::Join { sync_point: 0, window: 0 }), ACCEPTS_EVICT);
    member.control_with(others[0], Control::Evict, TOO_SLOW);
    let leave = Control::Leave { sync_point: 0 };
    assert_eq!(member.take_controls(), [(others[0], leave), (others[1], leave)]);
    assert_eq!(member.extension(leave), TOO_SLOW);
    assert!(member.take_eviction() && !member.take_eviction());
    assert_eq!((news(&mut member), member.members().count()), ("!".into(), 0));
    assert_eq!(member.evicted_by().map(|by| by.port), Some(1));
    member.published(port(7), 2);
    member.control(port(7), Control::Join { sync_point: 0, window: 65 });
    assert_eq!((member.members().count(), member.take_controls()), (0, vec![]), "until it joins again");
}

#[test]
fn all_members_with_a_policy_see_the_reason() {
    for (policy, expected) in [(EVICT, "a!"), (DROP, "a!"), (GroupPolicy::LINUX, "a-")] {
        let (mut group, members) = with_policy(policy, 1);
        group.control_with(members[0], Control::Leave { sync_point: 1 }, TOO_SLOW);
        assert_eq!(news(&mut group), "", "what it has sent comes first");
        assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
        assert_eq!(news(&mut group), expected);
    }
}

#[test]
fn evict_is_accepted_of_members_and_by_those_that_said_so() {
    for policy in [GroupPolicy::LINUX, DROP, CONFLATE] {
        let (mut group, members) = with_policy(policy, 1);
        assert_eq!(group.extension(Control::Join { sync_point: 0, window: 0 }), 0);
        group.control_with(members[0], Control::Evict, TOO_SLOW);
        assert_eq!((group.members().count(), group.evicted_by()), (1, None));
    }
    let (mut group, members) = with_policy(EVICT, 1);
    group.control_with(port(99), Control::Evict, TOO_SLOW);
    group.published(port(98), 2);
    group.control_with(port(98), Control::Evict, TOO_SLOW);
    group.control_with(members[0], Control::Evict, 1);
    assert_eq!((group.members().count(), group.evicted_by()), (2, None));
}

#[test]
fn a_plain_binding_is_ignored_after_the_time_to_join() {
    for policy in [GroupPolicy::new(SlowMember::Wait), EVICT] {
        let (mut group, members) = with_policy(policy, 1);
        group.set_now(Time::from_millis(1000));
        group.published(port(9), 2);
        assert_eq!(group.may_send_to_all(1), Err(Refused::Window(port(9))), "it may still join");
        let at = Time::from_millis(1000) + JOIN_TIME;
        assert_eq!(group.deadline(), Some(at));
        group.handle_timeout(at);
        assert_eq!(state(&group, port(9)), Some(MemberState::Stranger));
        assert_eq!(group.may_send_to_all(1), Ok(()));
        assert_eq!(group.choose(2, 1, |_| false), Ok(members[0]));
        assert_eq!(news(&mut group), "");
        let elsewhere = PortId { port: 5, node: NodeAddr(0x0100_1003) };
        group.published(elsewhere, 2);
        group.handle_timeout(at + JOIN_TIME);
        assert_eq!(group.nodes(), (false, vec![PEER]), "nothing is sent to its node");
        group.withdrawn(port(9), true);
        assert_eq!(group.members().count(), 2);
    }
}

#[test]
fn a_member_that_joins_in_time_is_not_ignored() {
    let (mut group, _) = with_policy(EVICT, 0);
    group.published(port(1), 2);
    group.control(port(1), Control::Join { sync_point: 0, window: 65 });
    assert_eq!(group.deadline(), None);
    group.handle_timeout(Time::from_millis(60_000));
    assert_eq!(state(&group, port(1)), Some(MemberState::Joined));
}

#[test]
fn a_socket_that_was_ignored_can_join_later() {
    let (mut group, members) = with_policy(GroupPolicy::new(SlowMember::Wait), 1);
    group.published(port(9), 2);
    group.handle_timeout(Time::ZERO + JOIN_TIME);
    for _ in 0..100 {
        group.sent_to_all(1);
        group.control(members[0], Control::Advertise { window: 1 });
        group.control(members[0], Control::Ack { acked: group.next_broadcast() });
    }
    group.take_controls();
    assert_eq!(info(&group, port(9)).unwrap().window, 0, "nothing was charged to it");
    group.control(port(9), Control::Join { sync_point: 0, window: 0 });
    // The JOIN that it got when its binding was published may have come before it was in the group.
    let again = Control::Join { sync_point: 100, window: 0 };
    assert_eq!(group.take_controls(), [(port(9), again), (port(9), Control::Advertise { window: 65 })]);
    assert!(group.must_replicast(), "no broadcast overtakes the JOIN");
    group.control(port(9), Control::Advertise { window: 65 });
    assert_eq!(group.may_send_to_all(65), Err(Refused::Window(members[0])).or(Ok(())));
    assert_eq!(news(&mut group), "+");
}

#[test]
fn without_a_policy_nothing_is_timed_or_kept() {
    let (mut group, members) = joined_group(2);
    group.published(port(9), 2);
    group.sent_to(members[0], 65);
    assert!(group.may_send_to_all(1).is_err());
    assert_eq!(group.deadline(), None);
    assert_eq!(group.policy(), GroupPolicy::LINUX);
    assert_eq!(state(&group, port(9)), Some(MemberState::Published));
}

#[test]
fn every_mixture_of_messages_keeps_the_counters_of_each_policy_balanced() {
    let mut rng = crate::rng::Rng::new(11);
    let (mut seen_evicted, mut seen_strangers, mut seen_kept) = (0, 0, 0);
    for policy in [DROP, CONFLATE, EVICT, GroupPolicy::new(SlowMember::Wait)] {
        let mut group = group().with_policy(policy);
        let mut now = 0;
        for _ in 0..20_000 {
            now += u64::from(rng.next_u32() % 100);
            group.set_now(Time::from_millis(now));
            let member = port(1 + rng.next_u32() % 12);
            let number = (rng.next_u32() % 4) as u16;
            let cost = 1 + rng.next_u32() % 30;
            match rng.next_u32() % 16 {
                0 => group.published(member, 2),
                1 if rng.next_u32().is_multiple_of(4) => {
                    group.withdrawn(member, rng.next_u32().is_multiple_of(2));
                }
                2 => {
                    let extension = [0, ACCEPTS_EVICT, 77][rng.next_u32() as usize % 3];
                    group.control_with(member, Control::Join { sync_point: 0, window: 65 }, extension);
                }
                3 if rng.next_u32().is_multiple_of(8) => {
                    let leave = Control::Leave { sync_point: number };
                    group.control_with(member, leave, TOO_SLOW * (rng.next_u32() % 2));
                }
                4 => group.control(member, Control::Advertise { window: number * 8 }),
                5 => group.control(member, Control::Ack { acked: group.next_broadcast() }),
                6 => group.control(member, Control::Reclaim),
                7 => group.control(member, Control::Remit { window: rng.next_u32() as u16 }),
                8 | 9 if policy.never_waits() => match group.spread(None, cost) {
                    Ok(Spread::All) => group.sent_to_all(cost),
                    Ok(Spread::Copies(copies)) => {
                        for (to, has_room) in copies {
                            if has_room {
                                group.sent_to(to, cost);
                            } else {
                                let room = u64::from(rng.next_u32() % 10_000);
                                group.skip(to, (rng.next_u32() % 8).into(), kept(1), room);
                            }
                        }
                    }
                    Err(_) => {}
                },
                8 | 9 if group.may_send_to_all(cost).is_ok() => group.sent_to_all(cost),
                10 => _ = take_kept(&mut group),
                11 => group.handle_timeout(Time::from_millis(now)),
                12 => _ = group.receive(member, broadcast(number, b'x'), ROOM),
                _ => group.read(member, 54),
            }
            group.take_controls();
            group.take_ready();
            let members = group.members.iter();
            let (late, is_kept_for) = group.slow.members();
            assert!(late.iter().all(|port| group.members.get(*port).is_some()));
            let keeping: BTreeSet<PortId> =
                members.clone().filter(|(_, m)| !m.slow.backlog.is_empty()).map(|(port, _)| *port).collect();
            assert_eq!(is_kept_for, keeping);
            let kept: usize = members.clone().map(|(_, m)| m.slow.backlog.bytes()).sum();
            let owing = members.clone().filter(|(_, m)| m.owes_ack).count();
            let active = members.clone().filter(|(_, m)| m.state.is_active()).count();
            let deferred: usize = members.clone().map(|(_, m)| m.deferred_bytes()).sum();
            let counts = (group.slow.kept_bytes(), group.sending.awaited(), group.places.taken());
            assert_eq!(counts, (kept, owing, active));
            assert_eq!(group.members.counts().1, deferred);
            for (_, member) in members {
                assert!(member.slow.backlog.len() <= 3 && member.slow.backlog.bytes() <= 100_000);
                assert!(member.slow.backlog.is_empty() || member.state.is_receiver());
                assert!(!member.owes_ack || member.state.is_receiver());
                seen_evicted += usize::from(member.state == MemberState::Evicted);
                seen_strangers += usize::from(member.state == MemberState::Stranger);
            }
            seen_kept += keeping.len();
        }
    }
    assert!(seen_evicted > 100 && seen_strangers > 100 && seen_kept > 100);
}
