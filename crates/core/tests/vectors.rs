//! Decodes every packet that Linux kernels sent each other in the captures, accounts for every bit, and encodes it
//! again. Spec: tipc.md §2 to §4, §11, §12.

mod common;

use std::collections::BTreeMap;

use common::pcap;
use utipc_core::View;
use utipc_core::wire::{Body, Decoded, Dump, Encrypted, Tunnel, User};

/// Number of messages by name; the test fails if an expected kind is missing.
type Census = BTreeMap<String, usize>;

/// Checks one packet from the wire, plain or encrypted.
fn check_frame(bytes: &[u8], census: &mut Census) -> Result<(), String> {
    if Encrypted::is_encrypted(bytes) {
        let packet = Encrypted::parse(bytes).map_err(|e| e.to_string())?;
        if packet.timed || packet.life != 0 {
            return Err(format!("reserved bits in an encrypted packet: {:?}", (packet.timed, packet.life)));
        }
        *census.entry(format!("encrypted {:?}", packet.user)).or_default() += 1;
        return same(bytes, &packet.to_bytes());
    }
    let view = View::parse(bytes).map_err(|e| e.to_string())?;
    if bytes.get(view.size()..).unwrap_or_default().iter().any(|b| *b != 0) {
        return Err("padding that is not zero".into());
    }
    check_message(view, census)
}

/// Checks a message and its contents.
fn check_message(view: View<'_>, census: &mut Census) -> Result<(), String> {
    let line = Dump(view.bytes()).to_string();
    let decoded = Decoded::parse(view).map_err(|e| format!("{line}: {e}"))?;
    let unexplained = |what: &str| Err(format!("{what} {:?} in {line}", decoded.residue));
    same(view.bytes(), &decoded.to_bytes())?;
    let residue = &decoded.residue;
    match &decoded.body {
        Body::Unknown(_) => return unexplained("unknown user or type"),
        _ if !residue.is_empty() => return unexplained("bits"),
        Body::Bundle(bundle) => {
            let mut inside = 0;
            for inner in bundle.messages() {
                check_message(inner.map_err(|e| format!("{line}: {e}"))?, census)?;
                inside += 1;
            }
            if inside != bundle.count {
                return Err(format!("{inside} messages in {line}"));
            }
        }
        Body::Tunnel(tunnel @ Tunnel { part: 0, .. }) => {
            if let Some(inner) = tunnel.inner().map_err(|e| format!("{line}: {e}"))? {
                check_message(inner, census)?;
            }
        }
        _ => {}
    }
    if line.contains("malformed") || line.contains('\n') {
        return Err(format!("printed as {line}"));
    }
    *census.entry(name_of(&decoded.body)).or_default() += 1;
    Ok(())
}

fn same(original: &[u8], again: &[u8]) -> Result<(), String> {
    let view = original.get(..again.len()).unwrap_or(original);
    if view == again { Ok(()) } else { Err(format!("{original:02x?} became {again:02x?}")) }
}

fn name_of(body: &Body<'_>) -> String {
    let name = match body {
        Body::Data(d) => format!("{:?}", d.to),
        Body::Bcast(_) => "BCAST_PROTOCOL".into(),
        Body::Bundle(_) => "BUNDLE".into(),
        Body::State(s) if s.monitor.is_some() => "STATE-monitor".into(),
        Body::State(s) if s.gaps.as_ref().is_some_and(|g| g.len > 4) => "STATE-gaps".into(),
        Body::State(_) => "STATE".into(),
        Body::Restart(r) => if r.activate.is_some() { "ACTIVATE" } else { "RESET" }.into(),
        Body::Conn(c) => format!("{:?}", c.kind),
        Body::Group(g) => format!("GROUP-{:?}", g.kind),
        Body::Tunnel(t) => format!("{:?}", t.kind),
        Body::Names(n) => if n.withdrawal { "WITHDRAW" } else { "PUBLISH" }.into(),
        Body::Fragment(p) => format!("FRAGMENT-{:?}", p.kind),
        Body::Discovery(d) => format!("{:?}", d.kind),
        Body::KeyDistribution(_) => "KEY_DISTR".into(),
        Body::Unknown(_) => "unknown".into(),
    };
    name.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

fn check_capture(frames: &[pcap::Frame], census: &mut Census) -> Result<(), String> {
    if frames.is_empty() {
        return Err("no packet".into());
    }
    for frame in frames {
        check_frame(&frame.bytes, census).map_err(|e| format!("frame {}: {e}", frame.number))?;
    }
    Ok(())
}

#[test]
fn captured_packets_decode_and_encode_unchanged() {
    let mut census = Census::new();
    let names = pcap::names();
    assert_eq!(names.len(), 39, "captures: {names:?}");
    let mut failures = Vec::new();
    for name in names {
        let checked = pcap::read(&name).and_then(|frames| check_capture(&frames, &mut census));
        failures.extend(checked.err().map(|e| format!("{name}: {e}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for name in EXPECTED {
        assert!(census.contains_key(*name), "no {name} in {census:?}");
    }
}

/// Kinds of messages that the captures must contain.
const EXPECTED: &[&str] = &[
    "ACTIVATE",
    "Ack",
    "BCAST_PROTOCOL",
    "BUNDLE",
    "Connection",
    "Direct",
    "FRAGMENT-First",
    "FRAGMENT-Last",
    "FRAGMENT-Middle",
    "Failover",
    "GROUP-Ack",
    "GROUP-Advertise",
    "GROUP-Join",
    "GROUP-Leave",
    "Group",
    "Multicast",
    "Named",
    "PUBLISH",
    "RESET",
    "Request",
    "Response",
    "STATE",
    "STATE-gaps",
    "STATE-monitor",
    "Synch",
    "Trial",
    "TrialFail",
    "WITHDRAW",
    "encrypted LinkConfig",
    "encrypted LinkProtocol",
    "encrypted Low",
];

#[test]
fn damaged_packet_is_detected() {
    let frames = pcap::read("loss5").unwrap();
    let good = || frames.iter().map(|f| pcap::Frame { bytes: f.bytes.clone(), ..*f }).collect::<Vec<_>>();
    check_capture(&good(), &mut Census::new()).unwrap();
    // {byte, bits}: version, user, size, type of a message that has no third, word 8 (without meaning in payload and in
    // STATE without broadcast gaps), a byte after the end
    for (at, bits) in [(0, 0x20), (0, 0x14), (3, 0x01), (4, 0x60), (34, 0x80)] {
        let mut frames = good();
        let state = frames.iter_mut().find(|f| View::parse(&f.bytes).unwrap().user() == User::LinkProtocol);
        state.unwrap().bytes[at] ^= bits;
        let noticed = check_capture(&frames, &mut Census::new());
        assert!(noticed.is_err(), "byte {at} bits {bits:#x}");
    }
    let mut frames = good();
    frames[0].bytes.truncate(30);
    assert!(check_capture(&frames, &mut Census::new()).is_err());
    assert!(check_capture(&[], &mut Census::new()).is_err());
}

#[test]
fn damaged_capture_is_detected() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/udp-multicast.pcap");
    let file = std::fs::read(path).unwrap();
    assert!(pcap::parse(&file).is_ok());
    assert!(pcap::parse(&file[..file.len() - 1]).is_err(), "cut off");
    let other_type = |at: usize| {
        let mut file = file.clone();
        file[at] ^= 0x40;
        pcap::parse(&file)
    };
    assert!(other_type(0).is_err(), "magic number");
    assert!(other_type(24 + 16 + 12).is_err(), "ethertype");
}
