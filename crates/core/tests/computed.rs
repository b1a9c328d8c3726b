//! The test vectors of tipc.md §16: values encode to these words, and the words decode to the same values.

use utipc_core::wire::{
    ActivateSession, Addressing, BcastControl, Body, Data, Decoded, DiscoveryKind, DiscoveryMessage, Dump,
    Envelope, ErrorCode, GapRecord, InterfaceName, LinkFields, MediaAddr, NameItem, NameUpdate, Restart,
    State,
};
use utipc_core::{ClusterId, Importance, Message, NodeAddr, NodeId, ServiceAddr, ServiceRange};

const OWN: NodeAddr = NodeAddr(0x6602_0012);
const PEER: NodeAddr = NodeAddr(0x0a0b_0c0d);
const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

fn bytes(words: &str) -> Vec<u8> {
    let hex: Vec<u8> = words.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap()).collect()
}

/// Checks that `built` has these words, decodes to `body` with nothing left over, and prints as `line`.
fn check(built: &Message, words: &str, body: &Body<'_>, line: &str) {
    assert_eq!(Dump(built.bytes()).to_string(), line);
    let expected = bytes(words);
    assert_eq!(built.bytes(), expected, "{built:?}");
    let message = Message::from_vec(expected).unwrap();
    let decoded = Decoded::parse(message.view()).unwrap();
    assert_eq!(&decoded.body, body);
    assert!(decoded.residue.is_empty(), "{:?}", decoded.residue);
    assert_eq!(decoded.to_bytes(), built.bytes());
}

fn between() -> Envelope {
    Envelope::between(OWN, PEER, 40)
}

#[test]
fn discovery_request() {
    let identity = MAC.iter().enumerate().fold(NodeId::default(), |mut id, (i, b)| {
        id.0[i] = *b;
        id
    });
    assert_eq!(identity.trial_address(), OWN);
    let value = DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: OWN,
        cluster: ClusterId(4711),
        capabilities: 0xfff,
        signature: 0xab3c, // bit 15 is the lowest capability bit
        media: MediaAddr::Ethernet(MAC),
        net_hash: 0x1122_3344,
        suggestion: NodeAddr::NONE,
        identity,
    };
    let words = "5bf0004c 07ffab3c 00000000 66020012 00001267 00000001 52540012 34560000 00000000 00000000 \
                 00000000 00000000 00000000 11223344 00000000 52540012 34560000 00000000 00000000";
    let line = "66020012>0 REQ id 525400123456 cluster 4711 caps fff signature ab3c at 52:54:00:12:34:56";
    check(&value.build(), words, &Body::Discovery(value), line);
}

#[test]
fn old_discovery_request_without_identity() {
    let value = DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: NodeAddr::legacy(1, 1, 2),
        cluster: ClusterId(4711),
        capabilities: 0,
        signature: 0x2b3c,
        media: MediaAddr::Ethernet(MAC),
        net_hash: 0,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_text("1001002"),
    };
    let words = "5bf0003c 00002b3c 00000000 01001002 00001267 00000001 52540012 34560000 00000000 00000000 \
                 00000000 00000000 00000000 00000000 00000000";
    let line = "1001002>0 REQ id 1001002 cluster 4711 caps 0 signature 2b3c at 52:54:00:12:34:56";
    check(&value.build(), words, &Body::Discovery(value), line);
}

#[test]
fn udp_media_info() {
    let mut info = bytes("00000003 080017e6 0a000001");
    info.resize(32, 0);
    let address = MediaAddr::Udp("10.0.0.1:6118".parse().unwrap());
    assert_eq!(address.to_info(), info[..]);
    assert_eq!(MediaAddr::from_info(&info), Ok(address));
}

fn link() -> LinkFields {
    LinkFields { next_sent: 1, session: 0x1235, bcast_ack_invalid: true, ..LinkFields::default() }
}

#[test]
fn reset() {
    let interface = InterfaceName::from("eth0");
    let value = Restart { link: link(), activate: None, max_packet: 375, interface };
    let built = value.to_message(&Envelope { seqno: 32768, ..between() });
    let words = "4f400038 20000000 00008000 66020012 00000001 12354000 66020012 0a0b0c0d 00000000 01770000 \
                 65746830 00000000 00000000 00000000";
    let line = "66020012>a0b0c0d RESET session 4661 bearer 0 mtu 1500 eth0";
    check(&built, words, &Body::Restart(value), line);
}

#[test]
fn activate() {
    let activate = Some(ActivateSession { valid: true, session: 0x4444 });
    let interface = InterfaceName::from("eth0");
    let value = Restart { link: link(), activate, max_packet: 375, interface };
    let built = value.to_message(&Envelope { seqno: 32768, ..between() });
    let words = "4f400038 40014444 00008000 66020012 00000001 12354000 66020012 0a0b0c0d 00000000 01770000 \
                 65746830 00000000 00000000 00000000";
    let line = "66020012>a0b0c0d ACTIVATE of 17476 session 4661 bearer 0 mtu 1500 eth0";
    check(&built, words, &Body::Restart(value), line);
}

#[test]
fn first_state() {
    let value = State {
        link: link(),
        keepalive: true,
        probe: true,
        gaps: Some(GapRecord::new(&[], &[])),
        ..State::default()
    };
    let built = value.to_message(&Envelope { seqno: 1, ..between() });
    let words = "4f48002c 00000000 00000001 66020012 00000001 12354001 66020012 0a0b0c0d 00000000 00000000 \
                 00040000";
    let line = "66020012>a0b0c0d STATE probe #1 ack 0 next 1 session 4661 bcast ack 0 invalid last 0";
    check(&built, words, &Body::State(value), line);
}

#[test]
fn state_with_gaps() {
    let value = State {
        link: LinkFields {
            last_bcast: 7,
            next_sent: 33,
            session: 0x1235,
            redundant_link: true,
            ..LinkFields::default()
        },
        gap: 5,
        gaps: Some(GapRecord::new(&[], &[(11, 1), (15, 4), (20, 0)])),
        ..State::default()
    };
    let built = value.to_message(&Envelope { bcast_ack: 7, ack: 4, seqno: 9, ..between() });
    let words = "4f400038 00050007 00040009 66020012 00070021 12351000 66020012 0a0b0c0d 00000000 00000000 \
                 00100300 000b0001 000f0004 00140000";
    let line =
        "66020012>a0b0c0d STATE #9 ack 4 gap 5 [11+1 15+4 20+0] next 33 session 4661 bcast ack 7 last 7";
    check(&built, words, &Body::State(value), line);
}

#[test]
fn broadcast_init() {
    let value = BcastControl { last_bcast: 0, ack_invalid: true };
    let built = value.to_message(&Envelope { seqno: 1, ..between() });
    let words = "4b400028 00000000 00000001 66020012 00000000 00004000 66020012 0a0b0c0d 00000000 00000000";
    let line = "66020012>a0b0c0d #1 ack 0/0 BCAST_PROTOCOL last 0";
    check(&built, words, &Body::Bcast(value), line);
}

#[test]
fn last_bulk() {
    let value = NameUpdate {
        withdrawal: false,
        bulk: true,
        last_bulk: true,
        numbered: true,
        number: 0,
        ack_invalid: true,
        items: vec![NameItem { range: ServiceRange::new(0, OWN.0, OWN.0), port: 0, key: OWN.0 }],
    };
    let built = value.to_message(&Envelope { seqno: 2, ..between() });
    let words = "5740003c 1c000000 00000002 66020012 00000000 00004000 66020012 0a0b0c0d 00000000 00000000 \
                 00000000 66020012 66020012 00000000 66020012";
    let line = "66020012>a0b0c0d #2 ack 0/0 PUBLISH bulk last number 0 1 items: {0,1711407122,1711407122}:0";
    check(&built, words, &Body::Names(value), line);
}

fn data(to: Addressing, data: &[u8]) -> Data<'_> {
    Data {
        importance: Importance::Low,
        to,
        dest_droppable: false,
        bit18: false,
        syn: false,
        error: ErrorCode::Ok,
        reroute_count: 0,
        lookup_scope: 0,
        origin_port: 0x1111_2222,
        dest_port: 0x3333_4444,
        data,
    }
}

#[test]
fn named_connection_request() {
    let to = Addressing::Named(ServiceAddr::new(18888, 17));
    let value = Data { syn: true, lookup_scope: 2, ..data(to, &[]) };
    let built = value.to_message(&Envelope { bcast_ack: 7, ack: 4, seqno: 10, ..between() });
    let words = "41420028 40100007 0004000a 66020012 11112222 33334444 66020012 0a0b0c0d 000049c8 00000011";
    let line = "66020012:286335522>a0b0c0d:858997828 #10 ack 4/7 NAMED {18888,17} Low syn scope 2 0 bytes";
    check(&built, words, &Body::Data(value), line);
}

#[test]
fn data_on_a_connection() {
    let value = data(Addressing::Connection, b"hello");
    let envelope = Envelope::between(OWN, NodeAddr::NONE, 24);
    let built = value.to_message(&Envelope { bcast_ack: 7, ack: 4, seqno: 9, ..envelope });
    let words = "40c0001d 00000007 00040009 66020012 11112222 33334444 68656c6c 6f";
    let line = "66020012:286335522>0:858997828 #9 ack 4/7 CONN Low 5 bytes";
    check(&built, words, &Body::Data(value), line);
}
