//! The order of one sender's messages. Spec: tipc.md §9.6.

use super::*;

#[test]
fn unicasts_and_broadcasts_keep_the_order_in_which_they_were_sent() {
    let (mut group, members) = joined_group(1);
    let from = members[0];
    // Sent: unicast a, broadcast b (0), unicast c, broadcast d (1), unicast e. The broadcasts take another path.
    for message in [unicast(0, b'a'), unicast(1, b'c'), unicast(2, b'e'), broadcast(1, b'd')] {
        assert!(group.receive(from, message, ROOM));
    }
    assert_eq!(ready(&mut group), "a");
    assert!(group.receive(from, broadcast(0, b'b'), ROOM));
    assert_eq!(ready(&mut group), "bcde");
}

#[test]
fn a_unicast_that_overtakes_a_broadcast_waits_for_it() {
    let (mut group, members) = joined_group(1);
    assert!(group.receive(members[0], unicast(2, b'c'), ROOM));
    assert!(group.receive(members[0], broadcast(1, b'b'), ROOM));
    assert_eq!(ready(&mut group), "");
    assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
    assert_eq!(ready(&mut group), "abc");
}

#[test]
fn the_members_do_not_wait_for_each_other() {
    let (mut group, members) = joined_group(2);
    assert!(group.receive(members[0], broadcast(1, b'b'), ROOM));
    assert!(group.receive(members[1], broadcast(0, b'x'), ROOM));
    assert_eq!(ready(&mut group), "x");
}

#[test]
fn duplicates_and_old_broadcasts_are_dropped() {
    let (mut group, members) = joined_group(1);
    let from = members[0];
    assert!(group.receive(from, broadcast(1, b'b'), ROOM));
    assert!(group.receive(from, broadcast(1, b'B'), ROOM));
    assert!(group.receive(from, broadcast(0, b'a'), ROOM));
    assert_eq!(ready(&mut group), "ab", "the second one with number 1 does not move the order");
    assert!(!group.receive(from, broadcast(0, b'A'), ROOM));
    assert!(group.receive(from, broadcast(2, b'c'), ROOM));
    assert_eq!(ready(&mut group), "c");
}

#[test]
fn multicasts_for_other_instances_are_counted_and_not_delivered() {
    let (mut group, members) = joined_group(1);
    let mut other = message(MessageType::GroupMcast, 0, b'a', 10);
    other.set_name_instance(9);
    let mut own = message(MessageType::GroupMcast, 1, b'b', 10);
    own.set_name_instance(1);
    assert!(group.receive(members[0], other, ROOM));
    assert!(group.receive(members[0], own, ROOM));
    assert_eq!(ready(&mut group), "b");
    assert_eq!(info(&group, members[0]).unwrap().unread, 1, "only the delivered one is unread");
}

#[test]
fn numbers_wrap() {
    let mut group = group();
    let member = port(1);
    group.published(member, 2);
    group.control(member, Control::Join { sync_point: 65_535, window: 0 });
    group.take_ready();
    assert!(group.receive(member, broadcast(0, b'b'), ROOM));
    assert!(group.receive(member, broadcast(65_535, b'a'), ROOM));
    assert_eq!(ready(&mut group), "ab");
}

#[test]
fn a_leave_follows_the_broadcasts_that_were_sent_before_it() {
    let (mut group, members) = joined_group(1);
    assert!(group.receive(members[0], broadcast(1, b'b'), ROOM));
    group.control(members[0], Control::Leave { sync_point: 2 });
    assert_eq!(ready(&mut group), "");
    assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
    assert_eq!(ready(&mut group), "ab-");
    assert_eq!(state(&group, members[0]), None);
}

#[test]
fn without_memory_only_the_number_of_a_message_counts() {
    let (mut group, members) = joined_group(1);
    assert!(group.receive(members[0], message(MessageType::GroupBcast, 1, b'b', 5000), 1000));
    assert!(group.members.counts().1 < 1000);
    assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
    assert!(group.receive(members[0], broadcast(2, b'c'), ROOM));
    assert_eq!(ready(&mut group), "ac");
    assert_eq!(group.members.counts().1, 0);
}
