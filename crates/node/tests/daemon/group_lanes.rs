//! Lanes between members of a group (decision 50): which members have them, when they begin, and what follows their
//! end.

use utipc_attach::{Failure, LaneCall, LaneEnd, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::ServiceAddr;
use utipc_core::group::{GroupPolicy, GroupRequest, LeaveError, SlowMember};
use utipc_core::socket::{GroupMessageKind, RecvError, RecvOptions, SocketKind};
use utipc_core::wire::MessageType;

use crate::client::{Client, Host, wait_while};
use crate::lanes::{Lanes, Two};

const GROUP: u32 = 18900;

fn address(instance: u32) -> ServiceAddr {
    ServiceAddr { service: GROUP, instance }
}

fn join(client: &mut Client, instance: u32) -> u32 {
    let port = client.open(SocketKind::Rdm);
    client.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    let request = GroupRequest::new(GROUP, instance).with_events();
    client.call(&SocketCall::Join { request, policy: GroupPolicy::LINUX }.on(port)).unwrap();
    port
}

fn request_lanes(client: &mut Client, port: u32) -> Result<u32, Failure> {
    match client.call(&SocketCall::GroupLanes.on(port))? {
        Reply::Number(number) => Ok(number),
        other => panic!("{other:?}"),
    }
}

/// Fetches the notices that wait.
fn notices(client: &mut Client) -> Vec<Notice> {
    client.call(&Request::Process(ProcessCall::Notices)).unwrap();
    client.notices.drain(..).filter(|notice| !matches!(notice, Notice::Readiness { .. })).collect()
}

/// What a receive by a request returns: the kind of the message or event.
fn receive(client: &mut Client, port: u32) -> Result<GroupMessageKind, Failure> {
    match client.call(&SocketCall::Receive { room: 100, options: RecvOptions::default() }.on(port))? {
        Reply::ReceivedInGroup(_, group) => Ok(group.kind),
        other => panic!("{other:?}"),
    }
}

/// Two members with lanes in both directions, whose queues are empty.
fn two_members() -> (Two, u32, u32) {
    let mut all = Two::new();
    let (one, two) = (join(&mut all.one, 1), join(&mut all.two, 2));
    assert_eq!(request_lanes(&mut all.one, one), Ok(0));
    assert_eq!(request_lanes(&mut all.two, two), Ok(1));
    assert_eq!(request_lanes(&mut all.one, one), Ok(1));
    assert_eq!(receive(&mut all.one, one), Ok(GroupMessageKind::Joined));
    assert_eq!(receive(&mut all.two, two), Ok(GroupMessageKind::Joined));
    all.update();
    (all, one, two)
}

#[test]
fn lanes_begin_when_all_members_take_them() {
    let host = Host::new();
    let (mut one, mut two) = (host.direct_client(), host.direct_client());
    let first = join(&mut one, 1);
    assert_eq!(request_lanes(&mut one, first), Ok(0), "there is no other member");
    let second = join(&mut two, 2);
    assert_eq!(notices(&mut one), [Notice::GroupChanged { port: first }]);
    assert_eq!(request_lanes(&mut one, first), Ok(0), "the other member takes no lanes yet");
    assert_eq!(request_lanes(&mut two, second), Ok(1));
    let [Notice::GroupLane { port, other, end: LaneEnd::Writer, member, .. }] = notices(&mut two)[..] else {
        panic!("the writer learns of its lane")
    };
    assert_eq!((port, other, member), (second, first, address(1)));
    // The reader receives first what came through the node.
    assert_eq!(notices(&mut one), [Notice::GroupChanged { port: first }]);
    assert_eq!(receive(&mut one, first), Ok(GroupMessageKind::Joined));
    let [Notice::GroupLane { port, other, end: LaneEnd::Reader, member, .. }] = notices(&mut one)[..] else {
        panic!("the reader learns of its lane")
    };
    assert_eq!((port, other, member), (first, second, address(2)));
    assert_eq!(request_lanes(&mut one, first), Ok(1));
    // A process without lanes joins: all messages go through the node.
    let mut third = host.client();
    let port = join(&mut third, 3);
    assert_eq!(request_lanes(&mut third, port), Err(Failure::State));
    assert_eq!(request_lanes(&mut one, first), Ok(0));
}

#[test]
fn only_members_write_lanes_to_members() {
    let (mut all, one, two) = two_members();
    let outsider = all.one.open(SocketKind::Rdm);
    for (port, to) in [(outsider, two), (one, outsider), (one, two), (one, 0)] {
        let wanted = all.one.call(&SocketCall::WantLane { to }.on(port));
        // Those between the members exist.
        let expected = if (port, to) == (one, two) { Ok(Reply::Done) } else { Err(Failure::State) };
        assert_eq!(wanted, expected, "{port} to {to}");
    }
    assert_eq!(all.one.call(&SocketCall::Lend.on(one)), Err(Failure::State));
    assert_eq!(request_lanes(&mut all.one, outsider), Err(Failure::State));
    assert_eq!(request_lanes(&mut all.one, two), Err(Failure::NoSocket(two)));
    // A member with a policy must see all messages in the order of the node.
    let port = all.two.open(SocketKind::Rdm);
    all.two.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    let (request, policy) = (GroupRequest::new(GROUP, 3), GroupPolicy::new(SlowMember::Drop));
    all.two.call(&SocketCall::Join { request, policy }.on(port)).unwrap();
    assert_eq!(request_lanes(&mut all.two, port), Ok(0));
    assert_eq!(request_lanes(&mut all.one, one), Ok(0));
}

#[test]
fn leaving_without_a_group_leaves_the_lanes_of_a_socket() {
    let mut all = Two::new();
    let [from, to] = [all.one.open(SocketKind::Rdm), all.two.open(SocketKind::Rdm)];
    all.one.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    all.update();
    all.one_lanes.write(from, to, MessageType::Direct, b"unread").unwrap();
    for (client, port) in [(&mut all.one, from), (&mut all.two, to)] {
        assert_eq!(client.call(&SocketCall::Leave.on(port)), Err(Failure::Leave(LeaveError::NotJoined)));
        assert_eq!(notices(client), []);
    }
    assert_eq!(all.two_lanes.read(to, from).unwrap(), Some(b"unread".to_vec()));
}

#[test]
fn departure_of_a_dead_member_follows_what_it_has_written() {
    let (mut all, one, two) = two_members();
    for data in [b"1", b"2"] {
        all.two_lanes.write(two, one, MessageType::GroupBcast, data).unwrap();
    }
    let Two { host, mut one_lanes, one: mut reader, two: writer, .. } = all;
    drop(writer);
    wait_while(|| host.daemon().counters().attached > 1);
    let blocked = Err(Failure::Receive(RecvError::WouldBlock));
    assert_eq!(receive(&mut reader, one), blocked, "the lane comes first");
    one_lanes.update(&mut reader);
    for data in [b"1", b"2"] {
        assert_eq!(one_lanes.read(one, two).unwrap(), Some(data.to_vec()));
    }
    assert_eq!(receive(&mut reader, one), blocked);
    let lane = one_lanes.read(one, two).unwrap_err();
    reader.call(&Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Reader })).unwrap();
    assert_eq!(receive(&mut reader, one), Ok(GroupMessageKind::Left));
}

#[test]
fn what_a_member_sends_by_a_request_follows_what_it_has_written() {
    let (mut all, one, two) = two_members();
    all.two_lanes.write(two, one, MessageType::GroupUcast, b"1").unwrap();
    assert_eq!(all.two.send(two, None, b"2"), Ok(1));
    assert_eq!(receive(&mut all.one, one), Err(Failure::Receive(RecvError::WouldBlock)));
    // The reader becomes hosted: the daemon reads the lane for it.
    all.one.call(&SocketCall::MakeHosted { partly: None }.on(one)).unwrap();
    assert_eq!(receive(&mut all.one, one), Ok(GroupMessageKind::Unicast));
    assert_eq!(receive(&mut all.one, one), Ok(GroupMessageKind::Broadcast));
}

#[test]
fn members_that_come_and_go_leave_one_notice() {
    let host = Host::new();
    let (mut one, mut two) = (host.direct_client(), host.direct_client());
    let first = join(&mut one, 1);
    assert_eq!(request_lanes(&mut one, first), Ok(0));
    for _ in 0..200 {
        let port = join(&mut two, 2);
        two.call(&SocketCall::Close.on(port)).unwrap();
    }
    assert_eq!(notices(&mut one), [Notice::GroupChanged { port: first }]);
    let mut lanes = Lanes::default();
    lanes.update(&mut one);
    assert!(lanes.readers.is_empty() && lanes.writers.is_empty());
}
