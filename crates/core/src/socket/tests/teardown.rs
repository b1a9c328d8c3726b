use super::*;

#[test]
fn peer_reads_zero_bytes_after_an_orderly_shutdown() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(kind);
        c.shutdown(client);
        c.run();
        assert_eq!(c.state(server), State::Disconnecting);
        let (data, info) = c.recv_with(server, 10, RecvOptions::default()).unwrap();
        assert!(data.is_empty());
        assert_eq!(info.returned.unwrap().code, ErrorCode::ConnShutdown);
        assert_eq!(c.recv(server, 10).unwrap(), b"");
        assert_eq!(c.send(server, b"x"), Err(SendError::Broken));
        assert_eq!(c.recv(client, 10), Err(RecvError::NotConnected));
        assert_eq!(c.send(client, b"x"), Err(SendError::Broken));
        let ready = c.readiness(client);
        assert!(ready.readable && ready.read_closed && ready.hung_up && !ready.writable);
        assert!(c.wire.connections.is_empty());
        c.shutdown(server);
        c.close(server);
        c.close(client);
        c.run();
        assert!(c.sockets.len() == 1, "only the listener is left");
    }
}

#[test]
fn hang_up_waits_for_the_last_message_unless_it_is_exact() {
    for (orderly, exact) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(SocketKind::SeqPacket);
        c.set(server, SocketOption::ExactHangUp, exact.into());
        for data in [b"one", b"two"] {
            c.send(client, data).unwrap();
        }
        if orderly {
            c.shutdown(client);
        } else {
            c.close(client);
        }
        c.run();
        for _ in 0..2 {
            let unread =
                Readiness { readable: true, writable: !exact, hung_up: exact, ..Readiness::default() };
            assert_eq!(c.readiness(server), unread);
            assert_eq!(c.send(server, b"x"), Err(SendError::Broken));
            assert_eq!(c.recv(server, 10).unwrap().len(), 3);
        }
        let ended = Readiness { readable: true, hung_up: true, ..Readiness::default() };
        assert_eq!(c.readiness(server), ended);
        assert_eq!(c.recv(server, 10).is_ok(), orderly);
        assert_eq!(c.readiness(server), ended);
    }
}

#[test]
fn accepted_socket_hangs_up_as_its_listener_does() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::Stream, 600);
    c.set(listener, SocketOption::ExactHangUp, 1);
    let client = c.open(B, SocketKind::Stream);
    c.connect(client, Destination::service(600, 1)).unwrap();
    c.run();
    let server = c.accept(listener).unwrap();
    for (at, exact) in [(server, 1), (client, 0)] {
        assert_eq!(c.on(at, |s, _, _| s.option(SocketOption::ExactHangUp)), Ok(exact));
    }
}

#[test]
fn shutdown_of_a_connectionless_socket_fails_and_ends_waiting_receives() {
    let mut c = Cluster::new();
    let (to, from) = (c.bound(A, SocketKind::Rdm, 600), c.open(B, SocketKind::Rdm));
    c.set(from, SocketOption::DestDroppable, 0);
    for data in [b"one", b"two"] {
        c.send_to(from, data, Destination::service(600, 1)).unwrap();
    }
    c.run();
    assert_eq!(c.on(to, |s, now, up| s.shutdown(now, up)), Err(StateError::NotConnected));
    c.run();
    for data in ["one", "two"] {
        let (_, info) = c.recv_with(from, 10, RecvOptions::default()).unwrap();
        let returned = info.returned.unwrap();
        assert_eq!((returned.code, returned.data), (ErrorCode::ConnShutdown, data.into()));
    }
    assert_eq!(c.recv(to, 10), Err(RecvError::NotConnected));
    let ready = c.readiness(to);
    assert!(ready.readable && ready.read_closed && ready.hung_up && ready.writable);
    // Messages still arrive and leave.
    c.send_to(from, b"later", Destination::service(600, 1)).unwrap();
    c.run();
    assert_eq!(c.recv(to, 10).unwrap(), b"later");
    assert_eq!(c.recv(to, 10), Err(RecvError::NotConnected));
    c.send_to(to, b"own", Destination::service(600, 1)).unwrap();
    c.run();
    assert_eq!(c.recv(to, 10).unwrap(), b"own");
    assert_eq!(c.on(to, |s, now, up| s.shutdown(now, up)), Err(StateError::NotConnected));
}

#[test]
fn shutdown_needs_a_connection() {
    let mut c = Cluster::new();
    for at in
        [c.listener(A, SocketKind::SeqPacket, 600), c.open(A, SocketKind::Stream), c.open(A, SocketKind::Rdm)]
    {
        assert_eq!(c.on(at, |s, now, up| s.shutdown(now, up)), Err(StateError::NotConnected));
    }
    assert_eq!(StateError::NotConnected.errno().number(), 107);
}

#[test]
fn close_resets_the_peer() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, b"read this first").unwrap();
    c.close(client);
    c.run();
    assert_eq!(c.recv(server, 100).unwrap(), b"read this first");
    for _ in 0..2 {
        assert_eq!(c.recv(server, 100), Err(RecvError::ConnectionReset));
    }
    let control = RecvOptions { control: true, ..RecvOptions::default() };
    let (_, info) = c.recv_with(server, 100, control).unwrap();
    assert_eq!(info.returned, Some(Returned { code: ErrorCode::NoPort, data: vec![] }));
    assert_eq!(info.destination, None, "no data, no destination");
    assert_eq!(c.recv(server, 100), Err(RecvError::NotConnected));
}

#[test]
fn first_unread_message_is_returned_unless_partly_read() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    for text in ["one", "two", "three"] {
        c.send(client, text.as_bytes()).unwrap();
    }
    c.run();
    assert_eq!(c.recv(server, 1).unwrap(), b"o");
    c.close(server);
    c.run();
    let control = RecvOptions { control: true, ..RecvOptions::default() };
    let (_, info) = c.recv_with(client, 100, control).unwrap();
    assert_eq!(info.returned, Some(Returned { code: ErrorCode::NoPort, data: b"two".to_vec() }));
    assert_eq!(info.destination, Some(ServiceRange::new(3000, 1, 1)));
}

#[test]
fn shutdown_with_unread_data_returns_it_as_shutdown() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(client, b"unread").unwrap();
    c.run();
    c.shutdown(server);
    c.run();
    let (_, info) = c.recv_with(client, 100, RecvOptions::default()).unwrap();
    assert_eq!(info.returned, Some(Returned { code: ErrorCode::ConnShutdown, data: b"unread".to_vec() }));
    assert_eq!(c.recv(server, 10), Err(RecvError::NotConnected));
}

#[test]
fn end_of_connection_does_not_overtake_waiting_data() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    while c.send(client, &[1; 60_000]).is_ok() {}
    c.run();
    c.take_log();
    c.close(client);
    assert!(c.take_log().is_empty(), "the end waits for the window");
    assert_eq!(c.send(client, b"x"), Err(SendError::Broken));
    while c.recv(server, 60_000).is_ok() {}
    c.run();
    assert!(!c.sockets.contains_key(&client));
    assert_eq!(c.recv(server, 100), Err(RecvError::ConnectionReset));
}

/// What the peer reads after data: 0 bytes after a shutdown, a reset after a close alone.
#[test]
fn close_does_not_replace_a_shutdown_that_waits_behind_data() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        for link in [true, false] {
            let mut c = Cluster::new();
            let (client, server) = c.pair(kind);
            c.set(client, SocketOption::NoDelay, 1);
            if link {
                c.congest(B, A);
                c.send(client, &[1; 60_000]).unwrap();
            } else {
                while c.send(client, &[1; 60_000]).is_ok() {}
            }
            c.shutdown(client);
            c.close(client);
            c.run();
            assert_eq!(
                c.state(server),
                State::Established,
                "the end waits for the {}",
                if link { "link" } else { "window" }
            );
            assert_eq!(c.recv(server, 60_000).unwrap(), [1; 60_000]);
            c.end_congestion(B, A);
            c.run();
            while c.state(server) == State::Established {
                c.recv(server, 60_000).unwrap();
                c.run();
            }
            assert!(!c.sockets.contains_key(&client));
            while !c.recv(server, 60_000).unwrap().is_empty() {}
            for _ in 0..2 {
                assert_eq!(c.recv(server, 100).unwrap(), b"");
            }
        }
    }
}

#[test]
fn close_after_a_waiting_shutdown_keeps_its_deadline() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    while c.send(client, &[1; 60_000]).is_ok() {}
    c.shutdown(client);
    c.pass(5000);
    c.close(client);
    c.pass(2999);
    assert!(c.sockets.contains_key(&client));
    c.pass(1);
    assert!(!c.sockets.contains_key(&client));
    while !c.recv(server, 60_000).unwrap().is_empty() {}
}

#[test]
fn both_ends_shut_down_and_close_at_once() {
    for waits in [false, true] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(SocketKind::SeqPacket);
        if waits {
            for at in [client, server] {
                while c.send(at, &[1; 60_000]).is_ok() {}
            }
        }
        for at in [client, server] {
            c.shutdown(at);
        }
        for at in [client, server] {
            c.close(at);
        }
        c.pass(8000);
        assert_eq!(c.sockets.len(), 1, "only the listener is left");
        assert!(c.take_log().iter().all(|m| m.error_code() != ErrorCode::NoPort));
    }
}

#[test]
fn shutdown_with_unread_data_and_close_end_in_order() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(server, b"unread").unwrap();
    while c.send(client, &[1; 60_000]).is_ok() {}
    c.run();
    c.shutdown(client);
    c.close(client);
    while c.state(server) == State::Established {
        c.recv(server, 60_000).unwrap();
        c.run();
    }
    while c.recv(server, 60_000).is_ok_and(|data| !data.is_empty()) {}
    assert_eq!(c.recv(server, 60_000).unwrap(), b"");
}

#[test]
fn end_of_connection_waits_at_most_8_seconds() {
    for link in [true, false] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(SocketKind::SeqPacket);
        if link {
            c.congest(B, A);
            c.send(client, b"x").unwrap();
        } else {
            while c.send(client, &[1; 60_000]).is_ok() {}
        }
        c.run();
        c.close(client);
        c.pass(7999);
        assert_eq!(c.state(server), State::Established);
        c.pass(1);
        c.run();
        assert!(!c.sockets.contains_key(&client));
        assert_eq!(c.state(server), State::Disconnecting);
    }
}

#[test]
fn wake_up_completes_the_close() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.congest(B, A);
    c.send(client, b"x").unwrap();
    c.shutdown(client);
    c.run();
    assert_eq!(c.state(server), State::Established);
    c.end_congestion(B, A);
    c.run();
    assert_eq!(c.state(server), State::Disconnecting);
    assert_eq!(c.recv(server, 10).unwrap(), b"x");
}

#[test]
fn lost_node_breaks_connections_after_queued_data() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.send(client, b"prefix").unwrap();
    c.run();
    c.lose(B);
    assert_eq!(c.state(server), State::Disconnecting);
    assert_eq!(c.recv(server, 100).unwrap(), b"prefix");
    assert_eq!(c.recv(server, 100), Err(RecvError::ConnectionReset));
    assert_eq!(c.send(server, b"x"), Err(SendError::Broken));
}

#[test]
fn lost_node_completes_a_waiting_close() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    while c.send(client, &[1; 60_000]).is_ok() {}
    c.close(client);
    assert!(c.sockets.contains_key(&client));
    c.lose(A);
    assert!(!c.sockets.contains_key(&client));
}

#[test]
fn data_for_an_ended_connection_is_rejected() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::SeqPacket);
    c.send(server, b"crossing").unwrap();
    c.shutdown(client);
    c.run();
    let log = c.take_log();
    let last = log.last().unwrap();
    assert_eq!((last.error_code(), last.data()), (ErrorCode::NoPort, &b"crossing"[..]));
}

#[test]
fn closing_a_listener_refuses_all_requests() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let clients = [c.open(B, SocketKind::SeqPacket), c.open(A, SocketKind::SeqPacket)];
    for client in clients {
        c.connect(client, Destination::service(500, 1)).unwrap();
    }
    c.run();
    c.close(listener);
    c.run();
    for client in clients {
        assert_eq!(c.recv(client, 10), Err(RecvError::Refused));
    }
}

#[test]
fn accept_after_the_client_gave_up_yields_a_broken_connection() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    c.close(client);
    c.run();
    let server = c.accept(listener).unwrap();
    c.run();
    assert_eq!(c.recv(server, 10), Err(RecvError::ConnectionReset));
}

#[test]
fn unread_datagrams_are_returned_if_requested() {
    let mut c = Cluster::new();
    let receiver = c.bound(A, SocketKind::Rdm, 500);
    let [wants, does_not] = [0, 1].map(|droppable| {
        let s = c.open(B, SocketKind::Rdm);
        c.set(s, SocketOption::DestDroppable, droppable);
        c.send_to(s, b"hello", Destination::service(500, 1)).unwrap();
        s
    });
    c.run();
    c.close(receiver);
    c.run();
    let (_, info) = c.recv_with(wants, 100, RecvOptions::default()).unwrap();
    assert_eq!(info.returned, Some(Returned { code: ErrorCode::NoPort, data: b"hello".to_vec() }));
    assert_eq!(info.destination, Some(ServiceRange::new(500, 1, 1)));
    assert_eq!(c.recv(does_not, 100), Err(RecvError::WouldBlock));
    assert_eq!(c.sockets[&wants].stats().returned_to_us, 1);
}
