//! Turns of the event loop: each has a bounded number of items, whatever one process does. All checks are by counts.

use std::io::IoSlice;
use std::time::Instant;

use utipc_attach::{Reply, Request as Command, encode};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::SocketKind;
use utipc_manage::{Header, Request, family};
use utipc_node::daemon::{DaemonCounters, Limits};
use utipc_os::fdpass::Put;

use crate::client::{Client, Host, LIMIT};

/// Items of clean-up in one turn; as in `daemon::dispatcher::releases`.
const RELEASE_ITEMS: u64 = 1024;
/// Most entries that one request for a list visits; as in `daemon::manage`.
const LIST_ITEMS: u64 = 256;

/// Waits until the counters are as expected.
fn until(host: &Host, what: &str, is_so: impl Fn(&DaemonCounters) -> bool) -> DaemonCounters {
    let begun = Instant::now();
    loop {
        let counters = host.daemon().counters();
        if is_so(&counters) {
            return counters;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {counters:?}");
    }
}

/// Sends a request without waiting for its reply.
fn push(client: &Client, request: &Command, payload: &[u8]) -> bool {
    let mut bytes = Vec::new();
    encode(request, payload, &mut bytes);
    client.channel.send(&[IoSlice::new(&bytes)], &[], false).unwrap() == Put::Sent
}

fn bindings(host: &Host) -> usize {
    host.daemon().with(|stack, _| stack.bindings().len()).unwrap()
}

#[test]
fn turns_are_counted_with_the_longest_and_its_cause() {
    let host = Host::new();
    let mut client = host.client();
    client.open(SocketKind::Rdm);
    let turns = host.daemon().counters().turns;
    assert!(turns.turns >= 2 && turns.longest.micros > 0, "{turns:?}");
    assert!(!turns.longest.handler.is_empty());
    assert!(turns.longest.handler_micros <= turns.longest.micros);
}

/// A process that asks for lists all the time, and reads no reply, gets one part of a list in a turn.
#[test]
fn one_attachment_gets_one_part_of_a_list_in_a_turn() {
    let host = Host::new();
    let (mut greedy, mut neighbour) = (host.client(), host.client());
    for _ in 0..2000 {
        greedy.open(SocketKind::Rdm);
    }
    let header = Header { family: 30, sequence: 9, version: family::EXTENDED, ..Header::default() };
    let list = Request::Sockets.to_bytes(&header);
    let before = host.daemon().counters();
    let mut sent = 0;
    for _ in 0..40 {
        sent += u32::from(push(&greedy, &Command::Manage { from: 0 }, &list));
        let alone = neighbour.call(&Command::Notices);
        assert_eq!(alone, Ok(Reply::Done));
    }
    assert!(sent > 1);
    let after = host.daemon().counters();
    let (turns, visited) = (after.turns.turns - before.turns.turns, after.list_entries - before.list_entries);
    assert!(visited <= turns * LIST_ITEMS, "{visited} entries in {turns} turns");
}

/// A process ends with many sockets and bindings. The clean-up takes as many turns as it needs, and is complete.
#[test]
fn death_of_a_large_process_takes_several_turns() {
    const SOCKETS: u32 = 3000;
    let host = Host::new();
    let none = bindings(&host);
    let mut client = host.client();
    for n in 0..SOCKETS {
        let socket = client.open(SocketKind::Rdm);
        client.bind(socket, ServiceRange::new(1000, n, n));
    }
    let last = client.open(SocketKind::Rdm);
    for n in 0..3000 {
        client.bind(last, ServiceRange::new(2000, n, n));
    }
    let before = host.daemon().counters().turns;
    drop(client);
    let after = until(&host, "sockets of a dead process", |c| c.attached == 0 && c.sockets == 0).turns;
    assert_eq!(bindings(&host), none);
    let items = u64::from(SOCKETS) * 2 + 3001;
    let cut = after.cut - before.cut;
    assert!(cut >= items / RELEASE_ITEMS - 1, "{cut} turns were cut for {items} items");
}

/// The close of a socket with many bindings is answered when they are gone, and others are served meanwhile.
#[test]
fn close_with_many_bindings_is_answered_when_they_are_gone() {
    let host = Host::with(|config| config.limits = Limits::default());
    let none = bindings(&host);
    let (mut client, mut neighbour) = (host.client(), host.client());
    let socket = client.open(SocketKind::Rdm);
    for n in 0..5000 {
        client.bind(socket, ServiceRange::new(1000, n, n));
    }
    let before = host.daemon().counters().turns;
    assert!(push(&client, &Command::Close { port: socket }, &[]));
    neighbour.open(SocketKind::Rdm);
    let reply = client.receive_reply();
    assert_eq!((reply, bindings(&host)), (Reply::Done, none));
    assert!(host.daemon().counters().turns.cut - before.cut >= 5000 / RELEASE_ITEMS - 1);
    assert_eq!(host.daemon().counters().sockets, 1);

    // The same without a close: the socket may bind again.
    let socket = client.open(SocketKind::Rdm);
    for n in 0..3000 {
        client.bind(socket, ServiceRange::new(1000, n, n));
    }
    let unbound = client.call(&Command::Unbind { port: socket, which: None });
    assert_eq!((unbound, bindings(&host)), (Ok(Reply::Done), none));
    client.bind(socket, ServiceRange::new(1000, 1, 1));
    assert_eq!(bindings(&host), none + 1);
}
