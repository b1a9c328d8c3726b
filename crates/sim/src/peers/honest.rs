//! Honest nodes and their traffic, every message of which is checked.

use std::collections::BTreeSet;

use utipc_bench_kit::numbered::{self, Head};
use utipc_core::{
    BearerConfig, Destination, Event, MediaAddr, NodeAddr, PortId, RecvOptions, Scope, ServiceRange,
    SocketKind, Stack, StackConfig, Time,
};

/// Service of the receivers.
const SERVICE: u32 = 1000;
/// Service of the bindings that change all the time.
const CHANGING: u32 = 2000;
/// Bindings that each honest node keeps.
const KEPT: u32 = 20;
/// Sizes of messages, bytes: one packet, and several fragments.
const SIZES: [usize; 4] = [64, 1200, 9000, 40_000];
/// Largest message, bytes.
const BUFFER: usize = 66_000;

/// An honest node. Its application sends numbered messages to the others and checks theirs.
#[derive(Debug)]
pub(super) struct Honest {
    pub(super) index: usize,
    pub(super) addr: NodeAddr,
    pub(super) stack: Stack,
    socket: u32,
    changing: u32,
    bound: BTreeSet<u32>,
    rounds: u32,
    /// Messages sent to, and received from, each node.
    sent: Vec<u32>,
    received: Vec<u32>,
    buffer: Vec<u8>,
}

pub(super) fn media(plane: u8, index: usize) -> MediaAddr {
    let at = format!("10.{plane}.0.{}:6118", index + 1);
    MediaAddr::Udp(at.parse().expect("an address"))
}

pub(super) fn address(index: usize) -> NodeAddr {
    NodeAddr::legacy(1, 1, 1 + index as u32)
}

impl Honest {
    /// Node `index` of `count`, with a bearer on each network.
    pub(super) fn new(now: Time, index: usize, count: usize, seed: u64) -> Self {
        let addr = address(index);
        let config = StackConfig { address: Some(addr), seed: seed + index as u64, ..StackConfig::default() };
        let mut stack = Stack::new(now, config);
        for plane in 0..2 {
            let bearer = BearerConfig::new(&format!("udp:{plane}"), media(plane, index), 1472);
            stack.enable_bearer(now, bearer).expect("a valid bearer");
        }
        let open = |stack: &mut Stack| stack.open(now, SocketKind::Rdm).expect("a socket");
        let (socket, changing) = (open(&mut stack), open(&mut stack));
        let range = ServiceRange::new(SERVICE, index as u32, index as u32);
        stack.bind(now, socket, range, Scope::Cluster).expect("a binding");
        Self {
            index,
            addr,
            stack,
            socket,
            changing,
            bound: BTreeSet::new(),
            rounds: 0,
            sent: vec![0; count],
            received: vec![0; count],
            buffer: vec![0; BUFFER],
        }
    }

    /// Sends a message to every node in `to` that is in contact and whose queue has room; binds and unbinds.
    pub(super) fn act(&mut self, now: Time, to: &[usize]) {
        self.rounds += 1;
        for &other in to {
            let number = self.sent[other];
            let len = SIZES[number as usize % SIZES.len()];
            let data = Head { flow: self.index as u64, number: number.into(), len, kind: 0 }.message();
            let port = Destination::service(SERVICE, other as u32);
            if self.stack.send(now, self.socket, &data, Some(port)).is_ok() {
                self.sent[other] += 1;
            }
        }
        if self.rounds.is_multiple_of(8) {
            self.change_bindings(now);
        }
    }

    fn change_bindings(&mut self, now: Time) {
        let instance = self.index as u32 * 1_000_000 + self.rounds;
        let range = |instance| ServiceRange::new(CHANGING, instance, instance);
        if self.stack.bind(now, self.changing, range(instance), Scope::Cluster).is_ok() {
            self.bound.insert(instance);
        }
        if self.bound.len() as u32 > KEPT
            && let Some(oldest) = self.bound.pop_first()
        {
            self.stack.unbind(now, self.changing, Some((range(oldest), Scope::Cluster))).ok();
        }
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    /// A message is lost, repeated, damaged or returned.
    pub(super) fn read(&mut self, now: Time) -> Result<(), String> {
        let mut buffer = core::mem::take(&mut self.buffer);
        while let Ok(got) = self.stack.recv(now, self.socket, &mut buffer, RecvOptions::default()) {
            self.check(&buffer[..got.len], got.source, got.returned.is_some())?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn check(&mut self, data: &[u8], from: PortId, is_returned: bool) -> Result<(), String> {
        let whom = format!("node {} from {}", self.index, from.node);
        if is_returned {
            return Err(format!("{whom}: a message came back"));
        }
        let Head { flow, number, .. } = numbered::check(data).map_err(|why| format!("{whom}: {why}"))?;
        let sender = usize::try_from(flow).unwrap_or(usize::MAX);
        let Some(expected) = self.received.get_mut(sender).filter(|_| address(sender) == from.node) else {
            return Err(format!("{whom}: a message of no honest node"));
        };
        if number != u64::from(*expected) {
            return Err(format!("{whom}: message {number} instead of {expected}"));
        }
        *expected += 1;
        Ok(())
    }

    /// The links that went down since the last call: {peer, reason}.
    pub(super) fn lost_links(&mut self) -> Vec<(NodeAddr, String)> {
        let events = std::iter::from_fn(|| self.stack.poll_event());
        let down = events.filter_map(|event| match event {
            Event::LinkDown { peer, reason, .. } => Some((peer, format!("{reason:?}"))),
            _ => None,
        });
        let down = down.collect();
        while self.stack.poll_ready().is_some() {}
        down
    }

    /// Messages that it received from `other`.
    pub(super) fn received_from(&self, other: usize) -> u32 {
        self.received[other]
    }

    /// Messages that it sent to `other`.
    pub(super) fn sent_to(&self, other: usize) -> u32 {
        self.sent[other]
    }

    /// Whether it has contact with a node.
    pub(super) fn knows(&self, other: NodeAddr) -> bool {
        self.stack.nodes().iter().any(|node| node.addr == other && node.up)
    }

    /// Whether it knows exactly the present bindings of `other`.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let bindings = self.stack.bindings();
        let of_other = bindings.iter().filter(|b| b.port.node == other.addr && b.range.service == CHANGING);
        of_other.map(|b| b.range.lower).collect::<BTreeSet<_>>() == other.bound
    }
}
