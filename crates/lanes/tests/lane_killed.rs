//! A process is killed before each store that it makes to shared memory and before each system call on it. The lanes
//! that it leaves must be whole.

mod lane_support;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lane_support::process::{Peer, arena, role};
use rustix::process::{Signal, getpid, kill_process};
use utipc_lanes::{Arena, Kind, LARGEST_CLASS, LaneError, Peek, Reader, Side, Writer};
use utipc_os::fdpass::{Channel, Got, Put};
use utipc_os::shm::{Access, Fence, Memory, Segment};

/// A segment that kills the process at a given step.
struct Dying {
    segment: Segment,
    left: AtomicU64,
}

impl Dying {
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

impl Memory for Dying {
    fn size(&self) -> usize {
        self.segment.size()
    }
    fn load64(&self, at: usize, order: Ordering) -> u64 {
        self.segment.load64(at, order)
    }
    fn store64(&self, at: usize, value: u64, order: Ordering) {
        self.step();
        self.segment.store64(at, value, order);
    }
    fn swap64(&self, at: usize, value: u64) -> u64 {
        self.step();
        self.segment.swap64(at, value)
    }
    fn exchange64(&self, at: usize, from: u64, to: u64) -> bool {
        self.step();
        self.segment.exchange64(at, from, to)
    }
    fn or64(&self, at: usize, bits: u64) -> u64 {
        self.step();
        self.segment.or64(at, bits)
    }
    fn load32(&self, at: usize, order: Ordering) -> u32 {
        self.segment.load32(at, order)
    }
    fn store32(&self, at: usize, value: u32, order: Ordering) {
        self.step();
        self.segment.store32(at, value, order);
    }
    fn add32(&self, at: usize, value: u32) -> u32 {
        self.step();
        self.segment.add32(at, value)
    }
    fn or32(&self, at: usize, bits: u32) -> u32 {
        self.step();
        self.segment.or32(at, bits)
    }
    fn and32(&self, at: usize, bits: u32) -> u32 {
        self.step();
        self.segment.and32(at, bits)
    }
    fn fence(&self, which: Fence) {
        self.segment.fence(which);
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        self.segment.read(at, into);
    }
    fn write(&self, at: usize, from: &[u8]) {
        let (first, second) = from.split_at(from.len() / 2);
        self.step();
        self.segment.write(at, first);
        self.step();
        self.segment.write(at + first.len(), second);
    }
    fn wait32(&self, at: usize, expected: u32, timeout: Option<Duration>) {
        self.step();
        self.segment.wait32(at, expected, timeout);
    }
    fn wake32(&self, at: usize) {
        self.step();
        self.segment.wake32(at);
    }
    fn release(&self, range: Range<usize>) {
        self.step();
        self.segment.release(range);
    }
}

const SLOT: u32 = 9;
/// Messages that wait for the victim.
const WAITING: u64 = 12;

fn message(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![n as u8; len];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn is_message(bytes: &[u8], n: u64) -> bool {
    bytes == message(n, bytes.len())
}

fn next<M: Memory>(reader: &mut Reader<M>, n: u64) -> Option<Kind> {
    let Peek::Record(record) = reader.peek().unwrap() else { return None };
    let mut bytes = vec![0; record.len()];
    reader.copy_payload(&record, 0, &mut bytes);
    assert!(record.kind() != Kind::Data || is_message(&bytes, n), "not message {n}: {bytes:?}");
    reader.consume(record, 1);
    let _ = reader.take_wakeup();
    Some(record.kind())
}

/// The process that is killed: it uses every operation of both ends, and reports each message sent and consumed.
#[test]
fn victim() {
    let Some((role, channel, mut fds)) = role() else { return };
    let segment = Segment::open(fds.remove(0), Access::ReadWrite, 1 << 30).unwrap();
    let arena = Arena::attach(Dying { segment, left: AtomicU64::new(role.parse().unwrap()) }).unwrap();
    let outgoing = arena.outgoing(Side::One);
    let mut writer = outgoing.writer(SLOT).unwrap();
    let mut reader = arena.incoming(Side::One).reader(SLOT).unwrap();
    let bell = arena.doorbell(Side::One);
    let (mut sent, mut read) = (0, 0);
    let tell = |what: &[u8]| assert_eq!(channel.send(&[IoSlice::new(what)], &[], true).unwrap(), Put::Sent);
    let mut send = |writer: &mut Writer<Dying>, len: usize| {
        let done = writer.send(&message(sent, len), &[], 1);
        if done.is_ok() {
            tell(b"sent");
            sent += 1;
        }
        done
    };
    for _ in 0..3 {
        let _ = send(&mut writer, 50).unwrap();
    }
    // Read half of the waiting messages, then the rest, which ends in another ring; then arm the lane and sleep
    // briefly.
    while read < WAITING {
        if next(&mut reader, read).is_some() {
            tell(b"read");
            read += 1;
        }
        if read == WAITING / 2 {
            assert!(reader.arm().unwrap());
        }
    }
    reader.tell_daemon(true);
    assert!(!reader.arm().unwrap());
    let seen = bell.seq();
    bell.park().wait(seen, Some(Duration::from_micros(10)));
    arena.incoming(Side::One).take_ready(|_| ());
    reader.disarm();
    reader.tell_daemon(false);
    assert_eq!(send(&mut writer, 10_000), Err(LaneError::NeedsRing(1)));
    writer.grow(1).unwrap();
    let _ = send(&mut writer, 10_000).unwrap();
    writer.grow(1).unwrap();
    while send(&mut writer, 1500).is_ok() {}
    writer.want_room().unwrap();
    writer.ignore_room();
    let _ = writer.mark(Kind::End, &[]).unwrap();
    tell(b"end");
}

/// The victim's reports: messages sent, messages consumed, whether it ended by itself.
fn progress(channel: &Channel) -> (u64, u64, bool) {
    let (mut sent, mut read, mut ended) = (0, 0, false);
    let mut bytes = [0; 8];
    while let Got::Packet(len) = channel.receive(&mut bytes, &mut Vec::new(), 0, true).unwrap() {
        match &bytes[..len] {
            b"sent" => sent += 1,
            b"read" => read += 1,
            _ => ended = true,
        }
    }
    (sent, read, ended)
}

/// Kills the victim at `step`; returns whether it ended before.
fn die_at(step: u64) -> bool {
    let (arena, fd) = arena();
    for side in [Side::Zero, Side::One] {
        arena.open_slot(side, SLOT).unwrap();
    }
    let outgoing = arena.outgoing(Side::Zero);
    let incoming = arena.incoming(Side::Zero);
    let mut writer = outgoing.writer(SLOT).unwrap();
    let mut reader = incoming.reader(SLOT).unwrap();
    for n in 0..WAITING {
        if n == 7 {
            writer.grow(1).unwrap();
        }
        let _ = writer.send(&message(n, 300), &[], 1).unwrap();
    }
    assert!(!reader.arm().unwrap());
    let bell = arena.doorbell(Side::Zero);
    let seen = bell.seq();
    let parked = bell.park();

    let peer = Peer::spawn("victim", &step.to_string(), &[&fd]);
    let (sent, read, ended) = progress(&peer.channel);
    let status = peer.wait();
    assert_eq!(ended, status.success(), "{status}");

    // Recover as the daemon does, and read as the survivor does.
    let _ = arena.freeze(Side::One, SLOT).unwrap();
    assert_ne!(bell.seq(), seen, "the survivor sleeps on");
    drop(parked);
    assert!(incoming.has_ready());
    let mut got = 0;
    let mut last = None;
    while let Some(kind) = next(&mut reader, got) {
        got += u64::from(kind == Kind::Data);
        last = Some(kind);
    }
    assert_eq!(reader.peek(), Ok(Peek::Ended));
    assert!(got == sent || got == sent + 1, "{got} arrived of {sent}");
    assert!(!ended || last == Some(Kind::End));

    let _ = arena.mark_gone(Side::Zero, SLOT).unwrap();
    assert_eq!(writer.send(b"late", &[], 1), Err(LaneError::Gone { unsent: 0 }));
    let mut left = arena.recover(Side::Zero, SLOT, LARGEST_CLASS).unwrap();
    let mut body = Vec::new();
    let mut recovered = Vec::new();
    while left.next_into(&mut body).unwrap().is_some() {
        recovered.push(u64::from_le_bytes(body[..8].try_into().unwrap()));
        assert!(is_message(&body, recovered[recovered.len() - 1]));
    }
    let first = WAITING - recovered.len() as u64;
    assert!(recovered.into_iter().eq(first..WAITING));
    assert!(first == read || first == read + 1, "{first} consumed of {read}");

    // The slot can be used again.
    for side in [Side::Zero, Side::One] {
        arena.close_slot(side, SLOT).unwrap();
        arena.open_slot(side, SLOT).unwrap();
    }
    writer.retire();
    let mut writer = outgoing.writer(SLOT).unwrap();
    let mut reader = arena.incoming(Side::One).reader(SLOT).unwrap();
    let _ = writer.send(&message(0, 100), &[], 1).unwrap();
    assert_eq!(next(&mut reader, 0), Some(Kind::Data));
    ended
}

#[test]
fn process_killed_at_any_store_leaves_whole_lanes() {
    let mut step = 0;
    while !die_at(step) {
        step += 1;
        assert!(step < 2000, "the victim never ends");
    }
    eprintln!("killed at each of {step} steps");
}
