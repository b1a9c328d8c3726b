//! Measures the cost of sending and receiving a frame over UDP on the loopback interface, with and without the kernel's
//! offloads.
//!
//! `cargo run --release -p utipc-node --example bearer_rate`
//!
//! One thread sends a batch, then receives it: so no frame is lost, and both costs are measured separately.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use utipc_core::outbox::{FrameBatch, Target};
use utipc_node::bearers::{Bearer, BearerError, UdpBearer, UdpConfig, UdpMode};

/// Duration of the measurement of each row.
const ROW: Duration = Duration::from_millis(700);

/// Bytes of a batch: well below any receive buffer.
const BATCH_BYTES: usize = 96 << 10;

fn open(host: u8, frame: usize, offloads: bool) -> Result<UdpBearer, BearerError> {
    UdpBearer::open(&UdpConfig {
        name: "rate".into(),
        local: SocketAddr::from((Ipv4Addr::new(127, 200, 0, host), 0)),
        mode: UdpMode::Replicast { remotes: Vec::new() },
        mtu: Some(frame.max(1472)),
        offloads,
    })
}

/// Nanoseconds to send and to receive one frame, and frames per system call in each direction.
fn measure(frame: usize, batch: usize, offloads: bool) -> Result<[f64; 4], BearerError> {
    let (mut sender, mut receiver) = (open(1, frame, offloads)?, open(2, frame, offloads)?);
    let mut frames = FrameBatch::default();
    let to = Target::Unicast(receiver.local_address());
    for _ in 0..batch {
        frames.push(0, to, &vec![0x55; frame]);
    }
    let (mut sending, mut receiving, mut count) = (Duration::ZERO, Duration::ZERO, 0_u64);
    let end = Instant::now() + ROW;
    while Instant::now() < end {
        let start = Instant::now();
        sender.send(0, &frames);
        let sent = Instant::now();
        let mut got = 0;
        while got < batch && sent.elapsed() < ROW {
            receiver.receive(&mut |_, _| got += 1)?;
        }
        sending += sent - start;
        receiving += sent.elapsed();
        count += got as u64;
    }
    let each = |time: Duration| time.as_nanos() as f64 / count as f64;
    let per_call = |calls: u64| count as f64 / calls as f64;
    let calls = (sender.counters().tx_calls, receiver.counters().rx_calls);
    Ok([each(sending), each(receiving), per_call(calls.0), per_call(calls.1)])
}

fn main() -> Result<(), BearerError> {
    println!(
        "{:>6} {:>6} {:>5} | {:>9} {:>9} | {:>10} {:>10} | {:>8} {:>8}",
        "bytes", "batch", "gso", "tx ns", "rx ns", "frames/s", "Mbit/s", "tx/call", "rx/call"
    );
    for frame in [64, 512, 1472, 9000, 14_000, 65_000] {
        for batch in [1, (BATCH_BYTES / frame).clamp(1, 256)] {
            for offloads in [true, false] {
                let [tx, rx, tx_call, rx_call] = measure(frame, batch, offloads)?;
                let rate = 1e9 / (tx + rx);
                println!(
                    "{frame:>6} {batch:>6} {:>5} | {tx:>9.0} {rx:>9.0} | {rate:>10.0} {:>10.0} | {tx_call:>8.1} {rx_call:>8.1}",
                    if offloads { "on" } else { "off" },
                    rate * frame as f64 * 8.0 / 1e6,
                );
            }
        }
    }
    Ok(())
}
