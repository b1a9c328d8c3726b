//! Poll results of the descriptors of sockets.

use std::io::IoSlice;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc_attach::{Failure, Reply, Request, SocketCall};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::{Destination, RecvOptions, SocketKind};
use utipc_node::daemon::Limits;
use utipc_os::fdpass::Channel;
use utipc_os::packets;

use crate::client::{Host, wait_while};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));

fn polled(near: &Channel) -> PollFlags {
    let mut set = [PollFd::new(near, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
    poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    set[0].revents()
}

#[test]
fn poll_result_follows_the_readiness_of_the_socket() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let port = server.server(SocketKind::Rdm, SERVICE);
    let from = client.open(SocketKind::Rdm);
    let near = Channel::from_fd(server.call_for_fd(&SocketCall::Descriptor.on(port)).pop().unwrap());
    assert_eq!(polled(&near), PollFlags::OUT);
    for round in 0..3 {
        client.send(from, TO, b"one").unwrap();
        client.send(from, TO, b"two").unwrap();
        assert_eq!(polled(&near), PollFlags::OUT | PollFlags::IN, "round {round}");
        server.receive(port).unwrap();
        // The library reads the byte; the socket is still readable, so the daemon adds it again.
        assert!(packets::drain(&near));
        assert_eq!(server.call(&SocketCall::Rearm.on(port)), Ok(Reply::Done));
        assert_eq!(polled(&near), PollFlags::OUT | PollFlags::IN);
        server.receive(port).unwrap();
        assert!(packets::drain(&near) && !packets::drain(&near));
        server.call(&SocketCall::Rearm.on(port)).unwrap();
        assert_eq!(polled(&near), PollFlags::OUT);
    }
    // A full buffer is drained at once if the socket is writable again already.
    packets::fill(&near);
    assert_eq!(polled(&near), PollFlags::empty());
    server.call(&SocketCall::Rearm.on(port)).unwrap();
    assert_eq!(polled(&near), PollFlags::OUT);
    server.call(&SocketCall::Close.on(port)).unwrap();
    assert!(polled(&near).contains(PollFlags::HUP | PollFlags::IN));
}

#[test]
fn receive_after_the_byte_was_read_keeps_the_level() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let port = server.server(SocketKind::Rdm, SERVICE);
    let from = client.open(SocketKind::Rdm);
    let near = Channel::from_fd(server.call_for_fd(&SocketCall::Descriptor.on(port)).pop().unwrap());
    let request = SocketCall::ReceivePolled { room: 100, options: RecvOptions::default() }.on(port);
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    for text in [b"one", b"two"] {
        client.send(from, TO, text).unwrap();
    }
    let mut receive = |request: &Request| {
        packets::drain(&near);
        let (reply, data) = server.try_call(request, &[]).unwrap();
        (matches!(reply, Reply::Received(_)), data, polled(&near).contains(PollFlags::IN))
    };
    let peeking = SocketCall::ReceivePolled { room: 100, options: peek }.on(port);
    assert_eq!(receive(&peeking), (true, b"one".to_vec(), true));
    assert_eq!(receive(&request), (true, b"one".to_vec(), true));
    assert_eq!(receive(&request), (true, b"two".to_vec(), false));
    assert_eq!(receive(&request), (false, Vec::new(), false));
    // The next message is a new event.
    client.send(from, TO, b"three").unwrap();
    assert_eq!(polled(&near), PollFlags::OUT | PollFlags::IN);
    // A process that does not hold the socket changes nothing.
    assert_eq!(client.call(&request), Err(Failure::NoSocket(port)));
    assert!(packets::drain(&near));
    assert_eq!(client.call(&request), Err(Failure::NoSocket(port)));
    assert_eq!(polled(&near), PollFlags::OUT);
}

#[test]
fn descriptor_is_writable_after_the_time_for_a_full_receiver() {
    let host = Host::new();
    let (mut client, mut other) = (host.client(), host.client());
    let ports = [(); 2].map(|()| client.open(SocketKind::Rdm));
    let nears = ports
        .map(|port| Channel::from_fd(client.call_for_fd(&SocketCall::Descriptor.on(port)).pop().unwrap()));
    for near in &nears {
        packets::fill(near);
        assert_eq!(polled(near), PollFlags::empty());
    }
    // The last time counts, and a socket that is closed before it has none.
    for (port, millis) in [(ports[0], 250), (ports[0], 1), (ports[1], 1)] {
        assert_eq!(client.call(&SocketCall::AwaitRoom { millis }.on(port)), Ok(Reply::Done));
        if port == ports[1] {
            client.call(&SocketCall::Close.on(port)).unwrap();
        }
    }
    let mut set = [PollFd::new(&nears[0], PollFlags::OUT)];
    assert_eq!(poll(&mut set, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap(), 1);
    let refused = other.call(&SocketCall::AwaitRoom { millis: 1 }.on(ports[0]));
    assert_eq!(refused, Err(Failure::NoSocket(ports[0])));
}

#[test]
fn congestion_and_end_of_a_connection_are_reported() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let listener = server.server(SocketKind::SeqPacket, SERVICE);
    let watch = Channel::from_fd(server.call_for_fd(&SocketCall::Descriptor.on(listener)).pop().unwrap());
    assert_eq!(polled(&watch), PollFlags::empty());
    let from = client.open(SocketKind::SeqPacket);
    client.call(&SocketCall::Connect { to: TO }.on(from)).unwrap();
    assert_eq!(polled(&watch), PollFlags::IN);
    let Reply::Accepted { port, .. } = server.call(&SocketCall::Accept.on(listener)).unwrap() else {
        panic!("not accepted")
    };
    while client.send(from, None, &[0; 60_000]).is_ok() {}
    let near = Channel::from_fd(client.call_for_fd(&SocketCall::Descriptor.on(from)).pop().unwrap());
    assert_eq!(polled(&near), PollFlags::empty());
    while server.receive(port).is_ok() {}
    assert_eq!(polled(&near), PollFlags::OUT);
    drop(server);
    client.receive_soon(from);
    assert!(polled(&near).contains(PollFlags::HUP | PollFlags::IN));
}

#[test]
fn descriptors_are_limited_and_freed_when_closed() {
    let limits = Limits { descriptors_per_attachment: 2, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let mut client = host.client();
    let ports = [0; 3].map(|_| client.open(SocketKind::Rdm));
    let mut nears: Vec<_> = ports[..2]
        .iter()
        .map(|port| Channel::from_fd(client.call_for_fd(&SocketCall::Descriptor.on(*port)).pop().unwrap()))
        .collect();
    let full = client.call(&SocketCall::Descriptor.on(ports[2]));
    assert!(matches!(full, Err(Failure::Limit(_))), "{full:?}");
    // When a second one is requested, the first hangs up.
    let again = client.call_for_fd(&SocketCall::Descriptor.on(ports[0])).pop().unwrap();
    assert!(polled(&nears[0]).contains(PollFlags::HUP));
    drop(again);
    nears.clear();
    // The daemon notices closed descriptors between two requests.
    wait_while(|| client.call(&SocketCall::Descriptor.on(ports[2])).is_err());
    // Data written into it does no harm.
    let near = Channel::from_fd(client.call_for_fd(&SocketCall::Descriptor.on(ports[1])).pop().unwrap());
    for size in [1, 100, 1000] {
        let _ = near.send(&[IoSlice::new(&vec![0xff; size])], &[], false);
    }
    near.shut();
    assert!(matches!(client.call(&SocketCall::Look.on(ports[1])), Ok(Reply::Socket(_))));
}
