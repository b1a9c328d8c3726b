//! Node lanes, from the process's side; the peer of the connection is on another node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use utipc_attach::{Failure, LaneCall, LaneEnd, LaneId, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, RecvError, SendError, SocketKind, SocketOption, State};
use utipc_core::wire::{ErrorCode, Message, MessageType, Packet, User};
use utipc_lanes::{Arena, Incoming, LARGEST_CLASS, Outgoing, Peek, Reader, Side, Writer};
use utipc_node::Plan;
use utipc_node::bearers::{Control, Middleware, UdpBearer, UdpConfig};
use utipc_os::reactor::Waker;
use utipc_os::shm::{Access, Memory, Segment};

use crate::client::{Client, Host, wait_while};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));

/// Two linked daemons.
fn hosts() -> [Host; 2] {
    wired().0
}

/// Two linked daemons, and the fault injection of each.
pub(crate) fn wired() -> ([Host; 2], [Control; 2]) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = 2 * NEXT.fetch_add(1, Ordering::Relaxed) + 1;
    let addresses =
        [first, first + 1].map(|last| IpAddr::from(Ipv4Addr::new(127, 128 | high & 63, low, last)));
    let ends = [0, 1].map(|own| {
        let other = SocketAddr::new(addresses[1 - own], 6118);
        let bearer = UdpBearer::open(&UdpConfig::replicast("UDP", addresses[own], vec![other])).unwrap();
        let bearer = Middleware::new(Box::new(bearer), 1).unwrap();
        let control = bearer.control();
        let host = Host::with(|config| {
            config.node.stack.address = Some(NodeAddr(0x1001 + own as u32));
            let mut plan = Plan::new(Box::new(bearer));
            // Faults must not end the link.
            plan.tune = Box::new(|bearer| bearer.tolerance_ms = 30_000);
            config.node.bearers.push(plan);
        });
        (host, control)
    });
    let [(one, first), (two, second)] = ends;
    ([one, two], [first, second])
}

/// The lanes of one connection, as its process has them.
struct Lanes {
    fd: OwnedFd,
    knock: Waker,
    _arena: (Arena, Outgoing, Incoming),
    out: (LaneId, Writer),
    inc: (LaneId, Reader),
    own: u32,
    peer: u32,
}

/// A message as the socket `own` of the first node builds it.
fn built(kind: MessageType, header: usize, own: u32, data: &[u8]) -> Message {
    let mut message: Message = Packet::build(User::from(0), kind.into(), header, data);
    message.set_prev_node(NodeAddr(0x1001));
    message.set_origin_node(NodeAddr(0x1001));
    message.set_origin_port(own);
    message
}

impl Lanes {
    /// The lanes of the daemon's notices about the socket `own`, after two messages.
    fn new(client: &mut Client, own: u32) -> Lanes {
        client.call(&Request::Process(ProcessCall::Notices)).unwrap();
        let mut lanes = [None; 2];
        let mut peer = 0;
        for notice in client.notices.drain(..) {
            if let Notice::NodeLane { peer: other, lane, end, .. } = notice {
                peer = other.port;
                lanes[usize::from(end == LaneEnd::Reader)] = Some(lane);
            }
        }
        let [out, inc] = lanes.map(Option::unwrap);
        let mut fds = client.call_for_fd(&Request::Lane(LaneCall::FetchPair { pair: out.pair }));
        let knock = Waker::from_fd(fds.pop().unwrap());
        let fd = fds.pop().unwrap();
        let arena = Arena::open(&fd).unwrap();
        let (outgoing, incoming) = (arena.outgoing(Side::One), arena.incoming(Side::One));
        let writer = outgoing.writer(out.slot.into()).unwrap();
        let reader = incoming.reader(inc.slot.into()).unwrap();
        Lanes {
            fd,
            knock,
            _arena: (arena, outgoing, incoming),
            out: (out, writer),
            inc: (inc, reader),
            own,
            peer,
        }
    }

    /// Writes without a wake-up.
    fn push(&mut self, data: &[u8]) {
        let mut message = built(MessageType::Conn, 24, self.own, data);
        message.set_dest_port(self.peer);
        self.out.1.push(message.bytes(), &[], 1).unwrap();
    }

    fn send(&mut self, data: &[u8]) {
        self.push(data);
        let _ = self.out.1.flush().unwrap();
        self.knock.wake();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let reader = &mut self.inc.1;
        let Peek::Record(record) = reader.peek().unwrap() else { return None };
        let mut bytes = vec![0; record.len()];
        reader.copy_payload(&record, 0, &mut bytes);
        reader.consume(record, 1);
        let message = Message::from_vec(bytes).unwrap();
        assert_eq!((message.origin_port(), message.origin_node()), (self.peer, NodeAddr(0x1002)));
        Some(message.data().to_vec())
    }
}

/// A process of the first daemon connected to one of the second, which has no lanes.
struct Connected {
    one: Client,
    two: Client,
    from: u32,
    to: u32,
    lanes: Lanes,
}

fn connect(hosts: &[Host; 2]) -> Connected {
    let (mut one, mut two) = (hosts[0].direct_client(), hosts[1].client());
    let listener = two.server(SocketKind::SeqPacket, SERVICE);
    let lookup = Request::Process(ProcessCall::Lookup {
        to: ServiceAddr { service: SERVICE.service, instance: SERVICE.lower },
        domain: NodeAddr::NONE,
    });
    wait_while(|| one.call(&lookup) == Ok(Reply::Found(None)));
    let from = one.open(SocketKind::SeqPacket);
    one.send(from, TO, b"hello").unwrap();
    let to = two.wait(|two| match two.call(&SocketCall::Accept.on(listener)) {
        Ok(Reply::Accepted { port, .. }) => Some(port),
        _ => None,
    });
    assert_eq!(two.receive(to).unwrap().1, b"hello");
    two.send(to, None, b"welcome").unwrap();
    assert_eq!(one.receive_soon(from).1, b"welcome");
    two.call(&SocketCall::Close.on(listener)).unwrap();
    let lanes = Lanes::new(&mut one, from);
    Connected { one, two, from, to, lanes }
}

fn state(client: &mut Client, port: u32) -> State {
    match client.call(&SocketCall::Look.on(port)).unwrap() {
        Reply::Socket(view) => view.state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connection_to_another_node_gets_lanes_and_commands_would_block() {
    let hosts = hosts();
    let mut c = connect(&hosts);
    for number in 0..200_u8 {
        c.lanes.send(&[number; 100]);
        assert_eq!(c.two.receive_soon(c.to).1, [number; 100]);
        c.two.send(c.to, None, &[number; 70]).unwrap();
        loop {
            if let Some(data) = c.lanes.receive() {
                break assert_eq!(data, [number; 70]);
            }
            std::thread::yield_now();
        }
    }
    // A command would overtake the messages in the lanes.
    assert_eq!(c.one.send(c.from, None, b"x"), Err(Failure::Send(SendError::WouldBlock)));
    assert_eq!(c.one.receive(c.from), Err(Failure::Receive(RecvError::WouldBlock)));
    let counters = hosts[0].daemon().counters();
    assert_eq!((counters.lanes, counters.pairs, counters.lanes_corrupt), (2, 1, 0));
    c.one.call(&SocketCall::Close.on(c.from)).unwrap();
    c.one.call(&Request::Lane(LaneCall::LaneDone { lane: c.lanes.out.0, end: LaneEnd::Writer })).unwrap();
    assert_eq!(hosts[0].daemon().counters().lanes, 0);
}

#[test]
fn messages_of_a_dead_writer_are_sent_and_unread_ones_of_a_dead_reader_go_back() {
    let hosts = hosts();
    let c = connect(&hosts);
    let (Connected { one, mut two, to, mut lanes, .. }, idle) = (c, connect(&hosts));
    two.send(to, None, b"never read").unwrap();
    wait_while(|| matches!(lanes.inc.1.peek(), Ok(Peek::Empty)));
    for number in 0..5 {
        lanes.push(&[number; 3]);
    }
    drop((one, lanes));
    for number in 0..5 {
        assert_eq!(two.receive_soon(to).1, [number; 3]);
    }
    let (end, _) = two.receive_soon(to);
    let end = end.returned.unwrap();
    assert_eq!((end.code, &end.data[..]), (ErrorCode::NoPort, &b"never read"[..]));
    let counters = hosts[0].daemon().counters();
    assert_eq!((counters.lanes, counters.pairs, counters.lanes_corrupt), (2, 1, 0));
    drop(idle);
}

#[test]
fn process_that_overwrites_its_arena_harms_only_itself() {
    let hosts = hosts();
    let mut good = connect(&hosts);
    for round in 0..4_u64 {
        let mut bad = connect(&hosts);
        // Both directions have rings.
        bad.lanes.send(b"one");
        assert_eq!(bad.two.receive_soon(bad.to).1, b"one");
        bad.two.send(bad.to, None, b"two").unwrap();
        wait_while(|| matches!(bad.lanes.inc.1.peek(), Ok(Peek::Empty)));
        let segment = Segment::open(&bad.lanes.fd, Access::ReadWrite, 1 << 33).unwrap();
        let mut noise = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let page: Vec<u8> = (0..4096)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round + 1);
                if round == 0 { 0xff } else { (noise >> 56) as u8 }
            })
            .collect();
        // Doorbells, bitmaps and slots, and the start of the rings.
        for at in (0..segment.size()).step_by(page.len()) {
            let (head, rings) = (at < 64 << 10, at % (1 << 20) == 0);
            if head || rings || round == 3 && at < 16 << 20 {
                segment.write(at, &page);
            }
        }
        bad.lanes.knock.wake();
        let _ = bad.two.send(bad.to, None, b"more");
        good.lanes.send(b"still here");
        assert_eq!(good.two.receive_soon(good.to).1, b"still here");
        good.two.send(good.to, None, b"so am I").unwrap();
        wait_while(|| good.lanes.receive().is_none());
        drop(bad);
    }
    let counters = hosts[0].daemon().counters();
    assert!(counters.attached >= 1 && counters.lanes_corrupt > 0, "{counters:?}");
    assert_eq!(state(&mut good.one, good.from), State::Established);
}

#[test]
fn malformed_record_ends_the_connection_at_both_ends_and_is_counted() {
    let hosts = hosts();
    let changes: [&dyn Fn(&mut Message); 9] = [
        &|m| m.truncate_data(0),
        // To another socket, from another socket or node.
        &|m| m.set_dest_port(m.dest_port() + 1),
        &|m| m.set_origin_port(m.origin_port() + 1),
        &|m| m.set_prev_node(NodeAddr(0x1002)),
        // Fields that only a node sets: an error, a connection request, fields of a link.
        &|m| m.set_error_code(ErrorCode::NoPort),
        &|m| m.set_syn(true),
        &|m| m.set_non_sequenced(true),
        &|m| m.set_seqno(1),
        &|m| m.set_user(User::ConnManager),
    ];
    for case in 0..11 {
        let mut c = connect(&hosts);
        let mut message = built(MessageType::Conn, 24, c.from, b"data");
        message.set_dest_port(c.lanes.peer);
        let writer = &mut c.lanes.out.1;
        let ring = match case {
            // A record that is too long, a marker that is not allowed here.
            9 => {
                c.one
                    .call(&Request::Lane(LaneCall::Grow { lane: c.lanes.out.0, log2: 18, importance: 0 }))
                    .unwrap();
                writer.grow(2).unwrap();
                writer.send(&message.bytes()[..24], &[&[0; 66_001]], 1)
            }
            10 => writer.mark(utipc_lanes::Kind::Switch, &[]),
            _ => {
                changes[case as usize](&mut message);
                writer.send(message.bytes(), &[], 1)
            }
        };
        let _ = ring.unwrap();
        c.lanes.knock.wake();
        let (end, _) = c.two.receive_soon(c.to);
        assert!(end.returned.is_some(), "{case}");
        assert_eq!(state(&mut c.one, c.from), State::Disconnecting);
        assert_eq!(hosts[0].daemon().counters().lanes_corrupt, case + 1);
    }
}

#[test]
fn malformed_record_without_a_connection_ends_only_that_lane() {
    let hosts = hosts();
    let message = |kind: MessageType, header: usize, node: u32, port: u32| {
        let mut message = built(kind, header, port, b"data");
        message.set_dest_node(NodeAddr(node));
        message.bytes().to_vec()
    };
    let cases: [&dyn Fn(u32) -> Vec<u8>; 12] = [
        &|port| message(MessageType::Conn, 24, 0, port),
        // To this node, to no node, to all nodes.
        &|port| message(MessageType::Direct, 32, 0x1001, port),
        &|port| message(MessageType::Direct, 32, 0, port),
        &|port| message(MessageType::Mcast, 44, 0x1002, port),
        // A header of another type, no data, no header at all.
        &|port| message(MessageType::Named, 32, 0x1002, port),
        &|port| message(MessageType::Direct, 40, 0x1002, port),
        &|port| message(MessageType::Direct, 32, 0x1002, port)[..32].to_vec(),
        &|_| vec![0xff; 100],
        // Bytes behind the message, another sender, a service without a scope, a direct message with one.
        &|port| [&message(MessageType::Direct, 32, 0x1002, port)[..], b"more"].concat(),
        &|port| message(MessageType::Direct, 32, 0x1002, port + 1),
        &|port| message(MessageType::Named, 40, 0x1002, port),
        &|port| {
            let mut message = Message::from_vec(message(MessageType::Direct, 32, 0x1002, port)).unwrap();
            message.set_lookup_scope(2);
            message.into_bytes()
        },
    ];
    for (case, bytes) in cases.iter().enumerate() {
        let mut one = hosts[0].direct_client();
        let port = one.open(SocketKind::Rdm);
        let bytes = bytes(port);
        assert_eq!(one.call(&SocketCall::WantLane { to: 0 }.on(port)), Ok(Reply::Done));
        let mut lanes = Lanes::new(&mut one, port);
        lanes.out.1.push(&bytes, &[], 1).unwrap();
        let _ = lanes.out.1.flush().unwrap();
        lanes.knock.wake();
        one.wait(|one| {
            one.call(&Request::Process(ProcessCall::Notices)).unwrap();
            let over =
                |notice: &Notice| matches!(notice, Notice::LaneOver { lane, .. } if *lane == lanes.out.0);
            one.notices.iter().any(over).then_some(())
        });
        assert_eq!(hosts[0].daemon().counters().lanes_corrupt, case as u64 + 1);
        // Commands still work.
        assert_eq!(one.receive(port), Err(Failure::Receive(RecvError::WouldBlock)));
        one.call(&Request::Lane(LaneCall::LaneDone { lane: lanes.out.0, end: LaneEnd::Writer })).unwrap();
        assert_eq!(one.call(&SocketCall::WantLane { to: 0 }.on(port)), Ok(Reply::Done));
    }
    // Connections, and clients without lanes, get none of this kind.
    let (mut one, mut two) = (hosts[0].direct_client(), hosts[0].client());
    let (stream, hosted) = (one.open(SocketKind::Stream), two.open(SocketKind::Rdm));
    assert_eq!(one.call(&SocketCall::WantLane { to: 0 }.on(stream)), Err(Failure::State));
    assert_eq!(two.call(&SocketCall::WantLane { to: 0 }.on(hosted)), Err(Failure::State));
}

/// A socket without a connection, its lane, and a message that the node accepts at once and returns: it goes to no
/// node.
fn dead_end(host: &Host) -> (Client, u32, Lanes, Vec<u8>) {
    let mut client = host.direct_client();
    let port = client.open(SocketKind::Rdm);
    assert_eq!(client.call(&SocketCall::WantLane { to: 0 }.on(port)), Ok(Reply::Done));
    let lanes = Lanes::new(&mut client, port);
    let mut message = built(MessageType::Direct, 32, port, b"data");
    message.set_dest_node(NodeAddr(0x3003));
    (client, port, lanes, message.bytes().to_vec())
}

#[test]
fn only_a_holder_of_a_socket_makes_the_daemon_read_its_lane() {
    let host = Host::new();
    let (mut client, port, mut lanes, message) = dead_end(&host);
    let mut stranger = host.client();
    let unread = |lanes: &Lanes| {
        let reader = lanes._arena.0.resume(Side::One, lanes.out.0.slot.into(), LARGEST_CLASS).unwrap();
        reader.waiting().0
    };
    lanes.out.1.push(&message, &[], 1).unwrap();
    let option = SocketOption::Importance;
    for request in [
        SocketCall::Look.on(port),
        SocketCall::SetOption { option, value: OptionValue::Number(1) }.on(port),
        SocketCall::Shutdown.on(port),
        SocketCall::Send { to: TO }.on(port),
        SocketCall::MakeHosted { partly: None }.on(port),
    ] {
        assert_eq!(stranger.call(&request), Err(Failure::NoSocket(port)), "{request:?}");
        assert_eq!(unread(&lanes), 1, "{request:?}");
    }
    client.call(&SocketCall::Look.on(port)).unwrap();
    assert_eq!(unread(&lanes), 0);
}

/// Many processes have filled their lanes. A turn reads a bounded part of them; the rest follows in later turns.
#[test]
fn many_full_lanes_are_read_in_several_turns() {
    /// Bytes of one turn, and the bytes that a message counts in addition to its own; as in `lanes::daemon`.
    const TURN_BYTES: usize = 1 << 20;
    const MESSAGE_COST: usize = 256;
    let host = Host::new();
    let mut written = 0;
    let mut writers: Vec<(Client, u32, Lanes)> = Vec::new();
    for _ in 0..16 {
        let (mut client, port, mut lanes, message) = dead_end(&host);
        client.call(&Request::Lane(LaneCall::Grow { lane: lanes.out.0, log2: 20, importance: 0 })).unwrap();
        lanes.out.1.grow(3).unwrap();
        let count = (0..2000).take_while(|_| lanes.out.1.push(&message, &[], 1).is_ok()).count();
        written += count * (message.len() + MESSAGE_COST);
        writers.push((client, port, lanes));
    }
    assert!(written > 4 * TURN_BYTES, "only {written} bytes");
    let before = host.daemon().counters().turns;
    // All of them have arrived when the next turn begins.
    let wakers: Vec<Waker> = writers.iter().map(|(.., lanes)| lanes.knock.clone()).collect();
    for (.., lanes) in &mut writers {
        let _ = lanes.out.1.flush().unwrap();
    }
    host.daemon().with(move |_, _| wakers.iter().for_each(Waker::wake));
    let is_unread = |lanes: &Lanes| {
        lanes._arena.0.resume(Side::One, lanes.out.0.slot.into(), LARGEST_CLASS).unwrap().waiting().0 > 0
    };
    wait_while(|| writers.iter().any(|(.., lanes)| is_unread(lanes)));
    let after = host.daemon().counters().turns;
    let (turns, cut) = (after.turns - before.turns, after.cut - before.cut);
    let fewest = (written / TURN_BYTES) as u64;
    assert!(turns >= fewest && cut + 1 >= fewest, "{written} bytes in {turns} turns, {cut} cut");
}
