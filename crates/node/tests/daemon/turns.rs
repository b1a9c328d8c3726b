//! Turns of the event loop: users share them, and each step has a bounded number of items, whatever one process does.
//! All checks are by counts.

use std::io::IoSlice;
use std::sync::{Arc, Barrier};

use utipc_attach::{Failure, ProcessCall, Reply, Request as Command, SocketCall, encode};
use utipc_core::addr::ServiceRange;
use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::{Destination, SendError, SocketKind};
use utipc_core::topology::{ByteOrder, EventKind, FOREVER, Filter, Subscription, TopologyEvent};
use utipc_manage::{Header, Request, family};
use utipc_node::daemon::Limits;
use utipc_os::fdpass::{Channel, Put};

use crate::client::{Client, Host};

/// More items of clean-up than one turn does: 0.5 ms.
const RELEASE_ITEMS: u64 = 1024;
/// Users of two attackers' and a bystander's processes.
const MALLORY: u32 = 64_210;
const BYSTANDER: u32 = 64_211;
/// Maximum number of entries that one request for a list visits; as in `daemon::manage`.
const LIST_ITEMS: u64 = 256;

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

/// A process that requests lists all the time, and reads no reply, gets one part of a list per turn.
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
        let alone = neighbour.call(&Command::Process(ProcessCall::Notices));
        assert_eq!(alone, Ok(Reply::Done));
    }
    assert!(sent > 1);
    let after = host.daemon().counters();
    let (turns, visited) = (after.turns.turns - before.turns.turns, after.list_entries - before.list_entries);
    assert!(visited <= turns * LIST_ITEMS, "{visited} entries in {turns} turns");
}

/// A process ends with many sockets and bindings. The clean-up takes several turns, and is complete.
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
    let after = host.until("sockets of a dead process", |c| c.attached == 0 && c.sockets == 0).turns;
    assert_eq!(bindings(&host), none);
    let items = u64::from(SOCKETS) * 2 + 3001;
    let cut = after.cut - before.cut;
    assert!(cut >= items / RELEASE_ITEMS - 1, "{cut} turns were cut for {items} items");
}

/// A process ends with few sockets and many unread messages. The more a socket has, the fewer end in a step.
#[test]
fn death_with_unread_messages_takes_several_turns() {
    const SOCKETS: u64 = 100;
    let host = Host::new();
    let mut client = host.client();
    let sender = client.open(SocketKind::Rdm);
    for n in 0..SOCKETS as u32 {
        let range = ServiceRange::new(1000, n, n);
        client.server(SocketKind::Rdm, range);
        for _ in 0..10 {
            let to = Some(Destination::service(1000, n));
            assert_eq!(client.send(sender, to, &[0; 60_000]), Ok(60_000));
        }
    }
    let before = host.daemon().counters().turns;
    drop(client);
    let after = host.until("sockets of a dead process", |c| c.attached == 0 && c.sockets == 0).turns;
    let cut = after.cut - before.cut;
    assert!(cut >= SOCKETS / 10, "{cut} turns were cut");
}

/// The close of a socket with many bindings is answered when they are gone; others are served in between.
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
    assert!(push(&client, &SocketCall::Close.on(socket), &[]));
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
    let unbound = client.call(&SocketCall::Unbind { which: None }.on(socket));
    assert_eq!((unbound, bindings(&host)), (Ok(Reply::Done), none));
    client.bind(socket, ServiceRange::new(1000, 1, 1));
    assert_eq!(bindings(&host), none + 1);
}

/// A user with many processes, each with requests that wait, delays another user's request by a few of its requests.
#[test]
fn request_of_another_user_waits_for_few_of_many_attachments() {
    const ATTACHMENTS: usize = 300;
    const SOCKETS: u32 = 500;
    let host = Host::with(|config| config.limits = Limits::default());
    let Some(mut first) = host.client_of(MALLORY) else { return };
    for _ in 0..SOCKETS {
        first.open(SocketKind::Rdm);
    }
    let attackers: Vec<Client> = (0..ATTACHMENTS).map(|_| host.client_of(MALLORY).unwrap()).collect();
    let mut bystander = host.client_of(BYSTANDER).unwrap();
    let header = Header { family: 30, sequence: 9, version: family::EXTENDED, ..Header::default() };
    let list = Request::Sockets.to_bytes(&header);
    let before = host.daemon().counters().requests;
    // The daemon does nothing until all requests wait, the bystander's last.
    let barriers = Arc::new((Barrier::new(2), Barrier::new(2)));
    let (begun, go) = &*barriers;
    std::thread::scope(|scope| {
        let of_daemon = Arc::clone(&barriers);
        scope.spawn(|| {
            host.daemon().with(move |_, _| {
                of_daemon.0.wait();
                of_daemon.1.wait();
            })
        });
        begun.wait();
        for _ in 0..5 {
            attackers.iter().for_each(|client| assert!(push(client, &Command::Manage { from: 0 }, &list)));
        }
        assert!(push(&bystander, &Command::Process(ProcessCall::Notices), &[]));
        go.wait();
        assert_eq!(bystander.receive_reply(), Reply::Done);
    });
    let served = host.daemon().counters().requests - before;
    assert!(served < ATTACHMENTS as u64 / 2, "{served} requests before the bystander's");
}

/// A fork hands over many sockets in several turns; others are served in between. Its cost stays charged until it is
/// undone.
#[test]
fn fork_of_a_large_process_takes_several_turns_and_is_charged_until_it_is_undone() {
    const SOCKETS: u32 = 3000;
    let host = Host::with(|config| config.limits = Limits::default());
    let Some(mut client) = host.client_of(MALLORY) else { return };
    let user = UserId(MALLORY);
    let memory = |host: &Host| {
        host.daemon().with(move |stack, _| stack.ledger().used_by(user, Resource::Memory)).unwrap()
    };
    for _ in 0..SOCKETS {
        client.open(SocketKind::Rdm);
    }
    let mut child = host.client_of(MALLORY).unwrap();
    let quiet = memory(&host);
    let before = host.daemon().counters().turns;
    let (number, near) = client.fork();
    assert!(host.daemon().counters().turns.cut > before.cut, "one turn");
    assert!(memory(&host) - quiet >= u64::from(SOCKETS) * 64);
    let copy = Channel::from_fd(near);
    assert_eq!(copy.send(&[IoSlice::new(&7_u64.to_le_bytes())], &[], true).unwrap(), Put::Sent);
    assert_eq!(
        child.call(&Command::Process(ProcessCall::Inherit { inheritance: number, nonce: 7 })),
        Ok(Reply::Number(SOCKETS))
    );
    drop(copy);
    host.until("sockets of an inheritance", |_| memory(&host) == quiet);
    drop(client);
    assert_eq!(host.until("the parent", |c| c.attached == 1).sockets, SOCKETS as usize);
    drop(child);
    host.until("sockets of a dead process", |c| c.attached == 0 && c.sockets == 0);
}

/// Forks whose descriptors are dropped at once cannot queue more clean-up than the user is charged for.
#[test]
fn clean_up_of_dropped_forks_is_bounded_by_the_quota_of_memory() {
    const SOCKETS: u32 = 1000;
    // Enough for the sockets and some dozens of forks.
    const MOST: u64 = 4 << 20;
    let host = Host::with(|config| {
        config.limits = Limits { memory_per_user: MOST, ..Limits::default() };
    });
    let Some(mut client) = host.client_of(MALLORY) else { return };
    for _ in 0..SOCKETS {
        client.open(SocketKind::Rdm);
    }
    let user = UserId(MALLORY);
    for _ in 0..200 {
        let (reply, _fds) = client.try_call_with_fds(&Command::Process(ProcessCall::Fork), &[]).unwrap();
        assert!(matches!(reply, Reply::Number(_) | Reply::Failed(_)), "{reply:?}");
        let used =
            host.daemon().with(move |stack, _| stack.ledger().used_by(user, Resource::Memory)).unwrap();
        assert!(used <= MOST, "{used}");
    }
    drop(client);
    let used = || host.daemon().with(move |stack, _| stack.ledger().used_by(user, Resource::Memory)).unwrap();
    host.until("sockets of a dead process", |c| c.attached == 0 && c.sockets == 0 && used() == 0);
}

/// A multicast to many sockets of the node is copied in several steps, and the next message of its sender comes last.
#[test]
fn multicast_to_many_sockets_is_copied_in_the_turns_of_its_sender() {
    const SOCKETS: u32 = 2000;
    let host = Host::with(|config| config.limits = Limits::default());
    let mut client = host.client();
    let range = ServiceRange::new(1000, 1, 1);
    let sockets: Vec<u32> = (0..SOCKETS).map(|_| client.server(SocketKind::Rdm, range)).collect();
    let sender = client.open(SocketKind::Rdm);
    client.send(sender, Some(Destination::Range(range)), b"all").unwrap();
    client.wait(|client| match client.send(sender, Some(Destination::Range(range)), b"again") {
        Ok(_) => Some(()),
        Err(failure) => {
            assert_eq!(failure, Failure::Send(SendError::WouldBlock));
            None
        }
    });
    for port in sockets {
        assert_eq!(client.receive_soon(port).1, b"all");
        assert_eq!(client.receive_soon(port).1, b"again");
    }
}

/// The first events of a subscription to many bindings are prepared in several turns; later ones come behind them.
#[test]
fn first_events_of_a_subscription_are_prepared_in_the_turns_of_its_user() {
    const BINDINGS: u32 = 5000;
    let host = Host::with(|config| config.limits = Limits::default());
    let (mut client, mut neighbour) = (host.client(), host.client());
    let socket = client.open(SocketKind::Rdm);
    for n in 0..BINDINGS {
        client.bind(socket, ServiceRange::new(1000, n, n));
    }
    let port = client.open(SocketKind::SeqPacket);
    client.call(&SocketCall::Connect { to: Some(Destination::service(1, 1)) }.on(port)).unwrap();
    let range = ServiceRange::new(1000, 0, u32::MAX);
    let wish = Subscription { range, timeout_ms: 1, filter: Filter::PORTS, handle: [0; 8] };
    let before = host.daemon().counters().turns;
    client.send(port, None, &wish.to_bytes(ByteOrder::NATIVE)).unwrap();
    neighbour.open(SocketKind::Rdm);
    for n in 0..=BINDINGS {
        let (_, event) = client.receive_soon(port);
        let event = TopologyEvent::from_bytes(&event, ByteOrder::NATIVE).unwrap();
        let expected = if n < BINDINGS { (EventKind::Published, n) } else { (EventKind::Timeout, 0) };
        assert_eq!((event.kind, event.found.lower), expected);
    }
    assert!(host.daemon().counters().turns.cut > before.cut, "one turn");
    assert_eq!(host.daemon().with(|stack, _| stack.topology_stats().subscriptions), Some(0));
}

/// A change that concerns more subscriptions than a turn visits reaches all of them in order, and the end of their
/// connection frees them all.
#[test]
fn change_reaches_many_subscriptions_in_the_turns_of_their_user() {
    const SUBSCRIPTIONS: u32 = 5000;
    let host = Host::with(|config| config.limits = Limits::default());
    let (mut client, mut neighbour) = (host.client(), host.client());
    let port = client.open(SocketKind::SeqPacket);
    client.call(&SocketCall::Connect { to: Some(Destination::service(1, 1)) }.on(port)).unwrap();
    for n in 0..SUBSCRIPTIONS {
        let range = ServiceRange::new(1000, n, u32::MAX);
        let wish = Subscription { range, timeout_ms: FOREVER, filter: Filter::PORTS, handle: [0; 8] };
        let bytes = wish.to_bytes(ByteOrder::NATIVE);
        client.wait(|client| client.send(port, None, &bytes).ok());
    }
    let subscriptions = || host.daemon().with(|stack, _| stack.topology_stats().subscriptions);
    host.until("subscriptions", |_| subscriptions() == Some(SUBSCRIPTIONS as usize));
    let range = ServiceRange::new(1000, SUBSCRIPTIONS, SUBSCRIPTIONS);
    let socket = neighbour.server(SocketKind::Rdm, range);
    neighbour.call(&SocketCall::Close.on(socket)).unwrap();
    for kind in [EventKind::Published, EventKind::Withdrawn] {
        for n in (0..SUBSCRIPTIONS).rev() {
            let (_, event) = client.receive_soon(port);
            let event = TopologyEvent::from_bytes(&event, ByteOrder::NATIVE).unwrap();
            assert_eq!((event.kind, event.subscription.range.lower), (kind, n));
        }
    }
    client.call(&SocketCall::Close.on(port)).unwrap();
    host.until("freed subscriptions", |_| subscriptions() == Some(0));
}

/// The send of a multicast with more bindings in its range than a step visits is answered when its receivers are known.
#[test]
fn multicast_over_many_bindings_reaches_every_socket_once() {
    const BINDINGS: u32 = 3000;
    let host = Host::with(|config| config.limits = Limits::default());
    let mut client = host.client();
    let all = ServiceRange::new(1000, 0, u32::MAX);
    let sockets: Vec<u32> = (0..4).map(|_| client.open(SocketKind::Rdm)).collect();
    for (number, port) in sockets.iter().enumerate() {
        for lower in 0..BINDINGS {
            let upper = if number % 2 == 0 { u32::MAX } else { lower };
            client.bind(*port, ServiceRange::new(1000, lower, upper));
        }
    }
    let sender = client.open(SocketKind::Rdm);
    for data in [b"1", b"2"] {
        client.wait(|client| match client.send(sender, Some(Destination::Range(all)), data) {
            Ok(_) => Some(()),
            Err(failure) => {
                assert_eq!(failure, Failure::Send(SendError::WouldBlock));
                None
            }
        });
    }
    for port in sockets {
        assert_eq!(client.receive_soon(port).1, b"1");
        assert_eq!(client.receive_soon(port).1, b"2");
    }
}
