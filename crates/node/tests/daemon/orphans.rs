//! Sockets whose descriptors programs own: they end with the last copy of the descriptor, and no later.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use utipc_attach::{Failure, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::socket::{Destination, SocketKind};
use utipc_node::daemon::Limits;
use utipc_os::fdpass::Channel;

use crate::client::{Client, Host, LIMIT};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));

/// Number of requests after which the daemon has noticed everything that happened before: each takes one turn.
const TURNS: usize = 4;

/// A socket with the descriptor that its program owns.
struct Kept {
    port: u32,
    near: OwnedFd,
}

impl Kept {
    fn of(client: &mut Client, port: u32) -> Self {
        Self { port, near: client.call_for_fd(&SocketCall::Keep.on(port)).pop().unwrap() }
    }

    /// The order of a process that closes its last copy.
    fn close(self, client: &mut Client) {
        drop(self.near);
        let closed = client.call(&SocketCall::Close.on(self.port));
        // The daemon may have noticed that the descriptor is closed.
        let gone = Err(Failure::NoSocket(self.port));
        assert!(closed == Ok(Reply::Done) || closed == gone, "{closed:?}");
    }

    /// The process stops using the socket; another one has the descriptor.
    fn pass_on(self, client: &mut Client) -> OwnedFd {
        assert_eq!(client.call(&SocketCall::Close.on(self.port)), Ok(Reply::Done));
        self.near
    }
}

/// A connection: the client's socket and the server's.
fn connect(server: &mut Client, listener: u32, client: &mut Client) -> (Kept, Kept) {
    let port = client.open(SocketKind::SeqPacket);
    let from = Kept::of(client, port);
    client.call(&SocketCall::Connect { to: TO }.on(from.port)).unwrap();
    let accepted = server.call(&SocketCall::Accept.on(listener)).unwrap();
    let Reply::Accepted { port, .. } = accepted else { panic!("{accepted:?}") };
    (from, Kept::of(server, port))
}

/// Sockets and descriptors of the daemon.
fn held(host: &Host) -> (usize, usize) {
    let counters = host.daemon().counters();
    (counters.sockets, counters.descriptors)
}

/// Waits until the daemon has no socket but the listener. The daemon closes passed copies on another thread, and a
/// process that another test forks has copies of all descriptors for a moment. The wait is shorter than the time after
/// which a socket with a missed close ends.
fn wait_for_listener_alone(host: &Host, case: &str) {
    let begun = Instant::now();
    while held(host) != (1, 0) {
        assert!(begun.elapsed() < LIMIT / 2, "{case}: {:?}", held(host));
    }
}

fn pass_turns(client: &mut Client) {
    for _ in 0..TURNS {
        client.call(&Request::Process(ProcessCall::Notices)).unwrap();
    }
}

#[test]
fn closed_connections_leave_no_sockets_and_no_descriptors() {
    for (takes_lanes, client_shuts, server_first) in
        [false, true].into_iter().flat_map(|a| [(a, false, false), (a, true, false), (a, false, true)])
    {
        let host = Host::new();
        let attach = || if takes_lanes { host.direct_client() } else { host.client() };
        let (mut server, mut client) = (attach(), attach());
        let listener = server.server(SocketKind::SeqPacket, SERVICE);
        for round in 0..400 {
            let (from, to) = connect(&mut server, listener, &mut client);
            if !takes_lanes {
                client.send(from.port, None, b"a message").unwrap();
            }
            if client_shuts {
                client.call(&SocketCall::Shutdown.on(from.port)).unwrap();
            }
            if server_first {
                to.close(&mut server);
                from.close(&mut client);
            } else {
                from.close(&mut client);
                to.close(&mut server);
            }
            let case = (takes_lanes, client_shuts, server_first, round);
            wait_for_listener_alone(&host, &format!("{case:?}"));
        }
    }
}

#[test]
fn socket_whose_connection_is_over_ends_with_the_last_copy_of_its_descriptor() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let listener = server.server(SocketKind::SeqPacket, SERVICE);
    let (from, to) = connect(&mut server, listener, &mut client);
    client.send(from.port, None, b"a message").unwrap();
    from.close(&mut client);
    let passed = to.pass_on(&mut server);
    let copy = passed.as_fd().try_clone_to_owned().unwrap();
    drop(passed);
    pass_turns(&mut client);
    assert_eq!(held(&host), (2, 1));
    // The process that has the descriptor now finds the unread message.
    let claim = Request::Process(ProcessCall::Claim);
    let claimed = client.call_with_fd(&claim, &copy);
    let Ok(Reply::Claimed { port }) = claimed else { panic!("{claimed:?}") };
    assert_eq!(client.receive(port).unwrap().1, b"a message");
    client.call(&SocketCall::Close.on(port)).unwrap();
    assert_eq!(held(&host), (2, 1));
    drop(copy);
    wait_for_listener_alone(&host, "the last copy is closed");
}

#[test]
fn hung_up_descriptor_that_a_program_closes_without_a_request_ends_its_socket() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let listener = server.server(SocketKind::SeqPacket, SERVICE);
    let (from, to) = connect(&mut server, listener, &mut client);
    from.close(&mut client);
    let Kept { port, near } = to;
    pass_turns(&mut client);
    assert_eq!(held(&host), (2, 1));
    drop(near);
    pass_turns(&mut client);
    assert_eq!(held(&host), (1, 0));
    assert_eq!(server.call(&SocketCall::Close.on(port)), Err(Failure::NoSocket(port)));
}

/// A program that was started with the descriptor never uses it, and ends after its peer and its parent.
#[test]
fn orphaned_socket_whose_connection_ends_later_ends_with_the_last_copy_of_its_descriptor() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let listener = server.server(SocketKind::SeqPacket, SERVICE);
    let (from, to) = connect(&mut server, listener, &mut client);
    let passed = to.pass_on(&mut server);
    assert_eq!(held(&host), (3, 2));
    from.close(&mut client);
    pass_turns(&mut client);
    assert_eq!(held(&host), (2, 1));
    drop(passed);
    pass_turns(&mut client);
    assert_eq!(held(&host), (1, 0));
}

#[test]
fn sockets_of_a_killed_process_end_although_their_connections_are_over() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let listener = server.server(SocketKind::SeqPacket, SERVICE);
    let pairs: Vec<_> = (0..40).map(|_| connect(&mut server, listener, &mut client)).collect();
    let mut ends = Vec::new();
    for (from, to) in pairs {
        from.close(&mut client);
        ends.push(to.near);
    }
    assert_eq!(held(&host), (41, 40));
    // The kernel closes descriptors in the order of their numbers: the attachment may be the first.
    drop(server);
    pass_turns(&mut client);
    drop(ends);
    pass_turns(&mut client);
    assert_eq!(held(&host), (0, 0));
}

/// A child that inherits all sockets of this client.
fn fork(host: &Host, parent: &mut Client) -> Client {
    let (number, near) = parent.fork();
    let mut child = host.client();
    let (channel, nonce) = (Channel::from_fd(near), 0x1234_u64);
    channel.send(&[IoSlice::new(&nonce.to_le_bytes())], &[], true).unwrap();
    let inherited = child.call(&Request::Process(ProcessCall::Inherit { inheritance: number, nonce }));
    assert!(matches!(inherited, Ok(Reply::Number(_))), "{inherited:?}");
    child
}

/// Descriptors and bindings that a process may have in addition to those that it has.
fn quota(client: &mut Client) -> (usize, usize) {
    let ports = [0; 4].map(|_| client.open(SocketKind::Rdm));
    let bind = |port| {
        SocketCall::Bind { range: ServiceRange::new(18888, port, port), scope: Scope::Cluster }.on(port)
    };
    let bindings = ports.iter().filter(|port| client.call(&bind(**port)).is_ok()).count();
    let descriptors: Vec<OwnedFd> = ports.iter().filter_map(|port| client.descriptor(*port)).collect();
    for port in ports {
        client.call(&SocketCall::Close.on(port)).unwrap();
    }
    (descriptors.len(), bindings)
}

/// An addition by one holder and its release by another are charged to the same user.
#[test]
fn sharing_sockets_changes_no_quota() {
    let limits = Limits { descriptors_per_attachment: 3, bindings_per_attachment: 3, ..Limits::default() };
    let host = Host::with(|config| config.limits = limits);
    let mut parent = host.client();
    for round in 0..12 {
        let port = parent.open(SocketKind::Rdm);
        let (bind, unbind) = (
            SocketCall::Bind { range: SERVICE, scope: Scope::Cluster }.on(port),
            SocketCall::Unbind { which: None }.on(port),
        );
        let mut kept = Vec::new();
        if round % 2 == 0 {
            parent.call(&bind).unwrap();
            kept = parent.call_for_fd(&SocketCall::Keep.on(port));
        }
        let mut child = fork(&host, &mut parent);
        if round % 3 == 0 {
            parent.call(&unbind).ok();
            parent.call(&SocketCall::Close.on(port)).unwrap();
        }
        child.call(&bind).unwrap();
        let near = child.call_for_fd(&SocketCall::Descriptor.on(port));
        drop(near);
        drop(kept);
        pass_turns(&mut child);
        child.call(&unbind).unwrap();
        child.call(&SocketCall::Close.on(port)).unwrap();
        let _ = parent.call(&SocketCall::Close.on(port));
        pass_turns(&mut parent);
        assert_eq!(quota(&mut child), (3, 3), "the child, round {round}");
        assert_eq!(quota(&mut parent), (3, 3), "the parent, round {round}");
    }
}

/// A process that claims and releases a socket all the time does not fill the daemon's memory.
#[test]
fn idle_owner_gets_one_notice_that_it_is_the_sole_holder_again() {
    let host = Host::new();
    let (mut owner, mut other) = (host.direct_client(), host.client());
    let port = owner.open(SocketKind::Rdm);
    let kept = Kept::of(&mut owner, port);
    owner.call(&Request::Process(ProcessCall::Notices)).unwrap();
    owner.notices.clear();
    for _ in 0..300 {
        other.call_with_fd(&Request::Process(ProcessCall::Claim), &kept.near).unwrap();
        other.call(&SocketCall::Close.on(port)).unwrap();
    }
    // A reply carries at most 64 notices.
    for _ in 0..10 {
        owner.call(&Request::Process(ProcessCall::Notices)).unwrap();
    }
    assert_eq!(owner.notices, [Notice::Share { port }, Notice::SoleHolder { port }]);
    assert_eq!(owner.call(&SocketCall::Lend.on(port)), Ok(Reply::Done));
    other.call_with_fd(&Request::Process(ProcessCall::Claim), &kept.near).unwrap();
    other.call(&SocketCall::Close.on(port)).unwrap();
    owner.notices.clear();
    owner.call(&Request::Process(ProcessCall::Notices)).unwrap();
    assert_eq!(owner.notices, [Notice::Share { port }, Notice::SoleHolder { port }]);
}
