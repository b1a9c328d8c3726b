//! Measures a bare lane between two processes: round trips, and one-way rates counted at the receiver.
//!
//! `cargo run --release -p utipc-lanes --example lane_rate [SECONDS]`, on an otherwise idle machine with two cores.

use std::error::Error;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use utipc_lanes::{Arena, LaneError, Peek, Reader, Shape, Side, Writer};
use utipc_os::fdpass::{Channel, Got};
use utipc_os::spin::{Mode, Spin};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A TIPC header of a connection's message.
const HEADER: [u8; 24] = [0x40; 24];

/// One side of the pair: its lane, the peer's lane, and how it waits.
struct Party {
    me: Side,
    arena: Arena,
    writer: Writer,
    reader: Reader,
    spin: Spin,
}

impl Party {
    fn new(arena: &Arena, me: Side, slot: u32, mode: Mode, class: u8) -> Result<Party> {
        let mut writer = arena.outgoing(me).writer(slot)?;
        writer.grow(class)?;
        let reader = arena.incoming(me).reader(slot)?;
        Ok(Party { me, arena: arena.clone(), writer, reader, spin: Spin::new(mode) })
    }

    fn send(&mut self, payload: &[u8], batch: bool) -> Result<()> {
        loop {
            let sent = if batch {
                self.writer.push(&HEADER, &[payload], 1)
            } else {
                self.writer.send(&HEADER, &[payload], 1).map(drop)
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(LaneError::Full) => (0..32).for_each(|_| std::hint::spin_loop()),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Receives one message into `buffer`; returns the length of its payload.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let awake = !self.arena.doorbell(self.me.other()).is_parked();
            let reader = &mut self.reader;
            let found = self.spin.spin(awake, || match reader.peek() {
                Ok(Peek::Record(record)) => Some(Ok(record)),
                Ok(Peek::Empty) => None,
                Ok(Peek::Ended) => Some(Err("ended".into())),
                Err(error) => Some(Err(error.to_string())),
            });
            if let Some(record) = found.transpose()? {
                let mut header = [0; 60];
                self.reader.read_header(&record, &mut header);
                let len = self.reader.copy_payload(&record, HEADER.len(), buffer);
                self.reader.consume(record, 1);
                return Ok(len);
            }
            if self.spin.mode() != Mode::Busy {
                self.sleep()?;
            }
        }
    }

    fn sleep(&mut self) -> Result<()> {
        let bell = self.arena.doorbell(self.me);
        let seen = bell.seq();
        let parked = bell.park();
        if !self.reader.arm()? {
            parked.wait(seen, Some(Duration::from_secs(1)));
            self.spin.slept();
            self.arena.incoming(self.me).take_ready(|_| ());
        }
        Ok(())
    }
}

/// One test; its number is the lane's slot.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    size: usize,
    mode: Mode,
    class: u8,
    echo: bool,
    batch: bool,
}

const fn ping(name: &'static str, size: usize, mode: Mode, class: u8) -> Test {
    Test { name, size, mode, class, echo: true, batch: false }
}

const fn flow(name: &'static str, size: usize, class: u8, batch: bool) -> Test {
    Test { name, size, mode: Mode::Busy, class, echo: false, batch }
}

const TESTS: &[Test] = &[
    ping("ping 64 B busy", 64, Mode::Busy, 0),
    ping("ping 64 B adaptive", 64, Mode::Adaptive, 0),
    ping("ping 64 B parked", 64, Mode::Parked, 0),
    ping("ping 65536 B busy", 65_536, Mode::Busy, 2),
    flow("flow 64 B, ring 4 KiB", 64, 0, false),
    flow("flow 64 B, ring 32 KiB", 64, 1, false),
    flow("flow 64 B, ring 256 KiB", 64, 2, false),
    flow("flow 64 B, ring 256 KiB, unflushed", 64, 2, true),
    flow("flow 1024 B, ring 256 KiB", 1024, 2, false),
    flow("flow 65536 B, ring 256 KiB", 65_536, 2, false),
    flow("flow 65536 B, ring 1 MiB", 65_536, 3, false),
];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("--echo") {
        return peer();
    }
    let time = Duration::from_secs_f64(first.map_or(Ok(1.0), |text| text.parse())?);
    let (channel, far) = Channel::pair()?;
    let child =
        Command::new(std::env::current_exe()?).arg("--echo").stdin(Stdio::from(far.into_fd())).spawn()?;
    let mut child = Reaped(child);
    let (arena, fd) = Arena::create("lane-rate", Shape::STANDARD)?;
    channel.send(&[IoSlice::new(b"arena")], &[fd.as_fd()], true)?;
    for (slot, test) in (0..).zip(TESTS) {
        arena.open_slot(Side::Zero, slot)?;
        arena.open_slot(Side::One, slot)?;
        let mut me = Party::new(&arena, Side::Zero, slot, test.mode, test.class)?;
        channel.send(&[IoSlice::new(&[slot as u8])], &[], true)?;
        let mut buffer = vec![0; 70_000];
        me.receive(&mut buffer)?;
        if test.echo { round_trips(test, &mut me, time)? } else { one_way(test, &mut me, time)? }
    }
    drop(channel);
    child.0.wait()?;
    Ok(())
}

/// A child process that is killed when dropped.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn round_trips(test: &Test, me: &mut Party, time: Duration) -> Result<()> {
    let (payload, mut buffer) = (vec![1; test.size], vec![0; 70_000]);
    let mut samples = Vec::with_capacity(1 << 22);
    let start = Instant::now();
    let mut before = start;
    while before - start < time && samples.len() < samples.capacity() {
        me.send(&payload, false)?;
        me.receive(&mut buffer)?;
        let now = Instant::now();
        samples.push((now - before).as_nanos() as u64);
        before = now;
    }
    me.send(&[], false)?;
    let mean = (before - start).as_secs_f64() * 1e6 / samples.len() as f64;
    samples.sort_unstable();
    let part = |of: usize| samples[(samples.len() - 1) * of / 1000] as f64 / 1e3;
    println!(
        "{:36} {mean:7.2} µs mean {:7.2} p50 {:7.2} p99 {:7.2} p99.9",
        test.name,
        part(500),
        part(990),
        part(999)
    );
    Ok(())
}

/// Receives for `time`, then tells the sender to stop and reads the rest.
fn one_way(test: &Test, me: &mut Party, time: Duration) -> Result<()> {
    let mut buffer = vec![0; 70_000];
    let start = Instant::now();
    let mut count = 0u64;
    while !count.is_multiple_of(64) || start.elapsed() < time {
        me.receive(&mut buffer)?;
        count += 1;
    }
    let taken = start.elapsed().as_secs_f64();
    me.send(&[], false)?;
    while me.receive(&mut buffer)? > 0 {}
    let rate = count as f64 / taken;
    println!(
        "{:36} {:7.2} M msg/s {:8.2} Gbit/s",
        test.name,
        rate / 1e6,
        rate * test.size as f64 * 8.0 / 1e9
    );
    Ok(())
}

/// The second process: opens the arena that it receives, and takes part in the requested tests.
fn peer() -> Result<()> {
    let channel = Channel::from_fd(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (mut bytes, mut fds) = ([0; 16], Vec::new());
    let Got::Packet(_) = channel.receive(&mut bytes, &mut fds, 1, true)? else { return Ok(()) };
    let fd = fds.pop().ok_or("no arena")?;
    assert!(fd.as_raw_fd() > 2);
    let arena = Arena::open(fd)?;
    while let Got::Packet(_) = channel.receive(&mut bytes, &mut fds, 0, true)? {
        let test = TESTS[usize::from(bytes[0])];
        let mut me = Party::new(&arena, Side::One, u32::from(bytes[0]), test.mode, test.class)?;
        me.send(&[1], false)?;
        let (payload, mut buffer) = (vec![1; test.size], vec![0; 70_000]);
        if test.echo {
            while let len @ 1.. = me.receive(&mut buffer)? {
                me.send(&buffer[..len], false)?;
            }
            continue;
        }
        while me.reader.peek()? == Peek::Empty {
            me.send(&payload, test.batch)?;
        }
        me.send(&[], false)?;
    }
    Ok(())
}
