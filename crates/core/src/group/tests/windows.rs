//! Windows in both directions, and the places of active members. Spec: tipc.md §9.2, §9.4.

use super::*;

#[test]
fn a_member_that_sends_becomes_active_and_gets_the_active_window() {
    let (mut group, members) = joined_group(1);
    send_and_read(&mut group, members[0], 10);
    assert_eq!(group.take_controls(), [(members[0], Control::Advertise { window: 780 - 64 })]);
    assert_eq!(state(&group, members[0]), Some(MemberState::Active));
    for _ in 0..194 {
        send_and_read(&mut group, members[0], 10);
    }
    assert_eq!(group.take_controls(), []);
    send_and_read(&mut group, members[0], 10);
    assert_eq!(group.take_controls(), [(members[0], Control::Advertise { window: 195 })]);
}

#[test]
fn the_thirteenth_sender_makes_the_first_give_its_window_back() {
    let (mut group, members) = joined_group(13);
    for member in &members[..12] {
        send_and_read(&mut group, *member, 10);
    }
    group.take_controls();
    send_and_read(&mut group, members[12], 10);
    let controls = group.take_controls();
    assert_eq!(
        controls,
        [(members[12], Control::Advertise { window: 780 - 64 }), (members[0], Control::Reclaim)]
    );
    assert_eq!(state(&group, members[0]), Some(MemberState::Reclaiming));
    // 700 of 780 blocks are left at the member: 80 are under way.
    group.control(members[0], Control::Remit { window: 700 });
    assert_eq!(state(&group, members[0]), Some(MemberState::Remitted));
    assert_eq!(info(&group, members[0]).unwrap().advertised, 65 + 80);
    for _ in 0..79 {
        send_and_read(&mut group, members[0], 10);
    }
    assert_eq!(state(&group, members[0]), Some(MemberState::Remitted));
    send_and_read(&mut group, members[0], 10);
    assert_eq!(state(&group, members[0]), Some(MemberState::Joined));
    assert_eq!(info(&group, members[0]).unwrap().advertised, 65);
}

#[test]
fn a_member_that_has_nothing_under_way_gives_its_place_back_at_once() {
    let (mut group, members) = joined_group(13);
    for member in &members {
        send_and_read(&mut group, *member, 10);
    }
    group.take_controls();
    group.control(members[0], Control::Remit { window: 780 });
    assert_eq!(state(&group, members[0]), Some(MemberState::Joined));
    assert_eq!(info(&group, members[0]).unwrap().advertised, 65);
}

#[test]
fn a_member_without_a_place_waits_until_one_is_given_back() {
    let (mut group, members) = joined_group(18);
    for member in &members {
        send_and_read(&mut group, *member, 10);
    }
    assert_eq!(state(&group, members[17]), Some(MemberState::Pending));
    let reclaimed = members.iter().filter(|m| state(&group, **m) == Some(MemberState::Reclaiming)).count();
    assert_eq!(reclaimed, 6, "from the 13th sender on");
    group.take_controls();
    group.control(members[0], Control::Remit { window: 780 });
    assert_eq!(state(&group, members[17]), Some(MemberState::Active));
    assert_eq!(group.take_controls(), [(members[17], Control::Advertise { window: 780 - 64 })]);
}

#[test]
fn a_member_that_leaves_frees_its_place() {
    let (mut group, members) = joined_group(18);
    for member in &members {
        send_and_read(&mut group, *member, 10);
    }
    let elsewhere = PortId { port: 5, node: NodeAddr(0x0100_1003) };
    group.published(elsewhere, 3);
    group.node_lost(PEER);
    assert_eq!(group.members().map(|member| member.port).collect::<Vec<_>>(), [elsewhere]);
    assert_eq!(group.places.counts(), [0; 3]);
}

#[test]
fn a_waiting_member_can_send_although_no_place_is_ever_given_back() {
    let (mut group, members) = joined_group(18);
    for member in &members {
        send_and_read(&mut group, *member, 10);
    }
    group.take_controls();
    let last = members[17];
    let mut granted = 0;
    for _ in 0..200 {
        send_and_read(&mut group, last, 1000);
        for (to, control) in group.take_controls() {
            let Control::Advertise { window } = control else { continue };
            granted += if to == last { window } else { 0 };
        }
    }
    assert!(granted >= 300, "{granted} of 400 blocks sent were granted again");
}

#[test]
fn sends_are_charged_and_wait_for_the_window() {
    let (mut group, members) = joined_group(2);
    for _ in 0..65 {
        assert_eq!(group.may_send_to(members[0], 1), Ok(()));
        group.sent_to(members[0], 1);
    }
    assert_eq!(group.may_send_to(members[0], 1), Err(Refused::Window(members[0])));
    assert_eq!(group.blocked_by(), Some((Refused::Window(members[0]), true, 0)));
    assert_eq!(group.may_send_to(members[1], 65), Ok(()));
    assert_eq!(group.may_send_to_all(1), Err(Refused::Window(members[0])));
    group.control(members[1], Control::Advertise { window: 9 });
    assert!(group.blocked_by().is_some());
    group.control(members[0], Control::Advertise { window: 9 });
    assert_eq!(group.blocked_by(), None);
}

/// Threads of one program send with one socket.
#[test]
fn a_sender_is_woken_when_its_member_reads_although_another_was_refused_later() {
    let (mut group, members) = joined_group(3);
    for member in &members {
        assert_eq!(group.may_send_to(*member, 65), Ok(()));
        group.sent_to(*member, 65);
    }
    for round in 0..2 {
        assert!(group.may_send_to(members[0], 1).is_err());
        assert!(group.may_send_to(members[1], 5).is_err());
        assert!(group.may_send_to_all(1).is_err());
        group.control(members[1], Control::Advertise { window: 4 });
        assert!(group.blocked_by().is_some(), "too small a window");
        group.control(members[round], Control::Advertise { window: 4 });
        assert_eq!(group.blocked_by(), None, "member {round} has room");
        group.sent_to(members[round], u32::from(info(&group, members[round]).unwrap().window));
        group.sent_to(members[1], u32::from(info(&group, members[1]).unwrap().window));
    }
}

#[test]
fn the_latest_of_many_refused_sends_are_remembered() {
    let (mut group, members) = joined_group(40);
    for member in &members {
        group.sent_to(*member, 65);
        assert_eq!(group.may_send_to(*member, 1), Err(Refused::Window(*member)));
    }
    assert_eq!(group.sending.blocked_sends(), 16);
    group.control(members[0], Control::Advertise { window: 9 });
    assert!(group.blocked_by().is_some(), "forgotten");
    group.control(members[24], Control::Advertise { window: 9 });
    assert_eq!(group.blocked_by(), None);
}

#[test]
fn a_blocked_sender_extends_the_window_of_the_member_it_waits_for() {
    let (mut group, members) = joined_group(1);
    group.sent_to(members[0], 65);
    assert!(group.receive(members[0], message(MessageType::GroupUcast, 0, b'a', 10), ROOM));
    group.take_ready();
    group.read(members[0], 54);
    group.take_controls();
    // Active, with everything granted.
    assert_eq!(group.may_send_to(members[0], 1), Err(Refused::Window(members[0])));
    assert_eq!(group.take_controls(), []);
    send_and_read(&mut group, members[0], 5000);
    assert_eq!(group.take_controls(), []);
    assert_eq!(group.may_send_to(members[0], 1), Err(Refused::Window(members[0])));
    assert_eq!(group.take_controls(), [(members[0], Control::Advertise { window: 5 })]);
}

#[test]
fn reclaim_is_answered_with_the_rest_of_the_window() {
    let (mut group, members) = joined_group(1);
    group.control(members[0], Control::Advertise { window: 715 });
    group.sent_to(members[0], 30);
    group.control(members[0], Control::Reclaim);
    assert_eq!(group.take_controls(), [(members[0], Control::Remit { window: 750 })]);
    assert_eq!(info(&group, members[0]).unwrap().window, IDLE_WINDOW);
}

#[test]
fn the_first_broadcast_and_one_after_a_unicast_await_acknowledgements() {
    let (mut group, members) = joined_group(2);
    assert!(group.must_replicast());
    group.sent_to_all(1);
    assert!(!group.must_replicast());
    assert_eq!(group.may_send_to_all(1), Err(Refused::Ack(members[0])));
    assert_eq!(group.may_send_to(members[0], 1), Ok(()), "unicasts do not wait for it");
    assert_eq!(group.may_send_to_all(1), Err(Refused::Ack(members[0])));
    group.control(members[0], Control::Ack { acked: 1 });
    assert_eq!(group.blocked_by().unwrap().0, Refused::Ack(members[1]));
    group.control(members[1], Control::Ack { acked: 1 });
    assert_eq!(group.may_send_to_all(1), Ok(()));
    group.sent_to_all(1);
    assert_eq!(group.may_send_to_all(1), Ok(()));
    group.sent_to(members[1], 1);
    assert!(group.must_replicast());
}

#[test]
fn a_member_that_leaves_or_is_lost_owes_no_acknowledgement() {
    for lost in [false, true] {
        let (mut group, members) = joined_group(2);
        group.sent_to_all(1);
        group.control(members[1], Control::Ack { acked: 1 });
        assert!(group.may_send_to_all(1).is_err());
        match lost {
            true => group.node_lost(PEER),
            false => group.control(members[0], Control::Leave { sync_point: 0 }),
        }
        assert_eq!(group.blocked_by(), None);
        assert_eq!(group.may_send_to_all(1), Ok(()));
    }
}

#[test]
fn acknowledgements_are_sent_when_they_are_asked_for() {
    let (mut group, members) = joined_group(1);
    let mut asks = broadcast(0, b'a');
    asks.set_word(10, 1);
    assert!(group.receive(members[0], asks, ROOM));
    assert_eq!(group.take_controls(), [(members[0], Control::Ack { acked: 1 })]);
    let mut stale = unicast(1, b'b');
    stale.set_word(10, 0x1_0001);
    assert!(group.receive(members[0], stale, ROOM));
    assert_eq!(group.take_controls(), [], "the bit is left over in unicasts");
}

#[test]
fn anycasts_go_to_the_least_loaded_member_in_turn() {
    let (mut group, members) = joined_group(3);
    for member in &members {
        group.control(*member, Control::Advertise { window: 715 });
    }
    let mut chosen = Vec::new();
    for _ in 0..6 {
        let to = group.choose(2, 1, |_| false).unwrap();
        group.sent_to(to, 1);
        chosen.push(to.port);
    }
    assert_eq!(chosen, [1, 2, 3, 1, 2, 3]);
    // One of them does not read: 200 blocks wait for it.
    group.sent_to(members[1], 200);
    let next: Vec<u32> = (0..4).map(|_| group.choose(2, 1, |_| false).unwrap().port).collect();
    assert_eq!(next, [1, 3, 1, 3]);
    assert_eq!(group.choose(7, 1, |_| false), Err(Refused::NoMember));
}

#[test]
fn an_anycast_waits_only_if_all_members_with_the_instance_are_full() {
    let (mut group, members) = joined_group(2);
    group.sent_to(members[0], 65);
    assert_eq!(group.choose(2, 1, |_| false), Ok(members[1]));
    group.sent_to(members[1], 65);
    assert_eq!(group.choose(2, 1, |_| false), Err(Refused::Window(members[0])));
    group.control(members[1], Control::Advertise { window: 1 });
    assert_eq!(group.blocked_by(), None);
    assert_eq!(group.choose(2, 1, |_| false), Ok(members[1]));
}
