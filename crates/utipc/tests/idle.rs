//! Shared memory that idle processes of a daemon hold. The only test of its program, because it reads the whole
//! process's memory map.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Engine, LIMIT, alone, connected, exchange, fill};
use utipc::{ServiceAddress, SocketKind};

/// Resident KiB of memory shared with a daemon, each mapping counted.
fn shared_kib() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut sum = 0;
    for line in maps.lines() {
        if line.contains("/memfd:") {
            ours = line.contains("utipc");
        } else if let Some(rest) = line.strip_prefix("Rss:")
            && std::mem::take(&mut ours)
        {
            sum += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn idle_lanes_return_their_memory() {
    let red = alone(Engine::Daemon);
    let blue = red.again();
    let ends = connected(SocketKind::SeqPacket, ServiceAddress::new(7000, 1), &red, &blue);
    exchange(&ends, 2);
    let [client, server] = ends;
    let before = shared_kib();
    client.socket().set_send_timeout(Some(Duration::from_millis(100)));
    let (sent, _) = fill(&client, &[5; 60_000]);
    let full = shared_kib();
    assert!(full > before + 400, "{before} KiB before, {full} KiB with {sent} messages in flight");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..sent {
                assert_eq!(server.receive().unwrap().data.len(), 60_000);
            }
            // Wait for more, as an idle server does.
            assert_eq!(server.receive().unwrap().data.len(), 60_000);
            assert!(server.receive().unwrap().data.is_empty());
        });
        let start = Instant::now();
        while shared_kib() > before + 100 {
            assert!(start.elapsed() < LIMIT, "{before} KiB before, {} KiB idle", shared_kib());
            thread::sleep(Duration::from_millis(50));
        }
        // The memory comes back on demand.
        client.send(&[5; 60_000]).unwrap();
        client.shutdown().unwrap();
    });
}
