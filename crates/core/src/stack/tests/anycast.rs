//! The choice among the receivers of an anycast, and senders that wait for any of them.

use super::*;
use crate::socket::{OptionValue, SocketOption, WaitReason};
use crate::wire::ErrorCode;

const TO: Destination = Destination::service(RANGE.service, RANGE.lower);
const NOW: Time = Time::ZERO;

/// A node with a sender and some receivers of one service.
struct Service {
    node: Stack,
    sender: u32,
    receivers: Vec<u32>,
}

impl Service {
    fn new(receivers: usize) -> Self {
        let mut node = Stack::new(NOW, StackConfig { address: Some(NodeAddr(1)), ..StackConfig::default() });
        let sender = node.open(NOW, SocketKind::Rdm).unwrap();
        let receivers: Vec<u32> = (0..receivers).map(|_| node.open(NOW, SocketKind::Rdm).unwrap()).collect();
        for port in &receivers {
            node.bind(NOW, *port, RANGE, Scope::Cluster).unwrap();
        }
        while node.poll_ready().is_some() {}
        Self { node, sender, receivers }
    }

    fn send(&mut self, bytes: usize) -> Result<usize, SendError> {
        self.node.send(NOW, self.sender, &vec![1; bytes], Some(TO))
    }

    /// Sends until the sender would block; returns the number of messages.
    fn fill(&mut self, bytes: usize) -> usize {
        for count in 0..100_000 {
            match self.send(bytes) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error, SendError::WouldBlock);
                    return count;
                }
            }
        }
        panic!("the sender is never stopped");
    }

    fn unread(&self) -> Vec<usize> {
        let queued = |port: &u32| self.node.endpoint(*port).unwrap();
        self.receivers
            .iter()
            .map(|port| (queued(port).taken_with_queue() - queued(port).taken()) as usize)
            .collect()
    }

    fn read(&mut self, at: usize, most: usize) -> usize {
        let mut buffer = vec![0; 66_000];
        (0..most)
            .take_while(|_| {
                let got = self.node.recv(NOW, self.receivers[at], &mut buffer, RecvOptions::default());
                got.is_ok_and(|got| got.returned.is_none())
            })
            .count()
    }

    fn wait_reason(&self) -> Option<WaitReason> {
        self.node.endpoint(self.sender).unwrap().wait_reason()
    }

    fn is_writable(&self) -> bool {
        self.node.endpoint(self.sender).unwrap().readiness().writable
    }

    fn reported(&mut self) -> Vec<u32> {
        core::iter::from_fn(|| self.node.poll_ready()).collect()
    }
}

#[test]
fn idle_receivers_are_served_in_turn() {
    let mut service = Service::new(4);
    let mut order = Vec::new();
    for _ in 0..12 {
        service.send(100).unwrap();
        let got: Vec<usize> = (0..4).filter(|at| service.read(*at, 1) == 1).collect();
        assert_eq!(got.len(), 1);
        order.extend(got);
    }
    assert_eq!(order[..4], order[4..8]);
    assert_eq!(order[4..8], order[8..]);
    order[..4].sort_unstable();
    assert_eq!(order[..4], [0, 1, 2, 3]);
}

#[test]
fn receiver_that_does_not_read_gets_one_step_more_than_those_that_read() {
    let mut service = Service::new(3);
    let mut got = [0; 3];
    for _ in 0..3000 {
        service.send(100).unwrap();
        for (at, got) in got.iter_mut().enumerate().skip(1) {
            *got += service.read(at, 10);
        }
    }
    let [silent, ..] = service.unread()[..] else { unreachable!() };
    assert!((150..400).contains(&silent), "{silent} unread");
    assert!(got[1].abs_diff(got[2]) < 200, "{got:?}");
    assert_eq!(got[1] + got[2] + silent, 3000);
}

#[test]
fn of_many_receivers_the_next_eight_are_compared() {
    let mut service = Service::new(20);
    for _ in 0..20 * 300 {
        service.send(100).unwrap();
    }
    let unread = service.unread();
    assert!(unread.iter().all(|unread| (100..500).contains(unread)), "{unread:?}");
    // Those that are read from get the next ones, wherever they are in the ring.
    for at in [3, 17] {
        service.read(at, 1000);
    }
    for _ in 0..500 {
        service.send(100).unwrap();
    }
    assert!(service.unread()[3] + service.unread()[17] > 100, "{:?}", service.unread());
}

#[test]
fn sender_waits_for_any_receiver_when_all_are_full() {
    let mut service = Service::new(3);
    let sent = service.fill(60_000);
    let unread = service.unread();
    assert_eq!(unread.iter().sum::<usize>(), sent);
    assert!(unread.iter().max().unwrap() - unread.iter().min().unwrap() <= 4, "{unread:?}");
    let reason = WaitReason::ReceiversFull {
        service: ServiceAddr { service: RANGE.service, instance: RANGE.lower },
        receivers: 3,
    };
    assert_eq!(service.wait_reason(), Some(reason));
    assert_eq!(reason.to_string(), "waiting for any of 3 receivers of {18888,17} to read: all are full");
    assert!(!service.is_writable());
    assert!(service.reported().len() > 1);
    assert_eq!(service.send(1), Err(SendError::WouldBlock));
    assert_eq!(service.reported(), Vec::<u32>::new(), "a refused call is no news");
    // Whichever reads first.
    let before = service.unread();
    service.read(1, 1000);
    assert!(service.reported().contains(&service.sender));
    assert!(service.is_writable());
    assert_eq!(service.wait_reason(), None);
    assert_eq!(service.send(60_000), Ok(60_000));
    let after = service.unread();
    assert_eq!((after[0], after[1], after[2]), (before[0], 1, before[2]));
}

#[test]
fn receivers_that_do_not_read_are_passed_over_and_in_the_end_not_waited_for() {
    let mut service = Service::new(3);
    service.fill(60_000);
    let Service { node, sender, .. } = &mut service;
    node.set_option(NOW, *sender, SocketOption::DestDroppable, OptionValue::Number(0)).unwrap();
    // Their time ends.
    for millis in 1..200 {
        node.handle_timeout(Time::from_millis(millis));
    }
    assert!(service.reported().contains(&service.sender) && service.is_writable());
    let overloads = |service: &Service| {
        let all =
            service.receivers.iter().map(|port| service.node.endpoint(*port).unwrap().stats().overloads);
        all.sum::<u64>()
    };
    let before = overloads(&service);
    assert_eq!(service.send(60_000), Ok(60_000), "no receiver reads: the message comes back");
    assert_eq!(overloads(&service), before + 1);
    let mut buffer = vec![0; 66_000];
    let got = service.node.recv(NOW, service.sender, &mut buffer, RecvOptions::default()).unwrap();
    assert_eq!(got.returned.map(|returned| returned.code), Some(ErrorCode::Overload));
    // One that reads gets all, as long as it has room.
    service.read(2, 1000);
    let before = service.unread();
    for _ in 0..20 {
        service.send(60_000).unwrap();
    }
    assert_eq!(service.unread()[..2], before[..2]);
    assert_eq!(service.unread()[2], before[2] + 20);
}

#[test]
fn message_for_a_receiver_without_lane_goes_to_a_less_loaded_one() {
    let mut service = Service::new(3);
    let Service { node, sender, receivers } = &mut service;
    node.add_lane(*sender, receivers[2]);
    let found = PortId { port: receivers[0], node: node.own_node() };
    for _ in 0..600 {
        node.send_found(NOW, *sender, &[1; 100], TO, found).unwrap();
    }
    assert_eq!(node.take_diverted(), Vec::<u32>::new(), "a receiver with a lane was chosen");
    let unread = service.unread();
    assert!(unread[0] < 500 && unread[1] > 100 && unread[2] == 0, "{unread:?}");
}

#[test]
fn local_receiver_is_chosen_while_the_link_to_the_other_is_congested() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let far = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[1].bind(lan.now, far, RANGE, Scope::Cluster).unwrap();
    lan.run(100);
    let near = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(lan.now, near, RANGE, Scope::Cluster).unwrap();
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    let mut buffer = vec![0; 66_000];
    let mut got = 0;
    // Frames are not delivered: the link's queue fills.
    for _ in 0..400 {
        lan.nodes[0].send(lan.now, sender, &[1; 10_000], Some(TO)).unwrap();
        got += usize::from(lan.nodes[0].recv(lan.now, near, &mut buffer, RecvOptions::default()).is_ok());
    }
    assert!((300..400).contains(&got), "{got} of 400");
    assert!(lan.nodes[0].endpoint(sender).unwrap().readiness().writable);
    // Without the local one the sender waits for the link.
    lan.nodes[0].unbind(lan.now, near, None).unwrap();
    let refused = (0..100).find_map(|_| lan.nodes[0].send(lan.now, sender, &[1; 10_000], Some(TO)).err());
    assert_eq!(refused, Some(SendError::WouldBlock));
    lan.run(3000);
    assert!(lan.nodes[0].endpoint(sender).unwrap().readiness().writable);
}
