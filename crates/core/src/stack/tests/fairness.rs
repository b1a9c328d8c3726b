//! Many blocked senders share a receiver, or several.

use super::*;
use crate::socket::SendError;

const SENDERS: usize = 1000;
/// Messages of each sender on average that a test counts.
const ROUNDS: usize = 100;

/// Senders on one node and receivers, on the same node or another one.
struct Field {
    lan: Lan,
    senders: Vec<u32>,
    at: usize,
    receivers: Vec<u32>,
    /// Messages that each sender has sent.
    served: BTreeMap<u32, usize>,
}

impl Field {
    fn new(nodes: usize, receivers: usize) -> Self {
        let mut lan = Lan::new(nodes);
        lan.run(3000);
        let at = nodes - 1;
        let receivers = (0..receivers).map(|_| {
            let receiver = lan.nodes[at].open(lan.now, SocketKind::Rdm).unwrap();
            lan.nodes[at].bind(lan.now, receiver, RANGE, Scope::Cluster).unwrap();
            receiver
        });
        let receivers = receivers.collect();
        lan.run(1000);
        let senders = (0..SENDERS).map(|_| lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap()).collect();
        Self { lan, senders, at, receivers, served: BTreeMap::new() }
    }

    /// Sends until the sender would block.
    fn send_all(&mut self, sender: u32, data: &[u8]) {
        let to = Some(Destination::service(18888, 17));
        let node = &mut self.lan.nodes[0];
        for _ in 0..1_000_000 {
            match node.send(self.lan.now, sender, data, to) {
                Ok(_) => *self.served.entry(sender).or_default() += 1,
                Err(SendError::WouldBlock) => return,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("sender {sender} is never stopped");
    }

    /// Receives so many messages of each receiver; returns how many there were.
    fn receive(&mut self, most: usize, buffer: &mut [u8]) -> usize {
        let (node, now) = (&mut self.lan.nodes[self.at], self.lan.now);
        let mut received = 0;
        for receiver in &self.receivers {
            for _ in 0..most {
                match node.recv(now, *receiver, buffer, RecvOptions::default()) {
                    Ok(got) => assert_eq!(got.returned, None),
                    Err(RecvError::WouldBlock) => break,
                    Err(other) => panic!("{other}"),
                }
                received += 1;
            }
        }
        received
    }

    /// Lets the senders run in the order in which they are reported as writable. Counts from when all have been
    /// stopped.
    fn run(mut self, size: usize, read: usize) -> (usize, usize) {
        let (data, mut buffer) = (vec![7; size], vec![0; size]);
        let all = self.senders.clone();
        for sender in &all {
            self.send_all(*sender, &data);
        }
        self.served.clear();
        let mut idle = 0;
        while self.served.values().sum::<usize>() < ROUNDS * SENDERS {
            self.lan.step();
            if self.receive(read, &mut buffer) == 0 {
                idle += 1;
                assert!(idle < 1000, "senders and receiver wait for each other");
                self.lan.run(1);
            }
            self.lan.note_ready(0);
            for port in core::mem::take(&mut self.lan.ready[0]) {
                if all.contains(&port) {
                    self.send_all(port, &data);
                }
            }
        }
        for receiver in &self.receivers {
            let receiver = self.lan.nodes[self.at].endpoint(*receiver).unwrap();
            assert_eq!(receiver.stats().overloads, 0, "a message was rejected");
        }
        let counts = all.iter().map(|sender| self.served.get(sender).copied().unwrap_or(0));
        (counts.clone().max().unwrap_or(0), counts.min().unwrap_or(0))
    }
}

#[test]
fn thousand_blocked_senders_on_one_node_are_served_alike() {
    for (size, read) in [(1000, 100), (1000, 5000), (20_000, 7)] {
        let (most, least) = Field::new(1, 1).run(size, read);
        assert!(most <= 2 * least, "{size} bytes, {read} at a time: {most} and {least} messages");
    }
}

#[test]
fn thousand_blocked_senders_on_another_node_are_served_alike() {
    for (size, read) in [(1000, 100), (1000, 5000), (20_000, 40)] {
        let (most, least) = Field::new(2, 1).run(size, read);
        assert!(most <= 2 * least, "{size} bytes, {read} at a time: {most} and {least} messages");
    }
}

#[test]
fn thousand_blocked_senders_to_any_of_several_receivers_are_served_alike() {
    for (size, read) in [(1000, 100), (1000, 5000), (20_000, 7)] {
        let (most, least) = Field::new(1, 4).run(size, read);
        assert!(most <= 2 * least, "{size} bytes, {read} at a time: {most} and {least} messages");
    }
}
