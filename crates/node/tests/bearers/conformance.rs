//! Requirements of every bearer.

use std::time::{Duration, Instant};

use utipc_core::outbox::{FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_node::bearers::Bearer;
use utipc_os::reactor::{Interest, Reactor};

type Bearers = Vec<Box<dyn Bearer>>;

/// The bearer id that the suite sends with; any id must work.
const ID: u8 = 2;

/// Longest wait for a frame that must arrive, even on a loaded machine.
const MUST_COME: Duration = Duration::from_secs(20);

/// Time to wait for a frame that must not arrive.
const MUST_NOT_COME: Duration = Duration::from_millis(60);

/// A frame with its sender and its number. Every frame has at least 24 bytes, as the shortest TIPC message.
pub(crate) fn frame(sender: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> =
        (0..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[0] = sender;
    frame[1..5].copy_from_slice(&number.to_be_bytes());
    frame
}

pub(crate) fn batch_of(frames: &[(Target, Vec<u8>)]) -> FrameBatch {
    let mut batch = FrameBatch::default();
    for (to, frame) in frames {
        batch.push(ID, *to, frame);
    }
    batch
}

/// Bearers of one medium, driven by their descriptors; each has an inbox for arrived frames.
pub(crate) struct Rig {
    bearers: Bearers,
    inboxes: Vec<Vec<(MediaAddr, Vec<u8>)>>,
}

impl Rig {
    pub(crate) fn new(bearers: Bearers) -> Rig {
        let inboxes = bearers.iter().map(|_| Vec::new()).collect();
        Rig { bearers, inboxes }
    }

    pub(crate) fn into_bearers(self) -> Bearers {
        self.bearers
    }

    pub(crate) fn send(&mut self, from: usize, to: Target, frame: &[u8]) {
        self.send_all(from, &[(to, frame.to_vec())]);
    }

    pub(crate) fn send_all(&mut self, from: usize, frames: &[(Target, Vec<u8>)]) {
        self.bearers[from].send(ID, &batch_of(frames));
    }

    pub(crate) fn to(&self, at: usize) -> Target {
        Target::Unicast(self.bearers[at].local_address())
    }

    pub(crate) fn len(&self) -> usize {
        self.bearers.len()
    }

    pub(crate) fn close(&mut self, at: usize) {
        self.inboxes.remove(at);
        drop(self.bearers.remove(at));
    }

    /// Drives all bearers until `count` frames are in the inbox of `at` or `limit` has passed,
    /// and empties that inbox.
    pub(crate) fn gather(&mut self, at: usize, count: usize, limit: Duration) -> Vec<(MediaAddr, Vec<u8>)> {
        let mut reactor = Reactor::new().unwrap();
        for (index, bearer) in self.bearers.iter().enumerate() {
            for fd in bearer.fds() {
                reactor.add(fd, index as u64, Interest::Read).unwrap();
            }
        }
        let (mut events, end) = (Vec::new(), Instant::now() + limit);
        while self.inboxes[at].len() < count {
            let Some(left) = end.checked_duration_since(Instant::now()) else { break };
            reactor.wait(Some(left), &mut events).unwrap();
            for event in &events {
                let inbox = &mut self.inboxes[event.token as usize];
                let bearer = &mut self.bearers[event.token as usize];
                bearer.receive(&mut |from, frame| inbox.push((from, frame.to_vec()))).unwrap();
            }
        }
        std::mem::take(&mut self.inboxes[at])
    }

    /// Receives exactly `count` frames, which must arrive.
    pub(crate) fn take(&mut self, at: usize, count: usize) -> Vec<(MediaAddr, Vec<u8>)> {
        let got = self.gather(at, count, MUST_COME);
        let tell = || self.bearers.iter().map(|it| (it.description(), it.counters())).collect::<Vec<_>>();
        assert_eq!(got.len(), count, "frames at bearer {at} of {:#?}", tell());
        got
    }

    fn nothing(&mut self, at: usize) {
        let got = self.gather(at, 1, MUST_NOT_COME);
        assert!(got.is_empty(), "{} got frames for others: {got:?}", self.bearers[at].description());
    }
}

impl std::ops::Index<usize> for Rig {
    type Output = dyn Bearer;
    fn index(&self, at: usize) -> &(dyn Bearer + 'static) {
        &*self.bearers[at]
    }
}

/// Whether a frame arrived unchanged. Ethernet pads short frames; the TIPC header has the true length.
fn same(got: &[u8], sent: &[u8]) -> bool {
    got.get(..sent.len()) == Some(sent) && got.len() <= sent.len().max(60)
}

pub(crate) fn unicast(mut bearers: Rig) {
    let target = bearers.to(1);
    let sent = frame(0, 1, 100);
    bearers.send(0, target, &sent);
    let got = bearers.take(1, 1);
    assert_eq!(got[0].0, bearers[0].local_address(), "the sender's address is its local address");
    assert!(same(&got[0].1, &sent));
    let back = bearers.to(0);
    bearers.send(1, back, &frame(1, 2, 24));
    let got = bearers.take(0, 1);
    assert_eq!(got[0].0, bearers[1].local_address());
    for other in 1..bearers.len() {
        bearers.nothing(other);
    }
}

pub(crate) fn broadcast(mut bearers: Rig) {
    let targets = bearers[0].broadcast_targets();
    assert!(!targets.is_empty() && !targets.contains(&bearers[0].local_address()));
    for sender in 0..bearers.len() {
        bearers.send(sender, Target::Broadcast, &frame(sender as u8, 7, 60));
        for receiver in (0..bearers.len()).filter(|it| *it != sender) {
            let got = bearers.take(receiver, 1);
            assert_eq!(got[0].0, bearers[sender].local_address());
            assert!(same(&got[0].1, &frame(sender as u8, 7, 60)));
        }
        bearers.nothing(sender);
    }
}

pub(crate) fn sizes(mut bearers: Rig) {
    let mtu = bearers[0].mtu();
    assert!(mtu >= 1280, "MTU below that of any bearer here: {mtu}");
    let target = bearers.to(1);
    let picked = (24..130).chain([mtu / 2, mtu - 1, mtu]);
    for (number, len) in picked.enumerate() {
        let sent = frame(0, number as u32, len);
        bearers.send(0, target, &sent);
        let got = bearers.take(1, 1);
        assert!(same(&got[0].1, &sent), "{len} bytes arrived as {}", got[0].1.len());
    }
}

pub(crate) fn refusals(mut bearers: Rig) {
    let mtu = bearers[0].mtu();
    let target = bearers.to(1);
    let frames =
        [(target, frame(0, 1, 40)), (target, vec![0; mtu + 1]), (target, vec![]), (target, frame(0, 2, 40))];
    bearers.send_all(0, &frames);
    let got = bearers.take(1, 2);
    assert!(same(&got[0].1, &frames[0].1) && same(&got[1].1, &frames[3].1));
    let counters = bearers[0].counters();
    assert_eq!((counters.tx_refused, counters.tx_frames), (2, 2), "{counters:?}");
}

pub(crate) fn thousand_in_order(mut bearers: Rig) {
    // Sizes change often and repeat sometimes, so that runs of every length occur. The receiver reads between the
    // parts, because a wire holds no more than its buffer.
    let target = bearers.to(1);
    let len = |number: u32| 64 + (number / 7 % 5) as usize * 100;
    for part in 0..10_u32 {
        let numbers = part * 100..(part + 1) * 100;
        let frames: Vec<_> = numbers.clone().map(|it| (target, frame(0, it, len(it)))).collect();
        bearers.send_all(0, &frames);
        let got = bearers.take(1, 100);
        for (number, (_, got)) in numbers.zip(got) {
            assert_eq!(got, frame(0, number, len(number)), "frame {number}");
        }
    }
    // Then a thousand at once, small enough for the smallest buffer.
    let frames: Vec<_> = (0..1000).map(|it| (target, frame(0, it, 64))).collect();
    bearers.send_all(0, &frames);
    let got = bearers.take(1, 1000);
    assert!(got.iter().enumerate().all(|(number, (_, got))| *got == frame(0, number as u32, 64)));
    assert_eq!(bearers[0].counters().tx_dropped, 0);
}

pub(crate) fn runs(mut bearers: Rig) {
    let target = bearers.to(1);
    // To all: equal frames, then a shorter one that ends the run, then another run.
    let lens = [800, 800, 800, 800, 300, 500, 500];
    for to in [target, Target::Broadcast] {
        let frames: Vec<_> = (0..).zip(lens).map(|(number, len)| (to, frame(0, number, len))).collect();
        bearers.send_all(0, &frames);
        let receivers = if to == target { 1..2 } else { 1..bearers.len() };
        for receiver in receivers {
            let got = bearers.take(receiver, lens.len());
            for ((_, got), (_, sent)) in got.iter().zip(&frames) {
                assert_eq!(got, sent);
            }
        }
    }
}

pub(crate) fn other_bearers(mut bearers: Rig) {
    let target = bearers.to(1);
    let mut batch = FrameBatch::default();
    batch.push(0, target, &frame(0, 1, 100));
    batch.push(ID, target, &frame(0, 2, 100));
    batch.push(1, target, &frame(0, 3, 100));
    bearers.bearers[0].send(ID, &batch);
    let got = bearers.take(1, 1);
    assert_eq!(got[0].1, frame(0, 2, 100));
    bearers.nothing(1);
    // A frame to an address of another medium is dropped without further effect.
    let alien = match bearers[0].local_address() {
        MediaAddr::Ethernet(_) => MediaAddr::Udp("127.0.0.1:9".parse().unwrap()),
        MediaAddr::Udp(_) => MediaAddr::Ethernet([2, 0, 0, 0, 0, 9]),
    };
    bearers.send(0, Target::Unicast(alien), &frame(0, 4, 100));
    bearers.nothing(1);
}

pub(crate) fn counters(mut bearers: Rig) {
    let target = bearers.to(1);
    let frames: Vec<_> = (0..5).map(|number| (target, frame(0, number, 200))).collect();
    bearers.send_all(0, &frames);
    bearers.take(1, 5);
    bearers.send(0, Target::Broadcast, &frame(0, 9, 100));
    for receiver in 1..bearers.len() {
        bearers.take(receiver, 1);
    }
    let copies = if bearers[0].has_broadcast() { 1 } else { bearers.len() as u64 - 1 };
    let (tx, rx) = (bearers[0].counters(), bearers[1].counters());
    assert_eq!((tx.tx_frames, tx.tx_bytes), (5 + copies, 1000 + 100 * copies), "{tx:?}");
    assert_eq!((tx.tx_dropped, tx.tx_refused, tx.rx_frames), (0, 0, 0), "{tx:?}");
    assert_eq!((rx.rx_frames, rx.rx_bytes, rx.tx_frames), (6, 1100, 0), "{rx:?}");
    assert_eq!((rx.rx_errors, rx.rx_truncated), (0, 0), "{rx:?}");
    assert!(bearers[0].description().starts_with(bearers[0].name()));
}

pub(crate) fn close(mut bearers: Rig) {
    let target = bearers.to(1);
    bearers.close(1);
    // Twice to a closed bearer: an error returned for the first must not affect the second.
    for number in 0..2 {
        bearers.send(0, target, &frame(0, number, 100));
        bearers.nothing(0);
    }
    if bearers.len() > 1 {
        bearers.send(0, Target::Broadcast, &frame(0, 3, 100));
        assert_eq!(bearers.take(1, 1)[0].1, frame(0, 3, 100));
    }
}
