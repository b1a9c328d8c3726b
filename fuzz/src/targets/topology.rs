//! The topology server: requests, changes of the binding table, timeouts.

use utipc_core::names::NameTable;
use utipc_core::quota::UserId;
use utipc_core::topology::{ByteOrder, Filter, Party, Subscription, TopologyEvent, TopologyServer};
use utipc_core::{NodeAddr, Scope, ServiceRange, Time};

use crate::source::Source;
use crate::{Seen, magnitude};

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let mut table = NameTable::new(NodeAddr(1), false);
    let mut server = TopologyServer::new();
    let mut now = Time::ZERO;
    let mut connected = [false; 4];
    while !source.is_empty() {
        let connection = source.below(4);
        let id = connection as u32 + 1;
        let party = Party { user: Some(UserId(id / 2)), node: NodeAddr::NONE };
        match source.below(10) {
            0..3 => {
                if !connected[connection] {
                    assert_eq!(server.connect(id, party), Ok(()));
                    connected[connection] = true;
                }
                let request = request(&mut source);
                let result = server.request(now, id, &request, &table, &mut source.below(4));
                if let Err(reason) = result {
                    connected[connection] = false;
                    seen.note(("closed", core::mem::discriminant(&reason)));
                }
            }
            3 => {
                if let Ok(change) = table.bind(u32::from(source.u8()) + 1, range(&mut source), Scope::Cluster)
                {
                    server.announce(&change, &mut source.below(4));
                }
            }
            4 => {
                for change in table.unbind(u32::from(source.u8()) + 1, None).unwrap_or_default() {
                    server.announce(&change, &mut source.below(4));
                }
            }
            5 => {
                now = now.plus_millis(u64::from(source.u8()) * 50);
                while server.deadline().is_some_and(|due| due <= now) {
                    server.handle_timeout(now);
                }
            }
            6 => {
                server.disconnect(id, &mut source.below(4));
                connected[connection] = false;
            }
            7 => {
                server.prepare(id, &table, &mut source.below(8));
            }
            8 => {
                server.catch_up(party, &mut source.below(8));
            }
            _ => drain(&mut server, seen),
        }
        while let Some((closed, _)) = server.poll_closed() {
            connected[closed as usize - 1] = false;
        }
    }
    let stats = server.stats();
    assert_eq!(stats.connections, connected.iter().filter(|c| **c).count());
    seen.note(("subscriptions", magnitude(stats.subscriptions), magnitude(stats.waiting_events)));
    for id in 1..=4 {
        server.disconnect(id, &mut 0);
    }
    while let Some(party) = server.poll_behind() {
        while server.catch_up(party, &mut 1) {}
    }
    let stats = server.stats();
    assert_eq!((stats.connections, stats.subscriptions, stats.waiting_events), (0, 0, 0));
    assert_eq!(server.deadline(), None);
}

fn range(source: &mut Source<'_>) -> ServiceRange {
    let lower = source.pick(&[0, 1, 5, 10]);
    let upper = source.pick(&[0, 1, 7, u32::MAX]);
    ServiceRange::new(source.pick(&[0, 1, 2, 100]), lower, upper)
}

fn request(source: &mut Source<'_>) -> Vec<u8> {
    if source.below(8) == 0 {
        return source.bytes(40).to_vec();
    }
    let order = if source.flag() { ByteOrder::Big } else { ByteOrder::Little };
    let timeout_ms = source.pick(&[0, 1, 500, 10_000, u32::MAX]);
    let filter = Filter(u32::from(source.u8()));
    Subscription { range: range(source), timeout_ms, filter, handle: [source.u8() & 1; 8] }
        .to_bytes(order)
        .to_vec()
}

fn drain(server: &mut TopologyServer, seen: &mut Seen) {
    while let Some(connection) = server.poll_ready() {
        while let Some(event) = server.next_event(connection).copied() {
            server.event_sent(connection);
            let native = TopologyEvent::from_bytes(&event, ByteOrder::NATIVE);
            let event = native.or_else(|_| TopologyEvent::from_bytes(&event, ByteOrder::NATIVE.swapped()));
            let event = event.unwrap_or_else(|e| panic!("malformed event: {e}"));
            seen.note(("event", event.kind as u8));
        }
    }
}
