//! Connections between two nodes.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, connected, fill, on_each_engine, pair, unblock};
use utipc::{Call, Connection, Error, ServiceAddress, SocketKind, State, WaitReason};

on_each_engine!(
    messages_keep_their_boundaries_until_shutdown,
    first_data_sets_up_a_connection,
    first_send_waits_for_the_server,
    first_send_reports_a_refusal,
    first_send_that_may_not_wait_leaves_the_request_pending,
    send_after_opening_with_data_waits_for_the_server,
    stream_carries_all_bytes_both_ways,
    slow_reader_blocks_sender_with_a_reason,
    timeout_and_would_block_report_the_wait_reason,
    refused_connections_report_their_errno,
    connection_breaks_when_the_peer_node_leaves,
    wait_all_fills_the_buffer_of_a_stream,
    faulty_bearer_loses_no_message,
    receive_after_own_shutdown_fails,
    connection_that_has_ended_was_connected,
);

const SERVICE: ServiceAddress = ServiceAddress::new(2000, 1);

fn messages_keep_their_boundaries_until_shutdown(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    assert_eq!(client.peer(), Some(server.socket().port()));
    client.send(b"one").unwrap();
    client.send(b"two").unwrap();
    assert_eq!(server.receive().unwrap().data, b"one");
    assert_eq!(server.receive().unwrap().data, b"two");
    client.shutdown().unwrap();
    assert!(server.receive().unwrap().data.is_empty());
    assert_eq!(red.seqpacket().unwrap().shutdown().unwrap_err().errno(), 107);
}

fn receive_after_own_shutdown_fails(engine: Engine) {
    let node = crate::common::alone(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        for sends in [false, true] {
            let [client, _server] = connected(kind, SERVICE, &node, &node);
            if sends {
                client.send(b"last message").unwrap();
            }
            client.shutdown().unwrap();
            assert_eq!(client.receive().unwrap_err().errno(), 107, "{kind:?}, sends: {sends}");
        }
    }
}

/// The server answers and ends before the client looks for the result of its request.
fn connection_that_has_ended_was_connected(engine: Engine) {
    let node = crate::common::alone(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let listener = node.listen(kind, SERVICE).unwrap();
        let client = node.socket(kind).unwrap();
        client.set_nonblocking(true);
        assert!(client.connect(SERVICE).is_err_and(|error| error.is_would_block()));
        let server = listener.accept().unwrap();
        let peer = server.socket().port();
        server.send(b"last").unwrap();
        server.shutdown().unwrap();
        client.set_nonblocking(false);
        client.set_receive_timeout(Some(LIMIT));
        let begun = std::time::Instant::now();
        while client.state() != State::Disconnecting {
            assert!(begun.elapsed() < LIMIT, "{kind:?}");
            thread::sleep(Duration::from_millis(1));
        }
        client.wait_connected().unwrap();
        assert_eq!(client.peer(), Some(peer));
        assert_eq!(client.receive().unwrap().data, b"last", "{kind:?}");
        assert!(client.receive().unwrap().data.is_empty(), "{kind:?}");
        // A request that fails has no peer, however often its result is asked for.
        let refused = node.socket(kind).unwrap();
        let closed = node.socket(kind).unwrap().port();
        for _ in 0..2 {
            let _ = refused.connect(closed);
            assert!(refused.wait_connected().is_err(), "{kind:?}");
            assert_eq!(refused.peer(), None, "{kind:?}");
        }
    }
}

fn first_data_sets_up_a_connection(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let listener = blue.listen(kind, SERVICE).unwrap();
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let client = Connection::open_with(red.socket(kind).unwrap(), SERVICE, b"first").unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(server.receive().unwrap().data, b"first");
        server.send(b"answer").unwrap();
        assert_eq!(client.receive().unwrap().data, b"answer");
        assert_eq!(client.socket().state(), State::Established);
    }
}

/// Accepts after a moment, and returns what the connection carries.
fn accept_later(listener: utipc::Listener, bytes: usize) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        let server = listener.accept().unwrap();
        server.socket().set_receive_timeout(Some(LIMIT));
        let mut all = Vec::new();
        while all.len() < bytes {
            all.extend(server.receive().unwrap().data);
        }
        all
    })
}

fn first_send_waits_for_the_server(engine: Engine) {
    let [red, blue] = pair(engine);
    for node in [&red, &blue] {
        for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
            let listener = blue.listen(kind, SERVICE).unwrap();
            node.wait_for_service(SERVICE, LIMIT).unwrap();
            let server = accept_later(listener, 12);
            let client = node.socket(kind).unwrap();
            for word in ["one ", "two ", "six "] {
                assert_eq!(client.send_to(word.as_bytes(), SERVICE).unwrap(), 4, "{kind:?}");
            }
            assert_eq!(server.join().unwrap(), b"one two six ", "{kind:?}");
        }
    }
}

fn first_send_reports_a_refusal(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let bound = blue.socket(kind).unwrap();
        bound.bind(SERVICE, utipc::Scope::Cluster).unwrap();
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let client = red.socket(kind).unwrap();
        assert_eq!(client.send_to(b"first", SERVICE).unwrap_err().errno(), 111, "{kind:?}");
        assert_eq!(client.send_to(b"again", SERVICE).unwrap_err().errno(), 32, "{kind:?}");
    }
}

fn first_send_that_may_not_wait_leaves_the_request_pending(engine: Engine) {
    let [red, blue] = pair(engine);
    let listener = blue.listen(SocketKind::Stream, SERVICE).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let (limited, nonblocking, empty) = (red.stream().unwrap(), red.stream().unwrap(), red.stream().unwrap());
    limited.set_send_timeout(Some(Duration::from_millis(20)));
    nonblocking.set_nonblocking(true);
    for (client, data) in [(&limited, "first"), (&nonblocking, "first"), (&empty, "")] {
        assert_eq!(client.send_to(data.as_bytes(), SERVICE).unwrap(), data.len());
        assert_eq!(client.state(), State::Connecting);
        assert_eq!(client.send_to(b"more", SERVICE).unwrap_err().errno(), 107);
    }
    // The server does not answer: the connect timeout ends the wait.
    let client = red.stream().unwrap();
    client.set_connect_timeout(Duration::from_millis(100)).unwrap();
    assert_eq!(client.send_to(b"first", SERVICE).unwrap_err().errno(), 110);
    drop(listener);
}

fn send_after_opening_with_data_waits_for_the_server(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let listener = blue.listen(kind, SERVICE).unwrap();
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let server = accept_later(listener, 8);
        let client = Connection::open_with(red.socket(kind).unwrap(), SERVICE, b"one ").unwrap();
        client.send(b"two ").unwrap();
        assert_eq!(server.join().unwrap(), b"one two ", "{kind:?}");
    }
}

fn stream_carries_all_bytes_both_ways(engine: Engine) {
    const BYTES: usize = 8 << 20;
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::Stream, SERVICE, &red, &blue);
    let write = |end: &Connection| {
        let data: Vec<u8> = (0..BYTES).map(|i| (i % 253) as u8).collect();
        for chunk in data.chunks(100_000) {
            let mut end = end;
            end.write_all(chunk).unwrap();
        }
    };
    let read = |end: &Connection| {
        let (mut at, mut buffer, mut end) = (0, vec![0; 30_000], end);
        while at < BYTES {
            let count = end.read(&mut buffer).unwrap();
            assert!(count > 0, "the stream ends at byte {at}");
            assert!(buffer[..count].iter().enumerate().all(|(i, b)| *b == ((at + i) % 253) as u8));
            at += count;
        }
    };
    thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(|| write(end));
            scope.spawn(|| read(end));
        }
    });
}

fn slow_reader_blocks_sender_with_a_reason(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    client.socket().set_send_timeout(Some(Duration::from_millis(200)));
    let message = vec![5; 10_000];
    let (sent, error) = fill(&client, &message);
    assert!(
        matches!(
            &error,
            Error::TimedOut { call: Call::Send, reason: Some(WaitReason::PeerWindow { .. }), .. }
        ),
        "{error}"
    );
    assert!(error.to_string().contains(&server.socket().port().to_string()), "{error}");
    unblock(&client, &server, (sent, &message));
}

fn timeout_and_would_block_report_the_wait_reason(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    client.socket().set_receive_timeout(Some(Duration::from_millis(50)));
    let error = client.receive().unwrap_err();
    assert!(matches!(error, Error::TimedOut { reason: Some(WaitReason::NothingReceived), .. }), "{error}");
    client.socket().set_nonblocking(true);
    assert_eq!(client.receive().unwrap_err().errno(), 11);
    drop(server);
    client.socket().set_nonblocking(false);
    client.socket().set_receive_timeout(Some(LIMIT));
    // Closed without a shutdown: the connection is reset.
    assert_eq!(client.receive().unwrap_err().errno(), 104);
}

fn refused_connections_report_their_errno(engine: Engine) {
    let [red, blue] = pair(engine);
    let unbound = red.connect(SocketKind::Stream, ServiceAddress::new(4243, 1)).unwrap_err();
    assert_eq!(unbound.errno(), 113);
    // Bound, but not listening.
    let bound = blue.seqpacket().unwrap();
    bound.bind(SERVICE, utipc::Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    assert_eq!(red.connect(SocketKind::SeqPacket, SERVICE).unwrap_err().errno(), 111);
    assert_eq!(red.rdm().unwrap().listen().unwrap_err().errno(), 95);
}

fn connection_breaks_when_the_peer_node_leaves(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    let waiting = thread::spawn(move || client.receive());
    drop((server, blue));
    assert_eq!(waiting.join().unwrap().unwrap_err().errno(), 104);
}

fn wait_all_fills_the_buffer_of_a_stream(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::Stream, SERVICE, &red, &blue);
    let writer = thread::spawn(move || {
        for part in [b"one ", b"two ", b"thre"] {
            client.send(part).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        client
    });
    let all = utipc::RecvOptions { wait_all: true, ..Default::default() };
    let mut buffer = [0; 12];
    assert_eq!(server.socket().receive_with(&mut buffer, all).unwrap().len, 12);
    assert_eq!(&buffer, b"one two thre");
    // A timeout or the end of the stream returns what has arrived.
    let client = writer.join().unwrap();
    client.send(b"rest").unwrap();
    server.socket().set_receive_timeout(Some(Duration::from_millis(300)));
    assert_eq!(server.socket().receive_with(&mut buffer, all).unwrap().len, 4);
}

fn faulty_bearer_loses_no_message(engine: Engine) {
    use utipc::bearers::{Direction, Faults, Middleware};
    const MESSAGES: u32 = 2000;
    let [red, blue] = crate::common::makers(engine);
    let (handle, control) = std::sync::mpsc::channel();
    let red = red.middleware(move |bearer| {
        let middleware = Middleware::new(bearer, 7).unwrap();
        handle.send(middleware.control()).unwrap();
        Box::new(middleware)
    });
    let [red, blue] = crate::common::join([red.address(1), blue.address(2)]);
    let control = control.recv().unwrap();
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    for direction in [Direction::Send, Direction::Receive] {
        let reorder_ppm = 20_000;
        control.set(direction, Faults { reorder_ppm, duplicate_ppm: 10_000, ..Faults::loss(5) });
    }
    thread::scope(|scope| {
        scope.spawn(|| (0..MESSAGES).for_each(|i| client.send(&i.to_be_bytes()).unwrap()));
        for i in 0..MESSAGES {
            assert_eq!(server.receive().unwrap().data, i.to_be_bytes());
        }
    });
    assert!(control.counters(Direction::Send).dropped > 0, "the bearer dropped no frame");
    assert_eq!(red.counters().links_down, 0);
}
