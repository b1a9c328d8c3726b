//! Connections between clients of two daemons: data travels through lanes between each process and its node.

use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, TestNode, connected, exchange, pair, pattern, read_pattern};
use utipc::{Connection, ServiceAddress, SocketKind, Spin};

const SERVICE: ServiceAddress = ServiceAddress::new(7100, 1);
const BOTH: [SocketKind; 2] = [SocketKind::SeqPacket, SocketKind::Stream];

fn nodes() -> [TestNode; 2] {
    pair(Engine::Daemon)
}

#[test]
fn data_uses_lanes_without_requests() {
    const ROUNDS: u32 = 1000;
    let [red, blue] = nodes();
    for kind in BOTH {
        let ends = connected(kind, SERVICE, &red, &blue);
        exchange(&ends, 4);
        let before = [red.daemon_counters(), blue.daemon_counters()];
        assert_eq!(before.each_ref().map(|c| (c.lanes, c.pairs)), [(2, 1); 2]);
        exchange(&ends, ROUNDS);
        for (node, before) in [&red, &blue].into_iter().zip(before) {
            assert_eq!(node.daemon_counters().requests, before.requests, "{kind:?}: the daemon got requests");
        }
        let stats = ends[0].socket().stats();
        assert_eq!(stats.received_messages, u64::from(ROUNDS) + 4, "{kind:?}");
        assert_eq!(stats.sent_bytes, 4 * (u64::from(ROUNDS) + 4));
        let [client, server] = ends;
        client.shutdown().unwrap();
        assert_eq!(server.receive().unwrap().data, b"");
        drop((client, server));
    }
    assert_eq!(red.daemon_counters().lanes_corrupt + blue.daemon_counters().lanes_corrupt, 0);
}

#[test]
fn lanes_end_with_their_sockets() {
    let [red, blue] = nodes();
    for _ in 0..10 {
        let ends = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
        exchange(&ends, 3);
    }
    // Pending replies are sent with the next calls.
    for node in [&red, &blue] {
        let start = std::time::Instant::now();
        while node.daemon_counters().lanes > 0 {
            node.rdm().unwrap();
            assert!(start.elapsed() < LIMIT, "{:?}", node.daemon_counters());
        }
    }
}

#[test]
fn stream_carries_all_bytes_both_ways_at_once() {
    const BYTES: usize = 16 << 20;
    let [red, blue] = nodes();
    let ends = connected(SocketKind::Stream, SERVICE, &red, &blue);
    thread::scope(|scope| {
        for end in &ends {
            scope.spawn(move || {
                for chunk in pattern(BYTES).chunks(100_000) {
                    let mut rest = chunk;
                    while !rest.is_empty() {
                        rest = &rest[end.socket().send(rest).unwrap()..];
                    }
                }
            });
            scope.spawn(move || read_pattern(end, BYTES));
        }
    });
}

/// The data of message `number`.
fn body(number: usize) -> Vec<u8> {
    const SIZES: [usize; 11] = [1, 63, 64, 65, 1000, 2000, 2100, 5000, 30_000, 65_536, 66_000];
    let mut body = vec![number as u8; SIZES[number % SIZES.len()]];
    let sum = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let len = body.len().min(8);
    body[..len].copy_from_slice(&sum[..len]);
    body
}

fn receive_bodies(end: &Connection, from: usize, to: usize) {
    for number in from..to {
        assert!(end.receive().unwrap().data == body(number), "message {number}");
    }
}

#[test]
fn messages_of_all_sizes_arrive_complete_and_in_order() {
    const MESSAGES: usize = 1500;
    let [red, blue] = nodes();
    let ends = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    ends[1].socket().set_spin(Spin::Parked);
    thread::scope(|scope| {
        for end in &ends {
            scope.spawn(|| (0..MESSAGES).for_each(|number| end.send(&body(number)).unwrap()));
            scope.spawn(|| receive_bodies(end, 0, MESSAGES));
        }
    });
}

/// Sends until a send times out; returns the number of messages sent.
fn fill(end: &Connection) -> usize {
    end.socket().set_send_timeout(Some(Duration::from_millis(100)));
    let sent = (0..).take_while(|number| end.send(&body(*number)).is_ok()).count();
    end.socket().set_send_timeout(Some(LIMIT));
    sent
}

#[test]
fn sent_messages_arrive_after_the_sender_closes() {
    let [red, blue] = nodes();
    for shutdown in [false, true] {
        let [client, server] = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
        client.send(b"one").unwrap();
        client.send(b"two").unwrap();
        assert_eq!(server.receive().unwrap().data, b"one");
        assert_eq!(server.receive().unwrap().data, b"two");
        let sent = fill(&client);
        assert!(sent > 20);
        let mut open_client = None;
        if shutdown {
            client.shutdown().unwrap();
            assert!(client.send(b"too late").is_err());
            open_client = Some(client);
        } else {
            drop(client);
        }
        receive_bodies(&server, 0, sent);
        match server.receive() {
            Ok(end) => assert!(shutdown && end.data.is_empty()),
            Err(error) => assert!(!shutdown && error.errno() == 104, "{error}"),
        }
        drop(open_client);
    }
}

#[test]
fn closing_with_unread_data_resets_the_connection() {
    let [red, blue] = nodes();
    let ends = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    exchange(&ends, 3);
    let [client, server] = ends;
    for number in 0..10 {
        client.send(&body(number)).unwrap();
    }
    receive_bodies(&server, 0, 5);
    drop(server);
    assert_eq!(client.receive().unwrap_err().errno(), 104);
    assert!(client.send(b"too late").is_err());
}

#[test]
fn polled_socket_returns_its_lanes_and_loses_no_data() {
    let [red, blue] = nodes();
    for kind in BOTH {
        let ends = connected(kind, SERVICE, &red, &blue);
        exchange(&ends, 3);
        let [client, server] = ends;
        let number = |n: u32| n.to_be_bytes();
        let mut buffer = [0; 4];
        for n in 0..200 {
            client.send(&number(n)).unwrap();
        }
        // Only a part of the first message, where that is possible; the rest comes from the node.
        let part = if kind == SocketKind::Stream { 2 } else { 4 };
        assert_eq!(server.receive_into(&mut buffer[..part]).unwrap().len, part);
        let _theirs = server.socket().descriptor().unwrap();
        let _ours = client.socket().descriptor().unwrap();
        for n in 200..400 {
            client.send(&number(n)).unwrap();
        }
        let mut all: Vec<u8> = buffer[..part].to_vec();
        while all.len() < 1600 {
            let got = server.receive().unwrap();
            all.extend_from_slice(&got.data);
        }
        let expected: Vec<u8> = (0..400).flat_map(number).collect();
        assert!(all == expected, "{kind:?}");
        exchange(&[client, server], 20);
    }
}

#[test]
fn full_window_delays_only_its_own_connection() {
    let [red, blue] = nodes();
    let full = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    exchange(&full, 3);
    let sent = fill(&full[0]);
    let other = connected(SocketKind::SeqPacket, SERVICE, &red, &blue);
    exchange(&other, 50);
    receive_bodies(&full[1], 0, sent);
    exchange(&full, 3);
}
