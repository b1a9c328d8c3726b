//! Tests of the broadcast link.

mod delivery;
mod rules;

use std::collections::VecDeque;

use super::*;
use crate::addr::{ClusterId, NodeAddr};
use crate::limits::CAPABILITIES;
use crate::outbox::FrameBatch;
use crate::time::Time;
use crate::wire::{INTERNAL_HEADER, Message, User};

const CLUSTER: ClusterId = ClusterId(4711);

fn node(n: u32) -> NodeAddr {
    NodeAddr::legacy(1, 1, n)
}

/// A message given by its header words, as captures print them; missing words at its end are zero.
fn frame(words: &str) -> Message {
    let word = |w| u32::from_str_radix(w, 16).unwrap().to_be_bytes();
    let mut bytes: Vec<u8> = words.split_whitespace().flat_map(word).collect();
    bytes.resize((u32::from_be_bytes(bytes[..4].try_into().unwrap()) & 0x1_ffff) as usize, 0);
    Message::from_vec(bytes).unwrap()
}

/// A multicast as a socket submits it.
fn multicast(number: u32, len: usize) -> Message {
    let data: Vec<u8> = number.to_be_bytes().into_iter().chain((4..len).map(|n| n as u8)).collect();
    let mut m = Message::build(User::Low, 1, 44, &data);
    m.set_origin_port(0x1000);
    m.set_origin_node(node(1));
    m.set_prev_node(node(1));
    m.set_lookup_scope(2);
    m
}

fn number(m: &Message) -> u32 {
    u32::from_be_bytes(m.data()[..4].try_into().unwrap())
}

/// The STATE that node `from` sends to `to`.
fn state(from: NodeAddr, to: NodeAddr, rx: &BroadcastReceiver, last_bcast: u16, probe: bool) -> Message {
    let blocks = rx.gap_blocks();
    let mut data = ((4 + 4 * blocks.len()) as u16).to_be_bytes().to_vec();
    data.extend([0, blocks.len() as u8]);
    for (ack, gap) in blocks {
        data.extend(ack.to_be_bytes());
        data.extend(gap.to_be_bytes());
    }
    let mut m = Message::build(User::LinkProtocol, 0, INTERNAL_HEADER, &data);
    m.set_prev_node(from);
    m.set_dest_node(to);
    m.set_ack(1);
    m.set_bcast_ack(rx.ack());
    m.set_bcast_ack_invalid(!rx.is_open());
    m.set_bcast_gap(rx.gap());
    m.set_last_bcast(last_bcast);
    m.set_probe(probe);
    m
}

/// A sender at node 1 with its outputs; every peer is open at once.
struct Sender {
    tx: BroadcastSender,
    frames: FrameBatch,
    wakeups: Vec<crate::link::Wakeup>,
    now: Time,
}

impl Sender {
    fn new(first_seqno: u16) -> Self {
        let config = BroadcastConfig { first_seqno, ..BroadcastConfig::new(node(1), CLUSTER) };
        let tx = BroadcastSender::new(config);
        Self { tx, frames: FrameBatch::default(), wakeups: Vec::new(), now: Time::ZERO }
    }

    /// Adds a peer; returns the number at which its receiver starts.
    fn add(&mut self, peer: NodeAddr) -> u16 {
        self.tx.link_up(0, 1500, true);
        let init = self.tx.add_peer(peer);
        self.tx.open_peer(peer);
        init.last_bcast()
    }

    fn send(&mut self, m: Message) -> Result<Accepted, BroadcastFault> {
        self.tx.send(self.now, m, &mut self.frames)
    }

    fn ack(&mut self, peer: NodeAddr, ack: u16, gap: u16, blocks: &[(u16, u16)]) -> Acknowledged {
        let io = &mut BroadcastIo { frames: &mut self.frames, wakeups: &mut self.wakeups };
        self.tx.acknowledge(self.now, peer, (ack, gap), blocks, io)
    }

    fn remove(&mut self, peer: NodeAddr) {
        self.tx.link_down(0, 1500);
        let io = &mut BroadcastIo { frames: &mut self.frames, wakeups: &mut self.wakeups };
        self.tx.remove_peer(self.now, peer, io);
    }

    /// The packets sent since the last call.
    fn sent(&mut self) -> Vec<Message> {
        let out = self.frames.frames().iter().map(|f| self.frames.frame(f).to_vec());
        let out = out.map(|b| Message::from_vec(b).unwrap()).collect();
        self.frames.clear();
        out
    }

    fn sent_numbers(&mut self) -> Vec<u16> {
        self.sent().iter().map(Message::seqno).collect()
    }
}

fn receiver(own: NodeAddr, last_bcast: u16) -> BroadcastReceiver {
    let mut rx = BroadcastReceiver::new(own, CAPABILITIES);
    rx.synchronize(last_bcast);
    rx
}

fn deliver(rx: &mut BroadcastReceiver, packets: &[Message]) -> (Vec<u32>, Vec<Result<bool, Refused>>) {
    let mut out = VecDeque::new();
    let results = packets.iter().map(|p| rx.receive(p.view(), CLUSTER, usize::MAX, &mut out)).collect();
    (out.iter().map(number).collect(), results)
}
