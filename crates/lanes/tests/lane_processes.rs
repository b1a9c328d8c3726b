//! Both ends of lanes as processes: under load, and with a peer that writes random data anywhere.
//!
//! Two seconds each; `UTIPC_STRESS_SECONDS=600 cargo test --release -p utipc-lanes --test lane_processes` for longer.

mod lane_support;

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use lane_support::process::{Peer, arena, role};
use lane_support::{Random, Receiver, Sender, Taken, receive_all};
use utipc_lanes::{Arena, LARGEST_CLASS, Side};
use utipc_os::shm::{Access, Memory, Segment};

fn duration() -> Duration {
    let seconds = std::env::var("UTIPC_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// The slots that both sides use.
const SLOTS: [u32; 3] = [0, 100, 16_383];

/// Sends and receives on all lanes until the time is over, and checks that everything arrives; returns the number of
/// messages received.
fn talk(arena: &Arena, me: Side, time: Duration) -> u64 {
    let (outgoing, incoming) = (arena.outgoing(me), arena.incoming(me));
    let mut receivers = SLOTS.map(|slot| Receiver::new(&incoming, slot));
    std::thread::scope(|scope| {
        for slot in SLOTS {
            let outgoing = &outgoing;
            scope.spawn(move || {
                let mut sender = Sender::new(arena, outgoing, me, slot, 66_000);
                let start = Instant::now();
                while start.elapsed() < time {
                    for _ in 0..64 {
                        sender.send().unwrap();
                    }
                    sender.flush().unwrap();
                    sender.shrink().unwrap();
                }
                sender.end().unwrap();
            });
        }
        receive_all(arena, me, &mut receivers).unwrap();
    });
    receivers.iter().map(Receiver::received).sum()
}

#[test]
fn two_processes_lose_nothing() {
    let (arena, fd) = arena();
    for slot in SLOTS {
        arena.open_slot(Side::Zero, slot).unwrap();
        arena.open_slot(Side::One, slot).unwrap();
    }
    let peer = Peer::spawn("peer", "talk", &[&fd]);
    let messages = talk(&arena, Side::Zero, duration());
    assert!(peer.wait().success());
    eprintln!("{messages} messages received in {} s on {} lanes", duration().as_secs(), SLOTS.len());
}

/// A lane to another process is not affected by the hostile peer.
#[test]
fn hostile_peer_affects_no_other_lane() {
    let (honest, fd) = arena();
    for slot in SLOTS {
        honest.open_slot(Side::Zero, slot).unwrap();
        honest.open_slot(Side::One, slot).unwrap();
    }
    let friend = Peer::spawn("peer", "talk", &[&fd]);
    let (shared, fd) = arena();
    let neighbour = Peer::spawn("peer", "scribble", &[&fd]);
    std::thread::scope(|scope| {
        scope.spawn(|| endure(&shared, duration()));
        talk(&honest, Side::Zero, duration());
    });
    drop(neighbour);
    assert!(friend.wait().success());
}

/// Uses an arena that the hostile peer overwrites: every call returns, with or without an error.
fn endure(arena: &Arena, time: Duration) {
    let (outgoing, incoming) = (arena.outgoing(Side::Zero), arena.incoming(Side::Zero));
    let bell = arena.doorbell(Side::Zero);
    let start = Instant::now();
    let (mut calls, mut errors, mut longest) = (0u64, 0u64, Duration::ZERO);
    let mut body = Vec::new();
    while start.elapsed() < time {
        let slot = (calls % 5) as u32;
        let begun = Instant::now();
        arena.open_slot(Side::Zero, slot).unwrap();
        arena.open_slot(Side::One, slot).unwrap();
        let mut sender = Sender::new(arena, &outgoing, Side::Zero, slot, 66_000);
        let mut receiver = Receiver::new(&incoming, slot);
        for n in 0..50 {
            // Contents are not checked: the hostile peer may have written them.
            match receiver.skim() {
                Ok(Taken::Message | Taken::End) => {}
                Ok(Taken::Nothing) => errors += u64::from(receiver.reader.arm().is_err()),
                Err(_) => errors += 1,
            }
            errors += u64::from(sender.try_send().is_err());
            if n % 10 == 0 {
                errors += u64::from(sender.shrink().is_err());
                let seen = bell.seq();
                bell.park().wait(seen, Some(Duration::from_micros(50)));
            }
        }
        incoming.take_ready(|_| ());
        outgoing.take_room(|_| ());
        for side in [Side::Zero, Side::One] {
            let _ = arena.freeze(side, slot).unwrap();
            let _ = arena.mark_gone(side, slot).unwrap();
            let Ok(mut left) = arena.recover(side, slot, LARGEST_CLASS) else { continue };
            while let Ok(Some(_)) = left.next_into(&mut body) {}
            arena.close_slot(side, slot).unwrap();
        }
        sender.into_writer().retire();
        calls += 1;
        longest = longest.max(begun.elapsed());
    }
    eprintln!("{calls} rounds, {errors} errors, the longest took {longest:?}");
    assert!(errors > 0, "the hostile peer did nothing");
}

/// The second process.
#[test]
fn peer() {
    let Some((role, channel, fds)) = role() else { return };
    let fd: OwnedFd = fds.into_iter().next().unwrap();
    if role == "talk" {
        talk(&Arena::open(fd).unwrap(), Side::One, duration());
        return;
    }
    // The channel ends with the first process.
    let memory = Segment::open(fd, Access::ReadWrite, 1 << 30).unwrap();
    let mut random = Random(1);
    let mut calls = 0u64;
    let region = [0, 600, 10_000, 9 << 20, (9 << 20) + 8192, (132 << 20) + 4096];
    while !calls.is_multiple_of(1000)
        || channel.receive(&mut [0; 8], &mut Vec::new(), 0, false).unwrap() == utipc_os::fdpass::Got::Nothing
    {
        calls += 1;
        let near = region[random.below(6) as usize];
        let at = match random.below(3) {
            0 => random.below(memory.size() as u64 / 8) * 8,
            1 => near + random.below(1024) * 8,
            _ => near + random.below(64) * 64,
        } as usize;
        let value = match random.below(4) {
            0 => random.next(),
            1 => memory.load64(at, Relaxed) ^ (1 << random.below(64)),
            2 => (1 << 63) | random.below(64),
            _ => (random.below(8) << 32) | random.below(300) | (random.below(32) << 40),
        };
        memory.store64(at, value, Relaxed);
    }
}
