//! The transport through its public API: two connected channels, the byte vectors of the wire reference, and peers that
//! break the protocol. Spec: rssl.md §1, §13.2

use std::time::Duration;

use common::pulling::{Seen, feed, pull_all};
use rssl::transport::{
    Channel, ClientOptions, Compression, Error, PING_FRAME, Packer, ServerOptions, Tick, frame_header,
};

mod common {
    pub(crate) mod pulling;
}

fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

const CONNECT_REQUEST: &str = "00 28 00 00 00 00 17 08 1f 00 3c 00 00 0e 01 05 68 6f 73 74 31 09 31 32 37 2e 30 \
    2e 30 2e 31 08 07 72 72 73 2d 30 2e 31";
const CONNECT_ACK: &str = "00 37 01 01 0a 00 00 00 00 09 18 00 03 3c 0e 01 00 00 00 08 01 18 00 00 00 00 00 00 \
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 08 07 72 72 73 2d 30 2e 31";
const CLIENT_KEY: &str = "00 04 08 00";
const TWO_UPDATES: &str = "00 2f 12 00 14 00 09 04 06 00 00 00 05 00 04 01 08 00 01 00 16 03 0c 0f 97 00 14 00 09 \
    04 06 00 00 00 05 00 04 01 08 00 01 00 16 03 0c 0f 97";

fn output(channel: &mut Channel) -> Vec<u8> {
    let mut out = Vec::new();
    channel.take_output(&mut out);
    out
}

/// A client and a server that have opened their connection.
fn pair(client: ClientOptions, server: ServerOptions) -> (Channel, Channel) {
    let (mut client, mut server) = (Channel::client(client), Channel::server(server));
    let request = output(&mut client);
    feed(&mut server, &request, 7).unwrap();
    let ack = output(&mut server);
    let at_client = feed(&mut client, &ack, 5).unwrap();
    let key = output(&mut client);
    feed(&mut server, &key, 1).unwrap();
    assert_eq!(at_client.opened.as_ref(), client.opened());
    let (ours, theirs) = (client.opened().unwrap(), server.opened().unwrap());
    assert_eq!(ours.version, theirs.version);
    assert_eq!(ours.max_message, theirs.max_message);
    assert_eq!(ours.ping_timeout, theirs.ping_timeout);
    assert_eq!(ours.compression, theirs.compression);
    (client, server)
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 11) as u8
        })
        .collect()
}

fn named(component: &str) -> ServerOptions {
    ServerOptions { component: component.to_owned(), ..ServerOptions::default() }
}

#[test]
fn handshake_has_the_bytes_of_the_vectors() {
    let mut client = Channel::client(ClientOptions {
        host: "host1".to_owned(),
        ip: "127.0.0.1".to_owned(),
        component: "rrs-0.1".to_owned(),
        ..ClientOptions::default()
    });
    assert_eq!(output(&mut client), hex(CONNECT_REQUEST));
    let seen = feed(&mut client, &hex(CONNECT_ACK), 1).unwrap();
    assert_eq!(output(&mut client), hex(CLIENT_KEY));
    let opened = seen.opened.unwrap();
    assert_eq!((opened.version, opened.max_message, opened.rwf), (14, 6144, (14, 1)));
    assert_eq!(opened.ping_timeout, Duration::from_secs(60));
    assert_eq!(opened.component, "rrs-0.1");

    let mut server = Channel::server(named("rrs-0.1"));
    let mut bytes = hex(CONNECT_REQUEST);
    let seen = feed(&mut server, &bytes, 1).unwrap();
    // A server's key has numbers that a client can compute with.
    let (mut ack, mut expected) = (output(&mut server), hex(CONNECT_ACK));
    assert!(ack[22..30].iter().chain(&ack[30..38]).any(|b| *b != 0), "{ack:x?}");
    ack[22..46].fill(0);
    expected[22..46].fill(0);
    assert_eq!((seen.opened, ack), (None, expected));
    // A client may send its login in the same segment as its key.
    bytes = hex(CLIENT_KEY);
    bytes.extend_from_slice(&hex(TWO_UPDATES));
    let seen = feed(&mut server, &bytes, bytes.len()).unwrap();
    assert_eq!(seen.opened.unwrap().host, "host1");
    assert_eq!(seen.messages.len(), 2);
}

#[test]
fn every_version_opens_with_its_number() {
    for version in 10..=14 {
        let options = ClientOptions { version, host: "h".to_owned(), ..ClientOptions::default() };
        let mut client = Channel::client(options.clone());
        let request = output(&mut client);
        let mut server = Channel::server(named("s"));
        feed(&mut server, &request, 3).unwrap();
        let ack = output(&mut server);
        assert_eq!(&ack[6..10], &[0, 0, 0, version - 5]);
        let key_block = ack.len() - if version >= 13 { 3 } else { 0 } - if version >= 11 { 19 } else { 18 };
        assert_eq!(key_block, if version == 14 { 27 } else { 0 });
        let (mut client, mut server) = pair(options, named("s"));
        assert_eq!(client.opened().unwrap().version, version);
        assert_eq!(server.opened().unwrap().host, "h");
        let mut wire = Vec::new();
        client.write(&pattern(20_000, 3), &mut wire).unwrap();
        assert_eq!(feed(&mut server, &wire, 100).unwrap().messages, [pattern(20_000, 3)]);
        // One-byte fragment ids wrap after 255, and none is 0.
        for round in 0..600 {
            let mut wire = Vec::new();
            server.write(&pattern(7_000, round), &mut wire).unwrap();
            assert_ne!(wire[8..if version >= 13 { 10 } else { 9 }].iter().max(), Some(&0));
            assert_eq!(feed(&mut client, &wire, wire.len()).unwrap().messages, [pattern(7_000, round)]);
        }
    }
}

#[test]
fn servers_with_key_parameters_get_a_key() {
    // P = 23, G = 5, server key 8.
    let mut ack = hex(CONNECT_ACK);
    (ack[29], ack[37], ack[45]) = (23, 5, 8);
    let mut client = Channel::client(ClientOptions { secret: 6, ..ClientOptions::default() });
    output(&mut client);
    feed(&mut client, &ack, 9).unwrap();
    assert_eq!(output(&mut client), hex("00 0c 08 08 00 00 00 00 00 00 00 08"));
    // A server that leaves the block's type and length zero shares no key.
    let mut ack = hex(CONNECT_ACK);
    ack.splice(19..46, [0, 0, 0]);
    ack[1] = ack.len() as u8;
    let mut client = Channel::client(ClientOptions::default());
    output(&mut client);
    assert!(feed(&mut client, &ack, 9).unwrap().opened.is_some());
    assert_eq!(output(&mut client), hex(CLIENT_KEY));
}

#[test]
fn component_lengths_that_are_off_by_one_are_accepted() {
    let mut ack = hex(CONNECT_ACK);
    ack[46] += 1;
    let mut client = Channel::client(ClientOptions::default());
    output(&mut client);
    assert_eq!(feed(&mut client, &ack, 64).unwrap().opened.unwrap().component, "rrs-0.1");
}

#[test]
fn requests_with_wrong_lengths_are_refused_except_for_a_line_end() {
    let mut request = hex(CONNECT_REQUEST);
    request.extend_from_slice(b"\r\n");
    request[1] += 2;
    let mut server = Channel::server(named("s"));
    assert_eq!(feed(&mut server, &request, 64).unwrap().refused, None);

    for (at, value) in [(8, 0x1e), (31, 9), (11 + 1, 2)] {
        let mut request = hex(CONNECT_REQUEST);
        request[at] = value;
        let mut server = Channel::server(named("s"));
        let mut seen = Seen::default();
        let result = pull_all(&mut server, &mut request, &mut seen);
        assert_eq!(result, Ok(()), "byte {at}");
        let text = seen.refused.expect("refused");
        let nak = output(&mut server);
        assert_eq!(nak[2..4], [1, 2]);
        // The client can read the reason.
        let mut client = Channel::client(ClientOptions::default());
        output(&mut client);
        assert_eq!(feed(&mut client, &nak, 3).unwrap().refused, Some(text));
        assert_eq!(client.pull(&[0, 3, 2]), Err(Error::NotOpen));
    }
}

#[test]
fn other_protocols_and_versions_are_typed_errors() {
    let mut server = Channel::server(named("s"));
    assert_eq!(server.pull(b"GET / HTTP/1.1\r\n"), Err(Error::Http));
    let mut server = Channel::server(named("s"));
    assert_eq!(server.pull(&[0x16, 3, 1, 2, 0, 1]), Err(Error::NotRssl([0x16, 3, 1, 2])));
    let mut request = hex(CONNECT_REQUEST);
    request[6] = 0x18;
    assert_eq!(Channel::server(named("s")).pull(&request), Err(Error::Version(0x18)));
    let old = ServerOptions { versions: (12, 13), ..named("s") };
    assert_eq!(Channel::server(old).pull(&hex(CONNECT_REQUEST)), Err(Error::Version(0x17)));
    let mut ack = hex(CONNECT_ACK);
    ack[9] = 10;
    let mut client = Channel::client(ClientOptions::default());
    assert_eq!(client.pull(&ack), Err(Error::Version(10)));
}

#[test]
fn pings_packed_and_plain_messages_are_delivered_in_order() {
    let (mut client, _) = pair(ClientOptions::default(), named("s"));
    let mut wire = PING_FRAME.to_vec();
    wire.extend_from_slice(&hex(TWO_UPDATES));
    wire.extend_from_slice(&frame_header(3));
    wire.extend_from_slice(b"abc");
    // Empty lists and entries are pings.
    wire.extend_from_slice(&[0, 5, 0x12, 0, 0, 0, 9, 0x12, 0, 2, b'x', b'y', 0, 0]);
    for step in [1, 2, 3, 5, 1000] {
        let seen = feed(&mut client, &wire, step).unwrap();
        let update = &hex(TWO_UPDATES)[5..25];
        assert_eq!(seen.messages, [update, update, b"abc", b"xy"]);
        assert_eq!(seen.pings, 3);
    }
}

#[test]
fn fragments_are_assembled_by_id() {
    let (mut client, _) = pair(ClientOptions::default(), named("s"));
    let one = "00 0d 03 08 00 00 00 05 00 01 61 62 63";
    let two = "00 0d 03 0c 00 00 00 04 00 20 41 42 43";
    let end_two = "00 07 03 04 00 20 44";
    let end_one = "00 08 03 04 00 01 64 65";
    // A plain message in between, a repeated first fragment, and a fragment of an unknown message.
    let plain = "00 04 02 2a";
    let stray = "00 07 03 04 07 07 00";
    let wire = hex(&[one, one, two, plain, stray, end_two, PING, end_one].join(" "));
    for step in [1, 4, 1000] {
        let seen = feed(&mut client, &wire, step).unwrap();
        assert_eq!(seen.messages, [b"*".to_vec(), b"ABCD".to_vec(), b"abcde".to_vec()]);
        assert_eq!(seen.pings, 1);
    }
    assert_eq!(client.counts().fragments_dropped, 6);
}

const PING: &str = "00 03 02";

#[test]
fn messages_that_are_too_long_are_dropped_or_refused() {
    let options = ClientOptions { max_assembled: 100_000, ..ClientOptions::default() };
    let (mut client, mut server) = pair(options, named("s"));
    let mut wire = hex("00 0c 03 08 b2 d0 5e 00 00 01 01 02 00 08 03 04 00 01 01 02");
    wire.extend_from_slice(&PING_FRAME);
    let seen = feed(&mut client, &wire, 1).unwrap();
    assert_eq!((seen.messages.len(), seen.pings), (0, 1));
    assert_eq!(client.counts().fragments_dropped, 2);
    // Many first fragments, and more bytes than announced.
    for id in 2..200 {
        let wire = [0, 12, 3, 8, 0, 0, 0xff, 0, 0, id, 1, 2];
        feed(&mut client, &wire, 100).unwrap();
    }
    let mut wire = Vec::new();
    server.write(&pattern(6144 * 3, 1), &mut wire).unwrap();
    assert!(feed(&mut client, &wire, 4096).unwrap().messages.is_empty(), "there is no room for one more");

    let (mut client, _) = pair(ClientOptions::default(), named("s"));
    let over =
        feed(&mut client, &hex("00 0b 03 08 00 00 00 02 00 01 61 00 08 03 04 00 01 62 63"), 4).unwrap();
    assert!(over.messages.is_empty());
    assert_eq!(client.pull(&[0x20, 0, 2]), Err(Error::FrameTooLong { len: 0x2000, max: 6161 }));
    assert_eq!(client.pull(&PING_FRAME), Err(Error::NotOpen));
    for wrong in [
        "00 02 02",
        "00 05 12 00 01",
        "00 06 12 00 00 00",
        "00 04 01 01",
        "00 04 03 08",
        "00 08 04 00 00 00 00 00",
    ] {
        let (mut client, _) = pair(ClientOptions::default(), named("s"));
        assert!(feed(&mut client, &hex(wrong), 100).is_err(), "{wrong}");
    }
    assert!(matches!(server.write(&[], &mut Vec::new()), Err(Error::MessageLength { .. })));
    let mut unopened = Channel::client(ClientOptions::default());
    assert_eq!(unopened.write(&[1], &mut Vec::new()), Err(Error::NotOpen));
}

#[test]
fn frames_keep_to_the_agreed_size() {
    for max_fragment in [64, 300, 6144, 65_518] {
        let (mut client, mut server) =
            pair(ClientOptions::default(), ServerOptions { max_fragment, ..named("s") });
        let max = usize::from(max_fragment);
        for len in [1, max - 1, max, max + 1, 2 * max, 5 * max + 7] {
            let mut wire = Vec::new();
            server.write(&pattern(len, 9), &mut wire).unwrap();
            let mut at = 0;
            while at < wire.len() {
                let frame = usize::from(u16::from_be_bytes([wire[at], wire[at + 1]]));
                assert!(frame <= max + 3);
                at += frame;
            }
            assert_eq!(feed(&mut client, &wire, 1500).unwrap().messages, [pattern(len, 9)]);
        }
    }
}

#[test]
fn compression_is_agreed_and_transparent() {
    let both = vec![Compression::Zlib, Compression::Lz4];
    for kind in both.clone() {
        for version in [10, 12, 14] {
            for force in [false, true] {
                let client = ClientOptions { version, compression: both.clone(), ..ClientOptions::default() };
                let server =
                    ServerOptions { compression: vec![kind], force_compression: force, ..named("s") };
                let (mut client, mut server) = pair(client, server);
                assert_eq!(client.opened().unwrap().compression, Some(kind));
                assert!(server.opened().unwrap().compress_sent);
                assert_eq!(client.opened().unwrap().compress_sent, force && version >= 11);
                exchange(&mut server, &mut client, kind);
                exchange(&mut client, &mut server, kind);
            }
        }
    }
}

/// Sends messages that compress well, badly and not at all, whole, packed and in fragments.
fn exchange(from: &mut Channel, to: &mut Channel, kind: Compression) {
    let compresses = from.opened().unwrap().compress_sent;
    let text: Vec<u8> = b"one two three four ".iter().copied().cycle().take(5000).collect();
    let long: Vec<u8> = text.iter().copied().cycle().take(70_000).collect();
    let (mut wire, mut sent) = (Vec::new(), Vec::new());
    for round in 0..3 {
        for message in
            [&text, &pattern(6144, round + 10), &long, &pattern(50_000, round + 20), &b"short".to_vec()]
        {
            from.write(message, &mut wire).unwrap();
            sent.push(message.clone());
            let mut packer = Packer::new(from.opened().unwrap().max_message);
            for n in 0..4 {
                let message = pattern(200, n);
                assert!(packer.push(&message));
                sent.push(message);
            }
            assert!(packer.push(&text));
            assert!(!packer.push(&text));
            sent.push(text.clone());
            from.write_packed(&mut packer, &mut wire).unwrap();
            assert!(packer.is_empty());
            assert!(packer.push(&text));
            sent.push(text.clone());
            from.write_packed(&mut packer, &mut wire).unwrap();
        }
    }
    let total: usize = sent.iter().map(Vec::len).sum();
    assert_eq!(compresses, wire.len() < total * 7 / 10, "{} of {total}", wire.len());
    for (a, b) in [(2, 0x04), (2, 0x0c)] {
        let overflows = b == 0x0c;
        let seen = frames(&wire).any(|frame| frame[a] == b);
        assert_eq!(seen, compresses && (!overflows || kind == Compression::Zlib), "flags {b:#x}");
    }
    assert_eq!(frames(&wire).any(|frame| frame[2] & 0x14 == 0x14), compresses);
    assert_eq!(frames(&wire).any(|frame| frame[2] & 0x05 == 0x05), compresses);
    assert_eq!(feed(to, &wire, 977).unwrap().messages, sent);
}

fn frames(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_be_bytes([*wire.get(at)?, wire[at + 1]]));
        at += len;
        Some(&wire[at - len..at])
    })
}

#[test]
fn expansion_beyond_a_frame_is_refused() {
    use std::io::Write;
    for kind in [Compression::Zlib, Compression::Lz4] {
        let client = ClientOptions { compression: vec![kind], ..ClientOptions::default() };
        let (mut client, _) = pair(client, ServerOptions { compression: vec![kind], ..named("s") });
        let bomb = match kind {
            Compression::Zlib => {
                let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
                zlib.write_all(&vec![0; 1_000_000]).unwrap();
                zlib.finish().unwrap()
            }
            Compression::Lz4 => lz4_flex::block::compress(&vec![0; 1_000_000]),
        };
        let mut frame = frame_header(bomb.len()).to_vec();
        frame[2] = 4;
        frame.extend_from_slice(&bomb);
        assert!(matches!(client.pull(&frame), Err(Error::Compressed(_))), "{kind:?}");
    }
}

#[test]
fn pings_are_due_after_a_third_of_the_timeout_and_silence_after_all_of_it() {
    let (mut client, _) = pair(
        ClientOptions { ping_timeout: 30, ..ClientOptions::default() },
        ServerOptions { ping_timeout: (20, 60), ..named("s") },
    );
    let at = Duration::from_secs;
    assert_eq!((client.tick(at(100)), client.deadline()), (Tick::None, Some(at(110))));
    assert_eq!(client.tick(at(109)), Tick::None);
    assert_eq!(client.tick(at(110)), Tick::SendPing);
    client.sent(at(110));
    client.received(at(115));
    assert_eq!(client.tick(at(119)), Tick::None);
    client.sent(at(140));
    assert_eq!((client.tick(at(144)), client.deadline()), (Tick::None, Some(at(145))));
    assert_eq!(client.tick(at(145)), Tick::PeerSilent);
    for (asked, given) in [(5, 20), (255, 60), (45, 45), (0, 20)] {
        let client = ClientOptions { ping_timeout: asked, ..ClientOptions::default() };
        let (client, _) = pair(client, named("s"));
        assert_eq!(client.opened().unwrap().ping_timeout, at(given));
    }
}
