//! Two links connected in memory: virtual time, and a network that loses, duplicates and reorders from a seed.

use std::collections::{BTreeMap, VecDeque};

use super::super::{
    Accepted, BcastStamp, DownReason, Event, FIRST_SEQNO, Link, LinkConfig, LinkIo, LinkSignal, Parts,
    SendFault, State, Wakeup,
};
use crate::addr::NodeAddr;
use crate::limits::{CAPABILITIES, MAX_WINDOW};
use crate::outbox::{FrameBatch, FrameSink, Target};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{BASIC_HEADER, LinkProtocolType, Message, MessageType, User, View};

pub(super) const A: NodeAddr = NodeAddr(0x0100_1001);
pub(super) const B: NodeAddr = NodeAddr(0x0100_1002);

/// One endpoint and the state its node would keep.
pub(super) struct Side {
    pub(super) link: Link,
    pub(super) bcast: BcastStamp,
    pub(super) delivered: VecDeque<Message>,
    pub(super) wakeups: Vec<Wakeup>,
    pub(super) signals: Vec<LinkSignal>,
    /// Every reason for which it went down.
    pub(super) downs: Vec<DownReason>,
    /// Every size of its path that it has reported.
    pub(super) sizes: Vec<u16>,
    parts: Parts,
    /// Frames written and not yet taken.
    batch: FrameBatch,
}

pub(super) fn config(own: NodeAddr, peer: NodeAddr) -> LinkConfig {
    LinkConfig {
        own,
        peer,
        bearer: 0,
        net_plane: 0,
        interface: "eth0".into(),
        name: format!("{own}:eth0-{peer}"),
        session: 0x1234,
        mtu: 1500,
        max_receive: 1500,
        min_mtu: 100,
        base_mtu: u16::MAX,
        overhead: 0,
        tolerance_ms: 1500,
        priority: 10,
        min_window: 50,
        max_window: MAX_WINDOW,
        peer_capabilities: CAPABILITIES,
        first_seqno: FIRST_SEQNO,
    }
}

impl Side {
    pub(super) fn new(config: LinkConfig) -> Self {
        Self {
            link: Link::new(config),
            bcast: BcastStamp { ack_invalid: true, ..BcastStamp::default() },
            delivered: VecDeque::new(),
            wakeups: Vec::new(),
            signals: Vec::new(),
            downs: Vec::new(),
            sizes: Vec::new(),
            parts: Parts::default(),
            batch: FrameBatch::default(),
        }
    }

    /// An endpoint that is up, in a session with a peer whose session is 0x4444.
    pub(super) fn established(config: LinkConfig) -> Self {
        let (own, peer) = (config.own, config.peer);
        let mut side = Self::new(config);
        let mut other = Side::new(LinkConfig { session: 0x4443, ..super::pair::config(peer, own) });
        other.link.set_peer_capabilities(side.link.config().peer_capabilities);
        let reset = other.with(|l, io| l.send_setup(false, io)).1;
        side.hear(Time::ZERO, &reset[0]);
        side.link.establish();
        assert!(side.link.is_up());
        side
    }

    /// Calls the link; returns the result and the frames that it wrote.
    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut Link, &mut LinkIo<'_>) -> R) -> (R, Vec<Vec<u8>>) {
        self.batch.clear();
        let mut io = LinkIo {
            frames: FrameSink::new(&mut self.batch, 0, Target::Broadcast),
            pool: &mut Pool::default(),
            bcast: &self.bcast,
            deferral_room: usize::MAX,
            delivered: &mut self.delivered,
            wakeups: &mut self.wakeups,
            signals: &mut self.signals,
        };
        let result = f(&mut self.link, &mut io);
        let frames = self.batch.frames().iter().map(|f| self.batch.frame(f).to_vec()).collect();
        (result, frames)
    }

    /// Passes one frame from the peer to the link.
    pub(super) fn hear(&mut self, now: Time, frame: &[u8]) -> Vec<Vec<u8>> {
        let view = View::parse(frame).unwrap();
        if view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::Part {
            let whole = self.parts.take(view, usize::MAX);
            return whole.map_or(Vec::new(), |whole| self.hear(now, whole.bytes()));
        }
        self.with(|link, io| match view.user() {
            User::LinkProtocol => link.receive_protocol(now, view, io),
            _ => link.receive(now, view, io),
        })
        .1
    }

    pub(super) fn send(&mut self, now: Time, message: Message) -> Result<Accepted, SendFault> {
        self.with(|link, io| link.send(now, message, io)).0
    }

    /// Acts on signals as the node layer does; returns the frames written.
    pub(super) fn act(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for signal in core::mem::take(&mut self.signals) {
            match signal {
                LinkSignal::Up => {
                    if self.link.is_up() {
                        continue;
                    }
                    self.link.establish();
                    frames.extend(self.with(|l, io| l.send_state(io)).1);
                }
                LinkSignal::Down(reason) => {
                    self.downs.push(reason);
                    self.link.event(Event::LocalReset);
                    self.link.reset(&mut self.wakeups);
                    let stopping = self.link.state() == State::Reset;
                    frames.extend(self.with(|l, io| l.send_setup(stopping, io)).1);
                }
                LinkSignal::Mtu { to, .. } => assert_eq!(to, self.link.mtu()),
                LinkSignal::Path => self.sizes.push(self.link.mtu()),
            }
        }
        frames
    }
}

/// A test message that holds its number.
pub(super) fn numbered(from: NodeAddr, n: u32, len: usize) -> Message {
    let mut data = n.to_be_bytes().to_vec();
    data.resize(len.max(4), n as u8);
    let mut m = Message::build(User::Low, MessageType::Direct.into(), BASIC_HEADER, &data);
    m.set_prev_node(from);
    m.set_origin_node(from);
    m.set_origin_port(77);
    m
}

pub(super) fn number(m: &Message) -> u32 {
    u32::from_be_bytes(*m.data().first_chunk().unwrap())
}

/// Faults of the network, per thousand frames; times in microseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplicate: u64,
    pub(super) jitter_us: u64,
}

pub(super) struct Pair {
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    pub(super) faults: Faults,
    /// Frames from this side are lost.
    pub(super) cut: [bool; 2],
    /// Longest frame that passes, bytes.
    pub(super) width: usize,
    next_tick: [Time; 2],
    rng: Rng,
    /// Frames in flight, by time of arrival.
    wire: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    count: u64,
}

impl Pair {
    pub(super) fn new(a: LinkConfig, b: LinkConfig, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            sides: [Side::new(a), Side::new(b)],
            faults: Faults::default(),
            cut: [false; 2],
            width: usize::MAX,
            next_tick: [Time::from_millis(375), Time::from_millis(400)],
            rng: Rng::new(seed),
            wire: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn up(seed: u64) -> Self {
        let mut pair = Self::new(config(A, B), config(B, A), seed);
        pair.run(3000);
        assert!(pair.both_up());
        pair
    }

    pub(super) fn both_up(&self) -> bool {
        self.sides.iter().all(|s| s.link.is_up())
    }

    pub(super) fn downs(&self) -> usize {
        self.sides.iter().map(|s| s.downs.len()).sum()
    }

    /// Puts frames of one side on the wire.
    pub(super) fn post(&mut self, from: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let copies = 1 + usize::from(self.rng.below(1000) < self.faults.duplicate);
            for _ in 0..copies {
                let lost = self.rng.below(1000) < self.faults.loss;
                let delay = 100 + self.rng.below(self.faults.jitter_us + 1);
                if lost || self.cut[from] || frame.len() > self.width {
                    continue;
                }
                self.count += 1;
                let at = Time::from_nanos(self.now.as_nanos() + delay * 1000);
                self.wire.insert((at, self.count), (1 - from, frame.clone()));
            }
        }
    }

    pub(super) fn call<R>(&mut self, side: usize, f: impl FnOnce(&mut Link, &mut LinkIo<'_>) -> R) -> R {
        let (result, frames) = self.sides[side].with(f);
        self.post(side, frames);
        self.act(side);
        result
    }

    pub(super) fn send(&mut self, side: usize, message: Message) -> Result<Accepted, SendFault> {
        let now = self.now;
        self.call(side, |l, io| l.send(now, message, io))
    }

    fn act(&mut self, side: usize) {
        let frames = self.sides[side].act();
        self.post(side, frames);
    }

    /// Advances the time by `millis`.
    pub(super) fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            let tick = self.next_tick[0].min(self.next_tick[1]);
            let arrival = self.wire.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
            let next = tick.min(arrival);
            if next > end {
                break;
            }
            self.now = next;
            if arrival <= tick {
                let (_, (to, frame)) = self.wire.pop_first().unwrap();
                let frames = self.sides[to].hear(next, &frame);
                self.post(to, frames);
                self.act(to);
            } else {
                let side = usize::from(self.next_tick[1] < self.next_tick[0]);
                let interval = self.sides[side].link.wanted_interval_ms();
                self.next_tick[side] = next.plus_millis(u64::from(interval));
                self.call(side, |l, io| {
                    l.set_interval_ms(interval);
                    l.tick(next, io);
                });
            }
        }
        self.now = end;
    }

    /// Numbers of the messages that a side has received.
    pub(super) fn received(&self, side: usize) -> Vec<u32> {
        self.sides[side].delivered.iter().filter(|m| !m.data().is_empty()).map(number).collect()
    }

    /// Sends `count` messages from a side as fast as the backlog allows; runs until they have arrived, at most 120 s.
    pub(super) fn transfer(&mut self, from: usize, count: u32, len: impl Fn(u32) -> usize) {
        let own = self.sides[from].link.config().own;
        let end = self.now.plus_millis(120_000);
        let mut sent = 0;
        let mut blocked = false;
        while self.sides[1 - from].delivered.len() < count as usize && self.now < end {
            blocked &= self.sides[from].wakeups.is_empty();
            self.sides[from].wakeups.clear();
            while sent < count && !blocked {
                let Ok(accepted) = self.send(from, numbered(own, sent, len(sent))) else { break };
                blocked = accepted == Accepted::Congested;
                sent += 1;
            }
            self.run(1);
        }
    }
}
