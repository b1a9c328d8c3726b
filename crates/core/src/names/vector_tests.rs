//! Name distribution of Linux kernels: decodes their messages, and compares the messages built for the same bindings
//! byte for byte.

use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::vectors::messages;
use crate::wire::{Message, User};

const A: NodeAddr = NodeAddr(0x0100_1001);
const B: NodeAddr = NodeAddr(0x0100_1002);
const ME: NodeAddr = NodeAddr(0x0100_1003);

fn names_from(capture: &str, node: NodeAddr) -> Vec<Message> {
    messages(capture)
        .into_iter()
        .filter(|m| m.user() == User::NameDistributor && m.origin_node() == node)
        .collect()
}

/// The message before links and the broadcast link stamped it.
fn unstamped(mut m: Message) -> Vec<u8> {
    m.set_bcast_ack(0);
    m.set_word(2, 0);
    if m.non_sequenced() {
        m.set_non_sequenced(false);
        m.set_word(5, 0);
    }
    m.into_bytes()
}

fn binding(item: NameItem, node: NodeAddr) -> Binding {
    Binding {
        range: item.range,
        scope: Scope::Cluster,
        port: PortId { port: item.port, node },
        key: item.key,
    }
}

#[test]
fn bulk_equals_the_kernels() {
    let mut checked = 0;
    for (node, peer) in [(A, B), (B, A)] {
        let kernel = names_from("eth-name-bulk", node);
        let mut table = NameTable::new(node, true);
        let mut numbers = Distributor::new(0);
        let items: Vec<NameItem> =
            kernel.iter().flat_map(|m| NameItem::all(m.view()).collect::<Vec<_>>()).collect();
        for item in &items {
            let change = table.publish(binding(*item, node)).unwrap();
            numbers.announce(node, &change).unwrap();
        }
        // 1424 bytes is the room in one packet of a link with MTU 1500, in a kernel built with encryption.
        let ours = numbers.bulk(&table, peer, 1424);
        let plain = |all: Vec<Message>| all.into_iter().map(unstamped).collect::<Vec<_>>();
        checked += items.len();
        assert_eq!(plain(ours), plain(kernel));
    }
    assert_eq!(checked, 201 + 2);
}

#[test]
fn updates_equal_the_kernels() {
    let mut checked = 0;
    for capture in ["names", "topology-remote"] {
        for node in [A, B] {
            let mut numbers = Distributor::new(1); // 0 was the binding of the node's own state
            for kernel in names_from(capture, node) {
                let item = NameItem::all(kernel.view()).next().unwrap();
                let up = kernel.kind() == 0;
                let binding = binding(item, node);
                let change = Change { binding, up, edge: true, age: 0, is_oldest: true };
                let ours = numbers.announce(node, &change).unwrap();
                assert_eq!(unstamped(ours), unstamped(kernel));
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 96);
}

#[test]
fn kernel_updates_rebuild_the_kernels_table() {
    let mut table = NameTable::new(ME, true);
    let (mut changes, mut report) = (Vec::new(), NameReport::default());
    for node in [A, B] {
        let mut receiver = NameReceiver::new();
        let opening = Distributor::new(1).bulk(&NameTable::new(node, true), ME, 1424);
        for message in opening.into_iter().chain(names_from("names", node)) {
            receiver.receive(node, message, &mut table, &mut changes, &mut report).unwrap();
        }
        assert_eq!(receiver.waiting(), 0);
    }
    assert_eq!(report, NameReport { applied: changes.len() as u64, ..NameReport::default() });
    assert!(
        changes.iter().any(|c| c.binding.range == ServiceRange::new(1001, 0, u32::MAX) && c.up && c.edge)
    );
    // None of the 40 sockets bound in a row existed at the end of the capture.
    assert!(table.is_empty(), "{:?}", table.bindings());
}
