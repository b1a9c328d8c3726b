use super::*;
use crate::wire::MULTICAST_HEADER;

const FROM: PortId = PortId { port: 77, node: B };

fn mcast(data: &[u8], replicast: bool, syn: bool) -> Message {
    let mut msg = Packet::build(User::Low, MessageType::Mcast.into(), MULTICAST_HEADER, data);
    msg.set_prev_node(FROM.node);
    msg.set_origin_node(FROM.node);
    msg.set_origin_port(FROM.port);
    msg.set_is_replicast(replicast);
    msg.set_syn(syn);
    msg.set_dest_droppable(true);
    if syn && data.is_empty() {
        msg.set_error_code(ErrorCode::NoPort);
    }
    msg
}

const BROADCAST: bool = false;
const REPLICAST: bool = true;

/// Passes messages to one socket and returns what it delivers.
fn delivered(arrivals: &[(&str, bool, bool)]) -> String {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    for (data, method, syn) in arrivals {
        c.inject(at, mcast(data.as_bytes(), *method, *syn));
    }
    let mut out = String::new();
    while let Ok(data) = c.recv(at, 100) {
        out += &String::from_utf8(data).unwrap();
    }
    out
}

#[test]
fn every_overlapping_socket_gets_one_copy() {
    let mut c = Cluster::new();
    let first = c.open(A, SocketKind::Rdm);
    c.bind(first, 500, 1, 10);
    c.bind(first, 500, 5, 20);
    let second = c.open(B, SocketKind::Rdm);
    c.bind(second, 500, 10, 10);
    let beside = c.open(A, SocketKind::Rdm);
    c.bind(beside, 500, 11, 12);
    let sender = c.open(B, SocketKind::Rdm);
    let range = ServiceRange::new(500, 0, 10);
    c.send_to(sender, b"all", Destination::Range(range)).unwrap();
    let log = c.take_log();
    assert_eq!((log[0].header_size(), log[0].dest_port(), log[0].lookup_scope()), (44, 0, 2));
    c.run();
    for at in [first, second] {
        let (data, info) = c.recv_with(at, 10, RecvOptions::default()).unwrap();
        assert_eq!((data.as_slice(), info.destination, info.source), (&b"all"[..], Some(range), sender));
        assert_eq!(c.recv(at, 10), Err(RecvError::WouldBlock));
    }
    assert_eq!(c.recv(beside, 10), Err(RecvError::WouldBlock));
}

#[test]
fn multicast_blocks_on_any_congestion() {
    let mut c = Cluster::new();
    let receiver = c.bound(A, SocketKind::Rdm, 500);
    let sender = c.open(B, SocketKind::Rdm);
    let all = Destination::Range(ServiceRange::new(500, 0, 9));
    c.congest(B, NodeAddr::NONE);
    assert_eq!(c.send_to(sender, b"1", all), Ok(1));
    assert_eq!(c.send_to(sender, b"2", all), Err(SendError::WouldBlock));
    assert!(c.wait_reason(sender).unwrap().to_string().starts_with("waiting for the broadcast link"));
    c.end_congestion(B, NodeAddr::NONE);
    c.congest(B, A);
    assert_eq!(c.send_to(sender, b"3", Destination::Port(receiver)), Ok(1));
    assert_eq!(c.send_to(sender, b"2", all), Err(SendError::WouldBlock));
}

#[test]
fn reversed_range_is_refused() {
    let mut c = Cluster::new();
    let sender = c.open(B, SocketKind::Rdm);
    let bad = Destination::Range(ServiceRange::new(500, 9, 0));
    assert_eq!(c.send_to(sender, b"1", bad), Err(SendError::InvalidDestination));
}

#[test]
fn returned_multicast_reaches_its_sender() {
    let mut c = Cluster::new();
    let receiver = c.bound(A, SocketKind::SeqPacket, 500);
    let sender = c.open(B, SocketKind::Rdm);
    c.set(sender, SocketOption::DestDroppable, 0);
    let range = ServiceRange::new(500, 0, 9);
    c.send_to(sender, b"undeliverable", Destination::Range(range)).unwrap();
    c.run();
    let (_, info) = c.recv_with(sender, 10, RecvOptions::default()).unwrap();
    assert_eq!(info.source, receiver);
    assert_eq!(info.returned, Some(Returned { code: ErrorCode::NoPort, data: b"undeliverable".to_vec() }));
    assert_eq!(info.destination, Some(range));
}

#[test]
fn without_a_method_change_nothing_waits() {
    assert_eq!(delivered(&[("a", BROADCAST, false), ("b", REPLICAST, false)]), "ab");
}

#[test]
fn change_to_replicast_with_the_dummy_first_or_last() {
    let dummy = ("", BROADCAST, true);
    assert_eq!(
        delivered(&[("a", BROADCAST, false), dummy, ("b", REPLICAST, true), ("c", REPLICAST, false)]),
        "abc"
    );
    // the new method is faster: its messages wait for the last one of the old method
    assert_eq!(
        delivered(&[
            ("b", REPLICAST, true),
            ("c", REPLICAST, false),
            ("a", BROADCAST, false),
            dummy,
            ("d", REPLICAST, false)
        ]),
        "abcd"
    );
}

#[test]
fn two_method_changes_in_a_row_keep_the_order() {
    assert_eq!(
        delivered(&[
            ("b", REPLICAST, true),
            ("c", REPLICAST, false),
            ("", REPLICAST, true), // back to broadcast: its dummy is sent by replicast
            ("a", BROADCAST, false),
            ("", BROADCAST, true), // counterpart of b
            ("d", BROADCAST, true),
            ("e", BROADCAST, false),
        ]),
        "abcde"
    );
}

#[test]
fn messages_of_the_own_node_do_not_wait() {
    let mut c = Cluster::new();
    let at = c.open(B, SocketKind::Rdm);
    c.inject(at, mcast(b"a", REPLICAST, true));
    assert_eq!(c.recv(at, 10).unwrap(), b"a");
}

#[test]
fn senders_do_not_wait_for_one_another() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    c.inject(at, mcast(b"waits", REPLICAST, true));
    let mut other = mcast(b"other", REPLICAST, false);
    other.set_origin_port(78);
    c.inject(at, other);
    assert_eq!(c.recv(at, 10).unwrap(), b"other");
    assert_eq!(c.recv(at, 10), Err(RecvError::WouldBlock));
}

#[test]
fn missing_syn_is_given_up_after_5_seconds() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    c.inject(at, mcast(b"a", REPLICAST, true));
    c.inject(at, mcast(b"b", REPLICAST, false));
    c.pass(4_999);
    assert_eq!(c.recv(at, 10), Err(RecvError::WouldBlock));
    c.pass(1);
    assert_eq!(c.recv(at, 10).unwrap(), b"a");
    assert_eq!(c.recv(at, 10).unwrap(), b"b");
    assert_eq!(c.sockets[&at].deadline(), None);
}

/// A socket unknown to the sender gets only the broadcast half of one change, then both halves of the next.
#[test]
fn single_syn_does_not_disturb_the_next_change() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    let dummy = |method| {
        let mut msg = mcast(b"", method, true);
        msg.set_error_code(ErrorCode::NoPort);
        msg
    };
    c.inject(at, dummy(BROADCAST));
    c.inject(at, mcast(b"a", BROADCAST, true));
    c.inject(at, mcast(b"b", BROADCAST, false));
    assert_eq!(c.recv(at, 10), Err(RecvError::WouldBlock));
    c.inject(at, dummy(REPLICAST));
    assert_eq!(c.recv(at, 10).unwrap(), b"a");
    assert_eq!(c.recv(at, 10).unwrap(), b"b");
    c.inject(at, mcast(b"c", REPLICAST, true)); // its dummy passed before the socket was bound
    c.inject(at, mcast(b"d", REPLICAST, false));
    c.inject(at, mcast(b"e", BROADCAST, true));
    c.inject(at, dummy(REPLICAST));
    let got: Vec<Vec<u8>> = (0..3).map(|_| c.recv(at, 10).unwrap()).collect();
    assert_eq!(got, [b"c", b"d", b"e"]);
}

#[test]
fn flood_of_single_syns_is_bounded() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    c.set(at, SocketOption::ReceiveBuffer, 0);
    for port in 0..10_000 {
        let mut msg = mcast(b"x", REPLICAST, true);
        msg.set_origin_port(port);
        c.inject(at, msg);
    }
    assert!(c.sockets[&at].stats().overloads > 5000);
    c.pass(60_000);
    let mut n = 0;
    while c.recv(at, 10).is_ok() {
        n += 1;
    }
    assert_eq!(n, 512 * 1024 / (45 + 128));
}

#[test]
fn source_droppable_bit_of_a_multicast_is_the_method() {
    let mut c = Cluster::new();
    c.bound(A, SocketKind::Dgram, 500);
    let sender = c.open(B, SocketKind::Dgram);
    c.send_to(sender, b"x", Destination::Range(ServiceRange::new(500, 0, 9))).unwrap();
    assert!(!c.take_log()[0].is_replicast());
}
