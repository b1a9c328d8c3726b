//! Sockets in groups. Spec: tipc.md §9.

use super::*;
use crate::group::{GroupRequest, JoinError, LeaveError};
use crate::socket::{GroupMessage, GroupMessageKind};

impl Cluster {
    pub(super) fn join(&mut self, at: PortId, request: GroupRequest) {
        self.on(at, |s, _, up| s.join(request, up)).unwrap();
        self.tell(at, request, true);
    }

    pub(super) fn leave(&mut self, at: PortId) {
        let request = self.sockets[&at].group().unwrap().request();
        self.on(at, |s, _, up| s.leave(up)).unwrap();
        self.tell(at, request, false);
    }

    /// All sockets learn of the binding that a membership makes.
    pub(super) fn tell(&mut self, of: PortId, request: GroupRequest, up: bool) {
        for at in self.sockets.keys().copied().collect::<Vec<_>>() {
            let range = ServiceRange::from(request.member);
            self.on(at, |s, _, uplink| s.group_changed(range, of, request.scope, up, uplink));
        }
    }

    /// Reads everything that a socket has.
    pub(super) fn drain(&mut self, at: PortId) -> Vec<(Vec<u8>, GroupMessage)> {
        let mut all = Vec::new();
        while let Ok((data, received)) = self.recv_with(at, 66_000, RecvOptions::default()) {
            all.push((data, received.group.unwrap()));
        }
        all
    }

    fn texts(&mut self, at: PortId) -> Vec<String> {
        self.drain(at).into_iter().map(|(data, _)| String::from_utf8(data).unwrap()).collect()
    }
}

fn rdm(c: &mut Cluster, node: NodeAddr, request: GroupRequest) -> PortId {
    let at = c.open(node, SocketKind::Rdm);
    c.join(at, request);
    c.run();
    at
}

#[test]
fn all_four_kinds_arrive_and_tell_their_sender() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    let b2 = rdm(&mut c, B, GroupRequest::new(4300, 2));
    let two = Destination::Range(ServiceRange::new(4300, 2, 2));
    c.on(a, |s, now, up| s.send(now, b"all", None, up)).unwrap();
    c.run();
    for (data, to) in [("two", two), ("one", b.into()), ("any", Destination::service(4300, 2))] {
        assert_eq!(c.send_to(a, data.as_bytes(), to), Ok(3));
        c.run();
    }
    let from = ServiceAddr { service: 4300, instance: 1 };
    let kinds: Vec<_> = c.drain(b).into_iter().map(|(_, group)| (group.member == from, group.kind)).collect();
    use GroupMessageKind::{Broadcast, Multicast, Unicast};
    assert_eq!(kinds[..3], [(true, Broadcast), (true, Multicast), (true, Unicast)]);
    let count = kinds.len() + c.drain(b2).len();
    assert_eq!(count, 3 + 2 + 1, "the anycast went to one of the two");
}

#[test]
fn members_are_reported_with_an_event_in_the_buffer() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1).with_events());
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    let mut buffer = [0; 100];
    let got = c.on(a, |s, now, up| s.recv(now, &mut buffer, RecvOptions::default(), up)).unwrap();
    let member = ServiceAddr { service: 4300, instance: 2 };
    let joined = GroupMessage { member, kind: GroupMessageKind::Joined };
    assert_eq!((got.len, got.source, got.group), (0, b, Some(joined)));
    let event =
        crate::wire::TopologyEvent::from_bytes(&buffer[..48], crate::wire::ByteOrder::NATIVE).unwrap();
    assert_eq!((event.port, event.found), (b, ServiceRange::from(member)));
    c.leave(b);
    c.run();
    let left = GroupMessage { member, kind: GroupMessageKind::Left };
    assert_eq!(c.drain(a), [(vec![], left)]);
}

#[test]
fn join_and_leave_are_refused_in_the_wrong_state() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let join = |c: &mut Cluster, at, id| c.on(at, |s, _, up| s.join(GroupRequest::new(id, 1), up));
    assert_eq!(join(&mut c, a, 4301), Err(JoinError::AlreadyJoined));
    let range = ServiceRange::new(5000, 1, 1);
    assert_eq!(c.on(a, |s, _, up| s.bind(range, Scope::Cluster, up)), Err(BindError::InGroup));
    let own = ServiceRange::new(4300, 1, 1);
    let unbound = c.on(a, |s, _, up| s.unbind(Some((own, Scope::Cluster)), up));
    assert_eq!(unbound, Err(BindError::InGroup));
    let connected = c.on(a, |s, now, up| s.connect(now, Some(own.into()), up));
    assert_eq!(connected, Err(ConnectError::InGroup));
    let other = c.open(A, SocketKind::Rdm);
    assert_eq!(join(&mut c, other, 63), Err(JoinError::Reserved));
    assert_eq!(c.on(other, |s, _, up| s.leave(up)), Err(LeaveError::NotJoined));
    let stream = c.open(A, SocketKind::Stream);
    assert_eq!(join(&mut c, stream, 4300), Err(JoinError::WrongKind));
    assert_eq!(c.sockets[&a].option(SocketOption::GroupJoin), Ok(4300));
    assert_eq!(c.sockets[&other].option(SocketOption::GroupJoin), Ok(0));
    c.leave(a);
    assert_eq!(c.sockets[&a].option(SocketOption::GroupJoin), Ok(0));
    assert!(c.wire.bindings.is_empty());
}

#[test]
fn a_closed_socket_leaves_its_group() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1).with_events());
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    c.drain(a);
    c.close(b);
    c.run();
    assert_eq!(c.drain(a).len(), 1, "the member has left");
    assert_eq!(c.on(a, |s, now, up| s.send(now, b"x", None, up)), Err(SendError::HostUnreachable));
    assert!(c.wire.bindings.iter().all(|(.., port)| *port == a));
}

#[test]
fn reason_names_a_member_of_this_node_with_its_node() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let near = rdm(&mut c, A, GroupRequest::new(4300, 2));
    assert_eq!(c.on(a, |s, now, up| s.send(now, &[7; 66_000], None, up)), Ok(66_000));
    c.run();
    assert_eq!(c.on(a, |s, now, up| s.send(now, b"more", None, up)), Err(SendError::WouldBlock));
    let reason = WaitReason::MemberWindow { member: near, joined: true, window: 0 };
    assert_eq!((c.wait_reason(a), near.node), (Some(reason), A));
}

#[test]
fn a_socket_is_writable_once_a_member_has_joined() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    assert!(!c.readiness(a).writable);
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    assert!(c.readiness(a).writable && c.readiness(b).writable);
    c.leave(b);
    c.run();
    assert!(c.readiness(a).writable, "as on Linux: a send reports that it reaches no member");
    c.leave(a);
    assert!(c.readiness(a).writable);
}

#[test]
fn an_event_that_does_not_fit_is_truncated() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1).with_events());
    rdm(&mut c, B, GroupRequest::new(4300, 2));
    let (_, part) = c.recv_with(a, 8, RecvOptions { peek: true, ..RecvOptions::default() }).unwrap();
    assert!(part.truncated);
    let (_, whole) = c.recv_with(a, 48, RecvOptions::default()).unwrap();
    assert!(!whole.truncated);
}

#[test]
fn a_member_that_does_not_read_blocks_its_senders_until_it_does() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    let data = [7; 66_000];
    assert_eq!(c.on(a, |s, now, up| s.send(now, &data, None, up)), Ok(66_000));
    c.run();
    assert_eq!(c.on(a, |s, now, up| s.send(now, b"more", None, up)), Err(SendError::WouldBlock));
    assert!(!c.readiness(a).writable);
    let reason = c.wait_reason(a).unwrap();
    assert_eq!(reason, WaitReason::MemberWindow { member: b, joined: true, window: 0 });
    assert_eq!(c.recv(b, 66_000).unwrap().len(), 66_000);
    c.run();
    assert!(c.readiness(a).writable);
    assert_eq!(c.on(a, |s, now, up| s.send(now, b"more", None, up)), Ok(4));
    c.run();
    assert_eq!(c.texts(b), ["more"]);
}

#[test]
fn other_messages_do_not_reach_a_socket_in_a_group() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let stranger = c.open(B, SocketKind::Rdm);
    c.send_to(stranger, b"direct", a.into()).unwrap();
    c.send_to(stranger, b"named", Destination::service(4300, 1)).unwrap();
    c.send_to(stranger, b"mcast", Destination::Range(ServiceRange::new(4300, 0, 9))).unwrap();
    c.run();
    assert_eq!(c.recv(a, 100), Err(RecvError::WouldBlock));
    assert_eq!(c.sockets[&a].stats().dropped, 3);
}

#[test]
fn empty_messages_are_not_sent() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    assert_eq!(c.on(a, |s, now, up| s.send(now, &[], None, up)), Err(SendError::HostUnreachable));
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    c.take_log();
    assert_eq!(c.on(a, |s, now, up| s.send(now, &[], None, up)), Ok(0));
    assert_eq!(c.send_to(a, &[], b.into()), Ok(0));
    assert_eq!(c.take_log().len(), 0, "a receiver would never give their window back");
}

#[test]
fn messages_read_in_parts_are_consumed_once() {
    let mut c = Cluster::new();
    let a = rdm(&mut c, A, GroupRequest::new(4300, 1));
    let b = rdm(&mut c, B, GroupRequest::new(4300, 2));
    c.on(a, |s, now, up| s.send(now, &[1; 5000], None, up)).unwrap();
    c.run();
    let options = RecvOptions { keep_remainder: true, ..RecvOptions::default() };
    let unread = |c: &Cluster| c.sockets[&b].group().unwrap().members().next().unwrap().unread;
    assert_eq!(c.recv_with(b, 3000, options).unwrap().0.len(), 3000);
    assert_eq!(unread(&c), 5);
    assert_eq!(c.recv_with(b, 3000, options).unwrap().0.len(), 2000);
    assert_eq!(unread(&c), 0);
}
