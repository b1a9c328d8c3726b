use super::*;

#[test]
fn writer_blocks_at_the_window_and_continues_after_a_read() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(kind);
        if kind == SocketKind::Stream {
            // The acknowledgement requested by Nagle would advertise the real window.
            c.set(client, SocketOption::NoDelay, 1);
        }
        let mut sent = 0;
        while c.send(client, &[5; 10_000]).is_ok() {
            sent += 1;
            c.run();
        }
        // 10,024 bytes take 10 blocks; 130 is the first number above 128
        assert_eq!(sent, 13);
        assert!(!c.readiness(client).writable);
        let reason = WaitReason::PeerWindow { peer: server, unacked: 130, window: 128 };
        assert_eq!(c.wait_reason(client), Some(reason));
        assert!(reason.to_string().contains("130 blocks unread, window 128"), "{reason}");
        assert_eq!(c.sockets[&client].stats().window_waits, 1);
        for _ in 0..4 {
            assert_eq!(c.recv(server, 10_000).unwrap().len(), 10_000);
        }
        c.run();
        assert!(c.readiness(client).writable);
        assert_eq!(c.wait_reason(client), None);
        assert_eq!(c.send(client, &[5; 10_000]), Ok(10_000));
    }
}

#[test]
fn queue_stays_small_during_a_transfer_of_100_megabytes() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    let chunk = vec![3; 100_000];
    let (mut sent, mut received, mut most) = (0usize, 0usize, 0);
    while received < 20_000_000 {
        if let Ok(n) = c.send(client, &chunk) {
            sent += n;
        }
        c.run();
        most = most.max(c.sockets[&server].option(SocketOption::ReceiveQueueUsed).unwrap());
        received += c.recv(server, 30_000).map_or(0, |d| d.len());
        c.run();
    }
    assert!(sent >= received);
    assert!(most < 2 * 1024 * 1024, "{most} bytes queued");
    assert_eq!(c.sockets[&server].stats().overloads, 0);
}

#[test]
fn legacy_peer_gets_a_window_of_512_messages() {
    let mut c = Cluster::new();
    c.wire.capabilities.insert(A, crate::limits::capability::SYN_BIT);
    c.wire.capabilities.insert(B, crate::limits::capability::SYN_BIT);
    let (client, server) = c.pair(SocketKind::SeqPacket);
    for _ in 0..513 {
        c.send(client, &[1; 5000]).unwrap();
    }
    assert_eq!(c.send(client, &[1]), Err(SendError::WouldBlock));
    c.run();
    c.take_log();
    for _ in 0..128 {
        c.recv(server, 5000).unwrap();
    }
    let log = c.take_log();
    assert_eq!((log.len(), log[0].conn_acked(), log[0].advertised_window()), (1, 128, 0));
    c.run();
    assert_eq!(c.send(client, &[1]), Ok(1));
}

#[test]
fn congested_link_blocks_the_connection_until_the_wake_up() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.congest(B, A);
    assert_eq!(c.send(client, b"sent although congested"), Ok(23));
    assert_eq!(c.send(client, b"waits"), Err(SendError::WouldBlock));
    assert!(!c.readiness(client).writable);
    let reason = c.wait_reason(client).unwrap();
    assert!(matches!(reason, WaitReason::LinkCongested { node: A, .. }));
    assert_eq!(reason.to_string(), "waiting for the link to node 1001001: its Low queue is full");
    c.end_congestion(B, A);
    assert!(c.readiness(client).writable);
    assert_eq!(c.send(client, b"waits"), Ok(5));
    c.run();
    assert_eq!(c.recv(server, 100).unwrap(), b"sent although congested");
    assert_eq!(c.sockets[&client].stats().link_waits, 1);
}

#[test]
fn seqpacket_keeps_boundaries_and_truncates() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, b"abcdef").unwrap();
    c.send(client, b"ghi").unwrap();
    c.run();
    let (data, info) = c.recv_with(server, 4, RecvOptions::default()).unwrap();
    assert_eq!((data.as_slice(), info.truncated), (&b"abcd"[..], true));
    let (data, info) = c.recv_with(server, 4, RecvOptions::default()).unwrap();
    assert_eq!((data.as_slice(), info.truncated, info.end_of_record), (&b"ghi"[..], false, false));
}

#[test]
fn keep_remainder_reads_a_message_in_parts() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, b"abcdef").unwrap();
    c.send(client, b"x").unwrap();
    c.run();
    let keep = RecvOptions { keep_remainder: true, ..RecvOptions::default() };
    let peek = RecvOptions { peek: true, ..keep };
    assert_eq!(c.recv_with(server, 4, peek).unwrap().0, b"abcd");
    let (data, info) = c.recv_with(server, 4, keep).unwrap();
    assert_eq!((data.as_slice(), info.truncated, info.end_of_record), (&b"abcd"[..], false, false));
    assert_eq!(c.sockets[&server].option(SocketOption::ReceiveQueueDepth), Ok(2));
    let (data, info) = c.recv_with(server, 4, keep).unwrap();
    assert_eq!((data.as_slice(), info.end_of_record), (&b"ef"[..], true));
    assert_eq!(c.recv(server, 4).unwrap(), b"x");
}

#[test]
fn peeking_changes_nothing() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, &[1; 60_000]).unwrap();
    c.run();
    c.take_log();
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    for _ in 0..3 {
        assert_eq!(c.recv_with(server, 60_000, peek).unwrap().0.len(), 60_000);
    }
    assert!(c.take_log().is_empty(), "no acknowledgement yet");
    assert_eq!(c.recv(server, 60_000).unwrap().len(), 60_000);
    assert_eq!(c.take_log().len(), 1);
}

#[test]
fn empty_messages_are_skipped_and_free() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    for _ in 0..300 {
        assert_eq!(c.send(client, b""), Ok(0));
    }
    c.send(client, b"x").unwrap();
    c.run();
    assert_eq!(c.recv(server, 10).unwrap(), b"x");
    assert_eq!(c.recv(server, 10), Err(RecvError::WouldBlock));
    assert_eq!(c.wait_reason(server), Some(WaitReason::NothingReceived));
}

#[test]
fn messages_beyond_66000_bytes_are_refused_and_split_on_a_stream() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    assert_eq!(c.send(client, &vec![0; 66_001]), Err(SendError::MessageSize));
    assert_eq!(c.send(client, &vec![0; 66_000]), Ok(66_000));
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::Stream);
    assert_eq!(c.send(client, &vec![0; 150_000]), Ok(132_000));
    let sizes: Vec<_> = c.take_log().iter().map(|m| m.size()).collect();
    assert_eq!(sizes, [66_024, 66_024], "stream.pcap: then the initial window is used up");
}

#[test]
fn empty_buffer_is_refused() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::Stream);
    assert_eq!(c.recv(client, 0), Err(RecvError::EmptyBuffer));
}

#[test]
fn source_droppable_on_seqpacket_requests_acks() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.set(client, SocketOption::SourceDroppable, 1);
    c.send(client, b"x").unwrap();
    c.run();
    let log = c.take_log();
    assert!(log[0].ack_required());
    assert!(log[1].nagle_ack() && log[1].origin_port() == server.port);
}

#[test]
fn idle_connection_is_probed_every_hour() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.pass(3 * 3_600_000 + 1000);
    let kinds: Vec<_> = c.take_log().iter().map(|m| (m.user(), m.kind(), m.error_code())).collect();
    assert_eq!(kinds.len(), 12, "three probes and replies in each direction");
    assert!(kinds.iter().all(|k| k.0 == User::ConnManager && k.1 <= 1 && k.2 == ErrorCode::Ok));
    assert_eq!((c.state(client), c.state(server)), (State::Established, State::Established));
}

#[test]
fn unanswered_probe_ends_the_connection() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.sockets.remove(&server);
    let at = c.sockets[&client].deadline().unwrap();
    c.now = at;
    c.on(client, |s, now, up| s.handle_timeout(now, up));
    c.wire.in_flight.clear(); // the probe is lost
    c.now = at.plus_millis(3_600_000);
    c.on(client, |s, now, up| s.handle_timeout(now, up));
    assert_eq!(c.state(client), State::Disconnecting);
    assert!(!c.wire.connections.contains_key(&client));
    assert_eq!(c.recv(client, 10), Err(RecvError::Aborted));
    assert_eq!(c.sockets[&client].deadline(), None);
}

#[test]
fn probe_to_a_closed_port_ends_the_connection() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.sockets.remove(&server);
    c.pass(3_600_000);
    assert_eq!(c.state(client), State::Disconnecting);
    assert_eq!(c.recv(client, 10), Err(RecvError::ConnectionReset));
}

#[test]
fn sockets_of_one_node_can_connect() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::Stream, 500);
    let client = c.open(A, SocketKind::Stream);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    let server = c.accept(listener).unwrap();
    c.run();
    c.send(client, &[7; 3000]).unwrap();
    c.run();
    assert_eq!(c.recv(server, 5000).unwrap().len(), 3000);
}

#[test]
fn counters_are_updated() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, &[1; 40_000]).unwrap();
    c.run();
    c.recv(server, 40_000).unwrap();
    c.run();
    let stats = c.sockets[&server].stats();
    assert_eq!((stats.received_messages, stats.received_bytes, stats.acks_sent), (1, 40_000, 1));
    let stats = c.sockets[&client].stats();
    assert_eq!((stats.sent_messages, stats.sent_bytes), (2, 40_000), "request and data");
}

#[test]
fn local_connection_survives_the_address_of_the_node() {
    let mut c = Cluster::new();
    let (listener, client) =
        (PortId { port: 1, node: NodeAddr::NONE }, PortId { port: 2, node: NodeAddr::NONE });
    for (at, port) in [(listener, 1), (client, 2)] {
        c.sockets.insert(at, Endpoint::new(c.now, SocketKind::SeqPacket, port, 0));
    }
    c.on(listener, |s, _, _| s.listen()).unwrap();
    c.connect(client, Destination::Port(listener)).unwrap();
    c.run();
    c.accept_as(listener, 3).unwrap();
    c.run();
    // from now on the node is A
    for port in [2, 3] {
        let socket = c.sockets.remove(&PortId { port, node: NodeAddr::NONE }).unwrap();
        c.sockets.insert(PortId { port, node: A }, socket);
    }
    let [client, server] = [2, 3].map(|port| PortId { port, node: A });
    c.send(client, b"before and after").unwrap();
    let (to, msg) = c.wire.in_flight.pop_front().unwrap();
    assert!(to.is_none());
    c.deliver(A, msg);
    assert_eq!(c.recv(server, 100).unwrap(), b"before and after");
}

#[test]
fn end_of_connection_is_queued_beyond_the_limit() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    while c.sockets[&client].stats().overloads == 0 {
        c.inject(client, conn(server, client.port, ErrorCode::Ok, &[1; 66_000]));
    }
    // fill the rest of the queue
    while c.sockets[&client].stats().overloads < 10 {
        c.inject(client, conn(server, client.port, ErrorCode::Ok, b"x"));
    }
    c.inject(client, conn(server, client.port, ErrorCode::ConnShutdown, &[2; 1000]));
    while c.recv(client, 66_000).unwrap() != b"" {}
    assert_eq!(c.state(client), State::Disconnecting);
}
