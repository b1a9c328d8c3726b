use super::*;

#[test]
fn connect_completes_when_the_server_accepts() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 18_888);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(18_888, 1)).unwrap();
    c.run();
    assert_eq!(c.state(client), State::Connecting);
    assert_eq!(c.wait_reason(client), Some(WaitReason::Connecting { node: A }));
    assert_eq!(c.connect(client, Destination::service(18_888, 1)), Err(ConnectError::Already));
    assert_eq!(c.send(client, b"x"), Err(SendError::NotConnected));
    assert!(c.readiness(listener).readable);
    let server = c.accept(listener).unwrap();
    assert_eq!(c.accept(listener), Err(AcceptError::WouldBlock));
    c.run();
    assert_eq!(c.state(client), State::Established);
    assert_eq!(c.wait_reason(client), None);
    assert_eq!(c.sockets[&client].peer(), Some(server));
    assert_eq!(c.sockets[&server].peer(), Some(client));
    assert_eq!(c.wire.connections[&client], server);
    assert_eq!(c.wire.connections[&server], client);
    let again = c.connect(client, Destination::service(18_888, 1));
    assert_eq!(again, Err(ConnectError::Send(SendError::IsConnected)));
}

#[test]
fn server_socket_gets_importance_and_service_of_the_request() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.set(client, SocketOption::Importance, 2);
    c.send_to(client, b"hello", Destination::service(500, 1)).unwrap();
    c.run();
    let server = c.accept(listener).unwrap();
    c.run();
    assert_eq!(c.sockets[&server].option(SocketOption::Importance), Ok(2));
    assert_eq!(c.sockets[&client].option(SocketOption::Importance), Ok(2));
    let name = Some(ServiceRange::new(500, 1, 1));
    let (data, info) = c.recv_with(server, 10, RecvOptions::default()).unwrap();
    assert_eq!((data.as_slice(), info.destination, info.source), (&b"hello"[..], name, client));
    c.send(client, b"again").unwrap();
    c.send(server, b"answer").unwrap();
    c.run();
    assert_eq!(c.recv_with(server, 10, RecvOptions::default()).unwrap().1.destination, name);
    assert_eq!(c.recv_with(client, 10, RecvOptions::default()).unwrap().1.destination, name);
}

#[test]
fn connection_to_a_port_has_no_service() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::Stream, 500);
    let client = c.open(B, SocketKind::Stream);
    c.send_to(client, b"hello", Destination::Port(listener)).unwrap();
    c.run();
    let server = c.accept(listener).unwrap();
    let (_, info) = c.recv_with(server, 10, RecvOptions::default()).unwrap();
    assert_eq!(info.destination, None);
}

#[test]
fn implied_connect_counts_its_data_like_the_receiver() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.send_to(client, &vec![1; 66_000], Destination::service(500, 1)).unwrap();
    c.run();
    let server = c.accept(listener).unwrap();
    c.run();
    assert_eq!(c.unacked(client), 65, "66,040 bytes");
    c.recv(server, 66_000).unwrap();
    c.run();
    assert_eq!(c.unacked(client), 0);
}

#[test]
fn invalid_connection_requests_are_refused() {
    let mut c = Cluster::new();
    let bound = c.bound(B, SocketKind::SeqPacket, 900);
    let to = Destination::service(900, 1);
    assert_eq!(c.connect(bound, to), Err(SendError::BoundSocket.into()));
    assert_eq!(c.send_to(bound, b"x", to), Err(SendError::BoundSocket));
    let listener = c.listener(B, SocketKind::SeqPacket, 901);
    assert_eq!(c.send_to(listener, b"x", to), Err(SendError::Broken));
    let open = c.open(B, SocketKind::Stream);
    let range = Destination::Range(ServiceRange::new(900, 0, 5));
    assert_eq!(c.connect(open, range), Err(SendError::InvalidDestination.into()));
    assert_eq!(c.send(open, b"x"), Err(SendError::NotConnected));
    assert_eq!(c.connect(open, Destination::service(12_345, 1)), Err(SendError::HostUnreachable.into()));
    assert_eq!(c.state(open), State::Open);
}

#[test]
fn request_times_out_without_accept() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.pass(7999);
    assert_eq!(c.state(client), State::Connecting);
    c.pass(1);
    assert_eq!(c.state(client), State::Disconnecting);
    let ready = c.readiness(client);
    assert!(ready.readable && ready.hung_up && !ready.writable);
    assert_eq!(c.on(client, |s, _, _| s.take_error()), Some(ConnectError::TimedOut));
    // a late accept finds no client
    let server = c.accept(listener).unwrap();
    c.run();
    assert_eq!(c.state(server), State::Disconnecting);
}

#[test]
fn connect_timeout_of_zero_is_the_default() {
    let mut c = Cluster::new();
    c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.set(client, SocketOption::ConnectTimeout, 0);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.pass(8000);
    assert_eq!(c.recv(client, 1), Err(RecvError::TimedOut));
}

#[test]
fn socket_that_does_not_listen_refuses() {
    let mut c = Cluster::new();
    c.bound(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    assert_eq!(c.state(client), State::Disconnecting);
    assert_eq!(c.send(client, b"x"), Err(SendError::Refused));
    assert_eq!(c.send(client, b"x"), Err(SendError::Broken));
}

#[test]
fn unknown_service_on_the_node_asked_refuses() {
    let mut c = Cluster::new();
    let client = c.open(B, SocketKind::SeqPacket);
    let to = Destination::Service { addr: ServiceAddr { service: 3399, instance: 1 }, domain: A };
    c.connect(client, to).unwrap();
    c.run();
    assert_eq!(c.on(client, |s, _, _| s.take_error()), Some(ConnectError::Refused));
}

#[test]
fn returned_rerouted_request_refuses() {
    // the node asked chose a socket, so the reply does not come from the port that got the request
    let mut c = Cluster::new();
    let client = c.open(B, SocketKind::SeqPacket);
    let to = Destination::Service { addr: ServiceAddr { service: 3399, instance: 1 }, domain: A };
    c.connect(client, to).unwrap();
    let (_, mut syn) = c.wire.in_flight.pop_front().unwrap();
    syn.set_dest_port(4711);
    c.inject(client, reverse(A, syn, ErrorCode::NoPort).unwrap());
    assert_eq!(c.on(client, |s, _, _| s.take_error()), Some(ConnectError::Refused));
}

#[test]
fn request_to_a_full_listener_is_repeated() {
    for timeout in [8000, 3, 1] {
        let mut c = Cluster::new();
        let listener = c.listener(A, SocketKind::SeqPacket, 500);
        let client = c.open(B, SocketKind::SeqPacket);
        c.set(client, SocketOption::ConnectTimeout, timeout);
        c.send_to(client, b"data", Destination::service(500, 1)).unwrap();
        let (_, syn) = c.wire.in_flight.pop_front().unwrap();
        let back = reverse(A, syn, ErrorCode::Overload).unwrap();
        assert!(back.data().is_empty(), "the client keeps a copy");
        c.inject(client, back);
        assert_eq!(c.state(client), State::Connecting);
        if timeout < 4 {
            // CVE-2026-43411: a quarter of such a timeout is 0
            c.pass(10);
            assert_eq!(c.state(client), State::Disconnecting);
            continue;
        }
        c.take_log();
        c.pass(99);
        assert!(c.take_log().is_empty());
        c.pass(1 + 8000 / 4);
        assert_eq!(c.sockets[&client].stats().syn_retries, 1);
        let server = c.accept(listener).unwrap();
        assert_eq!(c.recv(server, 10).unwrap(), b"data");
    }
}

#[test]
fn retry_waits_for_the_congested_link() {
    let mut c = Cluster::new();
    c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.congest(B, A);
    c.connect(client, Destination::service(500, 1)).unwrap();
    assert_eq!(c.wait_reason(client), Some(WaitReason::Connecting { node: NodeAddr::NONE }));
    let (_, syn) = c.wire.in_flight.pop_front().unwrap();
    c.inject(client, reverse(A, syn, ErrorCode::Overload).unwrap());
    c.pass(4000);
    assert_eq!(c.sockets[&client].stats().syn_retries, 0);
    c.end_congestion(B, A);
    c.pass(200);
    assert_eq!(c.sockets[&client].stats().syn_retries, 1);
}

#[test]
fn connect_over_a_congested_link_would_block() {
    let mut c = Cluster::new();
    c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.on(client, |s, _, _| s.congestion_mut().begin(A));
    assert_eq!(c.connect(client, Destination::service(500, 1)), Err(SendError::WouldBlock.into()));
    assert!(matches!(c.wait_reason(client), Some(WaitReason::LinkCongested { node: A, .. })));
    c.end_congestion(B, A);
    assert_eq!(c.wait_reason(client), None);
    c.connect(client, Destination::service(500, 1)).unwrap();
}

#[test]
fn request_queue_of_a_listener_is_bounded() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    c.set(listener, SocketOption::ReceiveBuffer, 0);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    let (_, syn) = c.wire.in_flight.pop_front().unwrap();
    c.take_log();
    let fits = 512 * 1024 / (40 + 128);
    for i in 0..fits + 10 {
        let mut syn = syn.clone();
        syn.set_origin_port(5000 + i);
        c.inject(listener, syn);
    }
    let back = c.take_log();
    assert_eq!(back.len(), 10);
    assert!(back.iter().all(|m| m.error_code() == ErrorCode::Overload));
    assert_eq!(c.sockets[&listener].stats().overloads, 10);
}

#[test]
fn old_nodes_request_without_syn() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    let (_, mut syn) = c.wire.in_flight.pop_front().unwrap();
    syn.set_syn(false);
    c.inject(listener, syn.clone());
    assert_eq!(c.accept(listener), Err(AcceptError::WouldBlock));
    c.wire.capabilities.insert(B, 0);
    c.inject(listener, syn);
    assert!(c.accept(listener).is_ok());
}

#[test]
fn connected_socket_cannot_be_bound_and_close_withdraws_bindings() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    let range = ServiceRange::new(700, 1, 1);
    let bind = |c: &mut Cluster, at, range| c.on(at, |s, _, up| s.bind(range, Scope::Cluster, up));
    assert_eq!(bind(&mut c, client, range), Err(BindError::InvalidState));
    let rdm = c.open(A, SocketKind::Rdm);
    assert_eq!(bind(&mut c, rdm, ServiceRange::new(63, 1, 1)), Err(BindError::Reserved));
    assert_eq!(bind(&mut c, rdm, ServiceRange::new(64, 2, 1)), Err(BindError::InvalidRange));
    assert_eq!(bind(&mut c, rdm, range), Ok(()));
    assert!(c.sockets[&rdm].is_bound());
    let unbind = |c: &mut Cluster, which| c.on(rdm, |s, _, up| s.unbind(which, up));
    assert_eq!(unbind(&mut c, Some((range, Scope::Node))), Err(BindError::NotBound));
    assert_eq!(unbind(&mut c, Some((range, Scope::Cluster))), Ok(()));
    assert_eq!(unbind(&mut c, None), Err(BindError::NotBound));
    bind(&mut c, rdm, range).unwrap();
    c.close(rdm);
    assert!(c.wire.bound(range).is_empty());
}

#[test]
fn accept_after_the_client_node_was_lost_ends_the_connection() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::SeqPacket, 500);
    let client = c.open(B, SocketKind::SeqPacket);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    c.lose(B);
    let server = c.accept(listener).unwrap();
    assert_eq!(c.state(server), State::Disconnecting);
    assert_eq!(c.recv(server, 10), Err(RecvError::ConnectionReset));
}
