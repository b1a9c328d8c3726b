//! Compares messages of these endpoints with those of kernels in the captures, bit for bit (link stamps set to 0).

use super::*;

fn hex(msg: &Message) -> String {
    msg.bytes().iter().map(|b| format!("{b:02x}")).collect()
}

fn sent(c: &mut Cluster) -> Vec<String> {
    c.take_log().iter().map(hex).collect()
}

/// A listener at A and a client at B with the ports of a capture, before the SYN is sent.
fn scene(service: u32, listener: u32, client: u32, kind: SocketKind) -> (Cluster, PortId, PortId) {
    let mut c = Cluster::new();
    let l = c.open_as(A, kind, listener);
    c.bind(l, service, 1, 1);
    c.on(l, |s, _, _| s.listen()).unwrap();
    let client = c.open_as(B, kind, client);
    (c, l, client)
}

/// A receive buffer for which the advertised window equals the recorder's with 2 MiB: 512 blocks.
const RECORDED_BUFFER: u32 = (512 + 130) * 1152;

#[test]
fn seqpacket_pcap_setup_data_ack_and_shutdown() {
    let (mut c, l, client) = scene(3000, 0xa243_0ca6, 0x01f2_3b2b, SocketKind::SeqPacket);
    c.connect(client, Destination::service(3000, 1)).unwrap();
    let syn = "4142002840100000000000000100100201f23b2ba2430ca6010010020100100100000bb800000001";
    assert_eq!(sent(&mut c), [syn]);
    c.run();
    let server = c.accept_as(l, 0x819e_da68).unwrap();
    c.set(server, SocketOption::ReceiveBuffer, RECORDED_BUFFER);
    assert_eq!(sent(&mut c), ["40c00018000000000000000001001001819eda6801f23b2b"]);
    c.run();
    c.send(client, &[0]).unwrap();
    assert_eq!(sent(&mut c), ["40c0001900000000000000000100100201f23b2b819eda6800"]);
    for len in [100, 1400, 5000, 66_000] {
        c.send(client, &vec![7; len]).unwrap();
    }
    c.run();
    c.take_log();
    for len in [1, 100, 1400, 5000] {
        assert_eq!(c.recv(server, 66_000).unwrap().len(), len);
    }
    assert!(sent(&mut c).is_empty(), "the ack is sent after the 66,000 bytes");
    c.recv(server, 66_000).unwrap();
    let ack = "51400028400000000000000001001001819eda6801f23b2b010010010100100200000000004a0200";
    // the capture's fifth message ends at 74 blocks: 1 + 1 + 2 + 5 + 65
    assert_eq!(sent(&mut c), [ack]);
    c.run();
    c.shutdown(client);
    assert_eq!(sent(&mut c), ["46c000180a000000000000000100100201f23b2b819eda68"]);
}

#[test]
fn connection_ends_pcap_closed_and_closed_with_unread_messages() {
    let (mut c, l, client) = scene(3300, 0xdd5d_58f9, 0x2a81_1c01, SocketKind::SeqPacket);
    c.connect(client, Destination::service(3300, 1)).unwrap();
    c.run();
    let server = c.accept_as(l, 0x9e17_796f).unwrap();
    c.run();
    c.send(client, b"unread 1").unwrap();
    c.send(client, b"unread 2").unwrap();
    c.run();
    c.take_log();
    c.close(server);
    let returned = "410000280400000000000000010010019e17796f2a811c010100100101001002756e726561642031";
    assert_eq!(sent(&mut c), [returned]);
}

#[test]
fn connection_ends_pcap_killed_server_and_listener_closed_before_accept() {
    let (mut c, l, client) = scene(3300, 0xdd5d_58f9, 0x3719_1162, SocketKind::SeqPacket);
    c.connect(client, Destination::service(3300, 1)).unwrap();
    c.run();
    let server = c.accept_as(l, 0xc3ba_8180).unwrap();
    c.run();
    c.take_log();
    c.close(server);
    assert_eq!(sent(&mut c), ["46c00018040000000000000001001001c3ba818037191162"]);

    let (mut c, l, client) = scene(3300, 0xdd5d_58f9, 0x3267_c08a, SocketKind::SeqPacket);
    c.connect(client, Destination::service(3300, 1)).unwrap();
    c.run();
    c.take_log();
    c.close(l);
    let refused = "41420028441000000000000001001001dd5d58f93267c08a010010010100100200000ce400000001";
    assert_eq!(sent(&mut c), [refused]);
    c.run();
    assert_eq!(c.on(client, |s, _, _| s.take_error()), Some(ConnectError::Refused));
}

#[test]
fn implied_connect_pcap() {
    let (mut c, l, client) = scene(3100, 0x0ba2_d408, 0x4c7f_a70d, SocketKind::SeqPacket);
    c.send_to(client, b"first message makes the connection", Destination::service(3100, 1)).unwrap();
    let syn = "4142004a4010000000000000010010024c7fa70d0ba2d408010010020100100100000c1c00000001\
               6669727374206d657373616765206d616b65732074686520636f6e6e656374696f6e";
    assert_eq!(sent(&mut c), [syn]);
    c.run();
    let server = c.accept_as(l, 0xcf67_fc2a).unwrap();
    assert_eq!(sent(&mut c), ["40c00018000000000000000001001001cf67fc2a4c7fa70d"]);
    assert_eq!(c.recv(server, 100).unwrap(), b"first message makes the connection");
    c.send(server, b"answer").unwrap();
    assert_eq!(sent(&mut c), ["40c0001e000000000000000001001001cf67fc2a4c7fa70d616e73776572"]);
    c.run();
    assert_eq!(c.recv(client, 100).unwrap(), b"answer");
    c.send(client, b"more").unwrap();
    assert_eq!(sent(&mut c), ["40c0001c0000000000000000010010024c7fa70dcf67fc2a6d6f7265"]);
    c.close(client);
    assert_eq!(sent(&mut c), ["46c000180400000000000000010010024c7fa70dcf67fc2a"]);
}

#[test]
fn reject_pcap_returned_and_dropped_messages() {
    let mut c = Cluster::new();
    let sender = c.open_as(B, SocketKind::Rdm, 0x40be_cddb);
    c.set(sender, SocketOption::DestDroppable, 0);
    let gone = Destination::Port(PortId { port: 0xcc04_ce9d, node: A });
    c.send_to(sender, b"to a closed socket", gone).unwrap();
    c.run();
    let direct = "4100003260000000000000000100100240becddbcc04ce9d0100100201001001746f206120636c6f73656420736f636b6574";
    let back = "41000032640000000000000001001001cc04ce9d40becddb0100100101001002746f206120636c6f73656420736f636b6574";
    assert_eq!(sent(&mut c), [direct, back]);
    c.send_to(sender, &[9; 3000], gone).unwrap();
    c.run();
    let log = c.take_log();
    assert_eq!(log[1].size(), 1056);
    assert!(hex(&log[1]).starts_with("41000420640000000000000001001001cc04ce9d40becddb0100100101001002"));
    let named = Destination::Service { addr: ServiceAddr { service: 4000, instance: 1 }, domain: A };
    c.send_to(sender, b"no such name", named).unwrap();
    c.run();
    let named = "4140003440180000000000000100100240becddb00000000010010020100100100000fa0000000016e6f2073756368206e616d65";
    let back = "414000344218000000000000010010010000000040becddb010010010100100200000fa0000000016e6f2073756368206e616d65";
    assert_eq!(sent(&mut c), [named, back]);

    let sender = c.open_as(B, SocketKind::Rdm, 0xed63_350d);
    c.send_to(sender, b"droppable", gone).unwrap();
    c.run();
    assert_eq!(
        sent(&mut c),
        ["41080029600000000000000001001002ed63350dcc04ce9d010010020100100164726f707061626c65"]
    );
}

#[test]
fn stream_pcap_where_nagle_asks_for_acks() {
    let (mut c, l, client) = scene(3200, 0x6917_3034, 0x4e62_37fc, SocketKind::Stream);
    c.connect(client, Destination::service(3200, 1)).unwrap();
    c.run();
    let server = c.accept_as(l, 0x3598_98ad).unwrap();
    c.set(server, SocketOption::ReceiveBuffer, RECORDED_BUFFER);
    c.run();
    c.send(client, &vec![1; 18_000]).unwrap();
    c.send(client, &vec![1; 66_000]).unwrap();
    c.run();
    while c.recv(server, 100_000).is_ok() {}
    c.send(server, &[0; 2000]).unwrap();
    c.run();
    c.take_log();
    for i in 0..50 {
        c.send(client, format!("{i:02},").as_bytes()).unwrap();
        c.run();
    }
    let log = c.take_log();
    let writes: Vec<_> = log.iter().filter(|m| m.is_data()).collect();
    assert!(writes.iter().all(|m| m.size() == 27));
    // frames 134, 144 and 163 of the capture: each attempt found that collecting did not pay and doubled the start
    let asks: Vec<_> = writes.iter().enumerate().filter(|(_, m)| m.ack_required()).map(|(i, _)| i).collect();
    assert_eq!(asks, [4, 4 + 9, 4 + 9 + 17]);
    let asked = "40c4001b0000000000000000010010024e6237fc359898ad30342c";
    assert_eq!(hex(writes[4]), asked);
    let acks: Vec<_> = log.iter().filter(|m| !m.is_data()).map(hex).collect();
    // frame 135, except for the count: in the capture, 83 blocks had been read and not acknowledged
    assert_eq!(acks[0], "51440028400000000000000001001001359898ad4e6237fc01001001010010020000000000000200");
    assert_eq!(acks.len(), 3);
}

/// Messages of the TIPC frames of an Ethernet capture, each with the last byte of the node's MAC address.
fn capture(file: &[u8]) -> Vec<(u8, Message)> {
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while rest.len() >= 16 {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = &rest[16..16 + len];
        frames.push((frame[11], Message::from_vec(frame[14..].to_vec()).unwrap()));
        rest = &rest[16 + len..];
    }
    frames
}

#[test]
fn stream_pcap_shows_an_initial_window_of_128_blocks() {
    // 150,000 bytes to a reader that starts late. The recorder missed packets, so the link sequence numbers are used to
    // find what the writer at b (MAC …:02) sent before the first acknowledgement of the connection.
    let frames = capture(include_bytes!("../../../tests/vectors/stream.pcap"));
    let first_ack = frames.iter().position(|(_, m)| m.user() == User::ConnManager).unwrap();
    let fragments = |frames: &[(u8, Message)]| -> Vec<u16> {
        let sent = frames.iter().filter(|(node, m)| *node == 2 && m.user() == User::Fragmenter);
        sent.map(|(_, m)| m.seqno()).collect()
    };
    let before = fragments(&frames[..first_ack]);
    let after = fragments(&frames[first_ack..]);
    let of_one_message = 66_024usize.div_ceil(1428 - 40) as u16;
    assert_eq!(
        after[0] - before[0],
        2 * of_one_message,
        "two messages of 66,000 bytes left, the third waited"
    );
    // after "abc", "def" and one of them the writer was not congested; after the second it was
    let window = super::super::connection::INITIAL_WINDOW;
    assert!((2 + 65..2 + 65 + 65).contains(&window));
    assert_eq!(frames[first_ack].1.conn_acked(), 2 + 65);
}
