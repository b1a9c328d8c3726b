//! A neighbour that scribbles over every byte that it may write, and reads, fills, shuts down and re-flags every
//! descriptor that it was given. Others at the same daemon must not miss a wake-up.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use utipc_attach::{LaneEnd, Notice, Request, encode};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::SocketKind;
use utipc_lanes::{Arena, Incoming, Peek, Reader, Side, Writer};
use utipc_os::fdpass::Channel;
use utipc_os::futex::Woken;
use utipc_os::packets;
use utipc_os::shm::{Access, Memory, Segment};

use crate::client::{Client, Host};
use crate::lanes::{Lanes, Two};

const SERVICE: ServiceRange = ServiceRange::new(4200, 1, 1);

/// How long the pair talks, once in peace and once beside the neighbour.
const TIME: Duration = Duration::from_millis(1500);

/// The longest sleep, which is what a missed wake-up may cost: one that ends by itself although the other side had rung
/// before it was over has missed its wake-up. No load of the machine can feign that, for both moments are the caller's.
const WANTED: Duration = Duration::from_millis(10);

/// A message that has not come by then never will.
const LOST: Duration = Duration::from_secs(60);

/// One end of a connection in lanes.
struct End {
    arena: Arena,
    me: Side,
    incoming: Incoming,
    writer: Writer,
    reader: Reader,
    /// Messages received.
    received: u64,
    /// Sleeps, and of these, wake-ups missed.
    sleeps: u64,
    missed: u64,
}

/// What a sender has done, for the other end to judge its own sleep by.
#[derive(Default)]
struct Rung {
    /// Messages sent: written, and the receiver rung for.
    sent: AtomicU64,
    /// When the last of these calls had returned, nanoseconds since a moment of the test's.
    at: AtomicU64,
}

impl Rung {
    fn set(&self, begun: Instant) {
        self.at.store(begun.elapsed().as_nanos() as u64, Ordering::SeqCst);
        self.sent.fetch_add(1, Ordering::SeqCst);
    }
}

impl End {
    fn new(lanes: &mut Lanes, own: u32, other: u32) -> End {
        let (lane, writer) = lanes.writers.remove(&(own, other)).unwrap();
        let (_, reader) = lanes.readers.remove(&(own, other)).unwrap();
        let me = if lane.writer == 0 { Side::Zero } else { Side::One };
        let arena = lanes.arenas[&lane.pair].0.clone();
        let incoming = lanes.arenas.get_mut(&lane.pair).unwrap().2[me.index()].take().unwrap();
        End { arena, me, incoming, writer, reader, received: 0, sleeps: 0, missed: 0 }
    }

    fn send(&mut self, rung: &Rung, begun: Instant) {
        let _ = self.writer.send(&[1; 64], &[], 1).unwrap();
        rung.set(begun);
    }

    /// Sleeps until there is a message, and takes it. `other` is what its sender has done since `begun`.
    fn receive(&mut self, other: &Rung, begun: Instant) {
        let bell = self.arena.doorbell(self.me);
        let since = Instant::now();
        loop {
            if let Peek::Record(record) = self.reader.peek().unwrap() {
                self.received += 1;
                return self.reader.consume(record, 1);
            }
            assert!(since.elapsed() < LOST, "a message is lost");
            let seen = bell.seq();
            if self.reader.arm().unwrap() {
                continue;
            }
            let parked = bell.park();
            if !self.incoming.has_ready() {
                let over = begun.elapsed() + WANTED;
                let woken = utipc_lanes::wait(&[(&parked, seen)], Some(WANTED)).unwrap();
                self.sleeps += 1;
                // The sleep was over later than `over` at the earliest; the bell had been rung for this message by `at`.
                let rung = other.sent.load(Ordering::SeqCst) > self.received
                    && u128::from(other.at.load(Ordering::SeqCst)) < over.as_nanos();
                self.missed += u64::from(woken == Woken::TimedOut && rung);
            }
            drop(parked);
            self.incoming.take_ready(|_| ());
        }
    }
}

/// What came of a talk.
#[derive(Default)]
struct Talk {
    trips: usize,
    longest: Duration,
    /// Round trips, each of two wake-ups, that took more than twice [`WANTED`]: on a busy machine a thread waits for its turn.
    slow: usize,
    sleeps: u64,
    missed: u64,
}

/// Round trips for [`TIME`].
fn talk(one: &mut End, two: &mut End) -> Talk {
    let (to_two, to_one, over) = (Rung::default(), Rung::default(), AtomicBool::new(false));
    let begun = Instant::now();
    let mut talk = Talk::default();
    for end in [&mut *one, &mut *two] {
        (end.received, end.sleeps, end.missed) = (0, 0, 0);
    }
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            loop {
                two.receive(&to_two, begun);
                let last = over.load(Ordering::SeqCst);
                two.send(&to_one, begun);
                if last {
                    return;
                }
            }
        });
        while !over.load(Ordering::SeqCst) {
            over.store(begun.elapsed() > TIME, Ordering::SeqCst);
            let sent = Instant::now();
            one.send(&to_two, begun);
            one.receive(&to_one, begun);
            let took = sent.elapsed();
            talk.longest = talk.longest.max(took);
            talk.slow += usize::from(took > 2 * WANTED);
            talk.trips += 1;
        }
        echo.join().unwrap();
    });
    (talk.sleeps, talk.missed) = (one.sleeps + two.sleeps, one.missed + two.missed);
    talk
}

/// Numbers for nonsense.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Does its worst with all that one attachment has, then leaves without a word.
fn attack(host: &Host, victim: u32, random: &mut Random) {
    let mut client = Client::attach(&host.path, true);
    let from = client.open(SocketKind::Rdm);
    client.call(&Request::WantLane { port: from, to: victim }).unwrap();
    client.call(&Request::Notices).unwrap();
    let lane = client.notices.iter().find_map(|notice| match notice {
        Notice::Lane { lane, end: LaneEnd::Writer, .. } => Some(*lane),
        _ => None,
    });
    let arena = client.call_for_fd(&Request::FetchPair { pair: lane.expect("a lane").pair });
    let arena = Segment::open(&arena[0], Access::ReadWrite, 1 << 30).unwrap();
    let near = client.call_for_fd(&Request::Descriptor { port: from }).pop().unwrap();
    for (memory, words) in
        [(&client.bell, client.bell.size() / 8), (&arena, 2000), (&arena, arena.size() / 8)]
    {
        for _ in 0..3000 {
            let at = random.below(words) * 8;
            let value =
                [random.below(usize::MAX), usize::MAX, 0, 1 << random.below(60)][random.below(4)] as u64;
            memory.store64(at, value, Ordering::Relaxed);
        }
    }
    memory_wakes(&arena);
    for flags in [OFlags::NONBLOCK | OFlags::APPEND, OFlags::NONBLOCK, OFlags::empty()] {
        // Some flags are refused for some descriptors.
        let _ = fcntl_setfl(&near, flags);
        let _ = fcntl_setfl(&client.channel, flags);
    }
    let near = Channel::from_fd(near);
    packets::drain(&near);
    packets::fill(&near);
    near.shut();
    // Requests whose answers it never reads, and requests that are none.
    let mut request = Vec::new();
    encode(&Request::Look { port: from }, &[], &mut request);
    for n in 0..200 {
        let garbage = [random.below(256) as u8; 40];
        let bytes = if n == 150 { &garbage[..] } else { &request[..] };
        if client.channel.send(&[IoSlice::new(bytes)], &[], false).is_err() {
            break;
        }
    }
    if random.below(2) == 0 {
        client.channel.shut();
    }
}

/// Rings both doorbells for nothing.
fn memory_wakes(arena: &Segment) {
    for bell in [256, 384] {
        arena.add32(bell, 1);
        arena.wake32(bell);
    }
}

#[test]
fn a_hostile_neighbour_costs_nobody_a_wake_up() {
    let mut all = Two::new();
    let (from, to) = all.connect(SocketKind::SeqPacket, &[]);
    all.update();
    let mut one = End::new(&mut all.one_lanes, from, to);
    let mut two = End::new(&mut all.two_lanes, to, from);
    let quiet = talk(&mut one, &mut two);
    let mut third = all.host.direct_client();
    let victim = third.server(SocketKind::Rdm, SERVICE);
    let over = AtomicBool::new(false);
    let (loud, attacks) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let (mut random, mut attacks) = (Random(1), 0_u64);
            while !over.load(Ordering::SeqCst) {
                attack(&all.host, victim, &mut random);
                attacks += 1;
            }
            attacks
        });
        let loud = talk(&mut one, &mut two);
        over.store(true, Ordering::SeqCst);
        (loud, neighbour.join().unwrap())
    });
    assert!(attacks > 0);
    for (when, talk) in [("in peace", quiet), ("beside the neighbour", loud)] {
        let Talk { trips, longest, slow, sleeps, missed } = talk;
        eprintln!(
            "{when}: {trips} round trips, the longest {longest:?}, {slow} of more than {:?}; {sleeps} sleeps, {missed} missed \
             wake-ups",
            2 * WANTED
        );
        assert!(sleeps > 0, "nobody slept {when}");
        assert_eq!(missed, 0, "wake-ups missed {when}");
    }
    eprintln!("{attacks} attacks");
    // The daemon, too, still answers those who behave.
    let mut last = all.host.client();
    let port = last.open(SocketKind::Rdm);
    last.send(
        port,
        Some(utipc_core::socket::Destination::service(SERVICE.service, SERVICE.lower)),
        b"still there",
    )
    .unwrap();
    // What the neighbour has written may have been messages.
    while third.receive_soon(victim).1 != b"still there" {}
}
