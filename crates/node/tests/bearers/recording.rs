//! Captures contain what was sent, as read here and by Wireshark where it is installed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use utipc_core::outbox::Target;
use utipc_node::bearers::{Bearer, Middleware};

use crate::conformance::Rig;
use crate::fixtures;

/// A LINK_CONFIG request as the shortest real TIPC message with a fixed layout (tipc.md §4.3).
fn discovery() -> Vec<u8> {
    let mut message = vec![0; 76];
    message[..4].copy_from_slice(&((2_u32 << 29) | (13 << 25) | (15 << 21) | (1 << 20) | 76).to_be_bytes());
    message[12..16].copy_from_slice(&0x0100_1001_u32.to_be_bytes());
    message[16..20].copy_from_slice(&4711_u32.to_be_bytes());
    message
}

/// Sends frames in both directions over `bearers`, and records the first one; returns the file.
fn record(mut bearers: Vec<Box<dyn Bearer>>, name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("utipc-{name}-{}.pcap", std::process::id()));
    let wrapped = Middleware::new(bearers.remove(0), 1).unwrap();
    wrapped.control().record(&path).unwrap();
    let control = wrapped.control();
    bearers.insert(0, Box::new(wrapped));
    let (here, there) = (bearers[0].local_address(), bearers[1].local_address());
    let mut batch = utipc_core::outbox::FrameBatch::default();
    batch.push(0, Target::Broadcast, &discovery());
    batch.push(0, Target::Unicast(there), &discovery());
    bearers[0].send(0, &batch);
    let mut back = utipc_core::outbox::FrameBatch::default();
    back.push(0, Target::Unicast(here), &discovery());
    bearers[1].send(0, &back);
    Rig::new(bearers).take(0, 1);
    control.stop_recording();
    path
}

/// The link type and packets of a capture in this machine's byte order.
fn read(path: &Path) -> (u32, Vec<Vec<u8>>) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4)), (0xA1B2_3C4D, 0x0004_0002));
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        assert!(word(at) > 1_600_000_000 && word(at + 4) < 1_000_000_000, "a plausible time");
        assert_eq!(word(at + 8), word(at + 12), "the packet is complete");
        let len = word(at + 8) as usize;
        packets.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    (word(20), packets)
}

fn wireshark(path: &Path, expected: usize) {
    let arguments = ["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields"];
    let fields =
        ["-e", "tipc.usr", "-e", "_ws.malformed", "-e", "ip.checksum.status", "-e", "udp.checksum.status"];
    // Uses default preferences, not those of the user.
    let home = fixtures::node_directory();
    let mut command = Command::new("tshark");
    command.env("HOME", &home).env("XDG_CONFIG_HOME", &home).env("WIRESHARK_CONFIG_DIR", &home);
    let output = command.arg("-r").arg(path).args(arguments).args(fields).output();
    let Ok(output) = output else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: tshark is not installed: the capture was checked without it"
        );
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), expected, "{text}{complaints}");
    for line in text.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!((fields[0], fields[1]), ("13", ""), "{line}");
        assert!(fields[2..].iter().all(|status| matches!(*status, "" | "1")), "bad checksum: {line}");
    }
}

#[test]
fn udp_frames_are_recorded_with_ip_and_udp_headers() {
    let path = record(fixtures::udp_replicast().unwrap(), "udp");
    let (link, packets) = read(&path);
    // A copy to each of three remotes, one unicast and one arrival.
    assert_eq!((link, packets.len()), (101, 5));
    for packet in &packets {
        assert_eq!(packet[28..], discovery());
        assert_eq!(packet[20..24], [0x17, 0xE6, 0x17, 0xE6]);
    }
    assert_eq!(packets[0][12..16], packets[3][12..16], "source of sent frames is the own address");
    assert_eq!(packets[4][16..20], packets[3][12..16], "destination of arrived frames is the own address");
    wireshark(&path, 5);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn multicast_and_ipv6_are_recorded_as_sent() {
    let path = record(fixtures::udp_multicast().unwrap(), "multicast");
    let (_, packets) = read(&path);
    assert_eq!(packets.len(), 3);
    assert_eq!(packets[0][16], 239, "to the group");
    wireshark(&path, 3);
    std::fs::remove_file(path).unwrap();
    match fixtures::udp6_unicast() {
        Err(reason) => fixtures::skipped("udp6_unicast", &reason),
        Ok(bearers) => {
            let path = record(bearers, "udp6");
            let (link, packets) = read(&path);
            assert_eq!((link, packets.len()), (101, 4));
            assert!(packets.iter().all(|packet| packet[0] == 0x60 && packet[48..] == discovery()));
            // Wireshark detects TIPC by its port, and these ports are others.
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn ethernet_frames_are_recorded_with_their_header() {
    fixtures::run("ethernet recording", fixtures::ethernet, |rig| {
        let path = record(rig.into_bearers(), "ethernet");
        let (link, packets) = read(&path);
        assert_eq!((link, packets.len()), (1, 3));
        assert_eq!(packets[0][..6], [0xFF; 6]);
        assert!(packets.iter().all(|packet| packet[12..14] == [0x88, 0xCA] && packet[14..] == discovery()));
        assert_eq!(packets[1][..6], packets[2][6..12]);
        wireshark(&path, 3);
        std::fs::remove_file(path).unwrap();
    });
}
