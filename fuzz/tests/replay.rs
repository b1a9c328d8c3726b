//! Runs corpora and captured packets through their targets; checks that the engine finds a planted fault.

use std::mem::Discriminant;
use std::time::Duration;

use utipc_core::socket::{AcceptError, RecvError};
use utipc_fuzz::{Seen, TARGETS, Target, engine, seeds};

#[test]
fn all_corpora_pass() {
    for target in TARGETS {
        let corpus = seeds::corpus(target).unwrap();
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for (path, input) in corpus {
            assert!(engine::survives(target, &input, &mut Seen::default()), "{}", path.display());
        }
    }
}

#[test]
fn all_captured_packets_pass() {
    let packets = seeds::packets().unwrap();
    assert!(packets.len() > 100);
    for target in TARGETS {
        for packet in &packets {
            assert!(engine::survives(target, packet, &mut Seen::default()), "{}: {packet:02x?}", target.name);
        }
    }
}

/// Fails on a length field that a parser might trust, behind two conditions.
fn planted(data: &[u8], seen: &mut Seen) {
    let Some([version, _, length, ..]) = data.first_chunk::<40>() else { return };
    if version >> 5 != 2 {
        return;
    }
    seen.note("version");
    assert!(*length != 0xff, "planted");
}

#[test]
fn planted_fault_is_found() {
    let target = Target { name: "planted", run: planted, takes_packets: false };
    let hang = |name: &str, _: &[u8]| panic!("{name} hangs");
    let finding = engine::fuzz(&target, &[vec![0x40; 60]], 1, Duration::from_secs(60), hang);
    let input = finding.expect_err("the fault is found within 60 seconds").input;
    assert_eq!(input[2], 0xff);
    assert!(!engine::survives(&target, &input, &mut Seen::default()));
}

/// Checks that seeds of the target `stack` reach the states in their names: otherwise the fuzzer would work on
/// two nodes that never had contact.
#[test]
fn stack_seeds_show_the_behaviour_they_are_named_for() {
    let stack = utipc_fuzz::target("stack").unwrap();
    let corpus = seeds::corpus(stack).unwrap();
    let run = |name: &str| {
        let input = corpus.iter().find(|(path, _)| path.ends_with(name));
        let mut seen = Seen::default();
        assert!(engine::survives(stack, &input.unwrap_or_else(|| panic!("no {name}")).1, &mut seen));
        seen
    };
    let received: (&str, Option<Discriminant<RecvError>>) = ("recv", None);
    for name in ["datagrams", "multicast", "connection", "stream", "topology", "losses", "failover"] {
        assert!(run(name).has(received), "{name}");
    }
    for name in ["connection", "stream"] {
        assert!(run(name).has(("accept", None::<Discriminant<AcceptError>>)), "{name}");
    }
    assert!(run("connection").has(("shutdown", true)));
}

/// Checks that seeds of the target `groups` reach the states in their names.
#[test]
fn group_seeds_show_the_behaviour_they_are_named_for() {
    use utipc_core::socket::{GroupMessageKind as Kind, SendError};
    let groups = utipc_fuzz::target("groups").unwrap();
    let corpus = seeds::corpus(groups).unwrap();
    let run = |name: &str| {
        let (_, input) = corpus.iter().find(|(path, _)| path.ends_with(name)).expect(name);
        let mut seen = Seen::default();
        assert!(engine::survives(groups, input, &mut seen), "{name}");
        seen
    };
    let kinds = run("kinds");
    for kind in [Kind::Joined, Kind::Broadcast, Kind::Multicast, Kind::Unicast, Kind::Left] {
        assert!(kinds.has(("read", kind)), "{kind:?}");
    }
    for name in ["losses", "rejoin", "many"] {
        assert!(run(name).has(("read", Kind::Broadcast)), "{name}");
    }
    assert!(run("rejoin").has(("again", true)));
    let full = core::mem::discriminant(&SendError::WouldBlock);
    assert!(run("slow").has(("send", Some(full))));
    assert!(run("changes").has("changed"));
}

/// Checks that seeds of the target `ordered` reach what is in their names.
#[test]
fn ordered_seeds_show_the_behaviour_they_are_named_for() {
    let target = utipc_fuzz::target("ordered").unwrap();
    let corpus = seeds::corpus(target).unwrap();
    let run = |name: &str| {
        let (_, input) = corpus.iter().find(|(path, _)| path.ends_with(name)).expect(name);
        let mut seen = Seen::default();
        assert!(engine::survives(target, input, &mut seen), "{name}");
        seen
    };
    for name in ["messages", "partition", "joiner", "leave", "window"] {
        let seen = run(name);
        assert!(seen.has(("deliver", false, 7_u32)) || seen.has(("deliver", false, 10_u32)), "{name}");
        assert!(seen.has(("honest", true)), "{name}");
    }
    assert!(run("atomic").has(("outcome", 0_u8)));
    assert!(run("joiner").has("state wanted"));
    assert!(run("leave").has(("leave", true)));
    for name in ["changes", "garbage"] {
        assert!(run(name).has(("honest", false)), "{name}");
    }
}

/// Checks that seeds of the target `rssl_channel` yield messages: otherwise the fuzzer would only see frames
/// that are refused.
#[test]
fn rssl_channel_seeds_yield_messages() {
    let target = utipc_fuzz::target("rssl_channel").unwrap();
    let corpus = seeds::corpus(target).unwrap();
    for name in ["request", "request-pieces", "answer", "frames", "fragments-old", "zlib"] {
        let input = corpus.iter().find(|(path, _)| path.ends_with(name)).expect(name);
        let mut seen = Seen::default();
        assert!(engine::survives(target, &input.1, &mut seen));
        assert!((1..16).any(|bits: u32| seen.has(("message", bits))), "{name} yields no message");
    }
}

/// Checks that seeds of RWF are decoded: otherwise the fuzzer would start from bytes that are refused at once.
#[test]
fn rwf_seeds_are_decoded() {
    for (name, refusal) in [("rwf_message", "message"), ("rwf_containers", "container")] {
        let target = utipc_fuzz::target(name).unwrap();
        for (path, input) in seeds::corpus(target).unwrap() {
            let name = path.file_name().unwrap().to_string_lossy();
            let found_by_fuzzing = name.len() == 16 && name.bytes().all(|c| c.is_ascii_hexdigit());
            let mut seen = Seen::default();
            assert!(engine::survives(target, &input, &mut seen));
            assert!(found_by_fuzzing || !seen.has(("refused", refusal)), "{}", path.display());
        }
    }
}
