//! One end of a link, with a peer that violates the protocol.

use std::collections::VecDeque;

use utipc_core::link::{BcastStamp, Event, Link, LinkConfig, LinkIo, LinkSignal};
use utipc_core::pool::Pool;
use utipc_core::wire::User;
use utipc_core::{FrameBatch, FrameSink, MediaAddr, Message, NodeAddr, Target, Time, View, limits};

use crate::source::Source;
use crate::{Seen, magnitude};

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);
const SESSION: u16 = 7;

struct Bench {
    link: Link,
    now: Time,
    bcast: BcastStamp,
    frames: FrameBatch,
    delivered: VecDeque<Message>,
    signals: Vec<LinkSignal>,
}

impl Bench {
    fn with<T>(&mut self, call: impl FnOnce(&mut Link, Time, &mut LinkIo<'_>) -> T) -> T {
        let to = Target::Unicast(MediaAddr::Ethernet([2; 6]));
        let mut wakeups = Vec::new();
        let mut io = LinkIo {
            frames: FrameSink::new(&mut self.frames, 0, to),
            pool: &mut Pool::default(),
            bcast: &self.bcast,
            delivered: &mut self.delivered,
            wakeups: &mut wakeups,
            signals: &mut self.signals,
            deferral_room: usize::MAX,
        };
        let result = call(&mut self.link, self.now, &mut io);
        for signal in core::mem::take(&mut self.signals) {
            match signal {
                LinkSignal::Up => {
                    self.link.establish();
                }
                LinkSignal::Down(_) => {
                    self.link.event(Event::LocalReset);
                    self.link.reset(&mut wakeups);
                }
                LinkSignal::Mtu { .. } | LinkSignal::Path => {}
            }
        }
        result
    }

    fn receive(&mut self, message: &Message) {
        let view = message.view();
        self.with(|link, now, io| match view.user() {
            User::LinkProtocol => link.receive_protocol(now, view, io),
            _ => link.receive(now, view, io),
        });
    }

    fn handshake(&mut self) {
        for kind in [1, 2] {
            let mut m = from_peer(User::LinkProtocol, kind, b"U\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
            m.set_session(SESSION);
            m.set_max_packet(375);
            self.receive(&m);
        }
    }

    /// Checks that frames are well-formed and all queues are bounded.
    fn check(&mut self, seen: &mut Seen) {
        for frame in self.frames.frames() {
            let bytes = self.frames.frame(frame);
            let view = View::parse(&bytes);
            let view = view.unwrap_or_else(|e| panic!("sends a malformed frame: {e}"));
            seen.note(("sent", u8::from(view.user()), view.kind(), view.probe()));
            assert!(view.size() <= usize::from(self.link.config().mtu), "{view:?}");
        }
        self.frames.clear();
        for message in self.delivered.drain(..) {
            assert!(message.header_fits(), "{message:?}");
            seen.note(("delivered", u8::from(message.user()), message.kind()));
        }
        let stats = self.link.stats();
        seen.note((self.link.state() as u8, stats.rx_nacks != 0, magnitude(stats.rx_bundles as usize)));
    }
}

fn from_peer(user: User, kind: u8, data: &[u8]) -> Message {
    let mut m = Message::build(user, kind, 40, data);
    m.set_prev_node(PEER);
    m.set_origin_node(PEER);
    m.set_dest_node(OWN);
    m
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let config = LinkConfig {
        own: OWN,
        peer: PEER,
        bearer: 0,
        net_plane: 0,
        interface: "U".into(),
        name: "own:U-peer".into(),
        session: 0xfffe,
        mtu: 1500,
        min_mtu: 128,
        base_mtu: 128,
        overhead: 0,
        tolerance_ms: 1500,
        priority: 10,
        min_window: 50,
        max_window: 8191,
        peer_capabilities: limits::CAPABILITIES,
        first_seqno: 1,
        max_receive: 1500,
    };
    let mut bench = Bench {
        link: Link::new(config),
        now: Time::from_millis(1000),
        bcast: BcastStamp::default(),
        frames: FrameBatch::default(),
        delivered: VecDeque::new(),
        signals: Vec::new(),
    };
    let mut source = Source::new(data);
    if source.flag() {
        bench.handshake();
    }
    while !source.is_empty() {
        step(&mut bench, &mut source);
        bench.check(seen);
    }
    let (queued, backlog) = bench.link.queue_lengths();
    seen.note(("queues", magnitude(queued), magnitude(backlog)));
}

fn step(bench: &mut Bench, source: &mut Source<'_>) {
    match source.below(8) {
        0 => protocol(bench, source),
        1..4 => sequenced(bench, source),
        4 => {
            let size = source.pick(&[0, 1, 100, 1300, 1420, 1500, 9000, 66_000]);
            let user = User::from(source.u8() % 4);
            let mut m = Message::build(user, 3, 32, &vec![9; size]);
            m.set_prev_node(OWN);
            m.set_origin_node(OWN);
            m.set_dest_node(PEER);
            m.set_origin_port(u32::from(source.u8()));
            for _ in 0..=source.below(64) {
                let sent = bench.with(|link, now, io| link.send(now, m.clone(), io));
                if sent.is_err() {
                    break;
                }
            }
        }
        5 => {
            for _ in 0..=source.below(8) {
                bench.now = bench.now.plus_millis(375);
                bench.with(|link, now, io| link.tick(now, io));
            }
        }
        6 => {
            // A packet as a peer would write it, or anything else.
            if let Ok(view) = View::parse(source.bytes(200)) {
                bench.receive(&view.to_message());
            }
        }
        _ => bench.handshake(),
    }
}

fn protocol(bench: &mut Bench, source: &mut Source<'_>) {
    let flags = source.u8();
    let kind = flags & 3;
    let len = usize::from(source.u8());
    let data = source.bytes(len);
    let mut m = from_peer(User::LinkProtocol, kind, data);
    m.set_session(if flags & 4 == 0 { SESSION } else { source.u16() });
    m.set_seqno(source.u16());
    m.set_ack(bench.link.snd_nxt().wrapping_add(u16::from(source.u8())).wrapping_sub(128));
    m.set_next_sent(bench.link.rcv_nxt().wrapping_add(source.u8().into()));
    m.set_seq_gap(source.u8().into());
    m.set_probe(flags & 8 != 0);
    m.set_keepalive(flags & 16 != 0);
    m.set_peer_stopping(flags & 32 != 0);
    if flags & 64 != 0 {
        m.set_max_packet(source.u16());
        m.set_link_tolerance(source.u16());
        m.set_link_priority(source.u8());
    }
    if flags & 128 != 0 {
        m.set_dest_session_valid(true);
        m.set_dest_session(bench.link.session().wrapping_add(u16::from(source.u8())).wrapping_sub(4));
    }
    bench.receive(&m);
}

fn sequenced(bench: &mut Bench, source: &mut Source<'_>) {
    let flags = source.u8();
    let user = User::from(source.pick(&[0, 3, 5, 6, 8, 10, 11, 12, 12, 6, 10, 14, 15, 4]));
    let len = usize::from(source.u8());
    let data = if flags & 32 == 0 {
        source.bytes(len).to_vec()
    } else {
        // A well-formed inner message, for carriers.
        let inner = Message::build(User::from(source.u8()), source.u8() & 7, 40, source.bytes(len));
        inner.into_bytes()
    };
    let mut m = from_peer(user, flags & 7, &data);
    let ahead = if flags & 8 == 0 { 0 } else { u16::from(source.u8()).wrapping_sub(16) };
    m.set_seqno(bench.link.rcv_nxt().wrapping_add(ahead));
    m.set_ack(bench.link.snd_nxt().wrapping_sub(u16::from(source.u8() & 63)));
    if flags & 16 != 0 {
        m.set_word(4, source.u32());
        m.set_word(9, source.u32());
    }
    bench.receive(&m);
    let _ = utipc_core::link::synch_point(m.view());
    let _ = utipc_core::link::failover_point(m.view());
}
