//! Members that join and leave, with their binding and their messages in any order. Spec: tipc.md §9.4.

use super::*;

const JOIN: Control = Control::Join { sync_point: 0, window: 0 };

/// What happens at the other node, as this one learns it.
#[derive(Clone, Copy)]
enum Step {
    Publish,
    Withdraw,
    Join,
    Leave,
}

fn apply(group: &mut Group, step: Step) {
    match step {
        Step::Publish => group.published(port(1), 2),
        Step::Withdraw => group.withdrawn(port(1), true),
        Step::Join => group.control(port(1), JOIN),
        Step::Leave => group.control(port(1), Control::Leave { sync_point: 0 }),
    }
}

#[test]
fn a_member_joins_by_binding_and_join_in_either_order() {
    let mut group = group();
    apply(&mut group, Step::Publish);
    assert_eq!(group.take_controls(), [(port(1), JOIN)]);
    assert_eq!(ready(&mut group), "");
    apply(&mut group, Step::Join);
    assert_eq!(group.take_controls(), [(port(1), Control::Advertise { window: IDLE_WINDOW })]);
    assert_eq!(ready(&mut group), "+");

    let mut group = self::group();
    apply(&mut group, Step::Join);
    assert_eq!(group.take_controls(), []);
    apply(&mut group, Step::Publish);
    let answer = Control::Join { sync_point: 0, window: IDLE_WINDOW };
    assert_eq!(group.take_controls(), [(port(1), answer)]);
    assert_eq!(ready(&mut group), "+");
}

#[test]
fn a_member_that_leaves_and_joins_again_is_known_in_every_order_of_its_news() {
    // Bindings keep their order, and so do messages; the two paths do not.
    let bindings = [Step::Withdraw, Step::Publish];
    let messages = [Step::Leave, Step::Join];
    for choice in 0..16_u32 {
        if choice.count_ones() != 2 {
            continue;
        }
        let (mut group, members) = joined_group(1);
        let (mut from_bindings, mut from_messages) = (bindings.iter(), messages.iter());
        for bit in 0..4 {
            let next = if choice >> bit & 1 == 1 { from_bindings.next() } else { from_messages.next() };
            apply(&mut group, *next.unwrap());
        }
        assert_eq!(ready(&mut group), "-+", "order {choice:04b}");
        assert_eq!(state(&group, members[0]), Some(MemberState::Joined), "order {choice:04b}");
        assert!(group.receive(members[0], broadcast(0, b'a'), ROOM));
    }
}

#[test]
fn a_withdrawn_binding_is_a_leave_only_when_its_node_is_gone() {
    let (mut group, members) = joined_group(2);
    group.withdrawn(members[0], true);
    assert_eq!(ready(&mut group), "");
    assert_eq!(state(&group, members[0]), Some(MemberState::Leaving));
    group.withdrawn(members[1], false);
    assert_eq!(ready(&mut group), "-");
    assert_eq!(state(&group, members[1]), None);
    // The LEAVE will not come any more.
    group.node_lost(PEER);
    assert_eq!(ready(&mut group), "-");
    assert_eq!(group.members().count(), 0);
}

#[test]
fn a_socket_that_never_joins_blocks_until_its_binding_is_withdrawn() {
    let (mut group, _) = joined_group(1);
    group.published(port(9), 2);
    assert_eq!(group.may_send_to_all(1), Err(Refused::Window(port(9))));
    assert_eq!(group.blocked_by(), Some((Refused::Window(port(9)), false, 0)));
    assert_eq!(group.choose(2, 1, |_| false), Ok(port(1)), "an anycast takes the other one");
    assert!(group.may_send_to_all(1).is_err());
    group.withdrawn(port(9), true);
    assert_eq!(group.blocked_by(), None);
    assert_eq!(group.may_send_to_all(1), Ok(()));
    assert_eq!(ready(&mut group), "", "nothing is reported of it");
    assert_eq!(group.members().count(), 1);
}

#[test]
fn events_are_reported_only_if_they_were_asked_for() {
    let mut group = Group::new(GroupRequest::new(4300, 1), 1000);
    join(&mut group, 1);
    apply(&mut group, Step::Leave);
    assert_eq!(ready(&mut group), "");
}

#[test]
fn the_socket_is_its_own_member_only_with_loopback() {
    let own = PortId { port: 1000, node: NodeAddr::NONE };
    let mut group = group();
    group.published(own, 1);
    assert_eq!(group.members().count(), 0);
    let mut group = Group::new(GroupRequest::new(4300, 1).with_loopback(), 1000);
    group.published(own, 1);
    assert_eq!(group.take_controls(), [(own, JOIN)]);
    group.control(own, JOIN);
    group.control(own, Control::Advertise { window: IDLE_WINDOW });
    assert_eq!(group.may_send_to_all(65), Ok(()));
    assert_eq!(group.nodes(), (true, Vec::new()));
}

#[test]
fn all_members_learn_that_the_socket_leaves() {
    let (mut group, members) = joined_group(3);
    group.sent_to_all(1);
    group.leave();
    let leave = Control::Leave { sync_point: 1 };
    assert_eq!(group.take_controls(), members.iter().map(|m| (*m, leave)).collect::<Vec<_>>());
}
