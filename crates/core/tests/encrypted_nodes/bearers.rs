//! Two bearers whose latencies differ, with frames at full rate.

use std::collections::BTreeMap;

use utipc_core::crypto::{EncryptionConfig, KeyUse};
use utipc_core::wire::{Encrypted, MediaAddr, User};
use utipc_core::{
    BearerConfig, BearerId, Destination, Event, RecvOptions, Scope, ServiceRange, SocketKind, Stack,
    StackConfig, Time,
};

use super::lan::{CLOCK, KEY1, id, key};

/// Latency of the two networks, microseconds.
const LATENCY_US: [u64; 2] = [200, 50_200];
/// Frames on the faster bearer in a millisecond.
const RATE: usize = 200;
const MILLIS: u64 = 400;
const FIRST: [u64; 2] = [18888, 17];

struct Networks {
    now: Time,
    nodes: Vec<Stack>,
    /// Frames on their way, by arrival: {receiver, bearer, bytes}.
    flying: BTreeMap<(Time, u64), (usize, BearerId, Vec<u8>)>,
    count: u64,
    downs: usize,
    /// Number of the last frame that was sent on the first bearer, and the most that one of the second lagged behind.
    sent: u64,
    lag: u64,
}

fn media(node: usize, bearer: BearerId) -> MediaAddr {
    MediaAddr::Udp(format!("10.0.{bearer}.{}:6118", node + 1).parse().unwrap())
}

impl Networks {
    fn new() -> Self {
        let now = Time::from_millis(1000);
        let made = |node: usize| {
            let encryption = EncryptionConfig { strict: true, clock_at_zero: CLOCK, secret: None };
            let seed = node as u64 + 1;
            let config = StackConfig { identity: Some(id(node)), seed, encryption, ..StackConfig::default() };
            let mut stack = Stack::new(now, config);
            stack.set_key(now, KeyUse::Cluster, key(KEY1)).unwrap();
            for bearer in 0..2 {
                let name = ["udp:A", "udp:B"][usize::from(bearer)];
                let config =
                    BearerConfig { max_window: 8191, ..BearerConfig::new(name, media(node, bearer), 1472) };
                stack.enable_bearer(now, config).unwrap();
            }
            stack
        };
        let nodes = vec![made(0), made(1)];
        Self { now, nodes, flying: BTreeMap::new(), count: 0, downs: 0, sent: 0, lag: 0 }
    }

    fn collect(&mut self) {
        for from in 0..2 {
            let batch = std::mem::take(self.nodes[from].frames());
            for frame in batch.frames() {
                let bytes = batch.frame(frame).to_vec();
                let at = Time::from_nanos(self.now.as_nanos() + LATENCY_US[usize::from(frame.bearer)] * 1000);
                self.count += 1;
                if frame.bearer == 0 && from == 1 {
                    self.sent = self.count;
                }
                self.flying.insert((at, self.count), (1 - from, frame.bearer, bytes));
            }
            while let Some(event) = self.nodes[from].poll_event() {
                self.downs += usize::from(matches!(event, Event::LinkDown { .. }));
            }
            while self.nodes[from].poll_ready().is_some() {}
        }
    }

    /// Lets one millisecond pass.
    fn step(&mut self) {
        let end = self.now.plus_millis(1);
        loop {
            self.collect();
            let timeout = self.nodes.iter().filter_map(Stack::deadline).min();
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = timeout.into_iter().chain(arrival).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let ((_, number), (to, bearer, bytes)) = entry.remove_entry();
                assert!(Encrypted::is_encrypted(&bytes));
                if bearer == 1 && to == 0 {
                    self.lag = self.lag.max(self.sent.saturating_sub(number));
                }
                self.nodes[to].receive(self.now, bearer, &bytes);
            }
            for node in &mut self.nodes {
                if node.deadline().is_some_and(|at| at <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }
}

#[test]
fn two_bearers_50_ms_apart_at_full_rate_lose_nothing() {
    let mut net = Networks::new();
    (0..5000).for_each(|_| net.step());
    assert_eq!(net.nodes[0].links().iter().filter(|link| link.up).count(), 2, "{:?}", net.nodes[0].links());
    let [service, instance] = FIRST.map(|number| number as u32);
    let receiver = net.nodes[0].open(net.now, SocketKind::Rdm).unwrap();
    net.nodes[0]
        .bind(net.now, receiver, ServiceRange::new(service, instance, instance), Scope::Cluster)
        .unwrap();
    // The low bit of a socket's port chooses the link.
    let senders: Vec<u32> = (0..8).map(|_| net.nodes[1].open(net.now, SocketKind::Rdm).unwrap()).collect();
    let of_link = |bit: u32| senders.iter().copied().find(|port| port & 1 == bit).unwrap();
    let senders = [of_link(0), of_link(1)];
    (0..200).for_each(|_| net.step());
    let (mut sent, mut got) = ([0u32; 2], [0u32; 2]);
    let mut buffer = vec![0; 2000];
    for milli in 0..MILLIS + 2000 {
        for link in 0..2 {
            for _ in 0..if milli < MILLIS { RATE } else { 0 } {
                let data = [[link as u32, sent[link]].map(u32::to_be_bytes).concat(), vec![0; 1200]].concat();
                let to = Some(Destination::service(service, instance));
                if net.nodes[1].send(net.now, senders[link], &data, to).is_err() {
                    break;
                }
                sent[link] += 1;
            }
        }
        net.step();
        while net.nodes[0].recv(net.now, receiver, &mut buffer, RecvOptions::default()).is_ok() {
            let link = usize::from(buffer[3]);
            let number = u32::from_be_bytes(buffer[4..8].try_into().unwrap());
            assert_eq!(number, got[link], "a message was lost or reordered");
            got[link] += 1;
        }
    }
    assert_eq!(got, sent);
    assert!(net.lag >= 5000, "the second bearer lagged {} frames behind", net.lag);
    for node in &net.nodes {
        assert_eq!(node.encryption().stats.replayed, 0);
        assert!(node.links().iter().all(|link| link.stats.retransmitted == 0), "{:?}", node.links());
    }
    assert_eq!(net.downs, 0);
}

/// An attacker records on one network, and may hold a frame back there; on the other network he can send.
#[test]
fn frames_of_one_bearer_are_refused_on_another() {
    let mut net = Networks::new();
    (0..5000).for_each(|_| net.step());
    let before = net.nodes[0].encryption().stats;
    let mut moved = 0;
    for _ in 0..3000 {
        net.collect();
        let flying: Vec<_> = net.flying.iter().map(|(at, frame)| (*at, frame.clone())).collect();
        for (at, (to, bearer, bytes)) in flying.into_iter().filter(|(_, frame)| frame.0 == 0) {
            // Every third frame is held back, so the receiver sees it on the wrong bearer alone.
            if at.1.is_multiple_of(3) {
                net.flying.remove(&at);
            }
            if Encrypted::parse(&bytes).unwrap().user == User::LinkProtocol {
                moved += 1;
                net.nodes[to].receive(net.now, 1 - bearer, &bytes);
            }
        }
        net.step();
    }
    let after = net.nodes[0].encryption().stats;
    assert!(moved > 10, "{moved}");
    assert!(after.replayed - before.replayed >= moved, "{moved} were moved: {after:?}");
    assert_eq!(net.downs, 0);
}
