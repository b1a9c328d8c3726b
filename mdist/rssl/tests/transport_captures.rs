//! The transport on connections of stock programs: captures in the directory `UTIPC_RSSL_VECTORS`, and the transport
//! files of the Real-Time-SDK checkout `UTIPC_RTSDK`.

use std::path::{Path, PathBuf};

use common::pcap;
use common::pulling::{Seen, feed};
use rssl::transport::{Channel, ClientOptions, Compression, Pulled, ServerOptions};

mod common {
    pub(crate) mod pcap;
    pub(crate) mod pulling;
}

#[test]
fn captured_connections_are_pulled_to_the_last_byte() {
    for (name, connections) in pcap::captures() {
        for connection in &connections {
            let from = connection.client;
            for step in [1, 1460, 1 << 20] {
                let mut server = Channel::server(ServerOptions::default());
                let from_client =
                    feed(&mut server, &connection.from_client, step).expect("the client's bytes");
                let mut client = Channel::client(ClientOptions::default());
                let from_server =
                    feed(&mut client, &connection.from_server, step).expect("the server's bytes");
                let (theirs, ours) =
                    (from_client.opened.expect("opened"), from_server.opened.expect("opened"));
                assert_eq!((theirs.version, ours.version), (14, 14));
                assert!(
                    !theirs.ip.is_empty()
                        && !from_client.messages.is_empty()
                        && !from_server.messages.is_empty()
                );
                if step == 1 {
                    println!(
                        "{name}: {from} '{}' sent {} messages, '{}' {}; max {}, ping {:?}",
                        theirs.component,
                        from_client.messages.len(),
                        ours.component,
                        from_server.messages.len(),
                        ours.max_message,
                        ours.ping_timeout
                    );
                }
            }
            requests_are_answered_alike(connection);
        }
    }
}

/// Our server's answer to a stock request opens the same connection as the stock server's did.
fn requests_are_answered_alike(connection: &pcap::Connection) {
    let mut server = Channel::server(ServerOptions::default());
    let request = &connection.from_client;
    server.pull(request).unwrap();
    let mut ours = Vec::new();
    server.take_output(&mut ours);
    let theirs = &connection.from_server;
    assert_eq!(ours[2..12], theirs[2..12], "flags, version, size");
    assert_eq!(ours[14..22], theirs[14..22], "RWF, compression, key block");
}

/// The files of the SDK that belong together: what is received, and a file with the same messages written plainly.
const PAIRS: &[(&str, &str)] = &[
    ("020_single_complete_message", "020_single_complete_message"),
    ("030_input_two_msgs_single_net_read", "030_expected_two_msgs_single_net_read"),
    ("040_input_two_part_known_incomplete", "040_expected_two_part_known_incomplete"),
    ("050_input_two_part_unknown_incomplete", "050_expected_two_part_unknown_incomplete"),
    ("051_input_unknown_incomplete", "051_expected_unknown_incomplete"),
    ("055_input_known_insufficient", "055_expected_known_insufficient"),
    ("056_input_known_insufficient_remain_buf", "056_expected_known_insufficient_remain_buf"),
    ("058_input_unknown_insufficient", "058_expected_unknown_insufficient"),
    ("060_input_single_complete_1part_packed", "060_expected_single_complete_1part_packed"),
    ("080_input_single_complete_2part_packed", "080_expected_single_complete_2part_packed"),
    ("090_input_3part_packed_last_part_empty", "090_expected_3part_packed_last_part_empty"),
    ("100_input_fragmented", "100_expected_fragmented"),
    ("105_input_fragment_header+frag_single_read", "105_expected_fragment_header+frag_single_read"),
    ("110_input_smaller_frag_follows_larger", "110_expected_smaller_frag_follows_larger"),
    ("115_input_frag_out_of_sequence", "115_expected_frag_out_of_sequence"),
    ("120_input_frag_max_int", "120_expected_frag_max_int"),
    ("125_input_dupe_frag_headers", "125_expected_dupe_frag_headers"),
    ("130_input_two_frag_msgs_same_size_diff_ids", "130_expected_two_frag_msgs_same_size_diff_ids"),
    ("140_input_normal_msg_follow_frag_msg", "140_expected_normal_msg_follow_frag_msg"),
    ("CompressedConsumerMessages", "UncompressedConsumerMessages"),
    ("CompressedPacked", "Packed"),
    ("CompressedFragmented", "Fragmented"),
    ("CompressedFragmented6144L0", "Fragmented6144"),
    ("CompressedFragmented6144L9", "Fragmented6144"),
    ("CompressedFragmented6131L0", "Fragmented6131"),
    ("CompressedFragmented6131L9", "Fragmented6131"),
    ("CompressedFragmented6145L0", "Fragmented6145"),
    ("CompressedFragmented6145L9", "Fragmented6145"),
];

fn sdk() -> Option<PathBuf> {
    let Some(root) = std::env::var_os("UTIPC_RTSDK") else {
        println!("skipped: UTIPC_RTSDK names no checkout of the Real-Time-SDK");
        return None;
    };
    Some(Path::new(&root).join("Java/Eta/Core/src/test/resources/com/refinitiv/eta/transport"))
}

/// The blocks of bytes in an annotated file: lines of hexadecimal pairs, after an offset or not, before a column of
/// text. Other lines, including empty ones, end a block.
fn blocks(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut blocks = vec![Vec::new()];
    for line in String::from_utf8_lossy(&file).lines() {
        let line = line.trim();
        let line = match line.split_once(':') {
            Some((offset, rest)) if offset.len() == 4 => rest.trim(),
            _ => line,
        };
        // Sixteen pairs with a wider gap in the middle.
        let dump = line.get(..48).unwrap_or(line);
        let byte = |pair: &str| (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok()).flatten();
        match dump.split_whitespace().map(byte).collect::<Option<Vec<u8>>>() {
            Some(bytes) if !bytes.is_empty() => blocks.last_mut().unwrap().extend_from_slice(&bytes),
            _ => blocks.push(Vec::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Reads a file as a client that offered zlib.
fn received(path: &Path, step: usize) -> Seen {
    let options = ClientOptions { compression: vec![Compression::Zlib], ..ClientOptions::default() };
    let mut client = Channel::client(options);
    feed(&mut client, &blocks(path).concat(), step).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn sdk_transport_files_give_the_same_messages() {
    let Some(directory) = sdk().map(|sdk| sdk.join("SocketChannelJunit")) else { return };
    for (input, expected) in PAIRS {
        // The first block is the handshake; the others are messages, each after some frame header.
        let expected = blocks(&directory.join(format!("{expected}.txt")));
        let expected: Vec<_> = expected[1..].iter().map(|block| block[3..].to_vec()).collect();
        for step in [1, 100, 1 << 20] {
            let seen = received(&directory.join(format!("{input}.txt")), step);
            assert!(seen.opened.is_some() && !seen.messages.is_empty(), "{input}");
            assert_eq!(seen.messages, expected, "{input} in pieces of {step}");
        }
        println!("{input}: {} messages as expected", expected.len());
    }
    for file in ["ping_message.txt", "070_single_packed_with_empty_payload.txt"] {
        let seen = received(&directory.join(file), 1);
        assert_eq!((seen.messages.len(), seen.pings), (0, 1), "{file}");
    }
}

#[test]
fn sdk_compressed_sequences_expand() {
    let Some(directory) = sdk().map(|sdk| sdk.join("SocketChannelJunit")) else { return };
    let text: Vec<u8> = (b'a'..=b'z').flat_map(|c| [c; 3]).collect();
    let count = |len: usize| (0..len).map(|n| n as u8).collect::<Vec<u8>>();
    let packed = |names: [&str; 3]| names.map(|name| name.as_bytes().to_vec()).to_vec();
    let cases: [(&[&str], Vec<Vec<u8>>); 4] = [
        (&["Compressed1", "Compressed2", "Compressed3"], vec![text; 3]),
        (&["FragmentedCompressed11", "FragmentedCompressed12"], vec![count(7000)]),
        (
            &[
                "FragmentedCompressedBoundary11",
                "FragmentedCompressedBoundary21",
                "FragmentedCompressedBoundary22",
            ],
            { vec![count(6128), count(6129)] },
        ),
        (&["Packed1"], packed(["packed test #1", "packed test #2", "final packing test #3"])),
    ];
    for (files, expected) in cases {
        let options = ClientOptions { compression: vec![Compression::Zlib], ..ClientOptions::default() };
        let server = ServerOptions { compression: vec![Compression::Zlib], ..ServerOptions::default() };
        let mut client = Channel::client(options);
        let (mut server, mut wire) = (Channel::server(server), Vec::new());
        client.take_output(&mut wire);
        feed(&mut server, &wire, 64).unwrap();
        wire.clear();
        server.take_output(&mut wire);
        for file in files {
            wire.extend(blocks(&directory.join(format!("{file}.txt"))).concat());
        }
        let seen = feed(&mut client, &wire, 1000).unwrap_or_else(|e| panic!("{files:?}: {e}"));
        assert_eq!(seen.messages, expected, "{files:?}");
    }
}

#[test]
fn sdk_handshakes_open_or_are_refused() {
    let Some(directory) = sdk().map(|sdk| sdk.join("RipcHandshakeJunit")) else { return };
    let file = |name: &str| blocks(&directory.join(format!("{name}.txt"))).concat();
    let both = || vec![Compression::Zlib, Compression::Lz4];
    // Not all of these files continue with the client's key, so the agreed parameters are compared.
    let asked = |name: &str| {
        let mut server = Channel::server(ServerOptions { compression: both(), ..ServerOptions::default() });
        feed(&mut server, &file(name), 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        server.opened().cloned()
    };
    for (name, version, compression) in [
        ("60_input_connectReq_Ripc11", 11, None),
        ("60_input_connectReq_Ripc12", 12, None),
        ("60_input_connectReq_Ripc13", 13, None),
        ("60_input_connectReq_Ripc14", 14, None),
        ("70_input_connectReq_Ripc14_all_split", 14, None),
        ("90_input_connectReq_Ripc14_nonDefaultMajorMinorVersion", 14, None),
        ("100_input_connectReq_Ripc13_Zlib_compression", 13, Some(Compression::Zlib)),
    ] {
        let opened = asked(name).expect(name);
        assert_eq!((opened.version, opened.compression), (version, compression), "{name}");
        assert!(!opened.host.is_empty() && opened.ip.starts_with("10."), "{name}: {opened:?}");
    }
    for name in [
        "80_input_connectReq_Ripc13_nonDefaultProtocolType",
        "80_input_connectReq_Ripc14_nonDefaultProtocolType",
    ] {
        let mut server = Channel::server(ServerOptions::default());
        assert!(matches!(server.pull(&file(name)), Ok((_, Pulled::Refused { .. }))), "{name}");
    }
    let from_server = |name: &str, version| {
        let options = ClientOptions { version, compression: both(), ..ClientOptions::default() };
        let mut client = Channel::client(options);
        feed(&mut client, &file(name), 1)
    };
    for (name, version, compression) in [
        ("40_input_connectAck_Ripc11", 11, None),
        ("40_input_connectAck_Ripc12", 12, None),
        ("10_input_connectAck_Ripc14", 14, None),
        ("20_input_connectAck_Ripc14_all_split", 14, None),
        ("110_input_connectAck_Ripc14_Zlib_compression", 14, Some(Compression::Zlib)),
    ] {
        let seen = from_server(name, version).unwrap_or_else(|e| panic!("{name}: {e}"));
        let opened = seen.opened.expect(name);
        assert_eq!((opened.version, opened.compression), (version, compression), "{name}");
    }
    let refused = from_server("50_input_connectNak_Ripc13", 13).unwrap().refused;
    assert_eq!(refused.as_deref(), Some("Test Refused"));
    assert!(from_server("30_input_connectAck_with_wrong_ripcVersion", 14).is_err());
}
