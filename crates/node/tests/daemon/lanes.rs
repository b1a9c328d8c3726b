//! Lanes between processes: the daemon creates them, and drains those of a dead reader.

use std::collections::HashMap;

use utipc_attach::{
    Failure, LaneCall, LaneEnd, LaneId, Notice, PairId, ProcessCall, Reply, Request, SocketCall,
};
use utipc_core::addr::{NodeAddr, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, RecvError, SendError, SocketKind, SocketOption, State};
use utipc_core::wire::{ErrorCode, Message, MessageType, Packet, User};
use utipc_lanes::{Arena, FIRST_RING, Incoming, Kind, LaneError, Outgoing, Peek, Reader, Side, Writer};

use crate::client::{Client, Host, wait_while};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));

fn side(number: u8) -> Side {
    if number == 0 { Side::Zero } else { Side::One }
}

/// An arena, with what each side writes and reads.
pub(crate) type Mapped = (Arena, [Option<Outgoing>; 2], [Option<Incoming>; 2]);

/// The lanes of one process.
#[derive(Default)]
pub(crate) struct Lanes {
    pub(crate) arenas: HashMap<PairId, Mapped>,
    /// By own port and the peer's.
    pub(crate) writers: HashMap<(u32, u32), (LaneId, Writer)>,
    pub(crate) readers: HashMap<(u32, u32), (LaneId, Reader)>,
    over: Vec<(LaneId, LaneEnd, bool)>,
    pairs_over: usize,
}

impl Lanes {
    /// Fetches the notices and processes them.
    pub(crate) fn update(&mut self, client: &mut Client) {
        client.call(&Request::Process(ProcessCall::Notices)).unwrap();
        while let Some(notice) = client.notices.pop_front() {
            match notice {
                Notice::Lane { port, other, lane, end }
                | Notice::GroupLane { port, other, lane, end, .. } => {
                    self.add(client, port, other, lane, end)
                }
                Notice::LaneOver { lane, end, gone, .. } => self.over.push((lane, end, gone)),
                Notice::PairOver(pair) => {
                    self.arenas.remove(&pair).unwrap();
                    self.pairs_over += 1;
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, client: &mut Client, port: u32, other: u32, lane: LaneId, end: LaneEnd) {
        let (arena, out, inc) = self.arenas.entry(lane.pair).or_insert_with(|| {
            let fds = client.call_for_fd(&Request::Lane(LaneCall::FetchPair { pair: lane.pair }));
            (Arena::open(&fds[0]).unwrap(), Default::default(), Default::default())
        });
        let slot = u32::from(lane.slot);
        match end {
            LaneEnd::Writer => {
                let me = side(lane.writer);
                let out = out[me.index()].get_or_insert_with(|| arena.outgoing(me));
                self.writers.insert((port, other), (lane, out.writer(slot).unwrap()));
            }
            LaneEnd::Reader => {
                let me = side(1 - lane.writer);
                let inc = inc[me.index()].get_or_insert_with(|| arena.incoming(me));
                self.readers.insert((port, other), (lane, inc.reader(slot).unwrap()));
            }
        }
    }

    pub(crate) fn write(
        &mut self,
        from: u32,
        to: u32,
        kind: MessageType,
        data: &[u8],
    ) -> Result<(), LaneError> {
        let header = match kind {
            MessageType::Conn => 24,
            MessageType::GroupUcast | MessageType::GroupBcast => 44,
            _ => 32,
        };
        let mut message: Message = Packet::build(User::from(0), kind.into(), header, data);
        message.set_prev_node(NodeAddr(0x1001));
        message.set_origin_node(NodeAddr(0x1001));
        if header > 24 {
            message.set_dest_node(NodeAddr(0x1001));
        }
        message.set_origin_port(from);
        message.set_dest_port(to);
        let (_, writer) = self.writers.get_mut(&(from, to)).unwrap();
        writer.send(message.bytes(), &[], 1).map(|_| ())
    }

    /// The next message in a lane; `None` if no message waits, an error at the lane's end.
    pub(crate) fn read(&mut self, port: u32, from: u32) -> Result<Option<Vec<u8>>, LaneId> {
        let (lane, reader) = self.readers.get_mut(&(port, from)).unwrap();
        match reader.peek().unwrap() {
            Peek::Record(record) => {
                assert_eq!(record.kind(), Kind::Data);
                let mut bytes = vec![0; record.len()];
                reader.copy_payload(&record, 0, &mut bytes);
                reader.consume(record, 1);
                Ok(Some(Message::from_vec(bytes).unwrap().data().to_vec()))
            }
            Peek::Empty => Ok(None),
            Peek::Ended => Err(*lane),
        }
    }
}

/// Two processes at one daemon, and their lanes.
pub(crate) struct Two {
    pub(crate) host: Host,
    pub(crate) one: Client,
    pub(crate) two: Client,
    pub(crate) one_lanes: Lanes,
    pub(crate) two_lanes: Lanes,
}

impl Two {
    pub(crate) fn new() -> Two {
        let host = Host::new();
        let (one, two) = (host.direct_client(), host.direct_client());
        Two { host, one, two, one_lanes: Lanes::default(), two_lanes: Lanes::default() }
    }

    pub(crate) fn update(&mut self) {
        self.one_lanes.update(&mut self.one);
        self.two_lanes.update(&mut self.two);
    }

    /// A connection from the first process to the second; the connection request carries `data`, if any.
    pub(crate) fn connect(&mut self, kind: SocketKind, data: &[u8]) -> (u32, u32) {
        let listener = self.two.server(kind, SERVICE);
        let from = self.one.open(kind);
        if data.is_empty() {
            self.one.call(&SocketCall::Connect { to: TO }.on(from)).unwrap();
        } else {
            self.one.send(from, TO, data).unwrap();
        }
        match self.two.call(&SocketCall::Accept.on(listener)).unwrap() {
            Reply::Accepted { port, .. } => (from, port),
            other => panic!("{other:?}"),
        }
    }

    fn datagrams(&mut self) -> (u32, u32) {
        let to = self.two.server(SocketKind::Rdm, SERVICE);
        let from = self.one.open(SocketKind::Rdm);
        keep_undeliverable(&mut self.one, from);
        (from, to)
    }

    /// Checks that no lane is left.
    fn check_empty(&mut self) {
        let counters = self.host.daemon().counters();
        assert_eq!((counters.lanes, counters.lanes_corrupt), (0, 0));
    }
}

fn keep_undeliverable(client: &mut Client, port: u32) {
    let (option, value) = (SocketOption::DestDroppable, OptionValue::Number(0));
    client.call(&SocketCall::SetOption { option, value }.on(port)).unwrap();
}

fn done(client: &mut Client, lane: LaneId, end: LaneEnd) {
    assert_eq!(client.call(&Request::Lane(LaneCall::LaneDone { lane, end })), Ok(Reply::Done));
}

#[test]
fn connection_has_lanes_from_accept_to_shutdown() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let mut t = Two::new();
        let (from, port) = t.connect(kind, b"");
        t.update();
        assert_eq!(t.host.daemon().counters().lanes, 2);
        // A message by the daemon would overtake those in the lane.
        assert_eq!(t.one.send(from, None, b"x"), Err(Failure::Send(SendError::WouldBlock)));
        for round in 0..1000u32 {
            t.one_lanes.write(from, port, MessageType::Conn, &round.to_be_bytes()).unwrap();
            assert_eq!(t.two_lanes.read(port, from), Ok(Some(round.to_be_bytes().to_vec())));
            t.two_lanes.write(port, from, MessageType::Conn, b"pong").unwrap();
            assert_eq!(t.one_lanes.read(from, port), Ok(Some(b"pong".to_vec())));
        }
        t.one_lanes.write(from, port, MessageType::Conn, b"last").unwrap();
        t.one.call(&SocketCall::Shutdown.on(from)).unwrap();
        t.update();
        // The peer reads everything, and then learns how the connection ended.
        assert_eq!(t.two_lanes.read(port, from), Ok(Some(b"last".to_vec())));
        let over = t.two_lanes.read(port, from).unwrap_err();
        done(&mut t.two, over, LaneEnd::Reader);
        let (end, _) = t.two.receive(port).unwrap();
        assert_eq!(end.returned.map(|r| r.code), Some(ErrorCode::ConnShutdown));
        // The lane back no longer has a reader.
        let refused = t.two_lanes.write(port, from, MessageType::Conn, b"too late");
        assert!(matches!(refused, Err(LaneError::Gone { .. })), "{refused:?}");
        t.update();
        let back = t.two_lanes.writers[&(port, from)].0;
        assert!(t.two_lanes.over.contains(&(back, LaneEnd::Writer, false)), "{:?}", t.two_lanes.over);
        done(&mut t.two, back, LaneEnd::Writer);
        assert!(t.one_lanes.over.contains(&(over, LaneEnd::Writer, false)), "{:?}", t.one_lanes.over);
        done(&mut t.one, over, LaneEnd::Writer);
        t.check_empty();
    }
}

#[test]
fn data_of_the_connection_request_comes_before_the_lane() {
    let mut t = Two::new();
    let (from, port) = t.connect(SocketKind::SeqPacket, b"first");
    t.update();
    t.one_lanes.write(from, port, MessageType::Conn, b"second").unwrap();
    assert!(t.two_lanes.readers.is_empty());
    assert_eq!(t.two.receive(port).unwrap().1, b"first");
    t.update();
    assert_eq!(t.two_lanes.read(port, from), Ok(Some(b"second".to_vec())));
}

#[test]
fn datagrams_keep_their_order_when_a_lane_begins() {
    let mut t = Two::new();
    let (from, to) = t.datagrams();
    let second = t.two.server(SocketKind::Rdm, SERVICE);
    let direct = Some(Destination::Port(utipc_core::PortId { port: to, node: NodeAddr(0x1001) }));
    assert_eq!(t.one.send(from, direct, b"by the node"), Ok(11));
    assert_eq!(t.one.call(&SocketCall::WantLane { to }.on(from)), Ok(Reply::Done));
    assert_eq!(t.one.call(&SocketCall::WantLane { to }.on(from)), Ok(Reply::Done));
    t.update();
    t.one_lanes.write(from, to, MessageType::Direct, b"by the lane").unwrap();
    assert!(t.two_lanes.readers.is_empty(), "the reader has not received the earlier message");
    assert_eq!(t.two.receive(to).unwrap().1, b"by the node");
    t.update();
    assert_eq!(t.two_lanes.read(to, from), Ok(Some(b"by the lane".to_vec())));
    // A send by the daemon names the sockets that it left out because they have lanes.
    let sent =
        |c: &mut Client, to, data: &[u8]| c.try_call(&SocketCall::Send { to }.on(from), data).unwrap().0;
    assert_eq!(sent(&mut t.one, direct, b"x"), Reply::Sent { bytes: 0, lanes: vec![to] });
    let all = Some(Destination::Range(SERVICE));
    assert_eq!(sent(&mut t.one, all, b"to all"), Reply::Sent { bytes: 6, lanes: vec![to] });
    assert_eq!(t.two.receive(second).unwrap().1, b"to all");
    assert_eq!(t.two.receive(to), Err(Failure::Receive(RecvError::WouldBlock)));
}

#[test]
fn messages_by_the_node_come_after_those_in_the_senders_lane() {
    let mut t = Two::new();
    let (from, to) = t.datagrams();
    t.one.send(from, TO, b"first").unwrap();
    t.one.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    t.update();
    t.one_lanes.write(from, to, MessageType::Direct, b"second").unwrap();
    t.one.call(&SocketCall::MakeHosted { partly: None }.on(from)).unwrap();
    t.one.send(from, TO, b"third").unwrap();
    // A message of another sender waits behind it.
    let other = t.one.open(SocketKind::Rdm);
    t.one.send(other, TO, b"fourth").unwrap();
    // The lane begins behind the first.
    assert_eq!(t.two.receive(to).unwrap().1, b"first");
    t.update();
    let blocks = Err(Failure::Receive(RecvError::WouldBlock));
    assert_eq!(t.two.receive(to), blocks);
    assert_eq!(t.two_lanes.read(to, from), Ok(Some(b"second".to_vec())));
    assert_eq!(t.two.receive(to), blocks, "the reader has not confirmed that the lane is drained");
    let lane = t.two_lanes.read(to, from).unwrap_err();
    t.two.notices.clear();
    t.two.call(&Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Reader })).unwrap();
    t.two.call(&Request::Process(ProcessCall::Notices)).unwrap();
    assert!(t.two.notices.iter().any(|n| matches!(n, Notice::Readiness { port } if *port == to)));
    assert_eq!(t.two.receive(to).unwrap().1, b"third");
    assert_eq!(t.two.receive(to).unwrap().1, b"fourth");
}

#[test]
fn lane_requests_that_cannot_be_met_are_refused() {
    let mut t = Two::new();
    let (from, to) = t.datagrams();
    let listener = t.two.server(SocketKind::SeqPacket, ServiceRange::new(18888, 18, 18));
    let want = |t: &mut Two, to| t.one.call(&SocketCall::WantLane { to }.on(from));
    assert_eq!(want(&mut t, 17), Err(Failure::NoSocket(17)));
    assert_eq!(want(&mut t, listener), Err(Failure::State));
    t.two.call(&SocketCall::MakeHosted { partly: None }.on(to)).unwrap();
    assert_eq!(want(&mut t, to), Err(Failure::State));
    t.two.call(&SocketCall::Lend.on(to)).unwrap();
    assert_eq!(want(&mut t, to), Ok(Reply::Done));
    // A third process may not use the lane.
    let mut thief = t.host.direct_client();
    t.update();
    let lane = t.one_lanes.writers[&(from, to)].0;
    for request in [
        Request::Lane(LaneCall::FetchPair { pair: lane.pair }),
        Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Writer }),
        Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Reader }),
        Request::Lane(LaneCall::Report { lane }),
        Request::Lane(LaneCall::Grow { lane, log2: 15, importance: 0 }),
        Request::Lane(LaneCall::FetchPair { pair: PairId(9999) }),
    ] {
        assert_eq!(thief.call(&request), Err(Failure::State), "{request:?}");
    }
}

#[test]
fn rings_are_granted_against_the_buffer_of_the_receiver() {
    let mut t = Two::new();
    let (from, to) = t.datagrams();
    let other = t.one.open(SocketKind::Rdm);
    for port in [from, other] {
        t.one.call(&SocketCall::WantLane { to }.on(port)).unwrap();
    }
    t.update();
    let lane = |port| t.one_lanes.writers[&(port, to)].0;
    let (first, second) = (lane(from), lane(other));
    let mut grow =
        |lane, log2, importance| t.one.call(&Request::Lane(LaneCall::Grow { lane, log2, importance }));
    // 2 MiB at importance 0, twice as much with each step.
    assert_eq!(grow(first, 20, 0), Ok(Reply::Done));
    assert_eq!(grow(second, 20, 0), Ok(Reply::Done));
    assert_eq!(grow(second, 18, 0), Ok(Reply::Done));
    assert_eq!(grow(second, FIRST_RING, 0), Ok(Reply::Done));
    for bad in [(11, 0), (21, 0), (64, 0), (15, 4)] {
        assert_eq!(grow(first, bad.0, bad.1), Err(Failure::State), "{bad:?}");
    }
    let (option, value) = (SocketOption::ReceiveBuffer, OptionValue::Number(1 << 19));
    t.two.call(&SocketCall::SetOption { option, value }.on(to)).unwrap();
    let mut grow =
        |lane, log2, importance| t.one.call(&Request::Lane(LaneCall::Grow { lane, log2, importance }));
    assert_eq!(grow(second, 15, 0), Err(Failure::Overload));
    assert_eq!(grow(second, 15, 2), Ok(Reply::Done));
}

#[test]
fn unread_messages_of_a_closed_socket_come_back() {
    let mut t = Two::new();
    let (from, to) = t.datagrams();
    t.one.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    t.update();
    for data in [&b"read"[..], b"unread", b"as well"] {
        t.one_lanes.write(from, to, MessageType::Direct, data).unwrap();
    }
    assert_eq!(t.two_lanes.read(to, from), Ok(Some(b"read".to_vec())));
    t.two.call(&SocketCall::Close.on(to)).unwrap();
    for data in [&b"unread"[..], b"as well"] {
        let (back, _) = t.one.receive(from).unwrap();
        let back = back.returned.unwrap();
        assert_eq!((back.code, &back.data[..]), (ErrorCode::NoPort, data));
    }
    t.update();
    let lane = t.one_lanes.writers[&(from, to)].0;
    assert_eq!(t.one_lanes.over, [(lane, LaneEnd::Writer, true)]);
    let refused = t.one_lanes.write(from, to, MessageType::Direct, b"more");
    assert!(matches!(refused, Err(LaneError::Gone { .. })), "{refused:?}");
    done(&mut t.one, lane, LaneEnd::Writer);
    t.check_empty();
}

#[test]
fn socket_that_becomes_hosted_keeps_all_messages_in_order() {
    for kind in [SocketKind::Stream, SocketKind::SeqPacket, SocketKind::Rdm] {
        let mut t = Two::new();
        let connected = kind.is_connection_oriented();
        let (from, to) = if connected { t.connect(kind, b"") } else { t.datagrams() };
        if !connected {
            t.one.call(&SocketCall::WantLane { to }.on(from)).unwrap();
        }
        t.update();
        let by_lane = if connected { MessageType::Conn } else { MessageType::Direct };
        for number in 0..20 {
            t.one_lanes.write(from, to, by_lane, &[number; 3]).unwrap();
        }
        for number in 0..5 {
            assert_eq!(t.two_lanes.read(to, from), Ok(Some(vec![number; 3])));
        }
        let lane = t.two_lanes.readers[&(to, from)].0;
        let partly = (kind == SocketKind::Stream).then_some((lane, 1));
        t.two.call(&SocketCall::MakeHosted { partly }.on(to)).unwrap();
        t.update();
        done(&mut t.one, lane, LaneEnd::Writer);
        let dest = (!connected)
            .then_some(Destination::Port(utipc_core::PortId { port: to, node: NodeAddr(0x1001) }));
        let refused = t.one.call(&SocketCall::WantLane { to }.on(from));
        assert_eq!(refused, Err(Failure::State));
        for number in 20..40 {
            assert_eq!(t.one.send(from, dest, &[number; 3]), Ok(3));
        }
        let mut got = Vec::new();
        while let Ok((_, data)) = t.two.receive(to) {
            got.extend(data);
        }
        let mut expected: Vec<u8> = (5..40).flat_map(|number| [number; 3]).collect();
        if kind == SocketKind::Stream {
            expected.remove(0);
        }
        assert_eq!(got, expected);
    }
}

#[test]
fn lane_of_a_dead_writer_is_drained_and_lane_of_a_dead_reader_is_returned() {
    let mut t = Two::new();
    let (from, port) = t.connect(SocketKind::SeqPacket, b"");
    let (sender, receiver) = {
        let to = t.two.server(SocketKind::Rdm, ServiceRange::new(18888, 18, 18));
        let port = t.one.open(SocketKind::Rdm);
        (port, to)
    };
    keep_undeliverable(&mut t.two, receiver);
    t.one.call(&SocketCall::WantLane { to: receiver }.on(sender)).unwrap();
    t.two.call(&SocketCall::WantLane { to: sender }.on(receiver)).unwrap();
    t.update();
    t.one_lanes.write(from, port, MessageType::Conn, b"last words").unwrap();
    t.one_lanes.write(sender, receiver, MessageType::Direct, b"to whom it may concern").unwrap();
    t.two_lanes.write(receiver, sender, MessageType::Direct, b"never read").unwrap();
    let Two { host, one, mut two, one_lanes, mut two_lanes } = t;
    // The death of a process ends its connection and unmaps its memory.
    drop((one, one_lanes));
    wait_while(|| host.ended("closed") == 0);
    two_lanes.update(&mut two);
    assert_eq!(two_lanes.read(port, from), Ok(Some(b"last words".to_vec())));
    done(&mut two, two_lanes.read(port, from).unwrap_err(), LaneEnd::Reader);
    let (end, _) = two.receive(port).unwrap();
    assert_eq!(end.returned.unwrap().code, ErrorCode::NoPort);
    assert_eq!(two_lanes.read(receiver, sender), Ok(Some(b"to whom it may concern".to_vec())));
    done(&mut two, two_lanes.read(receiver, sender).unwrap_err(), LaneEnd::Reader);
    let (back, _) = two.receive(receiver).unwrap();
    assert_eq!(back.returned.unwrap().data, b"never read");
    for (lane, _) in two_lanes.writers.values() {
        assert!(two_lanes.over.contains(&(*lane, LaneEnd::Writer, true)));
        done(&mut two, *lane, LaneEnd::Writer);
    }
    two_lanes.update(&mut two);
    assert_eq!(two_lanes.pairs_over, 1);
    let counters = host.daemon().counters();
    assert_eq!((counters.lanes, counters.pairs, counters.lanes_corrupt), (0, 0, 0));
}

#[test]
fn reported_corruption_ends_the_connection_and_is_counted() {
    let mut t = Two::new();
    let (from, port) = t.connect(SocketKind::SeqPacket, b"");
    t.update();
    let lane = t.two_lanes.readers[&(port, from)].0;
    assert_eq!(t.two.call(&Request::Lane(LaneCall::Report { lane })), Ok(Reply::Done));
    for (client, port) in [(&mut t.one, from), (&mut t.two, port)] {
        match client.call(&SocketCall::Look.on(port)).unwrap() {
            Reply::Socket(view) => assert_eq!(view.state, State::Disconnecting),
            other => panic!("{other:?}"),
        }
    }
    // The daemon does not accept a message that claims another origin.
    let (sender, receiver) = {
        let to = t.two.server(SocketKind::Rdm, ServiceRange::new(18888, 18, 18));
        (t.one.open(SocketKind::Rdm), to)
    };
    t.one.call(&SocketCall::WantLane { to: receiver }.on(sender)).unwrap();
    t.update();
    let (_, writer) = t.one_lanes.writers.get_mut(&(sender, receiver)).unwrap();
    let mut forged: Message = Packet::build(User::from(0), MessageType::Direct.into(), 32, b"forged");
    forged.set_origin_port(from);
    forged.set_dest_port(receiver);
    let _ = writer.send(forged.bytes(), &[], 1).unwrap();
    let _ = writer.send(b"no message", &[], 1).unwrap();
    t.two.call(&SocketCall::MakeHosted { partly: None }.on(receiver)).unwrap();
    assert_eq!(t.two.receive(receiver), Err(Failure::Receive(RecvError::WouldBlock)));
    assert_eq!(t.host.daemon().counters().lanes_corrupt, 3);
}

#[test]
fn process_has_lanes_to_itself() {
    let mut t = Two::new();
    let to = t.one.server(SocketKind::Rdm, SERVICE);
    let from = t.one.open(SocketKind::Rdm);
    t.one.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    t.one.call(&SocketCall::WantLane { to: from }.on(to)).unwrap();
    t.one_lanes.update(&mut t.one);
    t.one_lanes.write(from, to, MessageType::Direct, b"to myself").unwrap();
    t.one_lanes.write(to, from, MessageType::Direct, b"from myself").unwrap();
    assert_eq!(t.one_lanes.read(to, from), Ok(Some(b"to myself".to_vec())));
    assert_eq!(t.one_lanes.read(from, to), Ok(Some(b"from myself".to_vec())));
    drop((t.one, t.one_lanes));
    // They end in steps after the process is counted.
    let end = t.host.until("its lanes end", |c| c.attached == 1 && c.lanes == 0 && c.pairs == 0);
    assert_eq!(end.lanes_corrupt, 0);
}
