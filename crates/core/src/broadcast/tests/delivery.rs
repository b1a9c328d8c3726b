//! One sender and three receivers in virtual time, on a network that loses, duplicates and reorders.

use super::*;
use crate::rng::Rng;

const TICK_MS: u64 = 375;
const TOLERANCE_MS: u32 = 1500;

struct Peer {
    addr: NodeAddr,
    rx: BroadcastReceiver,
    /// The sender's receiving state for this peer, which never broadcasts.
    at_sender: BroadcastReceiver,
    got: Vec<u32>,
    first: u32,
    deaf: bool,
}

#[derive(Clone)]
enum Packet {
    Broadcast(Message),
    StateTo(Message),
    StateFrom(Message),
}

struct Net {
    s: Sender,
    peers: Vec<Peer>,
    rng: Rng,
    loss_percent: u64,
    /// Packets in flight: time of arrival, receiving peer, packet.
    wire: Vec<(u64, NodeAddr, Packet)>,
    failed: Vec<NodeAddr>,
    sent: u32,
}

impl Net {
    fn new(seed: u64, first_seqno: u16, loss_percent: u64) -> Self {
        let mut net = Self {
            s: Sender::new(first_seqno),
            peers: Vec::new(),
            rng: Rng::new(seed),
            loss_percent,
            wire: Vec::new(),
            failed: Vec::new(),
            sent: 0,
        };
        (2..5).for_each(|n| net.join(n));
        net
    }

    fn join(&mut self, n: u32) {
        let addr = node(n);
        let last = self.s.add(addr);
        let (rx, at_sender) = (receiver(addr, last), receiver(node(1), 0));
        self.peers.push(Peer { addr, rx, at_sender, got: vec![], first: self.sent, deaf: false });
    }

    fn leave(&mut self, n: u32) {
        self.peers.retain(|p| p.addr != node(n));
        self.wire.retain(|(_, at, _)| *at != node(n));
        self.s.remove(node(n));
    }

    fn send(&mut self, len: usize) {
        self.s.send(multicast(self.sent, len)).unwrap();
        self.sent += 1;
    }

    fn post(&mut self, at: NodeAddr, packet: Packet) {
        for copy in 0..2 {
            let lost = self.rng.below(100) < self.loss_percent;
            let repeated = copy == 0 || self.rng.below(100) < self.loss_percent;
            if repeated && !lost {
                let delay = 1 + self.rng.below(1 + self.loss_percent);
                self.wire.push((self.s.now.as_millis() + delay, at, packet.clone()));
            }
        }
    }

    fn state_from(&mut self, peer: usize) {
        let p = &mut self.peers[peer];
        let (addr, m) = (p.addr, state(p.addr, node(1), &p.rx, 0, false));
        p.rx.state_sent();
        self.post(addr, Packet::StateFrom(m));
    }

    fn arrive(&mut self, at: NodeAddr, packet: Packet) {
        let Some(peer) = self.peers.iter().position(|p| p.addr == at && !p.deaf) else { return };
        let p = &mut self.peers[peer];
        match packet {
            Packet::Broadcast(m) => {
                let mut out = VecDeque::new();
                let due = p.rx.receive(m.view(), CLUSTER, usize::MAX, &mut out).unwrap_or(false);
                p.got.extend(out.iter().map(number));
                if due {
                    self.state_from(peer);
                }
            }
            Packet::StateTo(m) => {
                if p.rx.announce(m.last_bcast()) || m.probe() {
                    self.state_from(peer);
                }
            }
            Packet::StateFrom(m) => {
                let io = &mut BroadcastIo { frames: &mut self.s.frames, wakeups: &mut self.s.wakeups };
                let (tx, now) = (&mut self.s.tx, self.s.now);
                receive_link_protocol(tx, &mut p.at_sender, now, at, m.view(), io).unwrap();
            }
        }
    }

    fn step(&mut self) {
        for m in self.s.sent() {
            for addr in self.peers.iter().map(|p| p.addr).collect::<Vec<_>>() {
                self.post(addr, Packet::Broadcast(m.clone()));
            }
        }
        self.s.now = self.s.now.plus_millis(1);
        let now = self.s.now.as_millis();
        let (due, later) = core::mem::take(&mut self.wire).into_iter().partition(|(when, ..)| *when <= now);
        self.wire = later;
        let due: Vec<_> = due;
        for (_, at, packet) in due {
            self.arrive(at, packet);
        }
        if now.is_multiple_of(TICK_MS) {
            self.tick();
        }
    }

    fn tick(&mut self) {
        for peer in 0..self.peers.len() {
            let addr = self.peers[peer].addr;
            if self.peers[peer].rx.is_unacked() {
                self.state_from(peer);
            }
            if self.s.tx.is_waiting_for(addr) {
                // A link that receives nothing for a tick probes.
                let m = state(node(1), addr, &self.peers[peer].at_sender, self.s.tx.last_sent(), true);
                self.post(addr, Packet::StateTo(m));
            }
            if self.s.tx.tick_peer(addr, TICK_MS as u32, TOLERANCE_MS) {
                self.failed.push(addr);
            }
        }
    }

    fn run(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.step());
    }

    fn run_until_acknowledged(&mut self) {
        for _ in 0..120_000 {
            if self.s.tx.queued() == (0, 0) {
                return;
            }
            self.step();
        }
        panic!(
            "{:?} still queued, not acknowledged by {:?}",
            self.s.tx.queued(),
            self.s.tx.blocking_peers().collect::<Vec<_>>()
        );
    }

    fn check(&self) {
        for p in &self.peers {
            let want: Vec<u32> = (p.first..self.sent).collect();
            assert_eq!(p.got, want, "at {}", p.addr);
        }
        assert_eq!(self.failed, []);
    }
}

#[test]
fn every_peer_gets_everything_in_order_over_a_faulty_network() {
    for seed in 0..12 {
        let mut net = Net::new(seed, 1, [0, 2, 10][seed as usize % 3]);
        for n in 0..400 {
            let len = if n % 50 == 7 { 5000 } else { 300 };
            net.send(len);
            if n % 3 == 0 {
                net.step();
            }
        }
        net.run_until_acknowledged();
        net.check();
        assert_eq!(net.s.tx.stats().retransmitted > 0, net.loss_percent > 0, "seed {seed}");
        assert_eq!(net.s.tx.stats().implausible, 0);
    }
}

#[test]
fn sequence_numbers_wrap_under_load() {
    for seed in 0..4 {
        let mut net = Net::new(seed, 0u16.wrapping_sub(100), 5);
        for n in 0..300 {
            net.send(if n % 40 == 0 { 4000 } else { 100 });
            net.step();
        }
        net.run_until_acknowledged();
        net.check();
        assert!(net.s.tx.last_sent() < 1000, "the numbers did not wrap");
    }
}

#[test]
fn new_peer_gets_everything_sent_after_it_joined() {
    for seed in 0..6 {
        let mut net = Net::new(seed, 1, 8);
        for n in 0..300 {
            if n == 100 {
                net.join(5);
            }
            net.send(200);
            net.step();
        }
        net.run_until_acknowledged();
        net.check();
        // Packets that waited for the window when the peer joined are sent to it too.
        assert!(net.peers[3].first <= 100);
    }
}

#[test]
fn lost_peer_does_not_block_the_window() {
    let mut net = Net::new(3, 1, 0);
    net.peers[1].deaf = true;
    for _ in 0..200 {
        net.send(200);
    }
    net.run(1000);
    assert_eq!(net.s.tx.queued().0, 50, "a lost peer does not block the window");
    assert_eq!(net.s.tx.blocking_peers().collect::<Vec<_>>(), [node(3)]);
    net.leave(3);
    net.run_until_acknowledged();
    net.check();
}

#[test]
fn peer_without_acknowledgements_fails_after_ten_tolerances() {
    let mut net = Net::new(3, 1, 0);
    net.peers[1].deaf = true;
    net.send(200);
    net.run(15_000);
    assert_eq!(net.failed, []);
    net.run(2 * TICK_MS);
    assert!(net.failed.contains(&node(3)));
    assert!(net.failed.iter().all(|n| *n == node(3)));
}

#[test]
fn sequence_restarts_without_peers() {
    let mut net = Net::new(4, 1, 0);
    net.send(200);
    for n in 2..5 {
        net.leave(n);
    }
    assert_eq!((net.s.tx.last_sent(), net.s.tx.queued()), (0, (0, 0)));
    net.s.sent();
    net.send(200);
    assert_eq!(net.s.sent_numbers(), [], "no peer is linked");
    net.join(9);
    net.send(200);
    assert_eq!(net.s.sent_numbers(), [1]);
}
