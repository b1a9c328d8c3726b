use super::*;

#[test]
fn reads_are_independent_of_the_boundaries_of_writes() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.send(client, b"abc").unwrap();
    c.send(client, b"def").unwrap();
    c.run();
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    assert_eq!(c.recv_with(server, 5, peek).unwrap().0, b"abcde");
    assert_eq!(c.recv(server, 4).unwrap(), b"abcd");
    assert_eq!(c.recv_with(server, 5, peek).unwrap().0, b"ef");
    assert_eq!(c.recv(server, 4).unwrap(), b"ef");
    assert_eq!(c.recv(server, 4), Err(RecvError::WouldBlock));
}

#[test]
fn message_counts_when_it_was_read_completely() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.send(client, &[1; 60_000]).unwrap();
    c.run();
    c.take_log();
    c.recv(server, 59_999).unwrap();
    assert!(c.take_log().is_empty());
    c.recv(server, 1).unwrap();
    assert_eq!(c.take_log()[0].conn_acked(), 59);
}

#[test]
fn data_is_read_before_the_end_of_the_connection() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.send(client, b"last words").unwrap();
    c.shutdown(client);
    c.run();
    assert_eq!(c.recv(server, 4).unwrap(), b"last");
    assert_eq!(c.recv(server, 100).unwrap(), b" words");
    for _ in 0..3 {
        assert_eq!(c.recv(server, 100).unwrap(), b"");
    }
}

#[test]
fn receive_goal_of_blocking_readers() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    let goal = |c: &Cluster, len, wait_all| {
        c.sockets[&server].receive_goal(len, RecvOptions { wait_all, ..RecvOptions::default() })
    };
    assert_eq!((goal(&c, 100, false), goal(&c, 100, true)), (1, 100));
    c.set(server, SocketOption::ReceiveLowWater, 50);
    assert_eq!((goal(&c, 100, false), goal(&c, 20, false)), (50, 20));
    let rdm = c.open(A, SocketKind::Rdm);
    let all = RecvOptions { wait_all: true, ..RecvOptions::default() };
    assert_eq!(c.sockets[&rdm].receive_goal(100, all), 1);
    // a call returns what is available, so a goal beyond the window is reached in steps
    c.send(client, &[1; 30]).unwrap();
    c.run();
    assert_eq!(c.recv_with(server, 100, all).unwrap().0.len(), 30);
}

/// Small writes without waiting for the peer; returns the sizes of the messages sent.
fn burst(c: &mut Cluster, at: PortId, writes: usize) -> Vec<usize> {
    c.take_log();
    for _ in 0..writes {
        assert_eq!(c.send(at, &[b'x'; 100]), Ok(100));
    }
    c.take_log().iter().filter(|m| m.is_data()).map(|m| m.size()).collect()
}

#[test]
fn small_writes_are_collected_while_an_ack_is_due() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    // four are sent at once, the fifth requests an ack, the rest waits
    assert_eq!(burst(&mut c, client, 45), [124; 5]);
    c.run();
    let log = c.take_log();
    assert!(log[0].nagle_ack());
    let sizes: Vec<_> = log.iter().filter(|m| m.is_data()).map(|m| (m.size(), m.ack_required())).collect();
    // 40 × 100 bytes in one message, which the link fragments: collecting pays, so another ack is requested
    assert_eq!(sizes, [(4024, true)]);
    assert_eq!(c.recv(server, 10_000).unwrap().len(), 4500);
}

#[test]
fn writes_slightly_larger_than_packets_leave_in_full_packets() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.take_log();
    for _ in 0..65 {
        assert_eq!(c.send(client, &[b'x'; 1409]), Ok(1409));
    }
    let sizes: Vec<_> = c.take_log().iter().filter(|m| m.is_data()).map(|m| m.size()).collect();
    // The most that one segmented send takes: as many whole fragments as fit.
    let full = (c.wire.mss - 40) * 45;
    assert_eq!(sizes, [1433, 1433, 1433, 1433, 1433, full], "the rest waits for the acknowledgement");
    c.run();
    assert_eq!(c.recv(server, 100_000).unwrap().len(), 65 * 1409);
}

#[test]
fn writes_longer_than_a_full_message_leave_in_full_messages() {
    const WRITE: usize = 65_536;
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.set(server, SocketOption::ReceiveBuffer, 16 << 20);
    let full = (c.wire.mss - 40) * 45;
    // The first acknowledgement advertises the window; the second one is due from then on.
    burst(&mut c, client, 5);
    c.run();
    burst(&mut c, client, 9);
    c.take_log();
    let mut sent = 0;
    for _ in 0..20 {
        let data: Vec<u8> = (sent..sent + WRITE).map(|at| (at % 251) as u8).collect();
        assert_eq!(c.send(client, &data), Ok(WRITE));
        sent += WRITE;
    }
    let sizes: Vec<_> = c.take_log().iter().filter(|m| m.is_data()).map(|m| m.size()).collect();
    assert!(sizes.len() > 20 && sizes.iter().all(|size| *size == full), "{sizes:?}");
    c.run();
    let got = c.recv(server, 2 * sent).unwrap().split_off(1400);
    assert_eq!(got.len(), sent, "the rest leaves with the acknowledgement");
    assert!(got.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
}

#[test]
fn no_delay_old_peers_and_peer_messages_stop_collecting() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    c.set(client, SocketOption::NoDelay, 1);
    assert_eq!(burst(&mut c, client, 50), [124; 50]);
    c.set(client, SocketOption::NoDelay, 0);
    c.run();
    assert_eq!(burst(&mut c, client, 50), [124; 1], "the fifth write and later are collected");
    c.run();
    c.recv(server, 100_000).unwrap();

    let mut c = Cluster::new();
    c.wire.capabilities.insert(A, CAPABILITIES & !crate::limits::capability::NAGLE);
    let (client, _) = c.pair(SocketKind::Stream);
    assert_eq!(burst(&mut c, client, 50), [124; 50]);

    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    for _ in 0..20 {
        assert_eq!(burst(&mut c, client, 4), [124; 4]);
        c.send(server, b"reply").unwrap();
        c.run();
    }
}

#[test]
fn collected_data_leaves_in_messages_of_whole_packets() {
    // packets of 1388 bytes have room for 1348; 45 of them are a message
    const FULL: usize = 45 * 1348;
    // writes smaller than a packet, as large as a packet, and a byte larger than fits one packet
    for write in [100, 1000, 1364, 1365, 1388] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(SocketKind::Stream);
        c.set(server, SocketOption::ReceiveBuffer, 16 << 20);
        // the first acknowledgement advertises the window; the second one is due from then on
        for writes in [5, 9] {
            burst(&mut c, client, writes);
            c.take_log();
            if writes == 5 {
                c.run();
            }
        }
        let before = c.unacked(client);
        let mut sent = 0;
        let mut send = |c: &mut Cluster| {
            let data: Vec<u8> = (sent..sent + write).map(|at| (at % 251) as u8).collect();
            sent += write;
            assert_eq!(c.send(client, &data), Ok(write));
        };
        let mut sizes = Vec::new();
        while sizes.len() < 2 {
            send(&mut c);
            sizes.extend(c.take_log().iter().filter(|m| m.is_data()).map(|m| m.size()));
        }
        assert!(sizes.iter().all(|size| *size == FULL), "writes of {write}: {sizes:?}");
        let held = sent - sizes.len() * (FULL - 24);
        assert!(held < FULL, "the rest waits: {held}");
        assert_eq!(c.unacked(client), before + 60 * sizes.len() as u32, "uncharged");
        c.run();
        let got = c.recv(server, 2 * sent).unwrap().split_off(1400);
        assert_eq!(got.len(), sent, "the rest leaves with the acknowledgement");
        assert!(got.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
}

#[test]
fn on_one_node_collected_data_leaves_at_64_blocks_and_counts_as_sent() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::Stream, 500);
    let client = c.open(A, SocketKind::Stream);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    c.accept(listener).unwrap();
    c.run();
    for _ in 0..5 {
        c.send(client, &[1; 100]).unwrap();
    }
    c.take_log();
    let before = c.unacked(client);
    let mut held = 0;
    while c.take_log().is_empty() {
        c.send(client, &[1; 1000]).unwrap();
        held += 1000;
    }
    // 33 messages of 1500 bytes take 66 blocks
    assert!((32 * 1476..33 * 1476).contains(&held), "{held}");
    assert_eq!(c.unacked(client), before + held as u32 / 1476 * 2 + 1);
}

#[test]
fn collected_data_goes_out_when_the_socket_is_closed_or_shut_down() {
    for close in [true, false] {
        let mut c = Cluster::new();
        let (client, server) = c.pair(SocketKind::Stream);
        burst(&mut c, client, 9);
        if close {
            c.close(client);
        } else {
            c.shutdown(client);
        }
        c.run();
        assert_eq!(c.recv(server, 10_000).unwrap().len(), 900);
    }
}

#[test]
fn collected_data_waits_for_a_congested_link_and_stays_in_order() {
    let mut c = Cluster::new();
    let (client, server) = c.pair(SocketKind::Stream);
    for i in 0..5u8 {
        c.send(client, &[i; 10]).unwrap();
    }
    c.congest(B, A);
    c.send(client, &[5; 10]).unwrap();
    // too large to collect: sends the collected data along, and congests the link
    c.send(client, &[6; 66_000]).unwrap();
    assert_eq!(c.send(client, &[7; 10]), Err(SendError::WouldBlock));
    c.end_congestion(B, A);
    c.send(client, &[7; 10]).unwrap();
    c.run();
    let mut want = Vec::new();
    (0..6u8).for_each(|i| want.extend([i; 10]));
    want.extend([6; 66_000]);
    want.extend([7; 10]);
    assert_eq!(c.recv(server, 100_000).unwrap(), want);
}

#[test]
fn on_one_node_at_most_1500_bytes_are_collected() {
    let mut c = Cluster::new();
    let listener = c.listener(A, SocketKind::Stream, 500);
    let client = c.open(A, SocketKind::Stream);
    c.connect(client, Destination::service(500, 1)).unwrap();
    c.run();
    c.accept(listener).unwrap();
    c.run();
    burst(&mut c, client, 45);
    c.run();
    let largest = c.take_log().iter().map(|m| m.size()).max();
    assert_eq!(largest, Some(1500));
}

#[test]
fn collecting_pays_from_two_writes_per_message() {
    // number of writes collected in one message when the acknowledgement arrives
    for (writes, pays) in [(1, false), (2, true)] {
        let mut c = Cluster::new();
        let (client, _) = c.pair(SocketKind::Stream);
        burst(&mut c, client, 5 + writes);
        c.run();
        let log = c.take_log();
        let rest: Vec<_> = log.iter().filter(|m| m.is_data()).map(|m| (m.size(), m.ack_required())).collect();
        assert_eq!(rest, [(24 + 100 * writes, pays)]);
    }
}
