//! Admission: versions, policy and limits, and how the daemon treats misbehaving processes.

use std::io::IoSlice;

use utipc_attach::{Failure, Greeting, ProcessCall, Refusal, Reply, Request, SocketCall};
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::socket::SocketKind;
use utipc_manage::Request::LinkSet;
use utipc_manage::{Errno, Properties, entries};
use utipc_node::daemon::{Limits, Policy, Users};
use utipc_os::fdpass::{Channel, Got, own_user};

use crate::client::{Client, Host, LIMIT, shake_hands, shake_hands_on, wait_while};

const fn speaks(newest: u16, oldest: u16) -> Greeting {
    Greeting { newest, oldest }
}

#[test]
fn overlapping_versions_attach_and_others_get_a_version_refusal() {
    for (daemon, process, agreed) in [
        (speaks(7, 6), speaks(7, 6), Some(7)),
        (speaks(7, 6), speaks(6, 5), Some(6)),
        (speaks(6, 5), speaks(7, 6), Some(6)),
        (speaks(7, 6), speaks(5, 4), None),
        (speaks(5, 4), speaks(7, 6), None),
        (speaks(7, 6), speaks(0, 0), None),
        (speaks(7, 6), speaks(u16::MAX, 8), None),
    ] {
        let host = Host::with(|config| config.versions = Some(daemon));
        let (channel, answer) = shake_hands(&host.path, process, false);
        let (own, answer, _) = answer.unwrap();
        assert_eq!(own, daemon);
        match (answer, agreed) {
            (Ok(welcome), Some(version)) => assert_eq!(welcome.version, version),
            (Err(Refusal::Version { release }), None) => {
                assert_eq!(release, env!("CARGO_PKG_VERSION"));
                assert_eq!(channel.receive(&mut [0; 9], &mut Vec::new(), 0, true).unwrap(), Got::End);
                assert_eq!(host.ended("version"), 1);
            }
            other => panic!("{daemon:?} and {process:?}: {other:?}"),
        }
    }
}

#[test]
fn policy_decides_which_users_attach_bind_and_manage() {
    let strangers = Users::Only { users: vec![4_000_000], groups: vec![] };
    let host = Host::with(|config| {
        config.policy = Policy { bind: vec![(100..=199, strangers.clone())], ..Policy::default() };
    });
    let mut client = host.client();
    let port = client.open(SocketKind::Rdm);
    let bind = |service| {
        SocketCall::Bind { range: ServiceRange::new(service, 1, 1), scope: Scope::Cluster }.on(port)
    };
    // Root and the daemon's user may do everything, and tests run as the daemon's user.
    assert_eq!(client.call(&bind(150)), Ok(Reply::Done));
    assert_eq!(client.call(&bind(200)), Ok(Reply::Done));
    let refused = client.call(&bind(17));
    assert!(matches!(refused, Err(Failure::Bind(_))), "{refused:?}");
    let set = LinkSet { name: "x".into(), properties: Properties::default() };
    let (_, answer) = client.try_call(&Request::Manage { from: 0 }, &set.to_daemon()).unwrap();
    assert_eq!(entries(&answer).unwrap_err().errno, Errno::INVALID, "the link does not exist");
    let (_, answer) = shake_hands(&host.path, Greeting::OWN, false);
    assert!(answer.unwrap().1.is_ok(), "user {}", own_user());
}

#[test]
fn source_type_of_market_data_is_reserved_for_root_and_the_daemons_user() {
    let host = Host::new();
    let bind = |client: &mut Client| {
        let port = client.open(SocketKind::SeqPacket);
        let range = ServiceRange::new(*Policy::RESERVED.start(), 7, 7);
        client.call(&SocketCall::Bind { range, scope: Scope::Cluster }.on(port))
    };
    assert_eq!(bind(&mut host.client()), Ok(Reply::Done));
    let Some(mut stranger) = host.client_of(4_000_001) else { return };
    let refused = bind(&mut stranger);
    assert!(matches!(refused, Err(Failure::NotAllowed { uid: 4_000_001, .. })), "{refused:?}");
    assert_eq!(host.daemon().counters().bindings_refused, 1);
}

#[test]
fn processes_above_the_limit_are_refused_and_others_are_served() {
    let limits = Limits { attachments: 2, sockets_per_attachment: 3, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let (mut one, two) = (host.client(), host.client());
    let (_, answer) = shake_hands(&host.path, Greeting::OWN, false);
    assert_eq!(answer.unwrap().1, Err(Refusal::TooMany));
    for _ in 0..3 {
        one.open(SocketKind::Rdm);
    }
    let full = one.call(&Request::Process(ProcessCall::Open { kind: SocketKind::Rdm }));
    assert!(matches!(full, Err(Failure::Limit(_))), "{full:?}");
    drop(two);
    // Another process may attach when the daemon has noticed the end.
    let again = (0..1000).find_map(|_| shake_hands(&host.path, Greeting::OWN, false).1.unwrap().1.ok());
    assert!(again.is_some());
    assert!(host.ended("too-many") >= 1);
}

/// Connections without a handshake are replaced by new ones.
#[test]
fn connections_without_handshake_do_not_keep_processes_out() {
    let host = Host::new();
    let silent: Vec<Channel> = (0..400).map(|_| Channel::connect(&host.path).unwrap()).collect();
    let begun = std::time::Instant::now();
    // There are fewer places than silent connections; each keeps its place for a short time.
    let mut attempts = 0;
    while shake_hands(&host.path, Greeting::OWN, false).1.is_none() {
        assert!(begun.elapsed() < LIMIT, "no process attaches beside {} silent connections", silent.len());
        attempts += 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    eprintln!("attached after {attempts} attempts and {:?}", begun.elapsed());
    assert!(
        host.ended("too-many") >= 100 && host.ended("silent") >= 1,
        "{:?}",
        host.daemon().counters().ended
    );
    // After the handshake a process does not need a place.
    let clients: Vec<Client> = (0..100).map(|_| Client::attach_with_retries(&host.path)).collect();
    assert!(clients.len() == 100 && host.daemon().counters().attached >= 100);
    drop(silent);
}

/// On a loaded machine a process may wait for the processor between connecting and the handshake.
#[test]
fn slow_handshake_succeeds() {
    let host = Host::new();
    let slow = Channel::connect(&host.path).unwrap();
    // Other processes attach and leave; none of them takes the place of the slow one.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(2500) {
        drop(host.client());
    }
    let (own, answer, _) =
        shake_hands_on(&slow, Greeting::OWN, false).expect("the daemon closed the connection");
    assert!(own == Greeting::OWN && answer.is_ok());
    assert_eq!((host.ended("silent"), host.ended("too-many")), (0, 0));
}

#[test]
fn malformed_packets_end_the_attachment_and_no_other() {
    let host = Host::new();
    let mut good = host.client();
    let port = good.open(SocketKind::Rdm);
    let send = |channel: &Channel, bytes: &[u8]| {
        let _ = channel.send(&[IoSlice::new(bytes)], &[], true).unwrap();
    };
    let gone = |channel: &Channel| {
        let mut buffer = vec![0; 70_000];
        while channel.receive(&mut buffer, &mut Vec::new(), 0, true).unwrap() != Got::End {}
    };
    let foreign = Channel::connect(&host.path).unwrap();
    send(&foreign, b"GET / HTTP/1.1\r\n\r\n");
    gone(&foreign);
    let half = Channel::connect(&host.path).unwrap();
    send(&half, &Greeting::OWN.to_bytes());
    gone(&half);
    let empty = Channel::connect(&host.path).unwrap();
    send(&empty, b"");
    gone(&empty);
    for garbage in [&[0xff; 40][..], &[0], &[200, 200, 200], &vec![1; 70_000]] {
        let client = Client::attach(&host.path, false);
        send(&client.channel, garbage);
        gone(&client.channel);
    }
    assert_eq!((host.ended("foreign"), host.ended("garbage")), (1, 5));
    assert!(matches!(good.call(&SocketCall::Look.on(port)), Ok(Reply::Socket(_))));
}

#[test]
fn process_that_does_not_read_replies_is_detached() {
    let host = Host::new();
    let mut good = host.client();
    let flooder = host.client();
    let port = good.open(SocketKind::Rdm);
    let mut bytes = Vec::new();
    utipc_attach::encode(&Request::Process(ProcessCall::Notices), &[], &mut bytes);
    let mut sent = 0;
    while flooder.channel.send(&[IoSlice::new(&bytes)], &[], true).unwrap() == utipc_os::fdpass::Put::Sent {
        sent += 1;
        assert!(sent < 1_000_000, "the daemon never ends the flood");
        if sent % 100 == 0 {
            assert!(matches!(good.call(&SocketCall::Look.on(port)), Ok(Reply::Socket(_))));
        }
    }
    // The kernel reports the end of the connection before the daemon has counted it.
    wait_while(|| host.ended("unread-replies") == 0);
}

#[test]
fn requests_about_sockets_of_other_processes_are_refused() {
    let host = Host::new();
    let (mut owner, mut thief) = (host.client(), host.client());
    let port = owner.open(SocketKind::Rdm);
    let service = ServiceRange::new(300, 1, 1);
    owner.bind(port, service);
    let options = Default::default();
    for request in [
        SocketCall::Close.on(port),
        SocketCall::Bind { range: service, scope: Scope::Cluster }.on(port),
        SocketCall::Unbind { which: None }.on(port),
        SocketCall::Listen.on(port),
        SocketCall::Connect { to: None }.on(port),
        SocketCall::Accept.on(port),
        SocketCall::Shutdown.on(port),
        SocketCall::Send { to: None }.on(port),
        SocketCall::Receive { room: 10, options }.on(port),
        SocketCall::Look.on(port),
        SocketCall::TakeError.on(port),
        SocketCall::Close.on(0),
        SocketCall::Close.on(u32::MAX),
    ] {
        let refused = thief.call(&request);
        assert!(matches!(refused, Err(Failure::NoSocket(_))), "{request:?}: {refused:?}");
    }
    assert!(matches!(owner.call(&SocketCall::Look.on(port)), Ok(Reply::Socket(_))));
}
