//! Nodes with keys on a network in virtual time, with loss, restarts and an attacker who records. Spec: tipc.md §12.

mod bearers;
mod lan;
mod replay;

use utipc_core::crypto::{Introduced, Key, KeyRole, KeyUse, SetKeyError};
use utipc_core::wire::{Encrypted, Envelope, KeyDistribution, User};
use utipc_core::{Drop, Message, Stack, Time};

use lan::{CLOCK, Flow, KEY1, KEY2, LONG, Lan, MEDIUM, id, key};

#[test]
fn cluster_key_of_each_length_encrypts_everything() {
    for (hex, strict) in [(KEY1, false), (MEDIUM, true), (LONG, true)] {
        let mut lan = Lan::new(3, strict);
        lan.set_all(KeyUse::Cluster, hex);
        lan.plug_all();
        lan.run(3000);
        assert!(lan.is_linked(), "{:?}", lan.dropped);
        let mut flow = Flow::new(&mut lan);
        (0..50).for_each(|_| flow.step(&mut lan));
        flow.finish(&mut lan);
        lan.run(60_000);
        assert!(lan.is_linked() && lan.all_encrypted());
        assert!(lan.sent.iter().all(|(_, _, bytes)| bytes.len() <= 1472));
        assert!(lan.dropped.iter().flatten().all(|drop| *drop == Drop::UnknownPeer), "{:?}", lan.dropped);
        assert_eq!((lan.slot(0, KeyRole::Active), lan.slot(0, KeyRole::Pending)), (1, 0));
    }
}

#[test]
fn keys_of_single_nodes_encrypt_each_direction() {
    let mut lan = Lan::new(3, true);
    for node in 0..3 {
        for (owner, hex) in [KEY1, KEY2, LONG].into_iter().enumerate() {
            lan.nodes[node].set_key(lan.now, KeyUse::Node(id(owner)), key(hex)).unwrap();
        }
    }
    lan.plug_all();
    lan.run(3000);
    assert!(lan.is_linked(), "{:?}", lan.dropped);
    let mut flow = Flow::new(&mut lan);
    (0..50).for_each(|_| flow.step(&mut lan));
    flow.finish(&mut lan);
    assert!(lan.all_encrypted());
}

#[test]
fn session_keys_replace_the_master_key_and_change_under_traffic_without_loss() {
    let mut lan = Lan::new(3, true);
    lan.set_all(KeyUse::Master, KEY1);
    lan.plug_all();
    lan.run(3000);
    assert!(lan.is_linked(), "{:?}", lan.dropped);
    lan.loss = 20;
    let mut flow = Flow::new(&mut lan);
    for step in 0..5000 {
        if step % 1000 == 100 {
            for node in 0..3 {
                lan.nodes[node].rekey(lan.now).unwrap();
                assert_eq!(lan.nodes[node].rekey(lan.now), Err(SetKeyError::Busy));
            }
        }
        flow.step(&mut lan);
    }
    flow.finish(&mut lan);
    lan.run(60_000);
    assert!(lan.is_linked() && lan.all_encrypted());
    for node in 0..3 {
        let info = lan.nodes[node].encryption();
        assert!(lan.slot(node, KeyRole::Active) != 0 && lan.slot(node, KeyRole::Pending) == 0, "{info:?}");
        assert!(info.stats.switches >= 15 && info.stats.received >= 10, "{info:?}");
        assert!(
            info.peers.iter().all(|peer| peer.receives_with == lan.slot(node, KeyRole::Active)),
            "{info:?}"
        );
    }
    // Data no longer uses the master key.
    let from = lan.sent.len();
    lan.loss = 0;
    lan.run(10_000);
    let data = lan.sent[from..].iter().filter_map(|(_, _, bytes)| Encrypted::parse(bytes).ok());
    assert!(data.filter(|packet| u8::from(packet.user) == 7).all(|packet| packet.tx_slot != 0));
}

#[test]
fn rekeying_happens_at_its_interval() {
    let mut lan = Lan::new(2, true);
    lan.set_all(KeyUse::Master, KEY1);
    lan.plug_all();
    lan.nodes[0].set_rekeying(lan.now, 2);
    lan.run(5 * 60_000);
    let info = lan.nodes[0].encryption();
    assert_eq!(info.rekeying_minutes, 2);
    assert!((2..=4).contains(&info.stats.distributed), "{info:?}");
    let before = info.stats.distributed;
    assert!(lan.is_linked());
    lan.nodes[0].set_rekeying(lan.now, 0);
    lan.run(10 * 60_000);
    assert_eq!(lan.nodes[0].encryption().stats.distributed, before);
}

#[test]
fn keys_set_while_links_are_up_lose_nothing() {
    let mut lan = Lan::new(2, false);
    lan.plug_all();
    lan.run(3000);
    let mut flow = Flow::new(&mut lan);
    for step in 0..400 {
        for (node, at) in [(0, 50), (1, 75)] {
            if step == at {
                lan.nodes[node].set_key(lan.now, KeyUse::Cluster, key(KEY1)).unwrap();
            }
        }
        flow.step(&mut lan);
    }
    flow.finish(&mut lan);
    assert!(lan.is_linked());
    lan.sent.clear();
    lan.run(5000);
    assert!(lan.all_encrypted());
    lan.nodes.iter_mut().for_each(Stack::flush_keys);
    lan.sent.clear();
    lan.run(5000);
    assert!(!lan.all_encrypted() && lan.is_linked());
}

#[test]
fn nodes_with_different_keys_do_not_link_and_say_why() {
    let mut lan = Lan::new(2, false);
    lan.nodes[0].set_key(lan.now, KeyUse::Cluster, key(KEY1)).unwrap();
    lan.nodes[1].set_key(lan.now, KeyUse::Cluster, key(KEY2)).unwrap();
    lan.plug_all();
    lan.run(10_000);
    assert_eq!((lan.peers(0), lan.peers(1)), (0, 0));
    assert!(lan.dropped.iter().all(|dropped| dropped.contains(&Drop::WrongKey)), "{:?}", lan.dropped);
    assert!(lan.nodes[0].encryption().stats.wrong_key > 0);
}

#[test]
fn node_without_a_key_says_why() {
    let mut lan = Lan::new(2, false);
    lan.nodes[0].set_key(lan.now, KeyUse::Cluster, key(KEY1)).unwrap();
    lan.plug_all();
    lan.run(5000);
    assert!(!lan.is_linked());
    assert!(lan.dropped[1].contains(&Drop::Encrypted));
}

#[test]
fn strict_node_refuses_clear_text_and_others_take_it() {
    for strict in [true, false] {
        let mut lan = Lan::new(2, strict);
        lan.nodes[0].set_key(lan.now, KeyUse::Cluster, key(KEY1)).unwrap();
        lan.plug_all();
        lan.run(5000);
        assert_eq!(lan.dropped[0].contains(&Drop::ClearText), strict);
        assert_eq!(lan.nodes[0].nodes().is_empty(), strict, "discovery in clear text counts too");
        assert_eq!(lan.nodes[0].encryption().stats.clear_text > 0, strict);
    }
}

#[test]
fn recorded_frames_are_refused() {
    let mut lan = Lan::new(2, true);
    lan.set_all(KeyUse::Cluster, KEY1);
    lan.plug_all();
    lan.run(3000);
    let mut flow = Flow::new(&mut lan);
    (0..100).for_each(|_| flow.step(&mut lan));
    let (received, before) = (flow.received, lan.nodes[0].encryption().stats);
    let recorded: Vec<_> = lan.sent.iter().filter(|(from, ..)| *from == 1).cloned().collect();
    for (_, _, bytes) in &recorded {
        lan.nodes[0].receive(lan.now, 0, bytes);
    }
    flow.read(&mut lan);
    let after = lan.nodes[0].encryption().stats;
    assert_eq!(after.replayed - before.replayed, recorded.len() as u64);
    assert_eq!((flow.received, after.opened), (received, before.opened));
    assert!(lan.is_linked());
}

#[test]
fn restarted_peer_comes_back_in_strict_mode() {
    // A utipc node, whose numbers start at the clock, and a node that counts from 1 again, as Linux does.
    for (clock, what) in [(CLOCK, "clock"), (0, "counter")] {
        let mut lan = Lan::busy(clock);
        // The time of the run goes on, so the counter has to be set back for its numbers to repeat.
        let set = |node: &mut Stack, now: Time| {
            let now = if clock == 0 { Time::ZERO } else { now };
            node.set_key(now, KeyUse::Cluster, key(KEY1)).unwrap();
        };
        lan.restart(1, set);
        lan.run(8000);
        assert!(lan.is_linked(), "{what}: {:?}", lan.dropped[0]);
        assert_eq!(lan.dropped[0].contains(&Drop::Replayed), clock == 0, "{what}");
        // What was recorded before the restart stays refused.
        if clock != 0 {
            let opened = lan.nodes[0].encryption().stats.opened;
            let recorded: Vec<_> = lan.sent.iter().filter(|(from, ..)| *from == 1).cloned().collect();
            recorded.iter().for_each(|(_, _, bytes)| lan.nodes[0].receive(lan.now, 0, bytes));
            assert_eq!(lan.nodes[0].encryption().stats.opened, opened);
        }
    }
}

/// This end has taken the RESET of the peer's last life: it would answer with an ACTIVATE for that, for ever, and the
/// peer's new RESETs have old numbers.
#[test]
fn peer_that_restarts_after_its_reset_comes_back_in_strict_mode() {
    let mut lan = Lan::busy(0);
    // The peer loses its link, and says so, but hears no answer.
    lan.deaf = Some(1);
    lan.run(3000);
    assert!(!lan.is_linked());
    lan.deaf = None;
    lan.restart(1, |node, _| node.set_key(Time::ZERO, KeyUse::Cluster, key(KEY1)).unwrap());
    lan.run(8000);
    assert!(lan.dropped[0].contains(&Drop::Replayed));
    assert!(lan.is_linked(), "{:?}", lan.nodes[0].encryption());
}

#[test]
fn restarted_peer_with_a_master_key_gets_session_keys_again() {
    let mut lan = Lan::new(3, true);
    lan.set_all(KeyUse::Master, KEY1);
    lan.plug_all();
    lan.run(3000);
    (0..3).for_each(|node| lan.nodes[node].rekey(lan.now).unwrap());
    lan.run(30_000);
    assert!((0..3).all(|node| lan.slot(node, KeyRole::Active) == 1));
    lan.restart(1, |node, now| node.set_key(now, KeyUse::Master, key(KEY1)).unwrap());
    lan.run(20_000);
    assert!(lan.is_linked(), "{:?}", lan.dropped);
    let mut flow = Flow::new(&mut lan);
    (0..100).for_each(|_| flow.step(&mut lan));
    flow.finish(&mut lan);
    let info = lan.nodes[1].encryption();
    assert!(
        info.peers.iter().all(|peer| !peer.keys.is_empty()),
        "it was sent the keys of its peers: {info:?}"
    );
}

/// The peer replaces its key before this end knows that it has restarted. This end holds a key of the peer's previous
/// life in the same slot and announces it, so the peer takes it for its new key.
#[test]
fn restarted_peer_that_replaces_its_key_at_once_gets_a_link_and_session_keys_again() {
    for nodes in [2, 3] {
        for both_have_keys in [false, true] {
            for (before, wait) in [(1, 0), (1, 300), (1, 2000), (1, 20_000), (2, 0), (2, 1000), (3, 0)] {
                let what = format!("{nodes} nodes, {both_have_keys}, {before} keys, {wait} ms");
                let mut lan = Lan::new(nodes, true);
                lan.set_all(KeyUse::Master, KEY1);
                lan.plug_all();
                lan.run(3000);
                for _ in 0..before {
                    lan.nodes[1].rekey(lan.now).unwrap();
                    if both_have_keys {
                        lan.nodes[0].rekey(lan.now).unwrap();
                    }
                    lan.run(20_000);
                }
                assert!(lan.slot(1, KeyRole::Active) != 0 && lan.is_linked(), "{what}");
                let set = |node: &mut Stack, now| node.set_key(now, KeyUse::Master, key(KEY1)).unwrap();
                lan.restart(1, set);
                lan.deaf = Some(0);
                lan.run(wait);
                lan.deaf = None;
                lan.nodes[1].rekey(lan.now).unwrap();
                lan.run(60_000);
                assert!(lan.is_linked(), "{what}: {:?}", lan.nodes[0].encryption());
                let mut flow = Flow::new(&mut lan);
                (0..100).for_each(|_| flow.step(&mut lan));
                flow.finish(&mut lan);
                let (active, pending) = (lan.slot(1, KeyRole::Active), lan.slot(1, KeyRole::Pending));
                assert!(active != 0 && pending == 0, "{what}: {:?}", lan.nodes[1].encryption());
                let peers = lan.nodes[1].encryption().peers;
                assert!(peers.iter().all(|peer| peer.receives_with == active), "{what}: {peers:?}");
            }
        }
    }
}

/// Replayed discovery is accepted while there is no contact. Together with forged frames it must not take a key away.
#[test]
fn recorded_discovery_and_forged_frames_do_not_take_keys_away() {
    let mut lan = Lan::new(2, true);
    lan.set_all(KeyUse::Master, KEY1);
    lan.plug_all();
    lan.run(3000);
    lan.nodes[1].rekey(lan.now).unwrap();
    lan.run(30_000);
    let held = |lan: &Lan| {
        let keys = lan.nodes[0].encryption().peers[0].keys.clone();
        keys.iter().map(|key| key.slot).collect::<Vec<_>>()
    };
    assert_eq!(held(&lan), [1]);
    let of_peer = |lan: &Lan, matches: &dyn Fn(&Encrypted<'_>) -> bool| {
        let mut frames = lan.sent.iter().filter(|(from, ..)| *from == 1).map(|(.., bytes)| bytes);
        frames.rfind(|bytes| matches(&Encrypted::parse(bytes).unwrap())).unwrap().clone()
    };
    let discovery = of_peer(&lan, &|header| header.user == User::LinkConfig && header.tx_slot == 0);
    let mut forged = of_peer(&lan, &|header| header.user == User::LinkProtocol && header.tx_slot == 1);
    *forged.last_mut().unwrap() ^= 1;
    // Nothing passes between the nodes: each loses its link.
    lan.loss = 1;
    lan.run(10_000);
    assert_eq!(lan.peers(0), 0);
    let before = lan.nodes[0].encryption().stats;
    for _ in 0..100 {
        lan.nodes[0].receive(lan.now, 0, &discovery);
        lan.nodes[0].receive(lan.now, 0, &forged);
        lan.run(500);
    }
    let after = lan.nodes[0].encryption().stats;
    assert_eq!(after.opened - before.opened, 100, "discovery was accepted");
    assert_eq!(after.wrong_key - before.wrong_key, 100, "the forged frames were tried");
    assert_eq!(held(&lan), [1]);
    let key = lan.nodes[0].encryption().peers[0].keys[0];
    assert_eq!(key.role, KeyRole::Pending, "a forged frame does not make a silent key active again");
    lan.loss = 0;
    lan.run(60_000);
    assert!(lan.is_linked());
    assert_eq!(lan.nodes[0].encryption().stats.received, after.received, "the key was kept, not sent again");
}

#[test]
fn no_number_is_used_twice_under_a_key() {
    let mut lan = Lan::new(2, true);
    lan.set_all(KeyUse::Cluster, KEY1);
    lan.plug_all();
    lan.run(5000);
    for _ in 0..3 {
        let again = |node: &mut Stack, now| node.set_key(now, KeyUse::Cluster, key(KEY1)).unwrap();
        lan.restart(1, again);
        lan.run(5000);
        lan.nodes[0].flush_keys();
        lan.nodes[0].set_key(lan.now, KeyUse::Cluster, key(KEY1)).unwrap();
        lan.run(5000);
    }
    let numbers = lan.sent.iter().map(|(from, _, bytes)| (*from, Encrypted::parse(bytes).unwrap().seqno));
    let unique: std::collections::BTreeSet<_> = numbers.collect();
    assert_eq!(unique.len(), lan.sent.len());
}

#[test]
fn forged_frames_do_not_take_keys_away() {
    let mut lan = Lan::new(2, true);
    for node in 0..2 {
        for (owner, hex) in [KEY1, KEY2].into_iter().enumerate() {
            lan.nodes[node].set_key(lan.now, KeyUse::Node(id(owner)), key(hex)).unwrap();
        }
    }
    lan.plug_all();
    lan.run(3000);
    let template = lan.sent.iter().rfind(|(from, ..)| *from == 1).unwrap().2.clone();
    for round in 0..200u32 {
        for slot in 0..4 {
            let mut forged = template.clone();
            forged[1] = slot << 6;
            *forged.last_mut().unwrap() ^= 1 + (round % 200) as u8;
            lan.nodes[0].receive(lan.now, 0, &forged);
        }
        lan.run(100);
        assert!(lan.is_linked(), "round {round}: {:?}", lan.dropped[0].last());
    }
}

#[test]
fn key_in_clear_text_is_refused() {
    let mut lan = Lan::new(2, false);
    lan.nodes[0].set_key(lan.now, KeyUse::Node(id(1)), key(KEY1)).unwrap();
    lan.plug_all();
    lan.run(3000);
    assert!(lan.is_linked(), "only a key to receive with: clear text both ways");
    let (own, peer) = (lan.nodes[0].own_node(), lan.nodes[1].own_node());
    let envelope = Envelope::between(peer, own, 40);
    let key = Key::from_hex(KEY2).unwrap();
    let mut algorithm = [0; 32];
    algorithm[..8].copy_from_slice(b"gcm(aes)");
    let body = KeyDistribution { generation: 7, mode: 2, algorithm: &algorithm, key: key.bytes() };
    let plain = body.to_message(&envelope);
    let wrapped = |user, kind| {
        let mut outer = Message::build(user, kind, 40, plain.bytes());
        outer.set_prev_node(peer);
        outer.set_origin_node(peer);
        outer.set_dest_node(own);
        outer
    };
    let mut broadcast = plain.clone();
    broadcast.set_non_sequenced(true);
    for message in [plain.clone(), broadcast, wrapped(User::Tunnel, 1)] {
        lan.nodes[0].receive(lan.now, 0, message.bytes());
        lan.exchange();
        let refused = lan.dropped[0].pop();
        assert!(matches!(refused, Some(Drop::IllegalUser(_))), "{refused:?}");
    }
    // In a bundle it reaches the link, which refuses it.
    let next = lan.nodes[0].links()[0].stats.refused;
    let mut bundle = wrapped(User::Bundler, 0);
    for seqno in 0..=u16::MAX {
        bundle.set_seqno(seqno);
        lan.nodes[0].receive(lan.now, 0, bundle.bytes());
        if lan.nodes[0].links()[0].stats.refused > next {
            break;
        }
    }
    assert_eq!(lan.nodes[0].encryption().stats.received, 0);
}

/// A key is introduced for 10 s; the next one waits so long, also right after the start.
#[test]
fn rotation_within_ten_seconds_of_a_start_waits_for_the_first_key() {
    let mut lan = Lan::new(3, true);
    lan.set_all(KeyUse::Cluster, KEY1);
    lan.plug_all();
    lan.run(3000);
    let mut flow = Flow::new(&mut lan);
    (0..20).for_each(|_| flow.step(&mut lan));
    let fingerprint = |lan: &Lan, role| {
        let keys = lan.nodes[0].encryption().keys;
        keys.iter().find(|key| key.role == role).map(|key| (key.fingerprint, key.introduced, key.since))
    };
    let first = fingerprint(&lan, KeyRole::Pending).unwrap();
    lan.set_all(KeyUse::Cluster, KEY2);
    let waiting = fingerprint(&lan, KeyRole::Waiting).unwrap();
    assert_eq!((waiting.1, waiting.2), (Introduced::Operator, lan.now));
    assert_ne!(waiting.0, first.0);
    (0..1500).for_each(|_| flow.step(&mut lan));
    flow.finish(&mut lan);
    assert!(lan.is_linked() && lan.all_encrypted());
    assert_eq!(fingerprint(&lan, KeyRole::Active).unwrap().0, waiting.0);
    assert_eq!(fingerprint(&lan, KeyRole::Waiting), None);
    assert_eq!(lan.downs, [0; 3]);
}
