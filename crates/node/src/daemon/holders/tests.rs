//! Tests of holders and their quotas.

use super::*;

const SEEN: Readiness = Readiness { readable: false, writable: true, read_closed: false, hung_up: false };
const PORT: u32 = 77;

fn sockets(processes: u32) -> Holders {
    let mut sockets = Holders::default();
    (1..=processes).for_each(|id| sockets.add_process(id));
    sockets.add(PORT, 1, SEEN);
    sockets
}

#[test]
fn next_process_is_charged_when_the_owner_releases_the_socket() {
    let mut sockets = sockets(2);
    sockets.add_binding(PORT);
    sockets.set_descriptor(PORT, true);
    sockets.add_inheritance(PORT, 5);
    assert!(sockets.join(PORT, 2));
    assert_eq!(sockets.release(PORT, Holder::Process(1)), Release::Shared);
    assert_eq!((sockets.bindings_of(1), sockets.descriptors_of(1), sockets.count_of(1)), (0, 0, 0));
    assert_eq!((sockets.bindings_of(2), sockets.descriptors_of(2), sockets.count_of(2)), (1, 1, 1));
    assert_eq!(sockets.release(PORT, Holder::Inheritance(5)), Release::Sole(2));
    assert_eq!(sockets.release(PORT, Holder::Process(2)), Release::Last);
    sockets.remove(PORT);
    assert_eq!((sockets.bindings_of(2), sockets.descriptors_of(2), sockets.count_of(2)), (0, 0, 0));
}

#[test]
fn binding_by_a_sharer_is_charged_to_the_owner() {
    let mut sockets = sockets(2);
    sockets.join(PORT, 2);
    sockets.add_binding(PORT);
    assert_eq!((sockets.bindings_of(1), sockets.bindings_of(2)), (1, 0));
    assert_eq!(sockets.release(PORT, Holder::Process(2)), Release::Sole(1));
    sockets.remove(PORT);
    assert_eq!(sockets.bindings_of(1), 0);
}

#[test]
fn socket_without_owner_belongs_to_the_process_that_joins() {
    let mut sockets = sockets(2);
    sockets.add_binding(PORT);
    sockets.add_inheritance(PORT, 5);
    assert_eq!(sockets.remove_process(1).some_after(None, 2), [PORT]);
    assert_eq!(sockets.release(PORT, Holder::Process(1)), Release::Shared);
    assert_eq!(sockets.owner(PORT), None);
    assert!(!sockets.join(PORT, 2));
    assert_eq!((sockets.owner(PORT), sockets.bindings_of(2)), (Some(2), 1));
}

#[test]
fn second_release_by_the_same_holder_changes_nothing() {
    let mut sockets = sockets(2);
    sockets.join(PORT, 2);
    assert_eq!(sockets.release(PORT, Holder::Process(2)), Release::Sole(1));
    assert_eq!(sockets.release(PORT, Holder::Process(2)), Release::Shared);
    assert!(sockets.is_sole(PORT) && !sockets.is_orphaned(PORT));
    sockets.disown(PORT);
    assert!(sockets.is_orphaned(PORT));
}

#[test]
fn processes_are_notified_when_the_readiness_of_a_socket_grows() {
    let mut sockets = sockets(2);
    sockets.join(PORT, 2);
    let update = |sockets: &mut Holders, now, by_lane| -> Vec<u32> {
        sockets
            .update(PORT, now, by_lane)
            .map(|(id, noted)| {
                *noted = true;
                id
            })
            .collect()
    };
    let readable = Readiness { readable: true, ..SEEN };
    assert_eq!(update(&mut sockets, readable, (false, true)), [] as [u32; 0]);
    assert_eq!(update(&mut sockets, readable, (false, false)), [1, 2]);
    assert_eq!(update(&mut sockets, readable, (false, false)), [] as [u32; 0]);
    assert!(sockets.take_noted(PORT, 2) && !sockets.take_noted(PORT, 2));
    sockets.watch(PORT);
    assert_eq!(update(&mut sockets, readable, (false, false)), [1, 2]);
}

/// A generator of operations: the same for the same seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % limit
    }
}

/// Releases a socket as the daemon does: the last holder ends or orphans it.
fn release(sockets: &mut Holders, port: u32, holder: Holder, orphans: bool) {
    if sockets.release(port, holder) == Release::Last {
        if orphans { sockets.disown(port) } else { sockets.remove(port) }
    }
}

/// One operation that a process may cause, in whatever state the sockets are.
fn act(sockets: &mut Holders, choices: &mut Choices) {
    let (port, id, inheritance) = (1 + choices.below(4), 1 + choices.below(3), choices.below(2));
    let other = choices.below(2) == 0;
    match choices.below(9) {
        0 if !sockets.contains(port) => sockets.add(port, id, SEEN),
        1 if !sockets.is_held_by(port, id) => drop(sockets.join(port, id)),
        2 => sockets.add_inheritance(port, inheritance),
        3 => release(sockets, port, Holder::Process(id), other),
        4 => release(sockets, port, Holder::Inheritance(inheritance), other),
        5 => sockets.add_binding(port),
        6 => sockets.remove_bindings(port, other),
        7 => sockets.set_descriptor(port, other),
        8 if choices.below(8) == 0 => {
            for port in sockets.remove_process(id).some_after(None, 4) {
                release(sockets, port, Holder::Process(id), other);
            }
            sockets.add_process(id);
        }
        _ => {}
    }
}

/// A counter charged to one process and released from another would wrap, and refuse the latter for ever.
#[test]
fn every_process_is_charged_with_exactly_what_its_sockets_cost() {
    for seed in 0..300 {
        let (mut sockets, mut choices) = (sockets(3), Choices(seed));
        sockets.remove(PORT);
        for step in 0..400 {
            act(&mut sockets, &mut choices);
            for id in 1..=3 {
                let owned =
                    || (1..=4).filter_map(|port| sockets.sockets.get(&port)).filter(|s| s.owner == Some(id));
                let bindings: usize = owned().map(|socket| socket.bindings).sum();
                let descriptors = owned().filter(|socket| socket.has_descriptor).count();
                let charged = (sockets.bindings_of(id), sockets.descriptors_of(id));
                assert_eq!(charged, (bindings, descriptors), "process {id}, seed {seed}, step {step}");
                let held = (1..=4).filter(|port| sockets.is_held_by(*port, id)).count();
                assert_eq!(sockets.count_of(id), held, "process {id}, seed {seed}, step {step}");
            }
        }
        for id in 1..=3 {
            for port in sockets.remove_process(id).some_after(None, 4) {
                release(&mut sockets, port, Holder::Process(id), false);
            }
        }
        for inheritance in 0..2 {
            for port in 1..=4 {
                release(&mut sockets, port, Holder::Inheritance(inheritance), false);
            }
        }
        let left: Vec<u32> =
            (1..=4).filter(|port| sockets.contains(*port) && !sockets.is_orphaned(*port)).collect();
        assert_eq!(left, [] as [u32; 0], "seed {seed}");
    }
}
