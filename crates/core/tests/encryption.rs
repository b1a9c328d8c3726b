//! Frames that Linux kernels encrypted, and nodes with keys on a perfect network. Spec: tipc.md §12.

mod common;

use std::collections::BTreeMap;

use common::pcap;
use utipc_core::crypto::{Aead, Key, Mode, open_frame, seal_frame};
use utipc_core::wire::{Body, Decoded, Dump, Encrypted, KeyDistribution, User};
use utipc_core::{NodeAddr, View};

/// KEY1 to KEY3 of `tests/vectors/README.md`.
pub(crate) const KEYS: [&str; 3] = [
    "00112233445566778899aabbccddeeff01020304",
    "ffeeddccbbaa99887766554433221100a0b0c0d0",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f00a0b0c0d",
];
const NODES: [NodeAddr; 2] = [NodeAddr::legacy(1, 1, 1), NodeAddr::legacy(1, 1, 2)];

/// The keys of a capture: those of its README and those that nodes send each other.
struct Keys(Vec<(Aead, Mode)>);

impl Keys {
    fn add(&mut self, key: &Key, mode: Mode) {
        self.0.push((Aead::new(key), mode));
    }
}

/// Decrypts a frame with the key that fits, and encrypts it again.
fn check_frame(keys: &Keys, frame: &[u8]) -> Result<Vec<u8>, String> {
    let packet = Encrypted::parse(frame).map_err(|e| e.to_string())?;
    let mut text = Vec::new();
    for ((aead, mode), dest) in keys.0.iter().flat_map(|key| NODES.iter().map(move |node| (key, *node))) {
        if open_frame(aead, *mode, &packet, dest, frame, &mut text) {
            let mut again = Vec::new();
            seal_frame(aead, *mode, &packet, dest, [&text, &[]], &[], &mut again);
            return if again == frame { Ok(text) } else { Err(format!("{again:02x?}")) };
        }
    }
    Err(format!("no key fits {}", Dump(frame)))
}

/// Decrypts a capture; returns the decrypted messages by user.
fn check_capture(name: &str) -> BTreeMap<String, usize> {
    let mut keys = Keys(Vec::new());
    for key in KEYS {
        let key = Key::from_hex(key).unwrap();
        keys.add(&key, Mode::Cluster);
        keys.add(&key, Mode::PerNode);
    }
    let mut census = BTreeMap::new();
    for frame in pcap::read(name).unwrap() {
        if !Encrypted::is_encrypted(&frame.bytes) {
            *census.entry("clear".to_owned()).or_default() += 1;
            continue;
        }
        let at = |e| format!("{name} frame {}: {e}", frame.number);
        let text = check_frame(&keys, &frame.bytes).map_err(at).unwrap();
        let view = View::parse(&text).unwrap();
        let line = Dump(view.bytes()).to_string();
        assert!(!line.contains("malformed"), "{name} frame {}: {line}", frame.number);
        let decoded = Decoded::parse(view).unwrap();
        assert!(decoded.residue.is_empty(), "{name} frame {}: {line} {:?}", frame.number, decoded.residue);
        if let Body::KeyDistribution(KeyDistribution { algorithm, key, mode, .. }) = decoded.body {
            let key = Key::for_algorithm(algorithm, key).unwrap();
            keys.add(&key, Mode::from_number(mode).unwrap());
        }
        *census.entry(format!("{:?}", view.user())).or_default() += 1;
    }
    census
}

#[test]
fn captured_frames_are_decrypted_and_encrypted_to_the_same_bytes() {
    for name in ["crypto-cluster-key", "crypto-switched-on", "crypto-master-key", "crypto-per-node-keys"] {
        let census = check_capture(name);
        assert!(census.contains_key("LinkProtocol") && census.contains_key("Low"), "{name}: {census:?}");
        assert_eq!(census.contains_key("clear"), name == "crypto-switched-on", "{name}: {census:?}");
        let sends_keys = census.get(&format!("{:?}", User::Crypto)).copied().unwrap_or_default();
        assert_eq!(
            sends_keys > 0,
            matches!(name, "crypto-master-key" | "crypto-switched-on"),
            "{name}: {census:?}"
        );
    }
}

#[test]
fn altered_frame_does_not_open() {
    let frames = pcap::read("crypto-cluster-key").unwrap();
    let frame = &frames.iter().find(|frame| Encrypted::is_encrypted(&frame.bytes)).unwrap().bytes;
    let mut keys = Keys(Vec::new());
    keys.add(&Key::from_hex(KEYS[0]).unwrap(), Mode::Cluster);
    assert!(check_frame(&keys, frame).is_ok());
    for bit in 0..frame.len() * 8 {
        let mut altered = frame.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(check_frame(&keys, &altered).is_err(), "bit {bit}");
    }
    for key in &KEYS[1..] {
        let mut keys = Keys(Vec::new());
        keys.add(&Key::from_hex(key).unwrap(), Mode::Cluster);
        assert!(check_frame(&keys, frame).is_err());
    }
}
