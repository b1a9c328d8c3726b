//! A hostile process that overwrites all memory that it may write, and drains, fills, shuts down and changes the flags
//! of every descriptor that it has. Other processes at the same daemon must not miss a wake-up.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use utipc_attach::{LaneCall, LaneEnd, Notice, ProcessCall, Request, SocketCall, encode};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::SocketKind;
use utipc_lanes::{Arena, Incoming, Peek, Reader, Side, Writer};
use utipc_os::fdpass::{Channel, Got, Put};
use utipc_os::futex::Woken;
use utipc_os::packets;
use utipc_os::shm::{Access, Memory, Segment};

use crate::client::{Client, Host};
use crate::lanes::{Lanes, Two};

const SERVICE: ServiceRange = ServiceRange::new(4200, 1, 1);

/// Time for which the pair exchanges messages, once alone and once together with the hostile process.
const TIME: Duration = Duration::from_millis(1500);

/// The longest sleep. A sleep that times out although the peer rang before its end has missed a wake-up. Load of the
/// machine cannot cause that, because the test takes both times itself.
const WANTED: Duration = Duration::from_millis(10);

/// A message that has not arrived after this time is lost.
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
    /// Number of sleeps, and of wake-ups missed in them.
    sleeps: u64,
    missed: u64,
}

/// Progress of a sender, by which the peer judges its own sleep.
#[derive(Default)]
struct Rung {
    /// Messages written whose receiver was woken.
    sent: AtomicU64,
    /// Time at which the last of these calls had returned, nanoseconds since the start of the exchange.
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

    /// Sleeps until there is a message, and receives it. `other` is what its sender has done since `begun`.
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
                // The sleep ended after `over`; the doorbell had been rung for this message by `at`.
                let rung = other.sent.load(Ordering::SeqCst) > self.received
                    && u128::from(other.at.load(Ordering::SeqCst)) < over.as_nanos();
                self.missed += u64::from(woken == Woken::TimedOut && rung);
            }
            drop(parked);
            self.incoming.take_ready(|_| ());
        }
    }
}

/// Result of an exchange.
#[derive(Default)]
struct Exchange {
    trips: usize,
    longest: Duration,
    /// Round trips, each of two wake-ups, that took more than twice [`WANTED`], as on a busy machine.
    slow: usize,
    sleeps: u64,
    missed: u64,
}

/// Round trips for [`TIME`].
fn exchange(one: &mut End, two: &mut End) -> Exchange {
    let (to_two, to_one, over) = (Rung::default(), Rung::default(), AtomicBool::new(false));
    let begun = Instant::now();
    let mut result = Exchange::default();
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
            result.longest = result.longest.max(took);
            result.slow += usize::from(took > 2 * WANTED);
            result.trips += 1;
        }
        echo.join().unwrap();
    });
    (result.sleeps, result.missed) = (one.sleeps + two.sleeps, one.missed + two.missed);
    result
}

/// Random numbers for malformed data.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Attacks with everything that one attachment has, and leaves.
fn attack(host: &Host, victim: u32, random: &mut Random) {
    let mut client = Client::attach(&host.path, true);
    let from = client.open(SocketKind::Rdm);
    client.call(&SocketCall::WantLane { to: victim }.on(from)).unwrap();
    client.call(&Request::Process(ProcessCall::Notices)).unwrap();
    let lane = client.notices.iter().find_map(|notice| match notice {
        Notice::Lane { lane, end: LaneEnd::Writer, .. } => Some(*lane),
        _ => None,
    });
    let arena = client.call_for_fd(&Request::Lane(LaneCall::FetchPair { pair: lane.expect("a lane").pair }));
    let arena = Segment::open(&arena[0], Access::ReadWrite, 1 << 30).unwrap();
    let near = client.call_for_fd(&SocketCall::Descriptor.on(from)).pop().unwrap();
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
    // Requests whose replies it never reads, and malformed requests.
    let mut request = Vec::new();
    encode(&SocketCall::Look.on(from), &[], &mut request);
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

/// Rings both doorbells without a message.
fn memory_wakes(arena: &Segment) {
    for bell in [256, 384] {
        arena.add32(bell, 1);
        arena.wake32(bell);
    }
}

#[test]
fn hostile_process_does_not_cause_missed_wake_ups() {
    let mut all = Two::new();
    let (from, to) = all.connect(SocketKind::SeqPacket, &[]);
    all.update();
    let mut one = End::new(&mut all.one_lanes, from, to);
    let mut two = End::new(&mut all.two_lanes, to, from);
    let quiet = exchange(&mut one, &mut two);
    let mut third = all.host.direct_client();
    let victim = third.server(SocketKind::Rdm, SERVICE);
    let over = AtomicBool::new(false);
    let (loud, attacks) = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            let (mut random, mut attacks) = (Random(1), 0_u64);
            while !over.load(Ordering::SeqCst) {
                attack(&all.host, victim, &mut random);
                attacks += 1;
            }
            attacks
        });
        let loud = exchange(&mut one, &mut two);
        over.store(true, Ordering::SeqCst);
        (loud, hostile.join().unwrap())
    });
    assert!(attacks > 0);
    for (when, result) in [("alone", quiet), ("beside the hostile process", loud)] {
        let Exchange { trips, longest, slow, sleeps, missed } = result;
        eprintln!(
            "{when}: {trips} round trips, the longest {longest:?}, {slow} of more than {:?}; {sleeps} sleeps, {missed} missed \
             wake-ups",
            2 * WANTED
        );
        assert!(sleeps > 0, "no sleeps {when}");
        assert_eq!(missed, 0, "wake-ups missed {when}");
    }
    eprintln!("{attacks} attacks");
    // The daemon still serves other processes.
    let mut last = all.host.client();
    let port = last.open(SocketKind::Rdm);
    last.send(
        port,
        Some(utipc_core::socket::Destination::service(SERVICE.service, SERVICE.lower)),
        b"still there",
    )
    .unwrap();
    // The hostile process may have written valid messages.
    while third.receive_soon(victim).1 != b"still there" {}
}

/// Descriptors in flight count against the daemon's user: the kernel refuses further ones to every process.
#[test]
fn process_that_leaves_descriptors_unread_is_detached() {
    let host = Host::new();
    let (greedy, mut other) = (host.direct_client(), host.direct_client());
    let mut bytes = Vec::new();
    encode(&Request::Process(ProcessCall::FetchTable), &[], &mut bytes);
    // The daemon may detach it after the second one.
    let sent =
        (0..4).take_while(|_| greedy.channel.send(&[IoSlice::new(&bytes)], &[], true).unwrap() == Put::Sent);
    assert!(sent.count() >= 2);
    // A turn reads one packet of each process.
    for _ in 0..8 {
        assert_eq!(other.call_for_fd(&Request::Process(ProcessCall::FetchTable)).len(), 2);
    }
    let mut replies = 0;
    let mut buffer = vec![0; 4096];
    while let Got::Packet(_) = greedy.channel.receive(&mut buffer, &mut Vec::new(), 8, false).unwrap() {
        replies += 1;
    }
    assert!(replies <= 1, "{replies} replies");
    assert_eq!(host.ended("unread-replies"), 1);
}
