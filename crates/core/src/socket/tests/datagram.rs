use super::*;

#[test]
fn anycast_is_round_robin_and_replies_reach_the_sender() {
    let mut c = Cluster::new();
    let servers = [c.bound(A, SocketKind::Rdm, 500), c.bound(A, SocketKind::Rdm, 500)];
    let client = c.open(B, SocketKind::Rdm);
    for _ in 0..4 {
        c.send_to(client, b"q", Destination::service(500, 1)).unwrap();
    }
    c.run();
    for server in servers {
        for _ in 0..2 {
            let (data, info) = c.recv_with(server, 10, RecvOptions::default()).unwrap();
            assert_eq!((data.as_slice(), info.source), (&b"q"[..], client));
            assert_eq!(info.destination, Some(ServiceRange::new(500, 1, 1)));
            c.send_to(server, b"a", Destination::Port(info.source)).unwrap();
        }
    }
    c.run();
    for _ in 0..4 {
        let (data, info) = c.recv_with(client, 10, RecvOptions::default()).unwrap();
        assert_eq!((data.as_slice(), info.destination), (&b"a"[..], None));
    }
}

#[test]
fn default_destination_is_used_for_sends_without_one() {
    let mut c = Cluster::new();
    let server = c.bound(A, SocketKind::Dgram, 500);
    let client = c.open(B, SocketKind::Dgram);
    assert_eq!(c.send(client, b"x"), Err(SendError::DestinationRequired));
    c.connect(client, Destination::service(500, 1)).unwrap();
    assert_eq!(c.send(client, b"x"), Ok(1));
    c.run();
    assert_eq!(c.recv(server, 10).unwrap(), b"x");
    let bad = Destination::Range(ServiceRange::new(1, 2, 1));
    assert_eq!(c.connect(client, bad), Err(SendError::InvalidDestination.into()));
    c.on(client, |s, now, up| s.connect(now, None, up)).unwrap();
    assert_eq!(c.send(client, b"x"), Err(SendError::DestinationRequired));
    assert_eq!(c.state(client), State::Open);
}

#[test]
fn droppable_flags_follow_the_kind() {
    let mut c = Cluster::new();
    for (kind, s, d) in [(SocketKind::Rdm, false, true), (SocketKind::Dgram, true, true)] {
        let at = c.open(B, kind);
        c.send_to(at, b"x", Destination::Port(PortId { port: 1, node: A })).unwrap();
        let log = c.take_log();
        assert_eq!((log[0].src_droppable(), log[0].dest_droppable()), (s, d));
    }
}

#[test]
fn unbound_services_and_unreachable_nodes_fail_at_once() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    assert_eq!(c.send_to(at, b"x", Destination::service(500, 1)), Err(SendError::HostUnreachable));
    let range = Destination::Range(ServiceRange::new(500, 0, 9));
    assert_eq!(c.send_to(at, b"x", range), Err(SendError::HostUnreachable));
    c.wire.down.insert(A);
    let port = Destination::Port(PortId { port: 9, node: A });
    assert_eq!(c.send_to(at, b"x", port), Err(SendError::HostUnreachable));
    assert_eq!(SendError::HostUnreachable.errno().number(), 113);
    assert_eq!(c.sockets[&at].stats().sent_messages, 0);
}

#[test]
fn node_zero_is_this_node() {
    let mut c = Cluster::new();
    let receiver = c.open(B, SocketKind::Rdm);
    let at = c.open(B, SocketKind::Rdm);
    let to = Destination::Port(PortId { port: receiver.port, node: NodeAddr::NONE });
    c.send_to(at, b"x", to).unwrap();
    c.run();
    assert_eq!(c.recv(receiver, 10).unwrap(), b"x");
}

#[test]
fn congested_destination_does_not_block_others() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    let far = Destination::Port(c.open(A, SocketKind::Rdm));
    let near = Destination::Port(c.open(B, SocketKind::Rdm));
    c.congest(B, A);
    assert_eq!(c.send_to(at, b"1", far), Ok(1));
    assert_eq!(c.send_to(at, b"2", far), Err(SendError::WouldBlock));
    assert_eq!(
        c.wait_reason(at).unwrap(),
        WaitReason::LinkCongested { node: A, importance: crate::Importance::Low }
    );
    assert!(!c.readiness(at).writable);
    assert_eq!(c.send_to(at, b"3", near), Ok(1));
    c.end_congestion(B, A);
    assert!(c.readiness(at).writable);
    assert_eq!(c.send_to(at, b"2", far), Ok(1));
}

#[test]
fn queue_limit_grows_with_importance_and_excess_is_rejected() {
    for importance in 0..4u32 {
        let mut c = Cluster::new();
        let receiver = c.open(A, SocketKind::Rdm);
        c.set(receiver, SocketOption::ReceiveBuffer, 1);
        let sender = c.open(B, SocketKind::Rdm);
        c.set(sender, SocketOption::DestDroppable, 0);
        c.set(sender, SocketOption::Importance, importance);
        let fits = (((512 * 1024) << importance) - 1) / (10_000 + 32 + 128);
        for _ in 0..fits + 3 {
            c.send_to(sender, &[1; 10_000], Destination::Port(receiver)).unwrap();
            c.run();
        }
        assert_eq!(c.sockets[&receiver].stats().overloads, 0, "the receiver has had no time to read");
        c.pass(41);
        c.run();
        assert_eq!(c.sockets[&receiver].option(SocketOption::ReceiveQueueDepth), Ok(fits));
        assert_eq!(c.sockets[&receiver].stats().overloads, 3);
        for _ in 0..3 {
            let (_, info) = c.recv_with(sender, 100, RecvOptions::default()).unwrap();
            let returned = info.returned.unwrap();
            assert_eq!((returned.code, returned.data.len()), (ErrorCode::Overload, 1024));
        }
        assert_eq!(c.recv(sender, 1), Err(RecvError::WouldBlock));
    }
}

#[test]
fn datagram_beyond_the_buffer_is_truncated_or_kept() {
    let mut c = Cluster::new();
    let receiver = c.open(A, SocketKind::Dgram);
    let sender = c.open(B, SocketKind::Dgram);
    for _ in 0..2 {
        c.send_to(sender, b"abcdef", Destination::Port(receiver)).unwrap();
    }
    c.run();
    let (data, info) = c.recv_with(receiver, 2, RecvOptions::default()).unwrap();
    assert_eq!((data.as_slice(), info.truncated), (&b"ab"[..], true));
    let keep = RecvOptions { keep_remainder: true, ..RecvOptions::default() };
    for (part, end) in [("abcd", false), ("ef", true)] {
        let (data, info) = c.recv_with(receiver, 4, keep).unwrap();
        assert_eq!((data.as_slice(), info.end_of_record), (part.as_bytes(), end));
    }
}

#[test]
fn empty_datagrams_are_sent_but_not_delivered() {
    let mut c = Cluster::new();
    let receiver = c.open(A, SocketKind::Rdm);
    let sender = c.open(B, SocketKind::Rdm);
    assert_eq!(c.send_to(sender, b"", Destination::Port(receiver)), Ok(0));
    c.run();
    assert!(!c.readiness(receiver).readable);
    assert_eq!(c.recv(receiver, 10), Err(RecvError::WouldBlock));
}

#[test]
fn largest_datagram_has_66000_bytes() {
    let mut c = Cluster::new();
    let receiver = c.open(A, SocketKind::Rdm);
    let sender = c.open(B, SocketKind::Rdm);
    let to = Destination::Port(receiver);
    assert_eq!(c.send_to(sender, &vec![0; 66_001], to), Err(SendError::MessageSize));
    assert_eq!(c.send_to(sender, &vec![1; 66_000], to), Ok(66_000));
    c.run();
    assert_eq!(c.recv(receiver, 66_000).unwrap().len(), 66_000);
}

#[test]
fn receiver_sees_the_importance() {
    let mut c = Cluster::new();
    let receiver = c.open(A, SocketKind::Rdm);
    let sender = c.open(B, SocketKind::Rdm);
    c.set(sender, SocketOption::Importance, 3);
    c.send_to(sender, b"x", Destination::Port(receiver)).unwrap();
    c.run();
    let (_, info) = c.recv_with(receiver, 10, RecvOptions::default()).unwrap();
    assert_eq!(info.importance, crate::Importance::Critical);
}
