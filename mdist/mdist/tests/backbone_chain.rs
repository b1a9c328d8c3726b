//! Sources and sinks with their adapters: every update of every item arrives once and in order, under all failures.

mod backbone_common;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use backbone_common::chain::{RunningSink, RunningSource, names};
use backbone_common::{Host, embedded, plain, until};
use mdist::backbone::memory::Memory;
use mdist::backbone::tipc::{Options, TipcSink, TipcSource};
use mdist::backbone::{SinkEnd, SourceEnd};
use utipc::Node;
use utipc::bearers::{Bearer, Direction, Faults, Middleware};

const HOLD: Duration = Duration::from_millis(200);

fn source(node: &Node) -> Box<dyn SourceEnd> {
    Box::new(TipcSource::open(node, Options::default()).unwrap())
}

fn sink(node: &Node) -> Box<dyn SinkEnd> {
    Box::new(TipcSink::open(node, Options::default()).unwrap())
}

/// Stops the updates, and waits until all sinks have the items as the source has them.
fn check(source: RunningSource, sinks: Vec<RunningSink>, items: usize) {
    source.set_burst(0);
    until("the sinks to know what the source knows", || {
        let own = source.orders.last.lock().unwrap().clone();
        let same = |sink: &RunningSink| {
            let shared = sink.lock();
            let seen = &shared.hub.seen;
            seen.len() == items && seen.iter().all(|(name, count)| own.get(name) == Some(count))
        };
        sinks.iter().all(same).then_some(())
    });
    source.stop();
    sinks.into_iter().for_each(RunningSink::stop);
}

fn updates(sink: &RunningSink) -> u64 {
    sink.counters().updates
}

/// Items are opened, requested again, closed, ended and reopened while updates flow.
fn items_come_and_go(source: Box<dyn SourceEnd>, ends: [Box<dyn SinkEnd>; 2]) {
    // A long hold, so that no sink is disconnected on a machine that is busy with other tests.
    let source = RunningSource::start(source, "FEED", 50 * HOLD);
    let sinks: Vec<_> = ends.into_iter().map(|end| RunningSink::start(end, "FEED", &names(300))).collect();
    sinks.iter().for_each(|sink| sink.lock().hub.reissue = 53);
    source.set_burst(200);
    for sink in &sinks {
        until("updates", || (updates(sink) > 5000).then_some(()));
    }
    for round in 0..20 {
        let name = format!("ITEM{round}").into_bytes();
        sinks[0].lock().close(&name);
        let other = format!("ITEM{}", 100 + round).into_bytes();
        source.orders.end.lock().unwrap().push(other.clone());
        let before: Vec<_> = sinks.iter().map(updates).collect();
        for (sink, before) in sinks.iter().zip(before) {
            until("more updates", || (updates(sink) > before + 500).then_some(()));
            until("end of an item", || (sink.counters().ended == round + 1).then_some(()));
            sink.lock().open(&other);
        }
        sinks[0].lock().open(&name);
    }
    for sink in &sinks {
        let (counters, stats) = (sink.counters(), sink.lock().side.stats());
        assert_eq!((counters.ups, counters.downs), (1, 0), "{stats:?}");
        assert_eq!((stats.gaps, stats.cuts), (0, 0));
        assert!(counters.images > 320);
        sink.lock().hub.reissue = 0;
    }
    check(source, sinks, 300);
}

#[test]
fn items_come_and_go_in_memory() {
    let memory = Memory::new();
    let source = Box::new(memory.source().unwrap());
    items_come_and_go(source, [Box::new(memory.sink().unwrap()), Box::new(memory.sink().unwrap())]);
}

#[test]
fn items_come_and_go_over_lanes() {
    let host = Host::start();
    items_come_and_go(source(&host.attach()), [sink(&host.attach()), sink(&host.attach())]);
}

#[test]
fn items_come_and_go_between_nodes() {
    let [red, blue, green] = embedded(plain);
    items_come_and_go(source(&red), [sink(&blue), sink(&green)]);
}

/// A sink that stops reading is disconnected from its feeds after the hold and resynchronises later; other
/// sinks lose nothing. The source keeps nothing for it.
fn sink_that_stops_reading_is_disconnected(source: Box<dyn SourceEnd>, ends: [Box<dyn SinkEnd>; 2]) {
    let source = RunningSource::with_stall(source, "FEED", HOLD, 0);
    let sinks: Vec<_> = ends.into_iter().map(|end| RunningSink::start(end, "FEED", &names(100))).collect();
    source.set_burst(100);
    for sink in &sinks {
        until("updates", || (updates(sink) > 2000).then_some(()));
    }
    source.orders.longest.store(0, Ordering::Relaxed);
    sinks[1].asleep.store(true, Ordering::Relaxed);
    source.set_burst(1000);
    until("cut", || (source.orders.cuts.load(Ordering::Relaxed) == 1).then_some(()));
    let farewells = source.orders.farewells.lock().unwrap().clone();
    let reasons: Vec<_> = farewells.iter().map(|farewell| farewell.reason.label()).collect();
    assert_eq!(reasons, ["behind"], "{farewells:?}");
    let before = updates(&sinks[0]);
    until("updates of the other sink", || (updates(&sinks[0]) > before + 100_000).then_some(()));
    let longest = Duration::from_micros(source.orders.longest.load(Ordering::Relaxed));
    assert!(longest >= HOLD && longest < HOLD + Duration::from_secs(2), "a turn of {longest:?}");
    until("loss of the source at the slow sink", || (sinks[1].counters().downs == 1).then_some(()));
    source.set_burst(20);
    sinks[1].asleep.store(false, Ordering::Relaxed);
    until("resynchronisation of the slow sink", || {
        let counters = sinks[1].counters();
        (counters.ups >= 2 && counters.images >= 200).then_some(())
    });
    let stats = sinks[0].lock().side.stats();
    assert_eq!((stats.gaps, stats.cuts, sinks[0].counters().downs), (0, 0, 0));
    check(source, sinks, 100);
}

#[test]
fn sink_that_stops_reading_is_disconnected_in_memory() {
    let memory = Memory::new();
    let source = Box::new(memory.source().unwrap());
    sink_that_stops_reading_is_disconnected(
        source,
        [Box::new(memory.sink().unwrap()), Box::new(memory.sink().unwrap())],
    );
}

#[test]
fn sink_that_stops_reading_is_disconnected_over_lanes() {
    let host = Host::start();
    sink_that_stops_reading_is_disconnected(
        source(&host.attach()),
        [sink(&host.attach()), sink(&host.attach())],
    );
}

#[test]
fn sink_that_stops_reading_is_disconnected_between_nodes() {
    let [red, blue, green] = embedded(plain);
    sink_that_stops_reading_is_disconnected(source(&red), [sink(&blue), sink(&green)]);
}

/// A sink that stops reading for a while misses nothing, and other sinks go on meanwhile.
fn stalled_sink_catches_up(source: Box<dyn SourceEnd>, ends: [Box<dyn SinkEnd>; 2]) {
    let source = RunningSource::start(source, "FEED", HOLD);
    let sinks: Vec<_> = ends.into_iter().map(|end| RunningSink::start(end, "FEED", &names(100))).collect();
    source.set_burst(100);
    for sink in &sinks {
        until("updates", || (updates(sink) > 2000).then_some(()));
    }
    for round in 1..=3 {
        sinks[1].asleep.store(true, Ordering::Relaxed);
        let before = updates(&sinks[0]);
        // About 10 MB, twenty times what may be unread.
        until("updates of the other sink", || (updates(&sinks[0]) > before + 100_000).then_some(()));
        let (sent, seen) = (updates(&sinks[0]), updates(&sinks[1]));
        assert!(sent > seen + 50_000, "round {round}: the sink has not stalled: {sent} and {seen} updates");
        sinks[1].asleep.store(false, Ordering::Relaxed);
        until("the stalled sink to catch up", || (updates(&sinks[1]) > sent).then_some(()));
    }
    for sink in &sinks {
        let stats = sink.lock().side.stats();
        assert_eq!((stats.gaps, stats.cuts, sink.counters().downs), (0, 0, 0));
    }
    assert_eq!(source.orders.cuts.load(Ordering::Relaxed), 0);
    // A round can begin before the source has sent the backlog of the round before: then both are one stall.
    assert!(source.orders.stalls.load(Ordering::Relaxed) >= 1);
    check(source, sinks, 100);
}

#[test]
fn stalled_sink_catches_up_in_memory() {
    let memory = Memory::new();
    let source = Box::new(memory.source().unwrap());
    stalled_sink_catches_up(source, [Box::new(memory.sink().unwrap()), Box::new(memory.sink().unwrap())]);
}

#[test]
fn stalled_sink_catches_up_between_nodes() {
    let [red, blue, green] = embedded(plain);
    stalled_sink_catches_up(source(&red), [sink(&blue), sink(&green)]);
}

#[test]
fn stalled_sink_on_the_host_of_its_source_catches_up_beside_one_on_another() {
    let [near, far] = Host::joined();
    stalled_sink_catches_up(source(&near.attach()), [sink(&far.attach()), sink(&near.attach())]);
}

#[test]
fn stalled_sink_on_another_host_catches_up() {
    let [near, far] = Host::joined();
    stalled_sink_catches_up(source(&near.attach()), [sink(&near.attach()), sink(&far.attach())]);
}

#[test]
fn stalled_sink_catches_up_over_lanes() {
    let host = Host::start();
    stalled_sink_catches_up(source(&host.attach()), [sink(&host.attach()), sink(&host.attach())]);
}

/// A sink that does not read for longer than its packets are kept is disconnected; the feed does not wait for it.
#[test]
fn sink_is_disconnected_when_the_memory_for_stalls_is_full() {
    const STALL: usize = 3 << 20;
    let memory = Memory::new();
    let source = RunningSource::with_stall(Box::new(memory.source().unwrap()), "FEED", HOLD, STALL);
    let ends = [memory.sink().unwrap(), memory.sink().unwrap()];
    let sinks: Vec<_> =
        ends.into_iter().map(|end| RunningSink::start(Box::new(end), "FEED", &names(100))).collect();
    source.set_burst(100);
    for sink in &sinks {
        until("updates", || (updates(sink) > 2000).then_some(()));
    }
    sinks[1].asleep.store(true, Ordering::Relaxed);
    until("cut", || (source.orders.cuts.load(Ordering::Relaxed) == 1).then_some(()));
    let kept = source.orders.backlog.load(Ordering::Relaxed) as usize;
    assert!(kept > STALL / 2 && kept <= STALL, "{kept} bytes kept");
    let before = updates(&sinks[0]);
    until("updates of the other sink", || (updates(&sinks[0]) > before + 100_000).then_some(()));
    sinks[1].asleep.store(false, Ordering::Relaxed);
    until("resynchronisation", || (sinks[1].counters().ups == 2).then_some(()));
    assert_eq!(sinks[0].counters().downs, 0);
    check(source, sinks, 100);
}

#[test]
fn lost_packet_makes_only_its_sink_resynchronise() {
    let memory = Memory::new();
    let source = RunningSource::start(Box::new(memory.source().unwrap()), "FEED", HOLD);
    let end = memory.sink().unwrap();
    let address = end.address();
    let sinks = vec![
        RunningSink::start(Box::new(end), "FEED", &names(50)),
        RunningSink::start(Box::new(memory.sink().unwrap()), "FEED", &names(50)),
    ];
    source.set_burst(50);
    for round in 1..=3 {
        for sink in &sinks {
            let before = updates(sink);
            until("updates", || (updates(sink) > before + 1000).then_some(()));
        }
        memory.faults(|faults| {
            faults.lose.insert(address, 1);
        });
        until("loss of the source", || (sinks[0].counters().downs == round).then_some(()));
        until("resynchronisation", || (sinks[0].counters().ups == round + 1).then_some(()));
    }
    assert_eq!(sinks[1].counters().downs, 0);
    check(source, sinks, 50);
}

#[test]
fn loss_of_the_last_packet_of_a_feed_is_detected() {
    let memory = Memory::new();
    let source = RunningSource::start(Box::new(memory.source().unwrap()), "FEED", HOLD);
    let end = memory.sink().unwrap();
    let address = end.address();
    let sinks = vec![RunningSink::start(Box::new(end), "FEED", &names(50))];
    source.set_burst(50);
    until("updates", || (updates(&sinks[0]) > 1000).then_some(()));
    memory.faults(|faults| {
        faults.held.insert(address);
    });
    let sent = source.orders.updates.load(Ordering::Relaxed);
    until("updates to be sent", || {
        (source.orders.updates.load(Ordering::Relaxed) > sent + 200).then_some(())
    });
    source.set_burst(0);
    // Everything under way is lost.
    memory.faults(|faults| {
        faults.lose.insert(address, u32::MAX);
    });
    until("silence", || {
        let sent = source.orders.updates.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        (sent == source.orders.updates.load(Ordering::Relaxed)).then_some(())
    });
    source.set_burst(50);
    let sent = source.orders.updates.load(Ordering::Relaxed);
    until("updates to be lost", || {
        (source.orders.updates.load(Ordering::Relaxed) > sent + 200).then_some(())
    });
    source.set_burst(0);
    memory.faults(|faults| {
        faults.lose.clear();
        faults.held.clear();
    });
    until("detection of the loss", || (sinks[0].counters().downs >= 1).then_some(()));
    check(source, sinks, 50);
}

#[test]
fn second_source_takes_over() {
    let host = Host::start();
    let first = RunningSource::start(source(&host.attach()), "FEED", HOLD);
    let sinks = vec![RunningSink::start(sink(&host.attach()), "FEED", &names(50))];
    first.set_burst(10);
    until("updates", || (updates(&sinks[0]) > 500).then_some(()));
    let second = RunningSource::start(source(&host.attach()), "FEED", HOLD);
    second.set_burst(10);
    until("both", || (sinks[0].counters().ups == 2).then_some(()));
    first.stop();
    until("the loss", || (sinks[0].counters().downs == 1).then_some(()));
    let before = updates(&sinks[0]);
    until("updates of the other", || (updates(&sinks[0]) > before + 500).then_some(()));
    check(second, sinks, 50);
}

/// Environment variables of a process that is killed later: the daemon's socket.
const SOURCE: &str = "MDIST_TEST_SOURCE";
const SINK: &str = "MDIST_TEST_SINK";

/// Not a test: runs a source until it is killed, in a process that other tests start.
#[test]
fn source_process() {
    let Some(path) = std::env::var_os(SOURCE) else { return };
    let node = Node::builder().daemon_at(path).start().unwrap();
    let source = RunningSource::start(source(&node), "FEED", HOLD);
    source.set_burst(10);
    std::thread::sleep(10 * backbone_common::LIMIT);
}

/// Not a test: runs a sink until it is killed, in a process that other tests start.
#[test]
fn sink_process() {
    let Some(path) = std::env::var_os(SINK) else { return };
    let node = Node::builder().daemon_at(path).start().unwrap();
    let _sink = RunningSink::start(sink(&node), "FEED", &names(50));
    std::thread::sleep(10 * backbone_common::LIMIT);
}

struct Victim(Child);

impl Victim {
    fn start(host: &Host, test: &str, variable: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test]).env(variable, host.daemon.socket());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) -> Instant {
        self.0.kill().unwrap();
        let killed = Instant::now();
        self.0.wait().unwrap();
        killed
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_source_is_replaced_at_once() {
    let host = Host::start();
    let mut victim = Victim::start(&host, "source_process", SOURCE);
    let sinks = vec![RunningSink::start(sink(&host.attach()), "FEED", &names(50))];
    until("updates", || (updates(&sinks[0]) > 500).then_some(()));
    let second = RunningSource::start(source(&host.attach()), "FEED", HOLD);
    second.set_burst(10);
    until("both", || (sinks[0].counters().ups == 2).then_some(()));
    let killed = victim.kill();
    until("the loss", || (sinks[0].counters().downs == 1).then_some(()));
    let noticed = killed.elapsed();
    assert!(noticed < Duration::from_secs(5), "noticed after {noticed:?}");
    let before = updates(&sinks[0]);
    until("updates of the other", || (updates(&sinks[0]) > before + 500).then_some(()));
    check(second, sinks, 50);
}

#[test]
fn killed_sink_does_not_affect_others() {
    let host = Host::start();
    let source = RunningSource::start(source(&host.attach()), "FEED", 50 * HOLD);
    let sinks = vec![RunningSink::start(sink(&host.attach()), "FEED", &names(50))];
    source.set_burst(50);
    for _ in 0..3 {
        let mut victim = Victim::start(&host, "sink_process", SINK);
        until("two sinks", || (source.orders.sinks.load(Ordering::Relaxed) == 2).then_some(()));
        let before = updates(&sinks[0]);
        until("updates", || (updates(&sinks[0]) > before + 5000).then_some(()));
        victim.kill();
        until("one sink", || (source.orders.sinks.load(Ordering::Relaxed) == 1).then_some(()));
    }
    assert_eq!((sinks[0].counters().downs, source.orders.cuts.load(Ordering::Relaxed)), (0, 0));
    check(source, sinks, 50);
}

/// Loses one frame in twenty.
fn lossy(bearer: Box<dyn Bearer>) -> Box<dyn Bearer> {
    let middleware = Middleware::new(bearer, 7).unwrap();
    middleware.control().set(Direction::Send, Faults::loss(5));
    Box::new(middleware)
}

#[test]
fn no_update_is_lost_on_links_that_lose_one_frame_in_twenty() {
    let [red, blue, green] = embedded(lossy);
    items_come_and_go(source(&red), [sink(&blue), sink(&green)]);
}
