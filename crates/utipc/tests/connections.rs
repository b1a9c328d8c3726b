//! Connections between two nodes.

mod common;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use common::{Engine, LIMIT, connected, fill, on_each_engine, pair};
use utipc::{Connection, Error, ServiceAddress, SocketKind, State, WaitReason};

on_each_engine!(
    messages_keep_their_bounds_and_the_end_is_seen,
    a_connection_is_set_up_by_its_first_data,
    a_stream_carries_all_bytes_both_ways,
    a_slow_reader_makes_the_sender_wait_and_it_can_say_for_whom,
    timeouts_and_would_block_say_what_is_waited_for,
    refusals_say_why,
    a_connection_breaks_when_the_other_node_leaves,
    a_stream_can_wait_for_a_full_buffer,
    a_bad_wire_loses_nothing,
    after_the_own_shutdown_there_is_nothing_to_wait_for,
);

const SERVICE: ServiceAddress = ServiceAddress::new(2000, 1);

fn messages_keep_their_bounds_and_the_end_is_seen(engine: Engine) {
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

fn after_the_own_shutdown_there_is_nothing_to_wait_for(engine: Engine) {
    let node = common::alone(engine);
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        for sends in [false, true] {
            let [client, _server] = connected(kind, SERVICE, &node, &node);
            if sends {
                client.send(b"last words").unwrap();
            }
            client.shutdown().unwrap();
            assert_eq!(client.receive().unwrap_err().errno(), 107, "{kind:?}, sends: {sends}");
        }
    }
}

fn a_connection_is_set_up_by_its_first_data(engine: Engine) {
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

fn a_stream_carries_all_bytes_both_ways(engine: Engine) {
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

fn a_slow_reader_makes_the_sender_wait_and_it_can_say_for_whom(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    client.socket().set_send_timeout(Some(Duration::from_millis(200)));
    let message = vec![5; 10_000];
    let (sent, error) = fill(&client, &message);
    assert!(
        matches!(&error, Error::TimedOut { call: "send", reason: Some(WaitReason::PeerWindow { .. }) }),
        "{error}"
    );
    assert!(error.to_string().contains(&server.socket().port().to_string()), "{error}");
    // Nothing is lost, and it goes on once the reader reads.
    for _ in 0..sent {
        assert!(server.receive().unwrap().data == message);
    }
    client.socket().set_send_timeout(Some(LIMIT));
    client.send(b"on we go").unwrap();
    assert_eq!(server.receive().unwrap().data, b"on we go");
}

fn timeouts_and_would_block_say_what_is_waited_for(engine: Engine) {
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
    // Closed, not shut down: the other end is told that it is broken.
    assert_eq!(client.receive().unwrap_err().errno(), 104);
}

fn refusals_say_why(engine: Engine) {
    let [red, blue] = pair(engine);
    let nobody = red.connect(SocketKind::Stream, ServiceAddress::new(4243, 1)).unwrap_err();
    assert_eq!(nobody.errno(), 113);
    // A socket that does not listen.
    let mute = blue.seqpacket().unwrap();
    mute.bind(SERVICE, utipc::Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    assert_eq!(red.connect(SocketKind::SeqPacket, SERVICE).unwrap_err().errno(), 111);
    assert_eq!(red.rdm().unwrap().listen().unwrap_err().errno(), 95);
}

fn a_connection_breaks_when_the_other_node_leaves(engine: Engine) {
    let [red, blue] = pair(engine);
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    let waiting = thread::spawn(move || client.receive());
    drop((server, blue));
    assert_eq!(waiting.join().unwrap().unwrap_err().errno(), 104);
}

fn a_stream_can_wait_for_a_full_buffer(engine: Engine) {
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
    // What there is when the time is over, or the stream ends.
    let client = writer.join().unwrap();
    client.send(b"rest").unwrap();
    server.socket().set_receive_timeout(Some(Duration::from_millis(300)));
    assert_eq!(server.socket().receive_with(&mut buffer, all).unwrap().len, 4);
}

fn a_bad_wire_loses_nothing(engine: Engine) {
    use utipc::bearers::{Direction, Faults, Middleware};
    const MESSAGES: u32 = 2000;
    let [red, blue] = common::makers(engine);
    let (handle, control) = std::sync::mpsc::channel();
    let red = red.middleware(move |bearer| {
        let middleware = Middleware::new(bearer, 7).unwrap();
        handle.send(middleware.control()).unwrap();
        Box::new(middleware)
    });
    let [red, blue] = common::join([red.address(1), blue.address(2)]);
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
    assert!(control.counters(Direction::Send).dropped > 0, "the wire was good");
    assert_eq!(red.counters().links_down, 0);
}
