//! Tests of holders and their quotas.

use super::*;

const SEEN: Readiness = Readiness { readable: false, writable: true, read_closed: false, hung_up: false };
const PORT: u32 = 77;

fn sockets(processes: u32) -> Sockets {
    let mut sockets = Sockets::default();
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
    assert_eq!(sockets.remove_process(1), [PORT]);
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
    let update = |sockets: &mut Sockets, now, by_lane| -> Vec<u32> {
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
