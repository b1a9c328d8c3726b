//! Messages that no correct peer sends. Spec: tipc.md §8.4, §14.2, §14.3.

use super::*;

#[test]
fn ack_beyond_what_was_sent_is_ignored() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    while c.send(client, &[1; 60_000]).is_ok() {}
    let before = c.unacked(client);
    let mut ack = control(server, client, 2);
    ack.set_conn_acked(u16::MAX);
    ack.set_advertised_window(u16::MAX);
    c.inject(client, ack);
    assert_eq!(c.unacked(client), before);
    assert!(!c.readiness(client).writable);
}

#[test]
fn connection_traffic_from_other_sockets_is_refused() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    let strangers =
        [PortId { port: server.port, node: NodeAddr(99) }, PortId { port: 99, node: server.node }];
    for stranger in strangers {
        c.inject(client, conn(stranger, client.port, ErrorCode::Ok, b"evil"));
        let log = c.take_log();
        assert_eq!((log.len(), log[0].error_code()), (1, ErrorCode::NoPort));
        c.inject(client, conn(stranger, client.port, ErrorCode::ConnShutdown, b""));
        let mut ack = control(stranger, client, 2);
        ack.set_advertised_window(0);
        c.inject(client, ack);
        let mut error = control(stranger, client, 0);
        error.set_error_code(ErrorCode::NoPort);
        c.inject(client, error);
        assert!(c.take_log().is_empty());
    }
    assert_eq!(c.state(client), State::Established);
    assert_eq!(c.recv(client, 10), Err(RecvError::WouldBlock));
    c.wire.in_flight.clear();
    c.send(client, b"still works").unwrap();
}

#[test]
fn connectionless_messages_are_refused_on_a_connection() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    for kind in 1..8 {
        let mut msg = Packet::build(User::Low, kind, 44, b"x");
        msg.set_prev_node(server.node);
        msg.set_origin_node(server.node);
        msg.set_origin_port(server.port);
        msg.set_dest_port(client.port);
        c.inject(client, msg);
        assert_eq!(c.take_log()[0].error_code(), ErrorCode::NoPort, "type {kind}");
    }
    assert_eq!(c.state(client), State::Established);
    assert!(!c.readiness(client).readable);
}

#[test]
fn request_to_a_socket_that_does_not_listen_is_rejected() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    for at in [client, c.open(B, SocketKind::Stream)] {
        let mut syn = Packet::build(User::Low, MessageType::Direct.into(), 32, b"");
        syn.set_prev_node(A);
        syn.set_origin_node(A);
        syn.set_origin_port(4);
        syn.set_dest_port(at.port);
        syn.set_syn(true);
        c.inject(at, syn);
        let log = c.take_log();
        assert_eq!((log[0].error_code(), log[0].syn(), log[0].dest_port()), (ErrorCode::NoPort, true, 4));
    }
}

#[test]
fn listener_accepts_only_requests() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    for kind in 0..8 {
        for syn in [false, true] {
            let mut msg = Packet::build(User::Low, kind, 44, b"x");
            msg.set_prev_node(B);
            msg.set_origin_node(B);
            msg.set_origin_port(4);
            msg.set_dest_port(listener.port);
            msg.set_syn(syn);
            c.inject(listener, msg.clone());
            msg.set_error_code(ErrorCode::NoPort);
            c.inject(listener, msg);
        }
    }
    assert_eq!(
        c.sockets[&listener].option(SocketOption::ReceiveQueueDepth),
        Ok(2),
        "NAMED and DIRECT with SYN"
    );
}

#[test]
fn types_of_groups_and_connections_do_not_reach_datagram_sockets() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    for kind in [0, 4, 5, 6, 7] {
        let mut msg = Packet::build(User::Low, kind, 44, b"x");
        msg.set_prev_node(B);
        msg.set_origin_node(B);
        c.inject(at, msg);
        assert_eq!(c.take_log()[0].error_code(), ErrorCode::NoPort);
    }
    assert!(!c.readiness(at).readable);
}

#[test]
fn users_not_meant_for_sockets_are_dropped() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    let rdm = c.open(B, SocketKind::Rdm);
    for user in 4..16u8 {
        for at in [client, rdm] {
            c.inject(at, Packet::build(User::from(user), 3, 40, b"x"));
        }
    }
    assert!(c.take_log().is_empty());
    assert_eq!(c.state(client), State::Established);
    assert_eq!(c.sockets[&rdm].stats().dropped, 12);
}

#[test]
fn headers_too_short_for_their_type_are_dropped() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let rdm = c.open(A, SocketKind::Rdm);
    for (user, kind, header) in [(0, 1, 40), (0, 2, 32), (0, 3, 24), (0, 4, 40), (8, 2, 24), (8, 0, 32)] {
        for at in [listener, rdm] {
            let mut msg = Packet::build(User::from(user), kind, header, b"x");
            msg.set_syn(true);
            c.inject(at, msg);
        }
    }
    assert!(c.take_log().is_empty());
    assert!(!c.readiness(listener).readable && !c.readiness(rdm).readable);
    assert_eq!(c.sockets[&rdm].stats().dropped, 6);
}

#[test]
fn returned_message_is_never_returned_again() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    c.inject(client, conn(PortId { port: 1, node: A }, client.port, ErrorCode::Overload, b"x"));
    assert!(c.take_log().is_empty());
    assert!(reverse(A, conn(client, 1, ErrorCode::NoPort, b""), ErrorCode::NoPort).is_none());
    let mut droppable = conn(client, 1, ErrorCode::Ok, b"");
    droppable.set_dest_droppable(true);
    assert!(reverse(A, droppable, ErrorCode::NoPort).is_none());
}

#[test]
fn peer_that_ignores_the_window_is_disconnected() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    for _ in 0..100 {
        c.inject(client, conn(server, client.port, ErrorCode::Ok, &[1; 66_000]));
    }
    assert!(c.sockets[&client].option(SocketOption::ReceiveQueueUsed).unwrap() < 2 * 1024 * 1024);
    assert_eq!(c.take_log()[0].error_code(), ErrorCode::Overload);
    c.run();
    assert_eq!(c.state(server), State::Disconnecting, "the sender gets its message back");
}

#[test]
fn window_of_zero_does_not_block_the_sender_forever() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, b"x").unwrap();
    let mut ack = control(server, client, 2);
    ack.set_conn_acked(0);
    c.inject(client, ack.clone());
    assert_eq!(c.send(client, b"y"), Err(SendError::WouldBlock));
    assert!(c.wait_reason(client).is_some());
    ack.set_conn_acked(1);
    c.inject(client, ack);
    assert_eq!(c.send(client, b"y"), Ok(1));
}

#[test]
fn returned_request_that_was_never_made_is_refused() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    let mut other = Packet::build(User::Low, MessageType::Named.into(), 40, b"");
    other.set_prev_node(A);
    other.set_origin_node(A);
    other.set_origin_port(1);
    other.set_syn(true);
    other.set_name_type(501);
    other.set_name_instance(1);
    other.set_error_code(ErrorCode::NoPort);
    c.inject(client, other.clone());
    assert_eq!(c.state(client), State::Connecting);
    other.set_error_code(ErrorCode::Ok);
    other.set_origin_port(listener.port);
    c.inject(client, other);
    assert_eq!(c.state(client), State::Connecting);
    c.run();
    assert!(c.accept(listener).is_ok());
}

#[test]
fn random_messages_neither_panic_nor_exhaust_memory() {
    let mut rng = crate::Rng::new(42);
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    let listener = c.listener(A, SocketKind::SeqPacket, 600);
    let targets = [client, server, listener, c.open(A, SocketKind::Rdm), c.open(B, SocketKind::SeqPacket)];
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..24 + rng.below(60)).map(|_| rng.next_u32() as u8).collect();
        let word = 2 << 29
            | rng.below(16) << 25
            | (6 + rng.below(9)) << 21
            | rng.below(8) << 17
            | bytes.len() as u64;
        bytes[..4].copy_from_slice(&(word as u32).to_be_bytes());
        let Ok(mut msg) = Message::from_vec(bytes) else { continue };
        let at = targets[rng.below(5) as usize];
        if rng.below(2) == 0 {
            let peer = c.sockets[&at].peer().unwrap_or(client);
            msg.set_prev_node(peer.node);
            msg.set_origin_node(peer.node);
            msg.set_origin_port(peer.port);
        }
        c.inject(at, msg);
        c.wire.in_flight.clear();
        c.wire.log.clear();
        if rng.below(100) == 0 {
            c.on(at, |s, now, up| s.handle_timeout(now, up));
        }
        let _ = c.recv(at, 20);
        let _ = c.send(at, b"xyz");
        assert!(c.sockets[&at].option(SocketOption::ReceiveQueueUsed).unwrap() < 32 << 20);
    }
}
