//! Processes that are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use utipc_attach::{ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, SocketKind};
use utipc_core::wire::ErrorCode;

use crate::client::{Client, Host, LIMIT, wait_while};

const RDM: ServiceRange = ServiceRange::new(4000, 1, 1);
const CONNECTED: ServiceRange = ServiceRange::new(4000, 2, 2);
/// Set for the process that is to be killed: the daemon's path.
const VICTIM: &str = "UTIPC_TEST_VICTIM";

/// Not a test: the process that other tests kill.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let mut client = Client::attach(path.as_ref(), false);
    client.server(SocketKind::Rdm, RDM);
    let listener = client.server(SocketKind::SeqPacket, CONNECTED);
    let mut connections = 0;
    // Accepts until it is killed, and reads nothing.
    client.wait(|client| -> Option<()> {
        while client.call(&SocketCall::Accept.on(listener)).is_ok() {
            connections += 1;
        }
        None
    });
    unreachable!("{connections}");
}

fn start_victim(host: &Host) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::victim", "--nocapture"])
        .env(VICTIM, &host.path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn lookup(client: &mut Client, range: ServiceRange) -> bool {
    let to = ServiceAddr { service: range.service, instance: range.lower };
    match client.call(&Request::Process(ProcessCall::Lookup { to, domain: NodeAddr::NONE })).unwrap() {
        Reply::Found(found) => found.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bindings_connections_and_messages_of_a_killed_process_end() {
    let host = Host::new();
    let mut child = start_victim(&host);
    let mut client = host.client();
    wait_while(|| !lookup(&mut client, RDM) || !lookup(&mut client, CONNECTED));
    let connection = client.open(SocketKind::SeqPacket);
    let to = Some(Destination::service(CONNECTED.service, CONNECTED.lower));
    client.call(&SocketCall::Connect { to }.on(connection)).unwrap();
    client.wait(|c| c.send(connection, None, b"unread").ok());
    let datagrams = client.open(SocketKind::Rdm);
    let keep = utipc_core::socket::OptionValue::Number(0);
    let option = utipc_core::socket::SocketOption::DestDroppable;
    client.call(&SocketCall::SetOption { option, value: keep }.on(datagrams)).unwrap();
    let to = Some(Destination::service(RDM.service, RDM.lower));
    client.send(datagrams, to, b"never read").unwrap();
    child.kill().unwrap();
    // The connection ends with an error, after the binding is gone; the message comes back.
    let (end, _) = client.receive_soon(connection);
    assert!(!lookup(&mut client, RDM) && !lookup(&mut client, CONNECTED));
    assert_eq!(end.returned.unwrap().code, ErrorCode::NoPort);
    let (back, _) = client.receive_soon(datagrams);
    let back = back.returned.unwrap();
    assert_eq!((back.code, &back.data[..]), (ErrorCode::NoPort, &b"never read"[..]));
    child.wait().unwrap();
    let counters = host.daemon().counters();
    assert_eq!((counters.attached, counters.sockets), (1, 2));
}

/// A copy of the connection in another process does not keep the attachment.
#[test]
fn attachment_ends_with_its_process_although_its_connection_was_inherited() {
    let host = Host::new();
    let mut client = host.client();
    let mut child = start_victim(&host);
    wait_while(|| !lookup(&mut client, RDM));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_while(|| lookup(&mut client, RDM));
    assert_eq!(host.ended("closed") + host.ended("died"), 1);
}

/// The process has closed a socket and dies before it has confirmed that it writes the socket's lane no longer.
#[test]
fn lane_of_a_closed_socket_ends_with_the_process() {
    let host = Host::new();
    let (mut server, mut client) = (host.direct_client(), host.direct_client());
    let to = server.server(SocketKind::Rdm, RDM);
    let from = client.open(SocketKind::Rdm);
    assert_eq!(client.call(&SocketCall::WantLane { to }.on(from)), Ok(Reply::Done));
    client.call(&SocketCall::Close.on(from)).unwrap();
    server.call(&SocketCall::Close.on(to)).unwrap();
    let counters = host.daemon().counters();
    assert_eq!((counters.lanes, counters.pairs), (1, 1), "the writer has not confirmed that it is done");
    drop(client);
    wait_while(|| host.daemon().counters().attached > 1);
    let counters = host.daemon().counters();
    assert_eq!((counters.lanes, counters.pairs), (0, 0));
}

/// Set for the process whose daemon panics.
const PANICS: &str = "UTIPC_TEST_PANICS";

/// Not a test: a process whose daemon panics.
#[test]
fn process_of_a_daemon_that_panics() {
    if std::env::var_os(PANICS).is_none() {
        return;
    }
    let host = Host::new();
    let _: Option<()> = host.daemon().with(|_, _| panic!("a defect of the daemon"));
    // The process would continue without its daemon. The daemon's thread unwinds while this one learns that the order
    // is gone.
    std::thread::sleep(2 * LIMIT);
    std::process::exit(0);
}

/// A service manager restarts a process that ended; it does not see a thread that did.
#[test]
fn panic_of_the_daemon_ends_its_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::process_of_a_daemon_that_panics", "--nocapture"])
        .env(PANICS, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert_eq!(status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{status}");
}
