//! Readiness that poll and epoll report for a socket's descriptor, whichever path its messages take.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, TestNode, alone, connected, on_each_engine, pair};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use utipc::{
    Connection, Error, Group, GroupPolicy, GroupRequest, Node, Scope, ServiceAddress, SlowMember, Socket,
    SocketKind,
};

const SERVICE: ServiceAddress = ServiceAddress::new(7100, 1);
const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

on_each_engine!(
    readable_means_a_message_is_there,
    level_triggered_readers_miss_nothing,
    edge_triggered_readers_miss_nothing,
    writers_see_free_space_by_level_and_edge,
    descriptors_of_one_process_do_not_steal_wake_ups,
    closed_peer_shows_as_hang_up,
    hang_up_comes_after_the_last_message,
    exact_hang_up_comes_at_once,
    messages_through_the_node_show_as_readable,
    member_of_a_group_receives_with_one_request,
    member_of_a_group_sees_all_messages_of_a_new_lane,
);

/// A node, and a second attachment like another process's.
fn host(engine: Engine) -> (TestNode, Node) {
    let red = alone(engine);
    let blue = red.again();
    (red, blue)
}

/// A local connection with lanes, where the engine has them; both ends are non-blocking.
fn direct(kind: SocketKind, client: &Node, server: &Node) -> [Connection; 2] {
    let ends = connected(kind, SERVICE, client, server);
    for (from, to) in [(0, 1), (1, 0)] {
        ends[from].send(b"hello").unwrap();
        assert_eq!(ends[to].receive().unwrap().data, b"hello");
    }
    ends.iter().for_each(|end| end.socket().set_nonblocking(true));
    ends
}

fn polled(socket: &Socket, limit: Duration) -> PollFlags {
    let descriptor = socket.as_fd();
    let mut set = [PollFd::new(&descriptor, PollFlags::IN | PollFlags::OUT)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut set, Some(&limit)).unwrap();
    set[0].revents()
}

/// Waits until the socket reports `wanted`.
fn wait_for(socket: &Socket, wanted: PollFlags) {
    let descriptor = socket.as_fd();
    let mut set = [PollFd::new(&descriptor, wanted)];
    poll(&mut set, Some(&Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 })).unwrap();
    assert!(set[0].revents().contains(wanted), "{:?} in place of {wanted:?}", set[0].revents());
}

fn watch(socket: &Socket, events: epoll::EventFlags) -> impl AsFd {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, socket, epoll::EventData::new_u64(7), events).unwrap();
    set
}

/// Waits for an event.
fn wait_event(set: &impl AsFd) -> epoll::EventFlags {
    let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let count = epoll::wait(set, &mut events, Some(&limit)).unwrap();
    assert_eq!(count, 1, "a wake-up is lost");
    events[0].flags
}

/// The number in the next message; `None` if there is none.
fn next(socket: &Socket) -> Option<u32> {
    match socket.receive() {
        Ok(message) => Some(u32::from_be_bytes(message.data.try_into().unwrap())),
        Err(Error::WouldBlock { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Sends; polls the descriptor while the call would block.
fn send(socket: &Socket, data: &[u8]) {
    while let Err(error) = socket.send(data) {
        assert!(matches!(error, Error::WouldBlock { .. }), "{error}");
        wait_for(socket, PollFlags::OUT);
    }
}

fn readable_means_a_message_is_there(engine: Engine) {
    let (red, blue) = host(engine);
    let [client, server] = direct(SocketKind::SeqPacket, &red, &blue);
    let server = server.socket();
    assert_eq!(polled(server, Duration::ZERO), PollFlags::OUT);
    for round in 0..20_u32 {
        for number in [round, round + 1] {
            client.send(&number.to_be_bytes()).unwrap();
        }
        wait_for(server, PollFlags::IN);
        assert_eq!(next(server), Some(round));
        wait_for(server, PollFlags::IN);
        assert_eq!(next(server), Some(round + 1));
        assert_eq!(polled(server, Duration::ZERO), PollFlags::OUT, "round {round}");
        assert_eq!(next(server), None);
        assert_eq!(polled(server, Duration::ZERO), PollFlags::OUT);
    }
}

/// The client sends bursts of all lengths; the server calls `wait` whenever it has no message.
fn stress(engine: Engine, wait: impl Fn(&Socket) -> Box<dyn Fn() + '_>) {
    const MESSAGES: u32 = 20_000;
    let (red, blue) = host(engine);
    let [client, server] = direct(SocketKind::SeqPacket, &red, &blue);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                send(client.socket(), &number.to_be_bytes());
                if number % 17 == 0 {
                    (0..number % 1000).for_each(|_| std::hint::spin_loop());
                }
            }
        });
        let server = server.socket();
        let wait = wait(server);
        let mut expected = 0;
        while expected < MESSAGES {
            match next(server) {
                Some(number) => {
                    assert_eq!(number, expected);
                    expected += 1;
                }
                None => wait(),
            }
        }
    });
    if engine == Engine::Daemon {
        assert!(red.daemon_counters().lanes > 0, "the lanes are gone");
    }
}

fn level_triggered_readers_miss_nothing(engine: Engine) {
    stress(engine, |socket| Box::new(|| wait_for(socket, PollFlags::IN)));
}

fn edge_triggered_readers_miss_nothing(engine: Engine) {
    stress(engine, |socket| {
        let set = watch(socket, epoll::EventFlags::IN | epoll::EventFlags::ET);
        Box::new(move || _ = wait_event(&set))
    });
}

fn writers_see_free_space_by_level_and_edge(engine: Engine) {
    let (red, blue) = host(engine);
    for edge in [false, true] {
        let [client, server] = direct(SocketKind::Stream, &red, &blue);
        let (client, server) = (client.socket(), server.socket());
        let mode = if edge { epoll::EventFlags::ET } else { epoll::EventFlags::empty() };
        let set = watch(client, epoll::EventFlags::OUT | mode);
        for _ in 0..20 {
            let mut sent = 0;
            while let Ok(bytes) = client.send(&[1; 30_000]) {
                sent += bytes;
                assert!(sent < 100 << 20, "the sender is never blocked");
            }
            // Consume an edge from before the last send.
            let mut old = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 1];
            epoll::wait(&set, &mut old, Some(&NONE)).unwrap();
            assert!(!polled(client, Duration::ZERO).contains(PollFlags::OUT));
            let reader = thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let (mut got, mut buffer) = (0, vec![0; 70_000]);
                    while got < sent {
                        match server.receive_into(&mut buffer) {
                            Ok(received) => got += received.len,
                            Err(Error::WouldBlock { .. }) => wait_for(server, PollFlags::IN),
                            Err(other) => panic!("{other}"),
                        }
                    }
                    got
                });
                assert!(wait_event(&set).contains(epoll::EventFlags::OUT));
                reader.join().unwrap()
            });
            assert_eq!(reader, sent);
        }
    }
}

fn descriptors_of_one_process_do_not_steal_wake_ups(engine: Engine) {
    let (red, blue) = host(engine);
    let connections = [0, 1, 2].map(|_| direct(SocketKind::SeqPacket, &red, &blue));
    for [_, server] in &connections {
        assert_eq!(polled(server.socket(), Duration::ZERO), PollFlags::OUT);
    }
    for round in 0..50_u32 {
        for [client, _] in &connections {
            client.send(&round.to_be_bytes()).unwrap();
        }
        for [_, server] in &connections {
            wait_for(server.socket(), PollFlags::IN);
            assert_eq!((next(server.socket()), next(server.socket())), (Some(round), None));
        }
    }
}

fn closed_peer_shows_as_hang_up(engine: Engine) {
    let (red, blue) = host(engine);
    let [client, server] = direct(SocketKind::SeqPacket, &red, &blue);
    assert_eq!(polled(server.socket(), Duration::ZERO), PollFlags::OUT);
    client.send(&7_u32.to_be_bytes()).unwrap();
    drop(client);
    wait_for(server.socket(), PollFlags::IN);
    assert_eq!(next(server.socket()), Some(7));
    wait_for(server.socket(), PollFlags::IN | PollFlags::HUP);
    assert_eq!(server.receive().unwrap_err().errno(), 104);
}

fn messages_through_the_node_show_as_readable(engine: Engine) {
    const SENDERS: u32 = 12;
    let (red, blue) = host(engine);
    let server = blue.rdm().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    server.set_nonblocking(true);
    assert_eq!(polled(&server, Duration::ZERO), PollFlags::OUT);
    // More lanes than are checked one by one; messages to a service take the path through the node at first.
    let senders = [(); SENDERS as usize].map(|()| red.rdm().unwrap());
    for round in 0..30 {
        for sender in &senders {
            match round % 3 {
                0 => sender.send_to(&1_u32.to_be_bytes(), SERVICE).unwrap(),
                _ => sender.send_to(&1_u32.to_be_bytes(), server.port()).unwrap(),
            };
        }
        let mut got = 0;
        while got < SENDERS {
            match next(&server) {
                Some(number) => got += number,
                None => wait_for(&server, PollFlags::IN),
            }
        }
        assert_eq!(next(&server), None);
        assert_eq!(polled(&server, Duration::ZERO), PollFlags::OUT, "round {round}");
    }
}

fn member_of_a_group_receives_with_one_request(engine: Engine) {
    const MESSAGES: u32 = 50;
    let (red, blue) = host(engine);
    let sender = Group::join(&red, GroupRequest::new(7101, 1)).unwrap();
    // Messages of and to a member with a policy go through the node.
    let policy = GroupPolicy::new(SlowMember::Drop);
    let receiver = Group::join_with_policy(blue.rdm().unwrap(), GroupRequest::new(7101, 1), policy).unwrap();
    let socket = receiver.socket();
    sender.socket().set_send_timeout(Some(LIMIT));
    socket.set_nonblocking(true);
    assert_eq!(polled(socket, Duration::ZERO), PollFlags::OUT);
    sender.broadcast(&0_u32.to_be_bytes()).unwrap();
    wait_for(socket, PollFlags::IN);
    assert_eq!(next(socket), Some(0));
    let before = red.daemon_counters().requests;
    for number in 1..=MESSAGES {
        sender.broadcast(&number.to_be_bytes()).unwrap();
        wait_for(socket, PollFlags::IN);
        assert_eq!(next(socket), Some(number));
        assert_eq!(polled(socket, Duration::ZERO), PollFlags::OUT);
    }
    // One of the sender and one of the receiver for each message, and a few others.
    let requests = red.daemon_counters().requests - before;
    assert!(requests <= u64::from(2 * MESSAGES) + 10, "{requests} requests");
}

fn member_of_a_group_sees_all_messages_of_a_new_lane(engine: Engine) {
    let (red, blue) = host(engine);
    for _ in 0..20 {
        let receiver = Group::join(&blue, GroupRequest::new(7102, 1)).unwrap();
        receiver.socket().set_nonblocking(true);
        assert_eq!(polled(receiver.socket(), Duration::ZERO), PollFlags::empty());
        let sender = Group::join(&red, GroupRequest::new(7102, 2)).unwrap();
        // The receiver does not know the lane before it has asked the node.
        for number in 0..5_u32 {
            sender.broadcast(&number.to_be_bytes()).unwrap();
        }
        for number in 0..5 {
            wait_for(receiver.socket(), PollFlags::IN);
            assert_eq!(next(receiver.socket()), Some(number));
        }
    }
}

/// Waits until the socket is readable or has hung up; returns what a poll for these reports.
fn wait_for_input(socket: &Socket) -> PollFlags {
    let descriptor = socket.as_fd();
    let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut set, Some(&Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 })).unwrap();
    set[0].revents()
}

/// Receives a byte for each poll that shows input, and stops at the hang-up, like an event loop that drops what has
/// hung up; returns the number of bytes.
fn bytes_before_the_hang_up(end: &Connection) -> usize {
    let mut bytes = 0;
    loop {
        let found = wait_for_input(end.socket());
        assert!(found.contains(PollFlags::IN), "{found:?} after {bytes} bytes");
        if found.contains(PollFlags::HUP) {
            return bytes;
        }
        match end.receive_into(&mut [0]) {
            Ok(received) if received.len == 0 => return bytes,
            Ok(received) => bytes += received.len,
            Err(Error::WouldBlock { .. }) => {}
            Err(_) => return bytes,
        }
    }
}

/// Calls `check` with a connection whose peer has sent this many bytes, one in each message, and has left.
fn for_each_end(client: &Node, server: &Node, check: impl Fn(&Connection, usize)) {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        for (sent, shutdown) in [(0, true), (1, false), (3, true), (3, false), (100, true), (100, false)] {
            let [writer, reader] = direct(kind, client, server);
            reader.socket().descriptor().unwrap();
            for _ in 0..sent {
                writer.send(b"x").unwrap();
            }
            if shutdown {
                writer.shutdown().unwrap();
            }
            drop(writer);
            check(&reader, sent);
        }
    }
}

fn hang_up_comes_after_the_last_message(engine: Engine) {
    let (here, local) = host(engine);
    let [red, blue] = pair(engine);
    for [client, server] in [[&*here, &local], [&*red, &*blue]] {
        for_each_end(client, server, |reader, sent| {
            assert_eq!(bytes_before_the_hang_up(reader), sent);
            wait_for(reader.socket(), PollFlags::HUP);
        });
        // The end is there before the first receive.
        for_each_end(client, server, |reader, sent| {
            thread::sleep(Duration::from_millis(5));
            assert_eq!(bytes_before_the_hang_up(reader), sent);
        });
    }
}

fn exact_hang_up_comes_at_once(engine: Engine) {
    let (here, _) = host(engine);
    let builder = match here.daemon_socket() {
        Some(socket) => Node::builder().daemon_at(socket),
        None => Node::builder().engine(utipc::Engine::Embedded).isolated(),
    };
    let node = builder.exact_hang_up(true).start().unwrap();
    for_each_end(&node, &node, |reader, sent| {
        wait_for(reader.socket(), PollFlags::HUP);
        let mut bytes = 0;
        while let Ok(received) = reader.receive_into(&mut [0])
            && received.len > 0
        {
            bytes += 1;
        }
        assert_eq!(bytes, sent);
    });
}
