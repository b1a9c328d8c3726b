//! Measures the backbone alone: updates per second from a source to sinks, and CPU time per update on each side.
//!
//! `cargo run --release -p mdist --example backbone_rate -- [lanes|udp] [sinks] [seconds] [rate, 0: as fast as
//! possible]`. `lanes`: attachments to one daemon; `udp`: embedded nodes with links over UDP on this host. Both sides
//! are threads of this process; the daemon's threads are not counted.

use anyhow::Context as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mdist::backbone::POLL_EVERY;
use mdist::backbone::sink_side::{SinkSide, UpstreamEvents};
use mdist::backbone::source_side::{Policy, SourceSide};
use mdist::backbone::tipc::{Options, TipcSink, TipcSource};
use mdist::hub::{Batch, HubRequest, ItemId, Kind, SideId, UpstreamId};
use mdist::net::{Interest, Poller};
use rssl::rdm::directory::{Action, Info, Service, ServiceState};
use rssl::rwf::{DataType, Domain, Key, Refresh, RefreshFlags, Request, RequestFlags, State, Update};
use rssl::wire::to_vec;
use rustix::time::{ClockId, clock_gettime};
use utipc::daemon::{Daemon, DaemonConfig};
use utipc::{Node, NodeAddr};

const ITEMS: usize = 100_000;
const SIDE: SideId = SideId(0);

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counts messages; requests all items of every service.
#[derive(Default)]
struct Counter {
    images: u64,
    updates: u64,
    downs: u64,
    orders: Vec<(UpstreamId, Vec<u8>)>,
}

impl UpstreamEvents for Counter {
    #[inline]
    fn message(&mut self, _: UpstreamId, message: &[u8]) -> Result<(), String> {
        if message.get(2) == Some(&4) {
            self.updates += 1;
        } else {
            self.images += 1;
        }
        Ok(())
    }

    fn up(&mut self, _: UpstreamId) {}

    fn services(&mut self, up: UpstreamId, services: Vec<(Action, Service)>) {
        for (_, service) in services {
            for item in 0..ITEMS {
                let name = format!("ITEM{item}");
                let request = Request {
                    domain: Domain::MARKET_PRICE,
                    stream: 16 + item as i32,
                    flags: RequestFlags::STREAMING,
                    container: DataType::NO_DATA,
                    key: Key::item(service.id, name.as_bytes()),
                    ..Request::default()
                };
                self.orders.push((up, to_vec(|w| request.encode(w)).unwrap_or_default()));
            }
        }
    }

    fn down(&mut self, _: UpstreamId, why: &str) {
        println!("lost the source: {why}");
        self.downs += 1;
    }
}

struct Shared {
    side: SinkSide,
    hub: Counter,
}

impl Shared {
    fn send(&mut self) {
        for (up, message) in self.hub.orders.drain(..) {
            self.side.order(up, message);
        }
        self.side.flush();
    }
}

#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    images: AtomicU64,
    updates: AtomicU64,
    cpu_ns: AtomicU64,
}

fn sink(node: &Node, stop: &Arc<Progress>) -> anyhow::Result<()> {
    let end = TipcSink::open(node, Options::default())?;
    let mut side = SinkSide::new(Some(Box::new(end)), UpstreamId(0), 4, "rate");
    let mut feeds = side.feeds().ok_or_else(|| anyhow::anyhow!("no feeds"))?;
    let poller = Poller::new()?;
    poller.add(side.descriptor().context("no end")?, 1, Interest::Read)?;
    let shared = Arc::new(Mutex::new(Shared { side, hub: Counter::default() }));
    let (theirs, told) = (Arc::clone(&shared), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut events = Vec::new();
        while !told.stop.load(Ordering::Relaxed) {
            events.clear();
            if poller.wait(Some(POLL_EVERY), &mut events).is_err() {
                return;
            }
            let Ok(mut shared) = theirs.lock() else { return };
            let Shared { side, hub } = &mut *shared;
            if side.poll(hub).is_err() {
                return;
            }
            shared.send();
            told.images.store(shared.hub.images, Ordering::Relaxed);
        }
    });
    let told = Arc::clone(stop);
    std::thread::spawn(move || {
        let begin = cpu();
        while !told.stop.load(Ordering::Relaxed) {
            let Ok(Some(packet)) = feeds.next(Duration::from_millis(100)) else { continue };
            let Ok(mut shared) = shared.lock() else { return };
            let Shared { side, hub } = &mut *shared;
            side.feed(packet, hub);
            while let Ok(Some(packet)) = feeds.next(Duration::ZERO) {
                side.feed(packet, hub);
            }
            shared.send();
            told.updates.store(shared.hub.updates, Ordering::Relaxed);
            told.cpu_ns.store((cpu() - begin).as_nanos() as u64, Ordering::Relaxed);
        }
    });
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let carrier = arguments.next().unwrap_or_else(|| "lanes".into());
    let mut number = |otherwise| arguments.next().map_or(Ok(otherwise), |text| text.parse::<u64>());
    let (sinks, seconds, rate) = (number(1)?, number(10)?, number(0)?);
    let (mut nodes, mut daemon) = (Vec::new(), None);
    if carrier == "lanes" {
        let socket = std::env::temp_dir().join(format!("backbone-rate-{}.sock", std::process::id()));
        let mut config = DaemonConfig { socket, ..DaemonConfig::default() };
        config.node.complete(None)?;
        let running = Daemon::start(config)?;
        for _ in 0..=sinks {
            nodes.push(Node::builder().daemon_at(running.socket()).start()?);
        }
        daemon = Some(running);
    } else {
        let address = |at: u64| IpAddr::from(Ipv4Addr::new(127, 224, 7, 1 + at as u8));
        for own in 0..=sinks {
            let others =
                (0..=sinks).filter(|other| *other != own).map(|other| SocketAddr::new(address(other), 6118));
            let node = Node::builder().engine(utipc::Engine::Embedded).udp_peers(address(own), others);
            nodes.push(node.address(NodeAddr(1 + own as u32)).start()?);
        }
    }
    let (own, others) = nodes.split_first().ok_or_else(|| anyhow::anyhow!("no node"))?;
    let progress: Vec<_> = others.iter().map(|_| Arc::new(Progress::default())).collect();
    for (node, progress) in others.iter().zip(&progress) {
        sink(node, progress)?;
    }
    source(own, &progress, seconds, rate)?;
    progress.iter().for_each(|progress| progress.stop.store(true, Ordering::Relaxed));
    drop(daemon);
    Ok(())
}

fn source(node: &Node, progress: &[Arc<Progress>], seconds: u64, rate: u64) -> anyhow::Result<()> {
    let mut side = SourceSide::new(Some(Box::new(TipcSource::open(node, Options::default())?)), SIDE, "rate");
    side.set_policy(None, Policy { hold: Duration::from_secs(5), ..Policy::default() });
    let info = Info { name: "FEED".into(), capabilities: vec![6], ..Info::default() };
    let state = ServiceState { up: true, accepting: true, status: None };
    side.directory(&[Service { id: 1, info: Some(info), state: Some(state), ..Service::default() }])?;
    let (image, update) = messages()?;
    send_images(&mut side, progress, &image)?;
    let mut batch = Batch::default();
    println!("{} sinks have {ITEMS} images each; updates of {} bytes", progress.len(), update.len());
    let before: Vec<_> = progress
        .iter()
        .map(|sink| (sink.updates.load(Ordering::Relaxed), sink.cpu_ns.load(Ordering::Relaxed)))
        .collect();
    let (start, busy) = (Instant::now(), cpu());
    let (mut sent, mut apart, mut next) = (0_u64, Duration::ZERO, 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        let due = if rate == 0 { sent + 1000 } else { (start.elapsed().as_secs_f64() * rate as f64) as u64 };
        if due == sent {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        // The work of a hub is not counted.
        let hub = cpu();
        batch.clear();
        let burst = (due - sent).min(5000);
        for _ in 0..burst {
            next = (next + 1) % ITEMS as u32;
            batch.push(Kind::Message, SideId::ALL, ItemId(next), 0, &update);
        }
        sent += burst;
        apart += cpu() - hub;
        side.apply(&batch)?;
        side.flush()?;
        if sent % 64_000 < 1000 {
            side.poll()?;
        }
    }
    let (took, busy) = (start.elapsed(), cpu() - busy - apart);
    std::thread::sleep(Duration::from_millis(500));
    println!(
        "source: {:.0} updates/s, {:.1} ns each; {:?}",
        sent as f64 / took.as_secs_f64(),
        busy.as_nanos() as f64 / sent as f64,
        side.stats()
    );
    for (sink, (updates, cpu_ns)) in progress.iter().zip(before) {
        let got = sink.updates.load(Ordering::Relaxed) - updates;
        let cpu_ns = sink.cpu_ns.load(Ordering::Relaxed) - cpu_ns;
        println!("sink: {got} of {sent} updates, {:.1} ns each", cpu_ns as f64 / got.max(1) as f64);
    }
    Ok(())
}

/// An image and an update, encoded.
fn messages() -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let payload = [0xAB; 74];
    let image = Refresh {
        domain: Domain::MARKET_PRICE,
        flags: RefreshFlags::SOLICITED | RefreshFlags::COMPLETE,
        container: DataType::OPAQUE,
        state: State::OK,
        payload: &payload,
        ..Refresh::default()
    };
    let image = to_vec(|w| image.encode(w))?;
    let update = Update {
        domain: Domain::MARKET_PRICE,
        container: DataType::OPAQUE,
        payload: &payload,
        ..Update::default()
    };
    Ok((image, to_vec(|w| update.encode(w))?))
}

/// Answers the sinks' requests until every sink has all images.
fn send_images(side: &mut SourceSide, progress: &[Arc<Progress>], image: &[u8]) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    poller.add(side.descriptor().context("no end")?, 1, Interest::Read)?;
    let (mut batch, mut events, mut items) = (Batch::default(), Vec::new(), std::collections::HashMap::new());
    while progress.iter().any(|progress| progress.images.load(Ordering::Relaxed) < ITEMS as u64) {
        events.clear();
        poller.wait(Some(Duration::from_millis(1)), &mut events)?;
        side.poll()?;
        batch.clear();
        for ask in side.take_hub_requests() {
            if let HubRequest::Open { token, spec, .. } = ask {
                let next = ItemId(items.len() as u32);
                let item = *items.entry(spec).or_insert(next);
                batch.push_bare(Kind::Opened, SIDE, item, token);
                batch.push(Kind::Image, SIDE, item, token, image);
            }
        }
        side.apply(&batch)?;
        side.flush()?;
    }
    Ok(())
}
