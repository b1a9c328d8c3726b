//! Attacks of one user on the node's resources: a bystander of another user must get its part.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Greeting, LaneCall, LaneEnd, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, RecvError, SendError, SocketKind, SocketOption};
use utipc_core::topology::{FOREVER, Filter, SUBSCRIPTION_LEN, Subscription};
use utipc_core::wire::ByteOrder;
use utipc_node::daemon::Limits;
use utipc_os::fdpass::Channel;

use crate::client::{Client, Host, as_user, shake_hands, wait_while};

/// Users without a login on this machine.
const MALLORY: u32 = 64_101;
const BYSTANDER: u32 = 64_102;

fn bind(port: u32, instance: u32) -> Request {
    let range = ServiceRange::new(18_888, instance, instance);
    SocketCall::Bind { range, scope: Scope::Node }.on(port)
}

/// The clients of an attacker and of a bystander; none without root.
fn users(host: &Host, processes: usize) -> Option<(Vec<Client>, Client)> {
    let attackers: Option<Vec<Client>> = (0..processes).map(|_| host.client_of(MALLORY)).collect();
    Some((attackers?, host.client_of(BYSTANDER)?))
}

/// Repeats `attempt` with every client until the daemon refuses it; returns how often it succeeded, and the last
/// refusal.
fn exhaust(
    clients: &mut [Client],
    most: usize,
    mut attempt: impl FnMut(&mut Client, u32) -> Result<(), Failure>,
) -> (usize, Failure) {
    let (mut done, mut number, mut refused) = (0, 0, None);
    for client in clients {
        for _ in 0..most {
            number += 1;
            match attempt(client, number) {
                Ok(()) => done += 1,
                Err(failure) => {
                    refused = Some(failure);
                    break;
                }
            }
        }
    }
    (done, refused.expect("nothing was refused"))
}

/// A refusal names the user, the limit's key and a remedy.
fn assert_names(refused: &Failure, key: &str) {
    let text = refused.to_string();
    let user = format!("user {MALLORY}");
    assert!(text.contains(&user) && text.contains(key) && text.contains(" or raise "), "{text}");
}

#[test]
fn processes_of_one_user_leave_places_for_another_user() {
    let limits = Limits { attachments: 32, attachments_per_user: 16, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let attach = || {
        let attached = shake_hands(&host.path, Greeting::OWN, false);
        let refused = matches!(attached.1, Some((_, Err(_), _)));
        (!refused).then_some(attached.0)
    };
    let Some(kept) = as_user(MALLORY, || (0..40).map_while(|_| attach()).collect::<Vec<_>>()) else { return };
    assert_eq!(kept.len(), 16);
    host.client_of(BYSTANDER).unwrap();
    assert!(host.ended("too-many") >= 1);
}

#[test]
fn connections_without_handshake_of_one_user_leave_places_for_another_user() {
    let host = Host::new();
    let connect = || (0..400).map(|_| Channel::connect(&host.path).unwrap()).collect::<Vec<_>>();
    let Some(silent) = as_user(MALLORY, connect) else { return };
    // At the first attempt, while no silent connection is old enough to be replaced.
    host.client_of(BYSTANDER).unwrap();
    assert!(host.ended("too-many") >= 200 && host.ended("silent") == 0);
    drop(silent);
}

#[test]
fn sockets_of_many_processes_count_together() {
    let limits = Limits { sockets: 400, sockets_per_user: 100, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some((mut attackers, mut bystander)) = users(&host, 4) else { return };
    let open = |client: &mut Client, _| {
        client.call(&Request::Process(ProcessCall::Open { kind: SocketKind::Rdm })).map(drop)
    };
    let (opened, refused) = exhaust(&mut attackers, 300, open);
    assert_eq!(opened, 100);
    assert_names(&refused, "sockets_per_user");
    bystander.open(SocketKind::Rdm);
    // The end of a process releases what it had.
    attackers.remove(0);
    let open = Request::Process(ProcessCall::Open { kind: SocketKind::Rdm });
    wait_while(|| attackers[0].call(&open).is_err());
}

#[test]
fn two_processes_of_one_user_cannot_take_all_bindings() {
    let limits =
        Limits { bindings: 400, bindings_per_user: 200, bindings_per_attachment: 300, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some((mut attackers, mut bystander)) = users(&host, 2) else { return };
    let ports: Vec<u32> = attackers.iter_mut().map(|client| client.open(SocketKind::Rdm)).collect();
    let mut ports = ports.into_iter();
    let (mut port, mut of) = (0, 0);
    let (bound, refused) = exhaust(&mut attackers, 300, |client, number| {
        if of != client.welcome.attachment {
            (of, port) = (client.welcome.attachment, ports.next().unwrap());
        }
        client.call(&bind(port, number)).map(drop)
    });
    assert_eq!(bound, 200);
    assert_names(&refused, "bindings_per_user");
    let port = bystander.open(SocketKind::Rdm);
    for instance in 1000..1100 {
        assert_eq!(bystander.call(&bind(port, instance)), Ok(Reply::Done), "{instance}");
    }
}

/// Opens a connection to the topology server; false if it ends.
fn subscriber(client: &mut Client) -> u32 {
    let port = client.open(SocketKind::SeqPacket);
    let to = Some(Destination::service(1, 1));
    client.call(&SocketCall::Connect { to }.on(port)).unwrap();
    port
}

/// Sends subscriptions until the connection ends; returns how many were sent without an error.
fn subscribe(client: &mut Client, port: u32, most: u32) -> Result<u32, Failure> {
    let wish = |instance| Subscription {
        range: ServiceRange::new(18_888, instance, instance),
        timeout_ms: FOREVER,
        filter: Filter::SERVICE,
        handle: [0; 8],
    };
    for instance in 0..most {
        let bytes: [u8; SUBSCRIPTION_LEN] = wish(instance).to_bytes(ByteOrder::NATIVE);
        client.send(port, None, &bytes)?;
    }
    Ok(most)
}

#[test]
fn connections_of_one_user_cannot_take_all_subscriptions() {
    let host = Host::with(|config| config.limits.subscriptions_per_user = 1000);
    let Some((mut attackers, mut bystander)) = users(&host, 4) else { return };
    let mut refusals = 0;
    for client in &mut attackers {
        let port = subscriber(client);
        if let Err(refused) = subscribe(client, port, 400) {
            assert_names(&refused, "subscriptions_per_user");
            assert!(client.receive(port).is_err() || client.receive(port).unwrap().1.is_empty());
            refusals += 1;
        }
    }
    assert_eq!(refusals, 2);
    let total = host.daemon().with(|stack, _| stack.topology_stats().subscriptions).unwrap();
    assert!(total <= 1000, "{total} subscriptions");
    let port = subscriber(&mut bystander);
    assert_eq!(subscribe(&mut bystander, port, 500), Ok(500));
    assert_eq!(bystander.receive(port), Err(Failure::Receive(RecvError::WouldBlock)));
}

#[test]
fn connections_to_the_topology_server_leave_places_for_another_user() {
    let host = Host::new();
    let Some((mut attackers, mut bystander)) = users(&host, 2) else { return };
    for client in &mut attackers {
        for _ in 0..2500 {
            subscriber(client);
        }
    }
    let port = subscriber(&mut bystander);
    assert_eq!(subscribe(&mut bystander, port, 1), Ok(1));
    assert_eq!(bystander.receive(port), Err(Failure::Receive(RecvError::WouldBlock)));
}

/// Opens a bound socket and another one, for each of some instances.
fn open_pairs(client: &mut Client, instances: std::ops::Range<u32>) -> Vec<(u32, u32)> {
    let mut open = |instance| {
        let port = client.open(SocketKind::Rdm);
        client.call(&bind(port, instance)).unwrap();
        (client.open(SocketKind::Rdm), instance)
    };
    instances.map(&mut open).collect()
}

/// Sends datagrams to sockets that are not read, until none is accepted. Each has its own sender, because a sender
/// waits for the first receiver that is full.
fn fill(client: &mut Client, pairs: &[(u32, u32)]) {
    for (from, instance) in pairs.iter().copied() {
        let to = Some(Destination::service(18_888, instance));
        for _ in 0..40 {
            match client.send(from, to, &[0; 60_000]) {
                Ok(_) => {}
                Err(Failure::Send(SendError::WouldBlock)) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// A user's use of a resource.
fn used(host: &Host, uid: u32, resource: &str) -> u64 {
    let quotas = host.daemon().counters().quotas;
    quotas.iter().find(|quota| quota.resource == resource).unwrap().used_by(uid)
}

#[test]
fn datagrams_of_one_user_stay_within_its_part_of_the_memory() {
    const MIB: u64 = 1 << 20;
    let limits = Limits { memory: 16 * MIB, memory_per_user: 8 * MIB, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some((mut attackers, mut bystander)) = users(&host, 2) else { return };
    // Before the memory is used up: sockets take some too.
    let pairs = [open_pairs(&mut attackers[0], 1..41), open_pairs(&mut attackers[1], 1000..1040)];
    open_pairs(&mut attackers[0], 5000..5040);
    for (client, pairs) in attackers.iter_mut().zip(&pairs) {
        fill(client, pairs);
    }
    assert!(used(&host, MALLORY, "memory") <= 8 * MIB);
    // Messages beyond it come back with the error that TIPC has for a full receiver, although these are empty.
    let from = bystander.open(SocketKind::Rdm);
    let (option, value) = (SocketOption::DestDroppable, OptionValue::Number(0));
    bystander.call(&SocketCall::SetOption { option, value }.on(from)).unwrap();
    let returned = (5000..5040).find_map(|instance| {
        bystander.send(from, Some(Destination::service(18_888, instance)), &[0; 60_000]).unwrap();
        bystander.receive(from).ok()
    });
    let code = returned.and_then(|(received, _)| received.returned).map(|returned| returned.code);
    assert_eq!(code, Some(utipc_core::wire::ErrorCode::Overload));
    assert!(used(&host, MALLORY, "memory") <= 8 * MIB);

    let (port, from) = (bystander.open(SocketKind::Rdm), bystander.open(SocketKind::Rdm));
    bystander.call(&bind(port, 6000)).unwrap();
    for _ in 0..20 {
        let to = Some(Destination::service(18_888, 6000));
        assert_eq!(bystander.send(from, to, &[0; 60_000]), Ok(60_000));
    }
    assert_eq!((0..20).filter(|_| bystander.receive(port).is_ok()).count(), 20);
    // Waiting messages are released with their sockets.
    drop(attackers);
    wait_while(|| used(&host, MALLORY, "memory") + used(&host, MALLORY, "sockets") > 0);
}

#[test]
fn descriptors_of_one_user_leave_some_for_another_user() {
    let limits = Limits {
        descriptors: 200,
        descriptors_per_user: 100,
        descriptors_per_attachment: 80,
        ..Limits::default()
    };
    let host = Host::with(|config| config.limits = limits);
    let Some((mut attackers, mut bystander)) = users(&host, 4) else { return };
    let mut kept: Vec<OwnedFd> = Vec::new();
    let mut open = |client: &mut Client| {
        let port = client.open(SocketKind::Rdm);
        let descriptor = client.descriptor(port);
        let is_open = descriptor.is_some();
        kept.extend(descriptor);
        is_open
    };
    let opened: usize = attackers.iter_mut().map(|client| (0..80).take_while(|_| open(client)).count()).sum();
    assert_eq!(opened, 100);
    // Forks cost descriptors too.
    let refused = attackers[0].call(&Request::Process(ProcessCall::Fork)).unwrap_err();
    assert_names(&refused, "descriptors_per_user");
    assert_eq!((0..50).filter(|_| open(&mut bystander)).count(), 50);
}

#[test]
fn lanes_of_one_user_leave_some_for_another_user() {
    let limits = Limits { lanes: 40, lanes_per_user: 20, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some(mut attacker) = host.direct_client_of(MALLORY) else { return };
    let mut bystander = host.direct_client_of(BYSTANDER).unwrap();
    let lanes = |client: &mut Client, most: u32| {
        let to = client.open(SocketKind::Rdm);
        let froms: Vec<u32> = (0..most).map(|_| client.open(SocketKind::Rdm)).collect();
        froms.into_iter().filter(|from| client.call(&SocketCall::WantLane { to }.on(*from)).is_ok()).count()
    };
    assert_eq!(lanes(&mut attacker, 50), 20);
    assert_eq!(lanes(&mut bystander, 10), 10);
    assert_eq!(host.daemon().counters().lanes, 30);
}

/// The memory of larger rings counts like queued messages.
#[test]
fn rings_of_lanes_count_against_the_memory_of_their_user() {
    const MIB: u64 = 1 << 20;
    let limits = Limits { memory: 16 * MIB, memory_per_user: 4 * MIB, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some(mut client) = host.direct_client_of(MALLORY) else { return };
    let tos: Vec<u32> = (0..10).map(|_| client.open(SocketKind::Rdm)).collect();
    let from = client.open(SocketKind::Rdm);
    for to in &tos {
        client.call(&SocketCall::WantLane { to: *to }.on(from)).unwrap();
    }
    let lanes = client.notices.iter().filter_map(|notice| match notice {
        Notice::Lane { lane, end: LaneEnd::Writer, .. } => Some(*lane),
        _ => None,
    });
    let lanes: Vec<_> = lanes.collect();
    assert_eq!(lanes.len(), 10);
    let grow = |client: &mut Client, lane, log2| {
        client.call(&Request::Lane(LaneCall::Grow { lane, log2, importance: 0 }))
    };
    let granted = lanes.iter().filter(|lane| grow(&mut client, **lane, 20).is_ok()).count();
    assert_eq!(granted, 3);
    assert_eq!(grow(&mut client, lanes[9], 20), Err(Failure::Overload));
    assert_eq!(grow(&mut client, lanes[0], 12), Ok(Reply::Done));
    assert_eq!(grow(&mut client, lanes[9], 20), Ok(Reply::Done));
}

/// A socket stays charged to the user that opened it, also in other hands, and is released exactly once: an inherited
/// socket cannot make a counter wrap.
#[test]
fn shared_sockets_are_released_by_the_user_that_opened_them() {
    let limits = Limits { bindings: 40, bindings_per_user: 10, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some(mut parent) = host.client_of(MALLORY) else { return };
    for round in 0..20 {
        let port = parent.open(SocketKind::Rdm);
        let near = parent.call_for_fd(&SocketCall::Keep.on(port));
        parent.call(&bind(port, 1)).unwrap();
        // Another user gets the descriptor, as by SCM_RIGHTS.
        let mut other = host.client_of(BYSTANDER).unwrap();
        other.call_with_fd(&Request::Process(ProcessCall::Claim), &near[0]).unwrap();
        other.call(&bind(port, 2)).unwrap();
        if round % 2 == 0 {
            parent.call(&SocketCall::Unbind { which: None }.on(port)).unwrap();
            other.call(&bind(port, 3)).unwrap();
        }
        if round % 3 == 0 {
            parent.call(&SocketCall::Close.on(port)).unwrap();
        }
        other.call(&SocketCall::Close.on(port)).unwrap();
        drop(other);
        let _ = parent.call(&SocketCall::Close.on(port));
        drop(near);
        // The daemon closes its copy of the passed descriptor on another thread; only then does the socket end.
        wait_while(|| host.daemon().counters().sockets > 0);
    }
    let port = parent.open(SocketKind::Rdm);
    let bound = (0..40).take_while(|instance| parent.call(&bind(port, *instance)).is_ok()).count();
    assert_eq!(bound, 10);
    for quota in host.daemon().counters().quotas {
        assert_eq!(quota.used_by(BYSTANDER), 0, "{quota:?}");
    }
}

/// Root and the daemon's own user may use what others leave, and always find some of it left.
#[test]
fn part_of_every_limit_is_left_for_root() {
    let limits = Limits { sockets: 160, sockets_per_user: 160, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let Some((mut attackers, _)) = users(&host, 1) else { return };
    let open = |client: &mut Client, _| {
        client.call(&Request::Process(ProcessCall::Open { kind: SocketKind::Rdm })).map(drop)
    };
    let (opened, refused) = exhaust(&mut attackers, 200, open);
    assert_eq!(opened, 150);
    assert!(refused.to_string().contains("`limits.sockets`"), "{refused}");
    let mut root = host.client();
    assert_eq!((0..20).filter(|_| open(&mut root, 0).is_ok()).count(), 10);
}
