//! Protocol messages that no correct member sends. Spec: tipc.md §14.2, bad-input.md.

use super::*;

#[test]
fn a_repeated_join_moves_neither_the_order_nor_the_window() {
    let (mut group, members) = joined_group(1);
    assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
    for _ in 0..3 {
        group.control(members[0], Control::Join { sync_point: 7000, window: 65_535 });
    }
    assert_eq!(info(&group, members[0]).unwrap().window, IDLE_WINDOW);
    assert!(group.receive(members[0], broadcast(1, b'b'), ROOM));
    assert_eq!(ready(&mut group), "ab");
    assert_eq!(group.take_controls(), []);
}

#[test]
fn windows_are_capped() {
    let (mut group, members) = joined_group(1);
    for _ in 0..3 {
        group.control(members[0], Control::Advertise { window: 65_535 });
    }
    assert_eq!(info(&group, members[0]).unwrap().window, ACTIVE_WINDOW);
    group.control(port(2), Control::Join { sync_point: 0, window: 65_535 });
    assert_eq!(info(&group, port(2)).unwrap().window, ACTIVE_WINDOW);
}

#[test]
fn a_duplicate_acknowledgement_does_not_count_for_another_member() {
    let (mut group, members) = joined_group(3);
    group.sent_to_all(1);
    assert!(group.may_send_to_all(1).is_err());
    for _ in 0..5 {
        group.control(members[0], Control::Ack { acked: 1 });
    }
    assert_eq!(group.blocked_by().unwrap().0, Refused::Ack(members[1]));
    group.control(members[1], Control::Ack { acked: 2 });
    group.control(members[1], Control::Ack { acked: 0 });
    assert_eq!(group.blocked_by().unwrap().0, Refused::Ack(members[1]), "of another broadcast");
    group.control(members[1], Control::Ack { acked: 1 });
    group.control(members[2], Control::Ack { acked: 1 });
    assert_eq!(group.blocked_by(), None);
    // Nothing is awaited: more of them change nothing.
    group.control(members[0], Control::Ack { acked: 1 });
    assert_eq!(group.sending.awaited(), 0);
    assert_eq!(group.may_send_to_all(1), Ok(()));
}

#[test]
fn a_member_cannot_send_more_than_its_window() {
    let (mut group, members) = joined_group(1);
    let mut accepted = 0;
    for _ in 0..1000 {
        accepted += u32::from(group.receive(members[0], broadcast(9, b'x'), ROOM));
    }
    assert_eq!(accepted, u32::from(2 * IDLE_WINDOW), "its window, and one more that may be under way");
    assert!(group.members.counts().1 < 200 * usize::from(2 * IDLE_WINDOW));
}

#[test]
fn unasked_and_excessive_remits_change_nothing() {
    let (mut group, members) = joined_group(13);
    group.control(members[0], Control::Remit { window: 65_535 });
    assert_eq!(state(&group, members[0]), Some(MemberState::Joined));
    for member in &members {
        send_and_read(&mut group, *member, 10);
    }
    group.control(members[0], Control::Remit { window: 65_535 });
    assert_eq!(info(&group, members[0]).unwrap().advertised, u32::from(IDLE_WINDOW));
    group.control(members[0], Control::Remit { window: 0 });
    assert_eq!(info(&group, members[0]).unwrap().advertised, u32::from(IDLE_WINDOW));
}

#[test]
fn sockets_that_are_no_members_get_no_answers() {
    let (mut group, _) = joined_group(1);
    for control in [
        Control::Leave { sync_point: 0 },
        Control::Advertise { window: 65 },
        Control::Ack { acked: 0 },
        Control::Reclaim,
        Control::Remit { window: 1 },
    ] {
        group.control(port(99), control);
        // A member that has not joined does not reclaim either.
        group.control(port(98), Control::Join { sync_point: 0, window: 0 });
        group.control(port(98), control);
    }
    assert_eq!(group.take_controls(), []);
    assert!(!group.receive(port(99), broadcast(0, b'a'), ROOM));
    assert!(!group.receive(port(98), broadcast(0, b'a'), ROOM));
    assert_eq!(ready(&mut group), "");
}

#[test]
fn members_without_bindings_are_limited_for_each_node() {
    let (mut group, _) = joined_group(1);
    for number in 0..3 * MAX_JOINING as u32 {
        group.control(port(100 + number), Control::Join { sync_point: 0, window: 0 });
    }
    assert!(group.members().count() <= MAX_JOINING + 1);
    // A correct node still joins.
    let other = PortId { port: 1, node: NodeAddr(0x0100_1003) };
    group.control(other, Control::Join { sync_point: 0, window: 0 });
    group.published(other, 3);
    assert_eq!(state(&group, other), Some(MemberState::Joined));
}

#[test]
fn the_members_of_a_group_are_limited() {
    let mut group = group();
    for number in 0..MAX_MEMBERS as u32 + 10 {
        group.published(port(number), 2);
    }
    group.control(port(u32::MAX), Control::Join { sync_point: 0, window: 0 });
    assert_eq!(group.members().count(), MAX_MEMBERS);
}

#[test]
fn every_mixture_of_messages_keeps_the_counters_balanced() {
    let mut rng = crate::rng::Rng::new(7);
    let mut group = group();
    for _ in 0..20_000 {
        let member = port(1 + rng.next_u32() % 24);
        let number = (rng.next_u32() % 4) as u16;
        match rng.next_u32() % 13 {
            0 => group.published(member, 2),
            1 => group.withdrawn(member, rng.next_u32().is_multiple_of(2)),
            2 => group.control(member, Control::Join { sync_point: 0, window: number }),
            3 if rng.next_u32().is_multiple_of(8) => {
                group.control(member, Control::Leave { sync_point: number })
            }
            4 => group.control(member, Control::Advertise { window: number }),
            5 => group.control(member, Control::Ack { acked: group.next_broadcast() }),
            6 => group.control(member, Control::Reclaim),
            7 => group.control(member, Control::Remit { window: rng.next_u32() as u16 }),
            8 if group.may_send_to_all(1).is_ok() => group.sent_to_all(1),
            9 => {
                if let Ok(to) = group.choose(2, 1, |_| false) {
                    group.sent_to(to, 1);
                }
            }
            10 => {
                group.receive(member, broadcast(number, b'x'), ROOM);
            }
            _ => group.read(member, 54),
        }
        group.take_controls();
        group.take_ready();
        let count = |of: fn(&Member) -> bool| group.members.iter().filter(|(_, member)| of(member)).count();
        let deferred: usize = group.members.iter().map(|(_, member)| member.deferred_bytes()).sum();
        assert_eq!(group.sending.awaited(), count(|member| member.owes_ack));
        assert_eq!(
            group.places.counts(),
            [
                count(|member| member.state.is_active()),
                count(|member| member.state == MemberState::Active),
                count(|member| member.state == MemberState::Pending),
            ]
        );
        let joining = count(|member| member.state == MemberState::Joining);
        assert_eq!(group.members.counts(), (joining, deferred));
    }
}
