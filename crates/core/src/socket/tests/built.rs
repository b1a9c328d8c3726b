//! Messages whose header the sending process has built.

use super::*;
use crate::wire::{NAMED_HEADER, View};

const PEER: PortId = PortId { port: 77, node: A };

/// Sends `data` from `at` and returns the message as the endpoint built it.
fn sent(c: &mut Cluster, at: PortId, data: &[u8], to: Option<Destination>) -> Vec<u8> {
    c.on(at, |s, now, up| s.send(now, data, to, up)).unwrap();
    let (_, message) = c.wire.log.pop().unwrap();
    message.into_bytes()
}

fn check(c: &Cluster, at: PortId, bytes: &[u8]) -> Option<Built> {
    c.sockets[&at].check_built(at.node, bytes.to_vec())
}

/// A socket of each kind, and a message that it has sent: direct, anycast, on a connection.
fn examples(c: &mut Cluster) -> [(PortId, Vec<u8>); 3] {
    c.bound(A, SocketKind::Rdm, 500);
    let (direct, named) = (c.open(B, SocketKind::Rdm), c.open(B, SocketKind::Dgram));
    let (client, _) = c.pair(SocketKind::SeqPacket);
    [(direct, Some(PEER.into())), (named, Some(Destination::service(500, 1))), (client, None)]
        .map(|(at, to)| (at, sent(c, at, b"data", to)))
}

#[test]
fn message_leaves_with_the_header_that_it_has() {
    let mut c = Cluster::new();
    for (at, bytes) in examples(&mut c) {
        let built = check(&c, at, &bytes).unwrap();
        assert_eq!(built.size(), bytes.len());
        let before = c.sockets[&at].stats();
        assert_eq!(c.on(at, |s, now, up| s.send_built(now, built, up)), Ok(()));
        assert_eq!(c.wire.log.pop().unwrap().1.bytes(), bytes);
        let after = c.sockets[&at].stats();
        assert_eq!(
            (after.sent_messages - before.sent_messages, after.sent_bytes - before.sent_bytes),
            (1, 4)
        );
    }
}

#[test]
fn process_that_does_not_know_the_address_of_its_node_yet_sends_in_its_name() {
    let mut c = Cluster::new();
    for (at, bytes) in examples(&mut c) {
        let mut early = Message::from_vec(bytes.clone()).unwrap();
        early.set_prev_node(NodeAddr::NONE);
        if early.header_size() > SHORT_HEADER {
            early.set_origin_node(NodeAddr::NONE);
        }
        assert_eq!(check(&c, at, early.bytes()), check(&c, at, &bytes));
        assert!(check(&c, at, &bytes).is_some());
    }
}

#[test]
fn only_what_a_sender_chooses_may_differ() {
    let mut c = Cluster::new();
    for (at, bytes) in examples(&mut c) {
        let header = View::parse(&bytes).unwrap().header_size();
        for bit in 0..header as u32 * 8 {
            let (word, low) = (bit / 32, bit % 32);
            let mut other = bytes.clone();
            other[(word * 4 + 3 - low / 8) as usize] ^= 1 << (low % 8);
            // Importance and the two droppable bits; without a connection the destination; the scope of a service.
            let is_free = match word {
                0 => matches!(low, 18 | 19 | 25 | 26),
                1 => header == NAMED_HEADER && low == 19,
                5 | 7 => header > SHORT_HEADER,
                8.. => true,
                _ => false,
            };
            let got = check(&c, at, &other).is_some();
            assert_eq!(got, is_free, "header of {header} bytes, word {word}, bit {low}");
        }
        for len in 0..=header {
            assert!(check(&c, at, &bytes[..len]).is_none());
        }
        assert!(check(&c, at, &[&bytes[..], b"more"].concat()).is_none());
    }
}

#[test]
fn destination_is_on_another_node() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    let bytes = sent(&mut c, at, b"data", Some(PEER.into()));
    for node in [B, NodeAddr::NONE] {
        let mut message = Message::from_vec(bytes.clone()).unwrap();
        message.set_dest_node(node);
        assert!(check(&c, at, message.bytes()).is_none());
    }
}

#[test]
fn blocked_message_is_handed_back() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    c.wire.congested.insert((B, A));
    let built = |c: &mut Cluster| {
        let bytes = sent(c, at, b"data", Some(PEER.into()));
        check(c, at, &bytes).unwrap()
    };
    let message = built(&mut c);
    let Err(Unsent::Blocked(message)) = c.on(at, |s, now, up| s.send_built(now, message, up)) else {
        panic!("the link is congested");
    };
    c.wire.congested.clear();
    c.on(at, |s, now, up| s.wakeup(now, A, up));
    assert_eq!(c.on(at, |s, now, up| s.send_built(now, message, up)), Ok(()));
}

#[test]
fn message_without_a_way_to_its_node_comes_back_unless_it_may_be_dropped() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    for droppable in [true, false] {
        c.wire.down.clear();
        c.set(at, SocketOption::DestDroppable, droppable.into());
        let bytes = sent(&mut c, at, &[7; 2000], Some(PEER.into()));
        let message = check(&c, at, &bytes).unwrap();
        c.wire.down.insert(A);
        assert_eq!(c.on(at, |s, now, up| s.send_built(now, message, up)), Ok(()));
        let back = c.recv_with(at, 2000, RecvOptions { control: true, ..RecvOptions::default() });
        match droppable {
            true => assert_eq!(back.unwrap_err(), RecvError::WouldBlock),
            false => {
                let returned = back.unwrap().1.returned.unwrap();
                assert_eq!((returned.code, returned.data), (ErrorCode::NoNode, vec![7; 1024]));
            }
        }
    }
}

#[test]
fn connection_that_has_ended_sends_nothing() {
    let mut c = Cluster::new();
    let (client, _) = c.pair(SocketKind::SeqPacket);
    let bytes = sent(&mut c, client, b"data", None);
    let message = check(&c, client, &bytes).unwrap();
    c.shutdown(client);
    assert_eq!(c.on(client, |s, now, up| s.send_built(now, message, up)), Err(Unsent::Over));
}

const RANGE: ServiceRange = ServiceRange::new(500, 1, 9);

/// A multicast that a socket of node B has built.
fn multicast(c: &mut Cluster) -> (PortId, Vec<u8>) {
    c.bound(A, SocketKind::Rdm, 500);
    let at = c.open(B, SocketKind::Rdm);
    let bytes = sent(c, at, b"data", Some(RANGE.into()));
    c.wire.in_flight.clear();
    (at, bytes)
}

#[test]
fn multicast_goes_to_other_nodes_only() {
    let mut c = Cluster::new();
    let (at, bytes) = multicast(&mut c);
    c.bound(B, SocketKind::Rdm, 500);
    let built = check(&c, at, &bytes).unwrap();
    assert_eq!(c.on(at, |s, now, up| s.send_built(now, built, up)), Ok(()));
    let nodes: Vec<NodeAddr> = c.wire.in_flight.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, [A]);
    assert_eq!(c.wire.in_flight[0].1.bytes(), bytes);
}

#[test]
fn multicast_waits_for_every_full_link() {
    let mut c = Cluster::new();
    let (at, bytes) = multicast(&mut c);
    c.wire.congested.insert((B, A));
    c.on(at, |s, now, up| s.send(now, b"fills", Some(PEER.into()), up)).unwrap();
    let built = check(&c, at, &bytes).unwrap();
    let unsent = c.on(at, |s, now, up| s.send_built(now, built.clone(), up));
    assert_eq!(unsent, Err(Unsent::Blocked(built)));
}

#[test]
fn sender_of_a_multicast_chooses_only_importance_loss_and_range() {
    let mut c = Cluster::new();
    let (at, bytes) = multicast(&mut c);
    let header = View::parse(&bytes).unwrap().header_size();
    for bit in 0..header as u32 * 8 {
        let (word, low) = (bit / 32, bit % 32);
        let mut other = bytes.clone();
        other[(word * 4 + 3 - low / 8) as usize] ^= 1 << (low % 8);
        let changed = View::parse(&other).map(|view| view.service_range());
        let is_free = match word {
            0 => matches!(low, 19 | 25 | 26),
            8.. => changed.is_ok_and(|range| range.is_valid()),
            _ => false,
        };
        assert_eq!(check(&c, at, &other).is_some(), is_free, "word {word}, bit {low}");
    }
}
