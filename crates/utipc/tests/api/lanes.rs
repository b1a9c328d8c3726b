//! Sockets of one daemon's processes exchange messages directly, over lanes.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    Engine, LIMIT, TestNode, alone, connected, exchange, fill, pattern, read_pattern, unblock,
};
use utipc::{
    Call, Connection, Error, ErrorCode, Node, OptionValue, Scope, ServiceAddress, Socket, SocketKind,
    SocketOption, Spin, WaitReason,
};

const SERVICE: ServiceAddress = ServiceAddress::new(7000, 1);

/// A node with two attachments, like those of two processes.
fn host() -> (TestNode, Node) {
    let red = alone(Engine::Daemon);
    let blue = red.again();
    (red, blue)
}

#[test]
fn connection_data_bypasses_the_daemon() {
    const ROUNDS: u32 = 2000;
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        for spin in [Spin::Adaptive, Spin::Parked] {
            let (red, blue) = host();
            let ends = connected(kind, SERVICE, &red, &blue);
            for end in &ends {
                end.socket().set_spin(spin);
            }
            // The first messages make all necessary requests.
            exchange(&ends, 2);
            let before = red.daemon_counters();
            assert_eq!((before.lanes, before.pairs), (2, 1));
            exchange(&ends, ROUNDS);
            assert_eq!(red.daemon_counters().requests, before.requests, "{kind:?}: the daemon got requests");
            let [client, server] = ends;
            let stats = client.socket().stats();
            assert_eq!(stats.received_messages, u64::from(ROUNDS) + 2);
            assert_eq!(server.receive_end(client), 0);
        }
    }
}

trait End {
    fn receive_end(&self, peer: Connection) -> usize;
}

impl End for Connection {
    /// Shuts the peer down; returns the length of what is received then.
    fn receive_end(&self, peer: Connection) -> usize {
        peer.shutdown().unwrap();
        self.receive().unwrap().data.len()
    }
}

#[test]
fn lanes_and_pairs_end_with_their_sockets() {
    let (red, blue) = host();
    for _ in 0..20 {
        let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
        client.send(b"one").unwrap();
        assert_eq!(server.receive().unwrap().data, b"one");
        drop(client);
        assert_eq!(server.receive().unwrap_err().errno(), 104);
    }
    drop(blue);
    // Pending replies are sent with the next calls.
    let start = Instant::now();
    while red.daemon_counters().lanes > 0 {
        let _ = red.rdm().unwrap().receive_into(&mut []);
        assert!(start.elapsed() < LIMIT, "{:?}", red.daemon_counters());
        red.rdm().unwrap();
    }
}

#[test]
fn stream_over_lanes_carries_all_bytes_both_ways() {
    const BYTES: usize = 16 << 20;
    let (red, blue) = host();
    let ends = connected(SocketKind::Stream, SERVICE, &red, &blue);
    thread::scope(|scope| {
        for end in &ends {
            scope.spawn(move || {
                for chunk in pattern(BYTES).chunks(100_000) {
                    end.send(chunk).unwrap();
                }
            });
            scope.spawn(move || read_pattern(end, BYTES));
        }
    });
}

#[test]
fn messages_of_all_sizes_keep_their_boundaries() {
    let (red, blue) = host();
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    let sizes = [1, 63, 64, 65, 1000, 2000, 2100, 5000, 30_000, 65_536, 66_000];
    thread::scope(|scope| {
        scope.spawn(|| {
            for (number, size) in sizes.iter().cycle().take(2000).enumerate() {
                client.send(&vec![number as u8; *size]).unwrap();
            }
        });
        for (number, size) in sizes.iter().cycle().take(2000).enumerate() {
            let data = server.receive().unwrap().data;
            assert_eq!((data.len(), data[0], data[size - 1]), (*size, number as u8, number as u8));
        }
    });
}

#[test]
fn slow_local_reader_blocks_sender_with_a_reason() {
    let (red, blue) = host();
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    client.socket().set_send_timeout(Some(Duration::from_millis(100)));
    let message = vec![5; 10_000];
    let (sent, error) = fill(&client, &message);
    let by_window = Some(WaitReason::PeerWindow { peer: server.socket().port(), unacked: 0, window: 0 });
    let Error::TimedOut { call: Call::Send, reason, .. } = &error else { panic!("{error}") };
    assert_eq!(reason.map(|r| core::mem::discriminant(&r)), by_window.map(|r| core::mem::discriminant(&r)));
    assert!(error.to_string().contains(&server.socket().port().to_string()), "{error}");
    unblock(&client, &server, (sent, &message));
}

#[test]
fn send_does_not_wait_for_a_blocked_receive() {
    let (red, blue) = host();
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    for spin in [Spin::Busy, Spin::Adaptive, Spin::Parked] {
        client.socket().set_spin(spin);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| client.receive().unwrap());
            // The other thread is blocked in receive while this one sends.
            for _ in 0..100 {
                client.send(b"ping").unwrap();
                assert_eq!(server.receive().unwrap().data, b"ping");
            }
            server.send(b"pong").unwrap();
            assert_eq!(waiting.join().unwrap().data, b"pong");
        });
    }
}

#[test]
fn datagrams_switch_to_lanes_and_keep_their_order() {
    const SENDERS: u32 = 12;
    const MESSAGES: u32 = 3000;
    let (red, blue) = host();
    let server = red.rdm().unwrap();
    server.bind(SERVICE, Scope::Node).unwrap();
    server.set_receive_timeout(Some(LIMIT));
    let to = server.port();
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            // Some run in the server's own process.
            let node = if sender % 3 == 0 { Node::clone(&red) } else { blue.clone() };
            scope.spawn(move || {
                let socket = node.rdm().unwrap();
                for number in 0..MESSAGES {
                    let size = if number % 100 == 0 { 3000 } else { 8 };
                    let mut data = vec![0; size];
                    data[..4].copy_from_slice(&sender.to_be_bytes());
                    data[4..8].copy_from_slice(&number.to_be_bytes());
                    socket.send_to(&data, to).unwrap();
                    if number % 8 == 7 {
                        // Wait for the receiver's confirmation, so that no queue overflows.
                        socket.receive().unwrap();
                    }
                }
                socket
            });
        }
        let mut expected = [0; SENDERS as usize];
        for _ in 0..SENDERS * MESSAGES {
            let message = server.receive().unwrap();
            let word = |at: usize| u32::from_be_bytes(message.data[at..at + 4].try_into().unwrap());
            let (sender, number) = (word(0) as usize, word(4));
            assert_eq!(number, expected[sender], "sender {sender}");
            expected[sender] += 1;
            if number % 8 == 7 {
                server.send_to(b"go on", message.source).unwrap();
            }
        }
    });
    assert!(
        red.daemon_counters().requests < u64::from(SENDERS * MESSAGES),
        "messages went through the daemon"
    );
}

#[test]
fn message_is_returned_if_its_lane_gets_no_larger_ring() {
    let (red, blue) = host();
    let receiver = red.rdm().unwrap();
    receiver.set_receive_timeout(Some(LIMIT));
    // The least buffer, 512 KiB: room for two of the rings of 256 KiB that the messages need.
    receiver.set_option(SocketOption::ReceiveBuffer, OptionValue::Number(1)).unwrap();
    let to = receiver.port();
    let senders = [(); 3].map(|()| {
        let sender = blue.rdm().unwrap();
        sender.set_receive_timeout(Some(LIMIT));
        sender.set_returned(true).unwrap();
        // From here on there is a lane.
        sender.send_to(b"first", to).unwrap();
        sender
    });
    let (done, sent) = mpsc::channel::<Socket>();
    thread::spawn(move || {
        for sender in senders {
            sender.send_to(&[7; 60_000], to).unwrap();
            done.send(sender).unwrap();
        }
    });
    let [_one, _two, refused] = [(); 3].map(|()| sent.recv_timeout(LIMIT).expect("the call returns"));
    let back = refused.receive().unwrap().returned.expect("the message comes back");
    assert_eq!((back.code, back.data), (ErrorCode::Overload, vec![7; 1024]));
    let mut sizes = [(); 5].map(|()| receiver.receive().unwrap().data.len());
    sizes.sort_unstable();
    assert_eq!(sizes, [5, 5, 5, 60_000, 60_000]);
}

#[test]
fn polled_socket_keeps_its_lanes_and_loses_no_message() {
    let (red, blue) = host();
    let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    for number in 0..20_u8 {
        client.send(&[number]).unwrap();
    }
    assert_eq!(server.receive().unwrap().data, [0]);
    // Some messages are in the lane, and more follow.
    let _descriptor = server.socket().descriptor().unwrap();
    for number in 20..40_u8 {
        client.send(&[number]).unwrap();
    }
    for number in 1..40_u8 {
        assert_eq!(server.receive().unwrap().data, [number]);
    }
    for number in 0..40_u8 {
        server.send(&[number]).unwrap();
        assert_eq!(client.receive().unwrap().data, [number]);
    }
    assert_eq!(red.daemon_counters().lanes, 2);
    drop(client);
    assert_eq!(server.receive().unwrap_err().errno(), 104);
}
