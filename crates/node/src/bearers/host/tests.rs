//! How a broken or slow process of the same user affects a node.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use utipc_lanes::Arena;
use utipc_os::fdpass::Got;
use utipc_os::reactor::Waker;
use utipc_os::shm::{Memory, Segment};

use super::*;

/// A bearer id; any works.
const ID: BearerId = 1;

struct Host(PathBuf);

impl Host {
    fn new() -> Host {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Host(std::env::temp_dir().join(format!("utipc-host-unit-{}-{serial}", std::process::id())))
    }

    fn node(&self) -> HostBearer {
        HostBearer::open(&HostConfig { directory: Some(self.0.clone()), ..HostConfig::default() }).unwrap()
    }

    /// A connection to a node, as a broken process makes it.
    fn connect(&self, to: &HostBearer) -> Channel {
        Channel::connect(&self.0.join(to.directory.own().to_string())).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn received(bearer: &mut HostBearer) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while bearer.receive(&mut |_, frame| frames.push(frame.to_vec())).unwrap() {}
    frames
}

fn batch(to: Target, frames: &[Vec<u8>]) -> FrameBatch {
    let mut batch = FrameBatch::default();
    frames.iter().for_each(|frame| batch.push(ID, to, frame));
    batch
}

/// Whether two nodes still exchange frames.
fn exchange(one: &mut HostBearer, other: &mut HostBearer) -> bool {
    one.send(ID, &batch(Target::Unicast(other.local_address()), &[vec![1; 40]]));
    other.send(ID, &batch(Target::Unicast(one.local_address()), &[vec![2; 40]]));
    received(other) == [vec![1; 40]] && received(one) == [vec![2; 40]]
}

#[test]
fn owned_address_is_only_the_first_of_its_node() {
    let host = Host::new();
    let address = Some(NodeAddr(0x0100_1001));
    let config = HostConfig { directory: Some(host.0.clone()), address, ..HostConfig::default() };
    let (first, second) = (HostBearer::open(&config).unwrap(), HostBearer::open(&config).unwrap());
    assert_eq!((first.owns_address(), second.owns_address()), (true, false));
    assert_eq!(first.local_address(), MediaAddr::Ethernet([2, 0, 1, 0, 0x10, 1]));
    assert_ne!(first.local_address(), second.local_address());
    drop(first);
    assert!(HostBearer::open(&config).unwrap().owns_address());
}

#[test]
fn connection_without_a_proper_hello_is_closed_and_others_work_on() {
    let host = Host::new();
    let (mut one, mut other) = (host.node(), host.node());
    received(&mut one);
    let silent = host.connect(&one);
    let pipe = std::io::pipe().unwrap();
    let fds: [BorrowedFd<'_>; 3] = [pipe.0.as_fd(), pipe.1.as_fd(), pipe.1.as_fd()];
    let hello = |version: u8| [&b"utipcHST"[..], &[version, 0, 0, 0], &[6, 0, 0, 0, 0, 1, 0, 0]].concat();
    let bad: [(&[u8], &[BorrowedFd<'_>]); 5] = [
        (b"x", &[]),
        (&[0; 20], &fds),
        (&hello(2), &fds),
        (&hello(1), &fds[..2]),
        // Descriptors that are not memory.
        (&hello(1), &fds),
    ];
    for (bytes, fds) in bad {
        let broken = host.connect(&one);
        broken.send(&[IoSlice::new(bytes)], fds, true).unwrap();
        received(&mut one);
        assert_eq!(broken.receive(&mut [0; 8], &mut Vec::new(), 0, true).unwrap(), Got::End, "{bytes:?}");
    }
    assert_eq!((one.peers().len(), one.unidentified.len()), (1, 1));
    assert!(exchange(&mut one, &mut other));
    drop(silent);
    received(&mut one);
    assert!(one.unidentified.is_empty());
}

#[test]
fn silent_connections_are_bounded() {
    let host = Host::new();
    let mut one = host.node();
    let silent: Vec<_> = (0..UNIDENTIFIED_MAX + 10)
        .map(|_| {
            let channel = host.connect(&one);
            received(&mut one);
            channel
        })
        .collect();
    assert_eq!(one.unidentified.len(), UNIDENTIFIED_MAX);
    assert_eq!(silent[0].receive(&mut [0; 8], &mut Vec::new(), 0, false).unwrap(), Got::End);
    let mut other = host.node();
    received(&mut one);
    assert!(exchange(&mut one, &mut other));
}

#[test]
fn malformed_memory_ends_only_the_link_of_its_writer() {
    let host = Host::new();
    let (mut one, mut other) = (host.node(), host.node());
    received(&mut one);
    // A process that makes an arena as a node does, and then scribbles over all of it but its header.
    let (arena, fd) = Arena::create("utipc-test", peer::SHAPE).unwrap();
    for side in [utipc_lanes::Side::Zero, utipc_lanes::Side::One] {
        arena.open_slot(side, 0).unwrap();
    }
    let (ours, theirs) = (Waker::new().unwrap(), Waker::new().unwrap());
    let channel = host.connect(&one);
    let from = HostAddress([6, 0, 0, 0, 0, 1]);
    let (theirs_fd, ours_fd) = (ours.share().unwrap(), theirs.share().unwrap());
    let memory = Segment::open(&fd, utipc_os::shm::Access::ReadWrite, 1 << 33).unwrap();
    Hello { from, arena: fd, theirs: theirs_fd, ours: ours_fd }.send(&channel).unwrap();
    received(&mut one);
    assert_eq!(one.peers().len(), 2);
    memory.write(128, &vec![0xa5; 64 << 10]);
    theirs.wake();
    received(&mut one);
    assert_eq!((one.peers(), one.take_gone()), (vec![other.local_address()], Some(from.media())));
    assert!(exchange(&mut one, &mut other));
}

#[test]
fn frames_for_a_peer_that_does_not_read_are_dropped_and_counted() {
    let host = Host::new();
    let (mut one, mut other) = (host.node(), host.node());
    received(&mut one);
    let to = Target::Unicast(other.local_address());
    let frames: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 60_000]).collect();
    for _ in 0..20 {
        one.send(ID, &batch(to, &frames));
    }
    let counters = one.counters();
    assert_eq!(counters.tx_frames + counters.tx_dropped, 400);
    assert!(counters.tx_dropped > 0 && counters.tx_frames >= 64, "{counters:?}");
    // The ring has grown, and all that it took arrives in order.
    let got = received(&mut other);
    assert_eq!(got.len() as u64, counters.tx_frames);
    assert!(got.iter().zip(frames.iter().cycle()).take(20).all(|(got, sent)| got == sent));
    assert!(exchange(&mut one, &mut other));
}
