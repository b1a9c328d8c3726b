//! The binding table, fed by two peers and local sockets.

use utipc_core::names::{MAX_WAITING_UPDATES, NameReceiver, NameReport, NameTable};
use utipc_core::wire::{NameItem, User};
use utipc_core::{Binding, Message, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};

use crate::source::Source;
use crate::{Seen, magnitude};

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEERS: [NodeAddr; 2] = [NodeAddr(0x0100_1002), NodeAddr(0x0100_1003)];

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let mut table = NameTable::new(OWN, false);
    let mut receivers = [NameReceiver::new(), NameReceiver::new()];
    let (mut changes, mut report) = (Vec::new(), NameReport::default());
    while !source.is_empty() {
        let peer = usize::from(source.flag());
        match source.below(8) {
            0..4 => {
                let message = update(&mut source, PEERS[peer]);
                let result =
                    receivers[peer].receive(PEERS[peer], message, &mut table, &mut changes, &mut report);
                if result.is_err() {
                    receivers[peer].reset();
                }
                while receivers[peer].apply_due(PEERS[peer], &mut table, &mut changes, &mut report).is_some()
                {
                }
                assert!(!receivers[peer].has_due());
                assert!(receivers[peer].waiting() <= MAX_WAITING_UPDATES);
            }
            4 => {
                let own = table.bind(u32::from(source.u8()) + 1, range(&mut source), scope(&mut source));
                seen.note(("bind", own.is_ok()));
            }
            5 => {
                let own = table.unbind(u32::from(source.u8()) + 1, None);
                seen.note(("unbind", own.is_ok()));
            }
            6 => {
                receivers[peer].reset();
                table.withdraw_node(PEERS[peer]);
                assert!(table.bindings().iter().all(|b| b.port.node != PEERS[peer]));
            }
            _ => check_lookups(&mut source, &mut table, seen),
        }
        changes.clear();
    }
    seen.note(("table", magnitude(table.len())));
    let NameReport { applied, inverted, duplicate, too_many, unknown, foreign, repeated } = report;
    for (n, count) in [applied, inverted, duplicate, too_many, unknown, foreign, repeated].iter().enumerate()
    {
        seen.note(("report", n, magnitude(*count as usize)));
    }
    for peer in PEERS {
        table.withdraw_node(peer);
    }
    assert!(table.bindings().iter().all(|b| b.port.node == OWN));
}

fn range(source: &mut Source<'_>) -> ServiceRange {
    let lower = source.pick(&[0, 1, 5, 10, u32::MAX]);
    let upper = source.pick(&[0, 1, 7, 10, u32::MAX]);
    ServiceRange::new(source.pick(&[0, 1, 2, 64, 100]), lower, upper)
}

fn scope(source: &mut Source<'_>) -> Scope {
    if source.flag() { Scope::Node } else { Scope::Cluster }
}

fn update(source: &mut Source<'_>, peer: NodeAddr) -> Message {
    let flags = source.u8();
    let mut items = Vec::new();
    for _ in 0..source.below(4) {
        let item = NameItem { range: range(source), port: source.u8().into(), key: source.u8().into() };
        items.extend_from_slice(&item.to_bytes());
    }
    items.extend_from_slice(source.bytes(usize::from(flags >> 6)));
    let mut m = Message::build(User::NameDistributor, flags & 1, 40, &items);
    m.set_prev_node(peer);
    m.set_origin_node(if flags & 0x20 == 0 { peer } else { OWN });
    m.set_name_bulk(flags & 2 != 0);
    m.set_name_last_bulk(flags & 4 != 0);
    m.set_name_numbered(flags & 8 != 0);
    m.set_name_seqno(source.u8().into());
    if flags & 0x10 != 0 {
        m.set_kind(source.u8() & 7);
    }
    m
}

/// Checks that the results of lookups are consistent.
fn check_lookups(source: &mut Source<'_>, table: &mut NameTable, seen: &mut Seen) {
    let range = range(source);
    let found = table.lookup(ServiceAddr::new(range.service, range.lower), NodeAddr::NONE);
    seen.note(("lookup", found.is_some()));
    let exists = |b: &Binding| b.range.overlaps(&ServiceRange::new(range.service, range.lower, range.lower));
    let bindings = table.bindings();
    assert_eq!(found.is_some(), bindings.iter().any(exists), "{range} {bindings:?}");
    if let Some(found) = found {
        let port = PortId { port: found.port, node: found.node };
        assert!(bindings.iter().any(|b| exists(b) && b.port == port), "{port} {bindings:?}");
    }
    if range.is_valid() {
        let all = table.snapshot(range, true);
        assert_eq!(all.len(), bindings.iter().filter(|b| b.range.overlaps(&range)).count());
    }
}
