//! Processes that are not the source send packets to its feed: sinks count and drop them, and miss nothing.

mod backbone_common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use backbone_common::chain::{RunningSink, RunningSource, names};
use backbone_common::{Host, LIMIT, embedded, plain, until};
use mdist::backbone::tipc::{FEED_TYPE, Options, SOURCE_TYPE, TipcSink, TipcSource};
use mdist::backbone::wire::{Entry, Header, encode_credit};
use mdist::backbone::{FeedId, SourceId};
use rssl::rwf::{DataType, Domain, Update};
use utipc::{Change, Node, PortId, ServiceRange, Socket};

const ITEMS: usize = 50;
/// Packets of each kind that the injector sends.
const INJECTED: u64 = 200;

/// The first instance of a service type that appears, and its port.
fn found(node: &Node, service: u32) -> (u32, PortId) {
    let mut topology = node.topology().unwrap();
    topology.services(ServiceRange::new(service, 0, u32::MAX)).unwrap();
    let up = topology.events(LIMIT).map(Result::unwrap).find(|event| event.change == Change::ServiceUp);
    let up = up.expect("the service");
    (up.found.lower, up.port)
}

/// A process of the cluster that knows the ids of a source and its feed, as every process can.
struct Injector {
    socket: Socket,
    source: SourceId,
    feed: FeedId,
}

impl Injector {
    fn new(node: &Node, source: SourceId, feed: FeedId) -> Self {
        Self { socket: node.rdm().unwrap(), source, feed }
    }

    fn header(&self, first: u64, count: u16) -> Vec<u8> {
        let Self { source, feed, .. } = *self;
        Header { count, source, feed, first, position: 0, part: None, unordered: false }.encode().to_vec()
    }

    /// A packet whose entries are updates of the first items, under all numbers from 1 to 40,000.
    fn updates(&self) -> Vec<u8> {
        let mut packet = self.header(1, 40_000);
        for number in 0..40_000_i32 {
            if number < 39_000 {
                Entry::Message(&[]).append(&mut packet);
                continue;
            }
            let payload = [0xEE; 8];
            Entry::Message(
                &Update::new(Domain::MARKET_PRICE, number % 3, DataType::OPAQUE, &payload).to_vec().unwrap(),
            )
            .append(&mut packet);
        }
        packet.truncate(60_000);
        packet
    }

    /// A packet that looks as if all before it were lost.
    fn gap(&self) -> Vec<u8> {
        let mut packet = self.header(1 << 40, 1);
        Entry::Message(b"forged").append(&mut packet);
        packet
    }

    /// Sends to all listeners of the feed; false: there is none.
    fn multicast(&self, packet: &[u8]) -> bool {
        self.socket.send_to(packet, ServiceRange::new(FEED_TYPE, self.feed.0, self.feed.0)).is_ok()
    }
}

/// Updates flow while the injector sends forged packets to the feed and forged credits to the source.
fn forged_packets_change_nothing(source: &Node, sinks: &[&Node], attacker: &Node) {
    let end = TipcSource::open(source, Options::default()).unwrap();
    let source = RunningSource::start(Box::new(end), "FEED", Duration::from_secs(10));
    let sinks: Vec<_> = sinks
        .iter()
        .map(|node| Box::new(TipcSink::open(node, Options::default()).unwrap()))
        .map(|end| RunningSink::start(end, "FEED", &names(ITEMS)))
        .collect();
    source.set_burst(50);
    let ((id, _), (feed, _)) = (found(attacker, SOURCE_TYPE), found(attacker, FEED_TYPE));
    let injector = Injector::new(attacker, SourceId(id), FeedId(feed));
    // From here on sinks join; none may be disturbed before its first image either.
    let (updates, gap) = (injector.updates(), injector.gap());
    for round in 0..INJECTED {
        until("a listener", || (injector.multicast(&gap) && injector.multicast(&updates)).then_some(()));
        if round % 50 == 0 {
            for sink in &sinks {
                let before = sink.counters().updates;
                until("updates", || (sink.counters().updates > before + 200).then_some(()));
            }
        }
    }
    for sink in &sinks {
        let (counters, stats) = (sink.counters(), sink.lock().side.stats());
        assert_eq!((counters.ups, counters.downs), (1, 0), "{stats:?}");
        assert_eq!((stats.gaps, stats.cuts, stats.lost), (0, 0, 0));
        // Not all of them: a sink may have begun to listen later, and a reader may be full.
        until("the forged packets", || (sink.lock().side.stats().foreign >= INJECTED).then_some(()));
    }
    source.set_burst(0);
    until("the sinks to know what the source knows", || {
        let own = source.orders.last.lock().unwrap().clone();
        let same = |sink: &RunningSink| {
            let shared = sink.lock();
            let seen = &shared.hub.seen;
            seen.len() == ITEMS && seen.iter().all(|(name, count)| own.get(name) == Some(count))
        };
        sinks.iter().all(same).then_some(())
    });
    assert_eq!(source.orders.cuts.load(Ordering::Relaxed), 0);
    source.stop();
    sinks.into_iter().for_each(RunningSink::stop);
}

#[test]
fn forged_packets_change_nothing_over_lanes() {
    let host = Host::start();
    forged_packets_change_nothing(&host.attach(), &[&host.attach(), &host.attach()], &host.attach());
}

#[test]
fn forged_packets_change_nothing_between_nodes() {
    let [red, blue, green] = embedded(plain);
    forged_packets_change_nothing(&red, &[&blue, &green], &green);
}

#[test]
fn source_reads_a_bounded_number_of_credits_at_once() {
    use mdist::backbone::SourceEnd as _;
    use mdist::backbone::tipc::CREDITS_PER_TURN;

    let host = Host::start();
    let (near, far) = (host.attach(), host.attach());
    let mut source = TipcSource::open(&near, Options::default()).unwrap();
    let flooder = far.rdm().unwrap();
    let port = source.address();
    let to = PortId { node: utipc::NodeAddr((port.0 >> 32) as u32), port: port.0 as u32 };
    let credit = encode_credit(FeedId(1), 1);
    let mut sent = 0;
    for _ in 0..CREDITS_PER_TURN + 100 {
        sent += usize::from(flooder.send_to(&credit, to).is_ok());
    }
    assert_eq!(sent, CREDITS_PER_TURN + 100);
    let mut credits = Vec::new();
    source.credits(LIMIT, &mut credits).unwrap();
    assert!(!credits.is_empty() && credits.len() <= CREDITS_PER_TURN, "{} credits", credits.len());
    until("the rest", || {
        source.credits(Duration::ZERO, &mut credits).unwrap();
        (credits.len() == sent).then_some(())
    });
}

/// Runs `act` on a thread with the credentials of another user, which the daemon sees; none if this test does not run
/// as root.
fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: other users need root");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let stranger = rustix::process::Uid::from_raw(4_000_001);
            rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
            act()
        });
        Some(thread.join().unwrap())
    })
}

/// The feeds of other sources are safe, but a sink that starts again would connect to every source that is announced.
#[test]
fn another_user_of_the_daemon_cannot_announce_a_source() {
    let host = Host::start();
    host.admit_all();
    let options = Options::from_config(&mdist::config::Config::default());
    let source = RunningSource::start(
        Box::new(TipcSource::open(&host.attach(), options).unwrap()),
        "QUOTES",
        Duration::from_millis(200),
    );
    let refused = as_stranger(|| {
        let node = host.attach();
        let open = TipcSource::open(&node, options).map(drop);
        // The same by hand, for every instance.
        let listener = node.seqpacket().unwrap();
        let range = ServiceRange::new(options.source_type, 0, u32::MAX);
        (open, listener.bind(range, utipc::Scope::Cluster))
    });
    let Some((open, bind)) = refused else { return source.stop() };
    let text = open.unwrap_err().to_string();
    assert!(text.contains("user 4000001") && text.contains("\"18500\" = [\"USER\"]"), "{text}");
    assert!(bind.is_err());
    // A sink that starts afterwards finds the one source, and gets its data.
    let sink = RunningSink::start(
        Box::new(TipcSink::open(&host.attach(), options).unwrap()),
        "QUOTES",
        &names(ITEMS),
    );
    until("images", || (sink.lock().hub.seen.len() == ITEMS).then_some(()));
    assert_eq!(sink.lock().side.sources().count(), 1);
    assert_eq!(host.daemon.counters().bindings_refused, 2);
    sink.stop();
    source.stop();
}
