//! Descriptors that a hostile process passes to the daemon: of wrong kinds, too many, in wrong places, and with a last
//! close that blocks.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use utipc_attach::{Failure, Greeting, Hello, ProcessCall, Reply, Request, SocketCall, encode};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::{Destination, SocketKind};
use utipc_os::disposal::WAITING_PER_USER;
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::packets;
use utipc_os::reactor::{Reactor, Waker};

use crate::client::{Client, Host, LIMIT, as_user, shake_hands, wait_while};
use crate::fuse::Fuse;

/// Users without a login on this machine.
const MALLORY: u32 = 64_101;
const BYSTANDER: u32 = 64_102;

const SERVICE: ServiceRange = ServiceRange::new(4500, 1, 1);
const TO: Option<Destination> = Some(Destination::service(4500, 1));

/// Time for which the last close of a socket waits for its peer.
const LINGER: Duration = Duration::from_secs(3600);

/// A connection whose last close blocks until the other end is closed: it has data that the peer does not read.
struct Lingering {
    end: OwnedFd,
    /// Dropping it ends the close of `end`, whichever process is waiting in it.
    peer: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        end.set_nonblocking(true).unwrap();
        while end.write(&[0; 65_536]).is_ok() {}
        sockopt::set_socket_linger(&end, Some(LINGER)).unwrap();
        Self { end: end.into(), peer }
    }

    /// Sends the end, with this packet, and closes the own copy.
    fn pass(self, to: &Channel, packet: &[u8], copies: usize) -> TcpStream {
        let fds: Vec<BorrowedFd<'_>> = std::iter::repeat_n(self.end.as_fd(), copies).collect();
        assert_eq!(to.send(&[IoSlice::new(packet)], &fds, true).unwrap(), Put::Sent);
        self.close()
    }

    /// Closes the own copy on another thread, because it may be the last one.
    fn close(self) -> TcpStream {
        std::thread::spawn(move || drop(self.end));
        self.peer
    }
}

/// A process that notices when the daemon does not answer.
fn neighbour(host: &Host) -> Client {
    let mut client = host.client();
    client.channel.set_patience(LIMIT).unwrap();
    client
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(request, &[], &mut bytes);
    bytes
}

fn handshake() -> Vec<u8> {
    let mut bytes = Greeting::OWN.to_bytes().to_vec();
    encode(&Hello { program: "hostile".to_owned(), takes_lanes: true }, &[], &mut bytes);
    bytes
}

/// Closes a lingering socket wherever the daemon may be the one with the last copy.
#[test]
fn descriptors_whose_close_blocks_do_not_stop_the_daemon() {
    let host = Host::new();
    let mut other = neighbour(&host);
    let mut kept = Vec::new();
    let mut check = |what: &str| {
        for _ in 0..4 {
            assert_eq!(other.call(&Request::Process(ProcessCall::Notices)), Ok(Reply::Done), "{what}");
        }
    };
    // With requests: one that takes a descriptor, one that takes none, and more descriptors than any takes.
    for (what, request, copies) in [
        ("a claim", Request::Process(ProcessCall::Claim), 1),
        ("another request", Request::Process(ProcessCall::Notices), 1),
        ("too many", Request::Process(ProcessCall::Claim), 8),
    ] {
        let hostile = host.direct_client();
        kept.push(Lingering::new().pass(&hostile.channel, &encoded(&request), copies));
        check(what);
    }
    for near in [false, true] {
        let mut hostile = host.direct_client();
        let port = hostile.open(SocketKind::Rdm);
        kept.push(Lingering::new().pass(&hostile.channel, &encoded(&SocketCall::Adopt { near }.on(port)), 1));
        check("an adopted end");
    }
    // With the handshake, and behind a malformed one and a malformed request, unread.
    for first in [&handshake()[..], b"GET / HTTP/1.1"] {
        let channel = Channel::connect(&host.path).unwrap();
        let behind = Lingering::new();
        kept.push(Lingering::new().pass(&channel, first, 1));
        kept.extend(try_pass(behind, &channel));
        check("a handshake");
        drop(channel);
        check("the end of a handshake");
    }
    let hostile = host.direct_client();
    assert_eq!(hostile.channel.send(&[IoSlice::new(&[255; 40])], &[], true).unwrap(), Put::Sent);
    kept.extend(try_pass(Lingering::new(), &hostile.channel));
    kept.extend(try_pass(Lingering::new(), &hostile.channel));
    drop(hostile);
    check("behind a malformed request");
    // Into the descriptor of a socket and the inheritance of a fork.
    for read in [false, true] {
        let mut hostile = host.direct_client();
        let port = hostile.open(SocketKind::Rdm);
        let near = Channel::from_fd(hostile.call_for_fd(&SocketCall::Keep.on(port)).pop().unwrap());
        kept.extend(try_pass(Lingering::new(), &near));
        let (inheritance, copy) = hostile.fork();
        let copy = Channel::from_fd(copy);
        kept.extend(try_pass(Lingering::new(), &copy));
        copy.send(&[IoSlice::new(&7_u64.to_le_bytes())], &[], true).unwrap();
        if read {
            hostile.call(&SocketCall::Rearm.on(port)).unwrap();
            check("the descriptor of a socket is read");
            hostile.call(&Request::Process(ProcessCall::Inherit { inheritance, nonce: 7 })).unwrap();
            check("an inheritance is read");
        }
        drop((near, copy, hostile));
        check("the end of a socket and of an inheritance");
    }
}

/// Waits until the daemon has released what the hostile process had.
fn has_released(host: &Host, attached: usize, sockets: usize, descriptors: usize) {
    let begun = Instant::now();
    loop {
        let counters = host.daemon().counters();
        let quota = counters.quotas.iter().find(|quota| quota.resource == "descriptors").unwrap();
        let held = (counters.attached, counters.sockets, counters.descriptors, quota.used);
        if held == (attached, sockets, descriptors, descriptors as u64) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{held:?}");
    }
}

/// `Adopt` with descriptors that are neither the far end nor the near end of a socket of the process.
#[test]
fn adopted_descriptors_of_wrong_kinds_are_refused() {
    let host = Host::new();
    let (mut honest, mut hostile) = (neighbour(&host), host.direct_client());
    let of_honest = honest.server(SocketKind::Rdm, SERVICE);
    let near_of_honest = honest.call_for_fd(&SocketCall::Keep.on(of_honest)).pop().unwrap();
    let (read, write) = std::io::pipe().unwrap();
    let wrong: [OwnedFd; 7] = [
        read.into(),
        write.into(),
        TcpListener::bind("127.0.0.1:0").unwrap().into(),
        UnixStream::pair().unwrap().0.into(),
        File::open("/").unwrap().into(),
        Waker::new().unwrap().share().unwrap(),
        Reactor::new().unwrap().as_fd().try_clone_to_owned().unwrap(),
    ];
    let port = hostile.open(SocketKind::Rdm);
    for near in [false, true] {
        let adopt = SocketCall::Adopt { near }.on(port);
        assert_eq!(hostile.call(&adopt), Err(Failure::State), "without a descriptor");
        for fd in &wrong {
            assert_eq!(hostile.call_with_fd(&adopt, fd), Err(Failure::State), "{fd:?}");
        }
        // A socket of another process, and one that does not exist.
        for port in [of_honest, 0, u32::MAX] {
            let adopt = SocketCall::Adopt { near }.on(port);
            assert_eq!(hostile.call_with_fd(&adopt, &near_of_honest), Err(Failure::NoSocket(port)));
        }
    }
    // A far end first, then descriptors that are not near ends or belong to another socket.
    let ((near, far), (unmarked, _far)) = (packets::pair().unwrap(), packets::pair().unwrap());
    packets::mark(&far).unwrap();
    assert_eq!(hostile.call_with_fd(&SocketCall::Adopt { near: false }.on(port), &far), Ok(Reply::Done));
    let adopt_near = SocketCall::Adopt { near: true }.on(port);
    assert_eq!(hostile.call_with_fd(&adopt_near, &unmarked), Err(Failure::State), "without the mark");
    assert_eq!(hostile.call_with_fd(&adopt_near, &near_of_honest), Err(Failure::State), "of another socket");
    assert_eq!(hostile.call_with_fd(&adopt_near, &near), Ok(Reply::Done));
    assert_eq!(hostile.call_with_fd(&adopt_near, &near), Err(Failure::State), "a second time");
    // The honest process still has its socket and its descriptor.
    hostile.send(port, TO, b"a message").unwrap();
    assert_eq!(honest.receive(of_honest).unwrap().1, b"a message");
    let claimed = honest.call_with_fd(&Request::Process(ProcessCall::Claim), &near_of_honest);
    assert_eq!(claimed, Ok(Reply::Claimed { port: of_honest }));
    drop((hostile, near, far));
    has_released(&host, 1, 1, 1);
}

/// `Adopt` with packet sockets of other kinds: far ends in use, the attachment itself, listening sockets.
#[test]
fn adopted_packet_sockets_affect_no_other_process() {
    let host = Host::new();
    let mut honest = neighbour(&host);
    let of_honest = honest.server(SocketKind::Rdm, SERVICE);
    let near_of_honest = Channel::from_fd(honest.call_for_fd(&SocketCall::Keep.on(of_honest)).pop().unwrap());
    for round in 0..20 {
        let (mut hostile, mut other) = (host.direct_client(), host.direct_client());
        let ports = [(); 3].map(|()| hostile.open(SocketKind::Rdm));
        let adopt = |port| SocketCall::Adopt { near: false }.on(port);
        let kept = hostile.call_for_fd(&SocketCall::Keep.on(ports[0])).pop().unwrap();
        let far = hostile.call_for_fd(&SocketCall::FarEnd.on(ports[0])).pop().unwrap();
        let unkept = hostile.call_for_fd(&SocketCall::Descriptor.on(ports[2])).pop().unwrap();
        // Far ends in use become the far ends of other sockets; near ends cannot.
        assert_eq!(hostile.call_with_fd(&adopt(ports[1]), &far), Ok(Reply::Done));
        assert_eq!(hostile.call_with_fd(&adopt(ports[1]), &unkept), Err(Failure::State));
        assert_eq!(hostile.call_with_fd(&adopt(ports[2]), &far), Ok(Reply::Done));
        // Neither a near end with the mark nor a connection to the daemon is accepted: it would not end with its
        // process.
        assert_eq!(hostile.call_with_fd(&adopt(ports[2]), &kept), Err(Failure::State));
        let idle = Channel::connect(&host.path).unwrap();
        assert_eq!(hostile.call_with_fd(&adopt(ports[1]), &idle), Err(Failure::State));
        let attachment = other.channel.as_fd().try_clone_to_owned().unwrap();
        let port = other.open(SocketKind::Rdm);
        assert_eq!(other.call_with_fd(&adopt(port), &attachment), Err(Failure::State));
        for port in ports {
            let _ = hostile.try_call(&SocketCall::Send { to: TO }.on(port), &[round]);
            let _ = hostile.try_call(&SocketCall::Rearm.on(port), &[]);
            let _ = hostile.try_call(&SocketCall::Drained { more: true }.on(port), &[]);
        }
        let _ = hostile.try_call(&SocketCall::Close.on(ports[1]), &[]);
        assert_eq!(honest.receive_soon(of_honest).1, [round]);
        while honest.receive(of_honest).is_ok() {}
    }
    assert!(!packets::is_peer_closed(&near_of_honest));
    has_released(&host, 1, 1, 1);
}

/// Passes copies of a descriptor with requests until the daemon ends the attachment; returns how many.
fn pass_all(hostile: &mut Client, fd: &impl AsFd) -> usize {
    let copies = [fd.as_fd(); MAX_FDS];
    let request = encoded(&Request::Process(ProcessCall::Notices));
    for passed in 0.. {
        let sent = hostile.channel.send(&[IoSlice::new(&request)], &copies, true);
        let mut reply = [0; 4096];
        let got = hostile.channel.receive(&mut reply, &mut Vec::new(), MAX_FDS, true);
        if !matches!((sent, got), (Ok(Put::Sent), Ok(Got::Packet(_)))) {
            return passed * MAX_FDS;
        }
        assert!(passed * MAX_FDS < 64 * WAITING_PER_USER, "the daemon keeps all that it is passed");
    }
    0
}

/// A descriptor whose close blocks stops one closing thread; everything passed after it stays open in the daemon.
#[test]
fn descriptors_that_wait_for_a_blocked_close_are_limited_for_each_user() {
    // The daemon is a part of this process.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let host = Host::new();
    let Some(mut hostile) = host.client_of(MALLORY) else { return };
    let mut second = host.client_of(MALLORY).unwrap();
    let Some((fuse, file)) = Fuse::start() else {
        return println!("skipped: this process may not mount a FUSE file system");
    };
    let request = encoded(&Request::Process(ProcessCall::Notices));
    assert_eq!(hostile.channel.send(&[IoSlice::new(&request)], &[file.as_fd()], true).unwrap(), Put::Sent);
    assert_eq!(hostile.receive_reply(), Reply::Done);
    std::thread::spawn(move || drop(file));
    let (_read, write) = std::io::pipe().unwrap();
    let passed = pass_all(&mut hostile, &write);
    assert!((WAITING_PER_USER - MAX_FDS..=WAITING_PER_USER + MAX_FDS).contains(&passed), "{passed}");
    // Neither an older process of the user nor a new one can pass more.
    assert_eq!(pass_all(&mut second, &write), 0);
    let attach = || shake_hands(&host.path, Greeting::OWN, false).1.is_some();
    assert_eq!(as_user(MALLORY, attach), Some(false));
    assert!(host.ended("unclosed-descriptors") >= 3);
    assert!((WAITING_PER_USER..2 * WAITING_PER_USER).contains(&host.daemon().counters().closing));
    // Other users are not affected.
    let mut bystander = host.client_of(BYSTANDER).unwrap();
    bystander.open(SocketKind::Rdm);
    // Once the close has returned, the user is served again.
    fuse.release();
    wait_while(|| as_user(MALLORY, attach) != Some(true));
}

/// `Adopt` with ends whose other ends the daemon also has: it would never see them close, and keep both sockets for
/// ever.
#[test]
fn adopted_ends_of_the_daemons_own_pairs_keep_no_socket() {
    let host = Host::new();
    let adopt = |client: &mut Client, port, near, fd: &OwnedFd| {
        client.call_with_fd(&SocketCall::Adopt { near }.on(port), fd)
    };
    // Makes the process's program the owner of the socket's descriptor, so that the socket outlives the process.
    let own = |client: &mut Client, port| {
        let (near, far) = packets::pair().unwrap();
        packets::mark(&far).unwrap();
        let _ = adopt(client, port, true, &near.into_fd());
    };
    // An inheritance of the socket itself.
    let mut hostile = host.direct_client();
    let port = hostile.open(SocketKind::Rdm);
    let inheritance = hostile.fork().1;
    let of_inheritance = adopt(&mut hostile, port, false, &inheritance);
    own(&mut hostile, port);
    drop((hostile, inheritance));
    // The library's descriptor of another socket.
    let mut hostile = host.direct_client();
    let ports = [(); 2].map(|()| hostile.open(SocketKind::Rdm));
    let near = hostile.call_for_fd(&SocketCall::Descriptor.on(ports[0])).pop().unwrap();
    let of_library = adopt(&mut hostile, ports[1], false, &near);
    ports.iter().for_each(|port| own(&mut hostile, *port));
    drop((hostile, near));
    // Both ends of the process's own pair.
    let mut hostile = host.direct_client();
    let ports = [(); 2].map(|()| hostile.open(SocketKind::Rdm));
    let (one, other) = Channel::pair().unwrap();
    let (one, other) = (one.into_fd(), other.into_fd());
    assert_eq!(adopt(&mut hostile, ports[0], false, &one), Ok(Reply::Done));
    let of_pair = adopt(&mut hostile, ports[1], false, &other);
    ports.iter().for_each(|port| own(&mut hostile, *port));
    drop((hostile, one, other));
    has_released(&host, 0, 0, 0);
    assert_eq!([of_inheritance, of_library, of_pair], [const { Err(Failure::State) }; 3]);
}

/// A descriptor in its own other end's queue is never closed: the daemon does not let it in.
#[test]
fn descriptors_inside_themselves_keep_no_socket() {
    let host = Host::new();
    let mut hostile = host.direct_client();
    let port = hostile.open(SocketKind::Rdm);
    let near = Channel::from_fd(hostile.call_for_fd(&SocketCall::Keep.on(port)).pop().unwrap());
    let copy = Channel::from_fd(hostile.fork().1);
    for end in [&near, &copy] {
        if end.send(&[IoSlice::new(b"x")], &[end.as_fd()], false).is_ok() {
            eprintln!("skipped: this kernel cannot refuse packets with descriptors (Linux 6.16)");
            return;
        }
    }
    drop((near, copy, hostile));
    has_released(&host, 0, 0, 0);
}

/// As [`Lingering::pass`], if the daemon has not hung up yet.
fn try_pass(lingering: Lingering, to: &Channel) -> Option<TcpStream> {
    let sent = to.send(
        &[IoSlice::new(&encoded(&Request::Process(ProcessCall::Notices)))],
        &[lingering.end.as_fd()],
        true,
    );
    let peer = lingering.close();
    matches!(sent, Ok(Put::Sent)).then_some(peer)
}
