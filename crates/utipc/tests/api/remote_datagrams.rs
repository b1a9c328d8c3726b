//! Connectionless messages between clients of several daemons travel through lanes between each process and its node.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Engine, LIMIT, TestNode, join, makers_of, meet, pair};
use utipc::bearers::{Control, Direction, Faults, Middleware};
use utipc::{Destination, Importance, LinkProperty, Node, Scope, ServiceAddress, Socket, WaitReason};
use utipc_core::socket::{OptionValue, SocketOption};

const SERVICE: ServiceAddress = ServiceAddress::new(7300, 1);

/// A socket of `node` bound to the service `instance`.
fn server(node: &Node, instance: u32) -> Socket {
    let socket = node.rdm().unwrap();
    socket.bind(ServiceAddress::new(7300, instance), Scope::Cluster).unwrap();
    socket.set_receive_timeout(Some(LIMIT));
    // Large enough to hold every unread message.
    socket.set_option(SocketOption::ReceiveBuffer, OptionValue::Number(64 << 20)).unwrap();
    socket
}

/// Two linked nodes and a server on the second that the first knows.
fn served() -> ([TestNode; 2], Socket) {
    let [red, blue] = pair(Engine::Daemon);
    let server = server(&blue, 1);
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    ([red, blue], server)
}

/// A socket of `node` that has sent messages 0 and 1 to `to`, which gives it a lane.
fn client(node: &Node, to: impl Into<Destination>) -> Socket {
    let socket = node.rdm().unwrap();
    socket.set_send_timeout(Some(LIMIT));
    socket.set_receive_timeout(Some(LIMIT));
    let to = to.into();
    for number in 0..2 {
        socket.send_to(&body(number), to).unwrap();
    }
    socket
}

/// The data of message `number`.
fn body(number: u32) -> Vec<u8> {
    const SIZES: [usize; 7] = [4, 64, 100, 1400, 1500, 9000, 66_000];
    let mut body = vec![number as u8; SIZES[number as usize % SIZES.len()]];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body
}

fn receive_bodies(socket: &Socket, from: u32, to: u32) {
    for number in from..to {
        assert!(socket.receive().unwrap().data == body(number), "message {number}");
    }
}

#[test]
fn datagrams_use_a_lane_in_order_without_requests() {
    const MESSAGES: u32 = 1000;
    let [red, blue] = pair(Engine::Daemon);
    for direct in [false, true] {
        let receiver = server(&blue, 1);
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let to = if direct { Destination::from(receiver.port()) } else { Destination::from(SERVICE) };
        let sender = client(&red, to);
        let before = red.daemon_counters();
        assert!(before.lanes > 0, "{before:?}");
        thread::scope(|scope| {
            scope.spawn(|| receive_bodies(&receiver, 0, MESSAGES));
            for number in 2..MESSAGES {
                sender.send_to(&body(number), to).unwrap();
            }
        });
        // Larger rings are requested, and the table if it is new.
        let asked = red.daemon_counters().requests - before.requests;
        assert!(asked < 20, "the daemon got {asked} requests");
        assert_eq!(sender.stats().sent_messages, u64::from(MESSAGES));
        // A message sent by request afterwards arrives after those of the lane.
        let range = utipc::ServiceRange::new(7300, 0, 1);
        for number in 0..20 {
            sender.send_to(&body(number), to).unwrap();
            sender.send_to(b"to all", range).unwrap();
            assert_eq!(receiver.receive().unwrap().data, body(number));
            assert_eq!(receiver.receive().unwrap().data, b"to all");
        }
    }
    assert_eq!(red.daemon_counters().lanes_corrupt + blue.daemon_counters().lanes_corrupt, 0);
}

#[test]
fn undeliverable_messages_come_back() {
    let [red, blue] = pair(Engine::Daemon);
    let receiver = server(&blue, 1);
    let port = receiver.port();
    let sender = client(&red, port);
    sender.set_returned(true).unwrap();
    receive_bodies(&receiver, 0, 2);
    drop(receiver);
    for number in 0..10_u32 {
        sender.send_to(&number.to_be_bytes(), port).unwrap();
        let back = sender.receive().unwrap();
        assert_eq!(back.returned.unwrap().data, number.to_be_bytes());
    }
    // The sender's own node returns messages to an unknown node.
    let mut nowhere = port;
    nowhere.node.0 += 77;
    for number in 0..3_u32 {
        sender.send_to(&number.to_be_bytes(), nowhere).unwrap();
        let back = sender.receive().unwrap();
        assert_eq!(back.returned.unwrap().data, number.to_be_bytes());
    }
}

#[test]
fn sent_messages_arrive_after_the_socket_closes() {
    let ([red, _blue], receiver) = served();
    let sender = client(&red, SERVICE);
    for number in 2..200 {
        sender.send_to(&body(number), SERVICE).unwrap();
    }
    drop(sender);
    receive_bodies(&receiver, 0, 200);
}

/// Three nodes, and control over the faults of the second one's bearer.
fn three() -> ([TestNode; 3], Control) {
    let [red, blue, green] = makers_of(Engine::Daemon);
    let mut control = None;
    let (send, receive) = std::sync::mpsc::channel();
    let blue = blue.address(2).middleware(move |bearer| {
        let wire = Middleware::new(bearer, 1).unwrap();
        let _ = send.send(wire.control());
        Box::new(wire)
    });
    let [red, blue] = join([red.address(1), blue]);
    let green = green.address(3).start();
    for (one, other) in [(&red, &green), (&green, &red), (&blue, &green)] {
        meet(one, other);
    }
    control = control.or(receive.recv().ok());
    for link in red.links() {
        red.set_link(&link.name, LinkProperty::ToleranceMs(30_000)).unwrap();
    }
    ([red, blue, green], control.unwrap())
}

/// Sends until it would block; returns the next number, counting on from `from`.
fn fill(socket: &Socket, from: u32, to: ServiceAddress) -> u32 {
    socket.set_nonblocking(true);
    let sent = (from..).take_while(|number| socket.send_to(&body(*number), to).is_ok()).count();
    socket.set_nonblocking(false);
    from + sent as u32
}

#[test]
fn congested_node_delays_only_its_own_messages() {
    let (nodes, wire) = three();
    let [red, blue, green] = &nodes;
    let (slow, fast) = (server(blue, 1), server(green, 2));
    let other = ServiceAddress::new(7300, 2);
    for service in [SERVICE, other] {
        red.wait_for_service(service, LIMIT).unwrap();
    }
    let sender = client(red, SERVICE);
    receive_bodies(&slow, 0, 2);
    wire.set(Direction::Receive, Faults::loss(100));
    let start = Instant::now();
    let mut sent = fill(&sender, 2, SERVICE);
    while !matches!(sender.wait_reason(), Some(WaitReason::LinkCongested { node, .. }) if node == blue.address())
    {
        assert!(start.elapsed() < LIMIT, "{:?}", sender.wait_reason());
        sent = fill(&sender, sent, SERVICE);
    }
    let before = red.daemon_counters().requests;
    for _ in 0..1000 {
        assert_eq!(fill(&sender, sent, SERVICE), sent);
    }
    assert_eq!(red.daemon_counters().requests, before, "retries cost requests");
    // The same socket and another one can send to another node.
    let second = client(red, other);
    receive_bodies(&fast, 0, 2);
    for number in 0..300 {
        sender.send_to(&body(number), other).unwrap();
        assert!(fast.receive().unwrap().data == body(number));
        second.send_to(&body(number), other).unwrap();
        assert!(fast.receive().unwrap().data == body(number));
    }
    // More important messages have a queue of their own.
    let urgent = client(red, other);
    receive_bodies(&fast, 0, 2);
    urgent.set_importance(Importance::High).unwrap();
    urgent.set_nonblocking(true);
    urgent.send_to(b"urgent", SERVICE).unwrap();
    // A waiting sender continues when the queue is drained.
    let waits = sender.stats().link_waits;
    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send_to(&body(sent), SERVICE));
        while sender.stats().link_waits == waits {
            assert!(start.elapsed() < LIMIT, "the send did not wait");
            thread::sleep(Duration::from_millis(1));
        }
        wire.set(Direction::Receive, Faults::default());
        waiting.join().unwrap()
    });
    waiting.unwrap();
    let mut next = 2;
    while next <= sent {
        let got = slow.receive().unwrap();
        if got.data != b"urgent" {
            assert!(got.data == body(next), "message {next}");
            next += 1;
        }
    }
    assert_eq!(red.daemon_counters().lanes_corrupt, 0);
}

/// Echoes `rounds` messages.
fn echo(socket: &Socket, rounds: u32) {
    for _ in 0..rounds {
        let got = socket.receive().unwrap();
        socket.send_to(&got.data, got.source).unwrap();
    }
}

#[test]
fn requests_and_replies_cost_no_daemon_requests() {
    const ROUNDS: u32 = 500;
    let ([red, blue], server) = served();
    let client = red.rdm().unwrap();
    client.set_receive_timeout(Some(LIMIT));
    let ask = |rounds: u32| {
        thread::scope(|scope| {
            scope.spawn(|| echo(&server, rounds));
            for number in 0..rounds {
                client.send_to(&body(number), SERVICE).unwrap();
                let back = client.receive().unwrap();
                assert!(back.data == body(number) && back.source == server.port());
            }
        });
    };
    // Enough for lanes whose rings hold the largest message.
    ask(14);
    let before = [&red, &blue].map(|node| node.daemon_counters());
    assert_eq!(before.each_ref().map(|counters| counters.lanes), [2; 2]);
    ask(ROUNDS);
    for (node, before) in [&red, &blue].into_iter().zip(before) {
        let asked = node.daemon_counters().requests - before.requests;
        assert!(asked < 20, "the daemon got {asked} requests");
    }
    let stats = server.stats();
    assert_eq!(stats.received_messages, u64::from(ROUNDS) + 14);
}

#[test]
fn local_and_remote_senders_keep_their_order() {
    const MESSAGES: u32 = 300;
    let ([red, blue], receiver) = served();
    let here = blue.again();
    let senders = [red.rdm().unwrap(), here.rdm().unwrap(), blue.rdm().unwrap()];
    let mut next = [0_u32; 3];
    thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    sender.send_to(&number.to_be_bytes(), SERVICE).unwrap();
                }
            });
        }
        for _ in 0..3 * MESSAGES {
            let got = receiver.receive().unwrap();
            let from = senders.iter().position(|sender| sender.port() == got.source).unwrap();
            assert_eq!(got.data, next[from].to_be_bytes(), "sender {from}");
            next[from] += 1;
        }
    });
    assert_eq!(next, [MESSAGES; 3]);
}

#[test]
fn unread_messages_of_a_closed_socket_come_back() {
    let [red, blue] = pair(Engine::Daemon);
    let receiver = server(&blue, 1);
    let sender = client(&red, receiver.port());
    sender.set_returned(true).unwrap();
    for number in 2..10 {
        sender.send_to(&body(number), receiver.port()).unwrap();
    }
    // Part of the rest is in the lane, part at the node.
    receive_bodies(&receiver, 0, 4);
    drop(receiver);
    let mut back: Vec<u8> = (0..6)
        .map(|_| {
            let returned = sender.receive().unwrap().returned.unwrap();
            assert_eq!(returned.code, utipc::ErrorCode::NoPort);
            returned.data[3]
        })
        .collect();
    back.sort_unstable();
    assert_eq!(back, [4, 5, 6, 7, 8, 9]);
}

#[test]
fn poll_reports_messages_in_a_lane() {
    let [red, blue] = pair(Engine::Daemon);
    let receiver = server(&blue, 1);
    let sender = client(&red, receiver.port());
    receive_bodies(&receiver, 0, 2);
    receiver.set_nonblocking(true);
    let descriptor = receiver.descriptor().unwrap();
    for number in 2..200 {
        assert!(receiver.receive().is_err());
        sender.send_to(&body(number), receiver.port()).unwrap();
        let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut polled, Some(&limit)).unwrap(), 1, "message {number}");
        // The wake-up may be for a notice about a lane.
        while receiver.receive().map(|got| assert!(got.data == body(number))).is_err() {
            assert_eq!(rustix::event::poll(&mut polled, Some(&limit)).unwrap(), 1, "message {number}");
        }
    }
}

/// Others keep the queue of a lossy link more than half full: a sender that waits for it by shared memory takes its
/// turn at the node.
#[test]
fn sender_gets_its_share_of_a_link_that_others_keep_full() {
    const STREAMED: usize = 20_000;
    let [red, blue] = makers_of::<2>(Engine::Daemon);
    let (handle, control) = std::sync::mpsc::channel();
    let red = red.middleware(move |bearer| {
        let middleware = Middleware::new(bearer, 7).unwrap();
        handle.send(middleware.control()).unwrap();
        Box::new(middleware)
    });
    let [red, blue] = join([red.address(1), blue.address(2)]);
    let control: Control = control.recv().unwrap();
    let stream = ServiceAddress::new(7300, 2);
    let listener = blue.listen(utipc::SocketKind::Stream, stream).unwrap();
    let server = server(&blue, 1);
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    red.wait_for_service(stream, LIMIT).unwrap();
    for direction in [Direction::Send, Direction::Receive] {
        let delay = Duration::from_millis(5);
        let others = Faults { reorder_ppm: 300_000, duplicate_ppm: 20_000, ..Faults::loss(10) };
        control.set(direction, Faults { delay, ..others });
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    let (programs, mut sent) = ([red.again(), red.again()], 0);
    let client = client(&programs[0], SERVICE);
    thread::scope(|scope| {
        scope.spawn(|| {
            let connection = listener.accept().unwrap();
            let mut buffer = vec![0; 60_000];
            while connection.receive_into(&mut buffer).is_ok_and(|received| received.len > 0) {}
        });
        scope.spawn(|| {
            while !is_over() {
                drop(server.receive())
            }
        });
        scope.spawn(|| {
            let connection = programs[1].connect(utipc::SocketKind::Stream, stream).unwrap();
            (0..STREAMED).for_each(|_| connection.send(&[7; 1400]).unwrap());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            connection.shutdown().unwrap();
        });
        while !is_over() {
            client.send_to(&[8; 1400], SERVICE).unwrap();
            sent += 1;
        }
        // Ends the receiver.
        client.send_to(&[8; 4], SERVICE).unwrap();
    });
    assert!(sent > STREAMED / 100, "{sent} messages beside {STREAMED}");
}
