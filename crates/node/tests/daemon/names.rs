//! The binding table in memory of the process, and messages to sockets that were found in it.

use utipc_attach::{Failure, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr, ServiceRange};
use utipc_core::names::replica::ViewError;
use utipc_core::socket::{Destination, SendError, SocketKind};
use utipc_os::replica::Replica;

use crate::client::{Client, Host};
use crate::mapped::view;

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Destination = Destination::service(18888, 17);
const NODE: NodeAddr = NodeAddr(0x1001);

fn find(replica: &Replica) -> Result<Option<u32>, ViewError> {
    let view = view(replica);
    Ok(view.lookup(ServiceAddr::new(18888, 17), NodeAddr::NONE)?.map(|found| found.port))
}

pub(crate) fn fetch(client: &mut Client) -> Replica {
    let fds = client.call_for_fd(&Request::Process(ProcessCall::FetchTable));
    let [table, cursors] = fds.as_slice() else { panic!("{fds:?}") };
    Replica::map(table, cursors).unwrap()
}

fn at(port: u32) -> PortId {
    PortId { port, node: NODE }
}

fn send_found(client: &mut Client, port: u32, to: Destination, found: PortId) -> Result<u32, Failure> {
    match client.try_call(&SocketCall::SendFound { to, found }.on(port), b"hello").unwrap().0 {
        Reply::Sent { bytes, lanes } if lanes.is_empty() => Ok(bytes),
        Reply::Failed(failure) => Err(failure),
        other => panic!("{other:?}"),
    }
}

#[test]
fn mapped_table_is_up_to_date_at_each_reply() {
    let mut host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let replica = fetch(&mut client);
    assert_eq!(find(&replica), Ok(None));
    let port = server.server(SocketKind::Rdm, SERVICE);
    assert_eq!(find(&replica), Ok(Some(port)));
    // Processes and the daemon share the round-robin cursors.
    let other = client.server(SocketKind::Rdm, SERVICE);
    let again = fetch(&mut server);
    let ask =
        Request::Process(ProcessCall::Lookup { to: ServiceAddr::new(18888, 17), domain: NodeAddr::NONE });
    let mut servers = Vec::new();
    for _ in 0..4 {
        servers.extend([find(&replica).unwrap(), find(&again).unwrap()]);
        let Ok(Reply::Found(found)) = client.call(&ask) else { panic!("no answer") };
        servers.push(found.map(|found| found.port));
    }
    assert!(servers.windows(2).all(|two| two[0] != two[1]), "{servers:?}");
    assert!(servers.iter().all(|server| [Some(port), Some(other)].contains(server)));
    assert_eq!(server.call(&SocketCall::Close.on(port)), Ok(Reply::Done));
    assert_eq!(find(&replica), Ok(Some(other)));
    drop(host.daemon.take());
    assert_eq!(find(&replica), Err(ViewError::Gone));
}

#[test]
fn message_goes_only_to_the_socket_that_was_found() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let [first, second] = [0; 2].map(|_| server.server(SocketKind::Rdm, SERVICE));
    let from = client.open(SocketKind::Rdm);
    for to in [TO, Destination::Range(SERVICE)] {
        for _ in 0..3 {
            assert_eq!(send_found(&mut client, from, to, at(second)), Ok(5));
            let (received, data) = server.receive_soon(second);
            assert_eq!((&data[..], received.destination), (&b"hello"[..], Some(SERVICE)));
        }
    }
    assert!(server.receive(first).is_err());
    // The socket is gone: an anycast finds the other one.
    assert_eq!(server.call(&SocketCall::Close.on(second)), Ok(Reply::Done));
    assert_eq!(send_found(&mut client, from, TO, at(second)), Ok(5));
    assert_eq!(server.receive_soon(first).1, b"hello");
}

/// Requests of a broken or malicious process.
#[test]
fn send_found_with_inconsistent_arguments_is_refused() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let port = server.server(SocketKind::Rdm, SERVICE);
    let from = client.open(SocketKind::Rdm);
    let refused = |error| Err(Failure::Send(error));
    assert_eq!(send_found(&mut client, port, TO, at(port)), Err(Failure::NoSocket(port)));
    let multicast = Destination::Range(SERVICE);
    assert_eq!(send_found(&mut client, from, multicast, at(17)), refused(SendError::HostUnreachable));
    let direct = Destination::Port(at(port));
    assert_eq!(send_found(&mut client, from, direct, at(port)), refused(SendError::InvalidDestination));
    let inverted = Destination::Range(ServiceRange::new(18888, 2, 1));
    assert_eq!(send_found(&mut client, from, inverted, at(port)), refused(SendError::InvalidDestination));
    let nowhere = PortId { port, node: NodeAddr(0x2002) };
    assert_eq!(send_found(&mut client, from, TO, nowhere), refused(SendError::HostUnreachable));
    let stream = client.open(SocketKind::Stream);
    assert_eq!(send_found(&mut client, stream, TO, at(port)), refused(SendError::NotConnected));
    // A listener accepts no datagram: it comes back, or is dropped.
    let listener = server.server(SocketKind::Stream, ServiceRange::new(18889, 1, 1));
    assert_eq!(send_found(&mut client, from, TO, at(listener)), Ok(5));
    assert!(server.receive(port).is_err());
}
