//! The table of slots, the choice of keys, both ciphers.

use super::frame;
use super::info::Introduced;
use super::key::{Key, KeyError, Mode};
use super::receiving::Receiving;
use super::sending::{Choice, Sending};
use super::slots::{Change, Slots, Usage};
use super::{Aead, EncryptionConfig, KeyUse};
use crate::addr::{NodeAddr, NodeId};
use crate::time::Time;
use crate::wire::{Encrypted, EncryptedSource, LinkProtocolType, Message, User};

fn slots(pending: u8, active: u8, passive: u8) -> Slots {
    Slots { pending, active, passive }
}

/// The states that differ; the others are the same with other slots.
fn states() -> Vec<Slots> {
    vec![
        slots(0, 0, 0),
        slots(1, 0, 0),
        slots(0, 1, 0),
        slots(0, 0, 1),
        slots(2, 1, 0),
        slots(0, 2, 1),
        slots(2, 0, 1),
        slots(3, 2, 1),
    ]
}

#[test]
fn every_state_attaches_as_in_the_table() {
    let mut table = String::new();
    for state in states() {
        let show = |(users, wanted)| match state.attach(users, wanted) {
            Ok((to, slot)) => format!("{}{}{}@{slot}", to.pending, to.active, to.passive),
            Err(_) => "busy".to_owned(),
        };
        let row = [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3)].map(show).join(" ");
        table += &format!("{}{}{}: {row}\n", state.pending, state.active, state.passive);
    }
    // Pending, active and passive slot; then after attaching anywhere, the same with users, and in slot 1, 2 and 3.
    assert_eq!(
        table,
        "000: 100@1 100@1 100@1 200@2 300@3
100: 100@1 busy 100@1 100@1 100@1
010: 210@2 210@2 011@1 210@2 013@3
001: 201@2 201@2 201@2 201@2 201@2
210: 210@2 busy 210@2 210@2 210@2
021: busy busy busy busy busy
201: 201@2 busy 201@2 201@2 201@2
321: busy busy busy busy busy
"
    );
}

#[test]
fn every_state_ticks_as_in_the_table() {
    let mut table = String::new();
    for state in states() {
        let usage = |pending, active, passive, settled, outdated| Usage {
            pending,
            active,
            passive,
            settled,
            outdated,
        };
        let cases = [
            usage(0, 1, 1, false, false),
            usage(1, 1, 1, false, false),
            usage(-10, 1, 1, false, false),
            usage(0, 1, 1, true, false),
            usage(0, 0, 1, false, false),
            usage(0, 1, 1, false, true),
            usage(0, 1, -10, false, false),
        ];
        let show = |usage| match state.tick_receiving(usage) {
            Some(change) => {
                let to = state.after(change);
                format!("{}{}{}", to.pending, to.active, to.passive)
            }
            None => "-".to_owned(),
        };
        let sending =
            [usage(1, 0, 0, true, false), usage(1, 1, 0, true, false), usage(1, 0, 0, false, false)];
        let active = |usage| match state.tick_sending(usage) {
            Some(Change::Activate) => "activate",
            Some(_) => "?",
            None => "-",
        };
        let row = cases.map(show).join(" ");
        let own = sending.map(active).join(" ");
        table += &format!("{}{}{}: {row} | {own}\n", state.pending, state.active, state.passive);
    }
    // Receiving: quiet, pending works, pending fails, active silent, active unused, passive outdated, passive fails.
    // Sending: pending wanted and the time over, the same with users of the active one, the time not over.
    assert_eq!(
        table,
        "000: - - - - - - - | - - -
100: - 010 000 - - - - | activate activate -
010: - - - 100 100 - - | - - -
001: - - - - - 000 000 | - - -
210: - 021 010 201 201 - - | activate - -
021: - - - 201 201 020 020 | - - -
201: - 021 001 - - 200 200 | activate activate -
321: - 032 021 302 302 320 320 | activate - -
"
    );
}

#[test]
fn pending_key_moves_to_the_slot_that_the_peer_uses() {
    assert_eq!(slots(1, 0, 0).align(0, 3), Some(slots(3, 0, 0)));
    assert_eq!(slots(2, 0, 1).align(0, 3), Some(slots(3, 0, 2)));
    assert_eq!(slots(1, 0, 3).align(0, 2), Some(slots(2, 0, 1)));
    assert_eq!(slots(3, 0, 2).align(0, 1), Some(slots(1, 0, 3)));
    for (state, users) in [(slots(2, 1, 0), 0), (slots(0, 0, 1), 0), (slots(1, 0, 0), 1)] {
        assert_eq!(state.align(users, 3), None);
    }
    assert_eq!(slots(1, 0, 0).align(0, 0), None);
}

/// A peer with the key that it has sent, which is active.
fn peer_with_key() -> Receiving {
    let mut peer = Receiving::default();
    assert!(peer.receive(Time::ZERO, 1, Mode::PerNode, key(1, 20)));
    peer.succeeded(Time::ZERO, 1, 1);
    peer.tick(Time::ZERO);
    assert_eq!(peer.slots, slots(0, 1, 0));
    peer
}

#[test]
fn failures_leave_a_silent_key_silent() {
    let mut peer = peer_with_key();
    peer.tick(Time::from_millis(3000));
    assert_eq!(peer.slots, slots(1, 0, 0));
    for millis in 3000..3100 {
        peer.failed(1);
        peer.tick(Time::from_millis(millis));
        assert_eq!(peer.slots, slots(1, 0, 0), "neither active again nor dropped");
    }
}

#[test]
fn silent_keys_can_be_lost_once_the_peer_has_used_the_master_key() {
    let lose = |peer: &mut Receiving, millis| {
        for _ in 0..20 {
            peer.failed(1);
            peer.tick(Time::from_millis(millis));
        }
        peer.slots.is_empty()
    };
    let mut peer = peer_with_key();
    peer.doubt(Time::from_millis(2999));
    assert!(!lose(&mut peer, 2999), "the key is not silent yet");
    peer.doubt(Time::from_millis(3000));
    peer.succeeded(Time::from_millis(3000), 1, 1);
    assert!(!lose(&mut peer, 4000), "the key works again");
    peer.doubt(Time::from_millis(6000));
    assert!(lose(&mut peer, 6000));
    let mut peer = Receiving::default();
    peer.attach(
        Time::ZERO,
        std::sync::Arc::new(Aead::new(&key(1, 20))),
        Mode::PerNode,
        Introduced::Operator,
        1,
    )
    .unwrap();
    peer.doubt(Time::from_millis(6000));
    assert!(!lose(&mut peer, 6000), "the operator has set the key");
}

fn key(byte: u8, len: usize) -> Key {
    Key::new(&vec![byte; len]).unwrap()
}

/// A node's keys: {active, pending, master}.
fn keys(active: bool, pending: bool, master: bool) -> Sending {
    let mut sending = Sending::new(7);
    let now = Time::ZERO;
    if active {
        let slot = sending.attach(now, 1, key(1, 20), (Mode::Cluster, false), Introduced::Operator).unwrap();
        sending.move_user(now, 0, slot);
        assert!(sending.tick(now.plus_millis(10_000)));
    }
    if pending {
        sending.attach(now, 1, key(2, 20), (Mode::Cluster, false), Introduced::Operator).unwrap();
    }
    if master {
        sending.attach(now, 1, key(3, 20), (Mode::Cluster, true), Introduced::Operator).unwrap();
    }
    sending
}

/// The choice in letters: Probe, Master copy, then the slot or `x` for "not sent".
fn letters(choice: Choice) -> String {
    let probe = choice.probe.map_or(String::new(), |slot| format!("P{slot}+"));
    let copy = if choice.master_copy { "M+" } else { "" };
    probe + copy + &choice.main.map_or("x".to_owned(), |slot| slot.to_string())
}

fn peer(peer_active: u8, has_master: bool) -> Receiving {
    let mut peer = Receiving::default();
    (peer.peer_active, peer.has_master) = (peer_active, has_master);
    peer
}

#[test]
fn every_message_takes_the_key_of_the_table() {
    let internal = |user, kind| Message::build(user, kind, 40, &[]);
    let messages = [
        internal(User::LinkConfig, 0),
        internal(User::LinkProtocol, LinkProtocolType::Reset.into()),
        internal(User::LinkProtocol, LinkProtocolType::Activate.into()),
        internal(User::LinkProtocol, LinkProtocolType::State.into()),
        internal(User::Crypto, 0),
        internal(User::Low, 0),
    ];
    let (unknown, modern, ready) = (peer(0, false), peer(0, true), peer(2, true));
    let mut table = String::new();
    for (active, pending, master) in [
        (false, false, true),
        (false, true, false),
        (false, true, true),
        (true, false, false),
        (true, false, true),
        (true, true, false),
        (true, true, true),
    ] {
        let mut sending = keys(active, pending, master);
        let name = |on, name| if on { name } else { "-" };
        table += &[name(active, "A"), name(pending, "P"), name(master, "M")].concat();
        for (grace, legacy) in [(false, false), (true, false), (true, true)] {
            if grace {
                sending.begin_grace(Time::from_millis(20_000));
            }
            sending.note_master(!legacy);
            table += " |";
            for peer in [None, Some(&unknown), Some(&modern), Some(&ready)] {
                let now = Time::from_millis(21_000);
                let row = messages.iter().map(|m| letters(sending.choose(now, peer, m.view())));
                table += &format!(" {}", row.collect::<Vec<_>>().join(","));
            }
        }
        table += "\n";
    }
    // Rows: which keys the node has, of active, pending and master. Columns, divided by bars: outside the grace period,
    // in it, in it with a peer that has no master key. In each: to all, to a peer without and with a master key, to one
    // that receives with slot 2. In each: discovery, RESET, ACTIVATE, STATE, key distribution,
    // anything else.
    let expected = include_str!("choices.txt");
    assert!(table == expected, "{table}");
}

#[test]
fn grace_ends_after_five_seconds() {
    let mut sending = keys(true, false, true);
    sending.begin_grace(Time::from_millis(1000));
    let data = Message::build(User::Low, 0, 40, &[]);
    let peer = peer(0, true);
    let main = |at| sending.choose(Time::from_millis(at), Some(&peer), data.view()).main;
    assert_eq!((main(5999), main(6000)), (Some(0), Some(1)));
}

#[test]
fn both_ciphers_agree_for_every_length_of_key_and_text() {
    for len in [20, 28, 36] {
        let key = key(len as u8, len);
        let (fast, portable) = (Aead::new(&key), Aead::portable(&key));
        for size in [1, 4, 40, 64, 1400, 1471, 9000] {
            let plain: Vec<u8> = (0..size).map(|i| (i * 13) as u8).collect();
            let (mut a, mut b) = (plain.clone(), plain.clone());
            let nonce = fast.nonce(0x0100_1001, size as u64);
            let tag = fast.seal(nonce, b"header", &mut a).unwrap();
            assert_eq!(portable.seal(nonce, b"header", &mut b), Some(tag), "{len} {size}");
            assert_eq!(a, b);
            assert!(portable.open(nonce, b"header", &mut a, tag) && fast.open(nonce, b"header", &mut b, tag));
            assert!(a == plain && b == plain);
            let forged = fast.seal(nonce, b"header", &mut a).unwrap().map(|byte| byte ^ 1);
            assert!(!fast.open(nonce, b"header", &mut a.clone(), forged));
            assert!(!portable.open(nonce, b"header", &mut a, forged));
        }
    }
}

#[test]
fn salt_varies_with_the_bytes_of_an_address_from_the_lowest_on() {
    let aead = Aead::new(&Key::from_hex("0x00112233445566778899aabbccddeeff01020304").unwrap());
    let nonce = aead.nonce(0x0100_1002, 0x1122_3344_5566_7788);
    assert_eq!(nonce, [0x03, 0x12, 0x03, 0x05, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    let id = EncryptedSource::Identity(NodeId::from_text("abcdefg"));
    let header = |source, destined| Encrypted {
        user: User::Low,
        destined,
        tx_slot: 1,
        rx_slot: 0,
        keepalive: false,
        has_master: false,
        no_rx_key: false,
        timed: false,
        life: 0,
        seqno: 1,
        source,
        ciphertext: &[],
    };
    let (from, to) = (NodeAddr(0x0100_1001), NodeAddr(0x0100_1002));
    let variation = |mode, source, destined| frame::variation(mode, &header(source, destined), to);
    assert_eq!(variation(Mode::Cluster, EncryptedSource::Node(from), true), from.0);
    assert_eq!(variation(Mode::Cluster, id, false), 0x6162_6364);
    assert_eq!(variation(Mode::PerNode, EncryptedSource::Node(from), true), to.0);
    assert_eq!(variation(Mode::PerNode, id, false), 0);
}

#[test]
fn unusable_keys_are_named() {
    assert_eq!(Key::from_hex("0xabc"), Err(KeyError::Hex));
    assert_eq!(Key::from_hex("zz"), Err(KeyError::Hex));
    assert_eq!(Key::from_hex("abcd"), Err(KeyError::Length(2)));
    assert_eq!(Key::new(&[0; 16]), Err(KeyError::Length(16)));
    assert_eq!(Key::for_algorithm(b"ccm(aes)", &[0; 20]), Err(KeyError::Algorithm));
    assert!(Key::for_algorithm(b"gcm(aes)\0\0", &[0; 20]).is_ok());
    let shown = format!("{:?} {:?}", key(0xab, 20), Aead::new(&key(0xab, 20)));
    assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
}

#[test]
fn session_keys_differ_from_each_other_and_from_their_template() {
    let config = EncryptionConfig { secret: Some([9; 36].into()), ..EncryptionConfig::default() };
    let mut layer = super::Encryption::new(&config, 1);
    layer.set_key(Time::ZERO, None, KeyUse::Master, key(1, 28)).unwrap();
    layer.rekey(Time::ZERO).unwrap();
    let first = layer.distribution(NodeAddr(1), NodeAddr(2)).unwrap();
    layer.flush();
    layer.set_key(Time::ZERO, None, KeyUse::Master, key(1, 28)).unwrap();
    layer.rekey(Time::ZERO).unwrap();
    let second = layer.distribution(NodeAddr(1), NodeAddr(2)).unwrap();
    assert_eq!(first.data().len(), 32 + 4 + 28);
    assert_ne!(first.data()[36..], second.data()[36..]);
    assert!(!first.data()[36..].windows(4).any(|four| four == [1; 4]));
}
