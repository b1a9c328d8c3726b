//! One of two servers does not run for a second, as on a host that is short of processor time.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::chain::{Backbone, LONG, Program, clients, settled, until};
use crate::daemon::DaemonProcess;
use crate::load_common::publisher;

const ITEMS: usize = 10_000;
/// Updates per second: ten times what may be unread in a second.
const RATE: u64 = 50_000;
const STOP: Duration = Duration::from_secs(1);

#[test]
fn stopped_server_loses_nothing_and_delays_no_other() {
    let (backbone, socket) = Backbone::with_daemon();
    let _daemon = DaemonProcess::start(&socket);
    let provider = publisher(RATE);
    let upstream = provider.address().unwrap();
    let distributor = Program::src_dist(upstream, &backbone, &["--metrics", "127.0.0.1:0"]);
    let servers = [(); 2].map(|()| Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]));
    let both = servers.each_ref().map(|server| clients(server.addresses[0], ITEMS, |_| {}));
    for clients in &both {
        clients.loaded(LONG).unwrap();
        until(clients, "updates", |seen| seen.counts.updates > 2 * RATE);
    }
    servers[1].signal(Signal::STOP);
    let stopped = Instant::now();
    let before = both.each_ref().map(|clients| clients.snapshot().counts.updates);
    until(&both[0], "updates of the other server", |seen| seen.counts.updates > before[0] + RATE / 2);
    std::thread::sleep(STOP.saturating_sub(stopped.elapsed()));
    assert!(servers[1].is_stopped());
    servers[1].signal(Signal::CONT);
    for (clients, before) in both.iter().zip(before) {
        let seen = until(clients, "updates after the stop", |seen| seen.counts.updates > before + 3 * RATE);
        assert!(seen.counts.is_clean(), "{:?} {:?}", seen.counts, clients.disconnect_reasons());
    }
    for clients in &both {
        settled(&provider, clients);
        assert_eq!(clients.snapshot().counts.suspect, 0);
    }
    // Metrics are published once a second.
    until(&both[0], "the metrics show the stall", |_| {
        distributor.metric("mdist_backbone_sink_stalls_total") >= 1
    });
    assert_eq!(distributor.metric("mdist_backbone_sink_cuts_total"), 0);
    assert_eq!(distributor.metric("mdist_backbone_backlog_bytes"), 0);
    assert_eq!(servers[1].metric("mdist_backbone_gaps_total"), 0);
}
