//! A source and sinks with models in place of their hubs: every item is a counter, and every update increments it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mdist::backbone::feeds::Feeds;
use mdist::backbone::sink_side::{SinkSide, UpstreamEvents};
use mdist::backbone::source_side::{Farewell, Policy, STALL, SourceSide};
use mdist::backbone::{POLL_EVERY, SinkEnd, SourceEnd};
use mdist::hub::{Batch, HubRequest, ItemId, ItemSpec, Kind, SideId, Token, UpstreamId};
use mdist::net::{Interest, Poller};
use rssl::rdm::directory::{Action, Info, Service, ServiceState};
use rssl::rwf::{
    Close, DataType, Domain, Key, Message, Refresh, RefreshFlags, Request, State, Status, StreamState, Update,
};

const SIDE: SideId = SideId(0);

/// The payload of an item: its number of updates.
fn payload(count: u64) -> Vec<u8> {
    [count.to_be_bytes().to_vec(), vec![0xAB; 66]].concat()
}

fn count(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload[..8].try_into().unwrap())
}

struct Item {
    spec: ItemSpec,
    count: u64,
    holds: u32,
    update: Vec<u8>,
}

/// A model of a source distributor's hub.
#[derive(Default)]
pub(crate) struct Publisher {
    items: Vec<Option<Item>>,
    by_spec: HashMap<ItemSpec, ItemId>,
    free: Vec<u32>,
    next: usize,
}

impl Publisher {
    fn ask(&mut self, ask: HubRequest, out: &mut Batch) {
        match ask {
            HubRequest::Open { token, spec, streaming, .. } => {
                assert!(streaming);
                let id = match self.by_spec.get(&spec) {
                    Some(id) => *id,
                    None => self.add(spec),
                };
                self.items[id.index()].as_mut().unwrap().holds += 1;
                out.push_bare(Kind::Opened, SIDE, id, token);
                self.image(id, token, out);
            }
            HubRequest::Image { token, item, .. } => self.image(item, token, out),
            HubRequest::Close { item, holds, .. } => {
                let held = self.items[item.index()].as_mut().expect("an item that was closed before");
                held.holds -= holds;
                if held.holds == 0 {
                    let item_gone = self.items[item.index()].take().unwrap();
                    self.by_spec.remove(&item_gone.spec);
                    self.free.push(item.0);
                }
            }
            HubRequest::SendUpstream { .. } => {}
        }
    }

    fn add(&mut self, spec: ItemSpec) -> ItemId {
        let id = ItemId(self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() as u32 - 1
        }));
        let payload = payload(0);
        let update = Update {
            domain: spec.domain,
            container: DataType::OPAQUE,
            payload: &payload,
            ..Update::default()
        };
        let update = update.to_vec().unwrap();
        self.items[id.index()] = Some(Item { spec: spec.clone(), count: 0, holds: 0, update });
        self.by_spec.insert(spec, id);
        id
    }

    fn image(&self, id: ItemId, token: Token, out: &mut Batch) {
        let item = self.items[id.index()].as_ref().unwrap();
        let payload = payload(item.count);
        let refresh = Refresh {
            domain: item.spec.domain,
            flags: RefreshFlags::SOLICITED | RefreshFlags::COMPLETE,
            container: DataType::OPAQUE,
            state: State::OK,
            payload: &payload,
            ..Refresh::default()
        };
        out.push(Kind::Image, SIDE, id, token, &refresh.to_vec().unwrap());
    }

    /// Makes this many updates, of the items in turn.
    pub(crate) fn update(&mut self, updates: usize, out: &mut Batch) -> usize {
        let mut done = 0;
        for _ in 0..updates {
            self.next = (self.next + 1) % self.items.len().max(1);
            let Some(Some(item)) = self.items.get_mut(self.next) else { continue };
            item.count += 1;
            let at = item.update.len() - 74;
            item.update[at..at + 8].copy_from_slice(&item.count.to_be_bytes());
            out.push(Kind::Message, SideId::ALL, ItemId(self.next as u32), 0, &item.update);
            done += 1;
        }
        done
    }

    /// Ends an item.
    fn end(&mut self, name: &[u8], out: &mut Batch) {
        let found = self.by_spec.iter().find(|(spec, _)| spec.key(0).name == Some(name)).map(|(_, id)| *id);
        let Some(id) = found else { return };
        let spec = self.items[id.index()].as_ref().unwrap().spec.clone();
        self.by_spec.remove(&spec);
        let state = State { stream: StreamState::Closed, ..State::OK };
        let status = Status { domain: spec.domain, state: Some(state), ..Status::default() };
        out.push(Kind::Message, SideId::ALL, id, 0, &status.to_vec().unwrap());
        out.push_bare(Kind::Gone, SideId::ALL, id, 0);
    }
}

/// Orders to a running source, and what it reports.
#[derive(Default)]
pub(crate) struct Orders {
    /// Updates per turn.
    pub(crate) burst: AtomicU64,
    stop: AtomicBool,
    pub(crate) updates: AtomicU64,
    pub(crate) cuts: AtomicU64,
    /// Times a sink fell behind.
    pub(crate) stalls: AtomicU64,
    /// Maximum number of bytes kept for sinks that were behind.
    pub(crate) backlog: AtomicU64,
    /// Sinks that have left or were disconnected from their feeds.
    pub(crate) farewells: Mutex<Vec<Farewell>>,
    /// Connected sinks.
    pub(crate) sinks: AtomicU64,
    /// The longest turn, microseconds.
    pub(crate) longest: AtomicU64,
    /// Names of items to end.
    pub(crate) end: Mutex<Vec<Vec<u8>>>,
    /// The items' counters; set while there are no updates.
    pub(crate) last: Mutex<HashMap<Vec<u8>, u64>>,
}

pub(crate) struct RunningSource {
    pub(crate) orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl RunningSource {
    pub(crate) fn start(end: Box<dyn SourceEnd>, service: &str, hold: Duration) -> Self {
        Self::with_stall(end, service, hold, STALL)
    }

    /// Starts a source that keeps at most `stall` bytes for sinks that are behind.
    pub(crate) fn with_stall(end: Box<dyn SourceEnd>, service: &str, hold: Duration, stall: usize) -> Self {
        let orders = Arc::new(Orders::default());
        let (told, service) = (Arc::clone(&orders), service.to_owned());
        let thread = std::thread::spawn(move || run_source(end, &service, hold, stall, &told));
        Self { orders, thread: Some(thread) }
    }

    pub(crate) fn set_burst(&self, updates: u64) {
        self.orders.burst.store(updates, Ordering::Relaxed);
    }

    /// Stops the source and drops its endpoint.
    pub(crate) fn stop(mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn services(name: &str) -> Vec<Service> {
    let info = Info { name: name.to_owned(), capabilities: vec![6], ..Info::default() };
    let state = ServiceState { up: true, accepting: true, status: None };
    vec![Service { id: 5, info: Some(info), state: Some(state), ..Service::default() }]
}

fn run_source(end: Box<dyn SourceEnd>, service: &str, hold: Duration, stall: usize, orders: &Orders) {
    let mut side = SourceSide::new(Some(end), SIDE, "source");
    side.set_policy(None, Policy { hold, ..Policy::default() });
    side.set_stall(stall);
    side.directory(&services(service)).unwrap();
    let (mut hub, mut batch) = (Publisher::default(), Batch::default());
    let poller = Poller::new().unwrap();
    poller.add(side.descriptor().unwrap(), 1, Interest::Read).unwrap();
    let mut events = Vec::new();
    while !orders.stop.load(Ordering::Relaxed) {
        let burst = orders.burst.load(Ordering::Relaxed) as usize;
        let wait = if burst > 0 { Duration::from_micros(200) } else { Duration::from_millis(5) };
        events.clear();
        poller.wait(Some(wait), &mut events).unwrap();
        let start = Instant::now();
        side.poll().unwrap();
        batch.clear();
        for name in orders.end.lock().unwrap().drain(..) {
            hub.end(&name, &mut batch);
        }
        let updates = hub.update(burst, &mut batch);
        side.apply(&batch).unwrap();
        // Includes requests that the batch has caused.
        for ask in side.take_hub_requests() {
            batch.clear();
            hub.ask(ask, &mut batch);
            side.apply(&batch).unwrap();
        }
        side.flush().unwrap();
        orders.updates.fetch_add(updates as u64, Ordering::Relaxed);
        orders.farewells.lock().unwrap().extend(side.farewells());
        orders.cuts.store(side.stats().cuts, Ordering::Relaxed);
        orders.stalls.store(side.stats().stalls, Ordering::Relaxed);
        orders.backlog.fetch_max(side.backlog() as u64, Ordering::Relaxed);
        orders.sinks.store(side.sinks().count() as u64, Ordering::Relaxed);
        orders.longest.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        if burst == 0 {
            let name = |item: &Item| item.spec.key(0).name.unwrap().to_vec();
            let counters = hub.items.iter().flatten().map(|item| (name(item), item.count)).collect();
            *orders.last.lock().unwrap() = counters;
        }
    }
}

/// A model of a point-to-point server's hub: opens items of a service at the first upstream that offers it.
#[derive(Default)]
pub(crate) struct Consumer {
    service: String,
    wanted: Vec<Vec<u8>>,
    /// The upstream in use, and its id of the service.
    using: Option<(UpstreamId, u16)>,
    offers: HashMap<UpstreamId, u16>,
    streams: HashMap<i32, Want>,
    next: i32,
    orders: Vec<(UpstreamId, Vec<u8>)>,
    pub(crate) counters: Counters,
    /// The items' counters.
    pub(crate) seen: HashMap<Vec<u8>, u64>,
    /// Requests another image of an open item after this many updates; 0: never.
    pub(crate) reissue: u64,
}

struct Want {
    name: Vec<u8>,
    count: Option<u64>,
    reissued: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) updates: u64,
    pub(crate) images: u64,
    pub(crate) ended: u64,
    pub(crate) downs: u64,
    pub(crate) ups: u64,
}

impl Consumer {
    fn choose(&mut self) {
        if self.using.is_some() {
            return;
        }
        let Some((up, service)) = self.offers.iter().min().map(|(up, service)| (*up, *service)) else {
            return;
        };
        self.using = Some((up, service));
        for name in self.wanted.clone() {
            self.next += 1;
            let want = Want { name, count: None, reissued: false };
            self.request(up, service, self.next, &want.name);
            self.streams.insert(self.next, want);
        }
    }

    fn request(&mut self, up: UpstreamId, service: u16, stream: i32, name: &[u8]) {
        self.orders.push((
            up,
            Request::streaming(Domain::MARKET_PRICE, stream, Key::item(service, name)).to_vec().unwrap(),
        ));
    }
}

impl UpstreamEvents for Consumer {
    fn message(&mut self, up: UpstreamId, message: &[u8]) -> Result<(), String> {
        assert_eq!(self.using.map(|(up, _)| up), Some(up), "a message of an upstream that is not used");
        let stream = rssl::rwf::peek(message).unwrap().stream;
        let want = self.streams.get_mut(&stream).expect("a message for a stream that is not open");
        match Message::decode(message).map_err(|why| why.to_string())? {
            Message::Refresh(refresh) => {
                let count = count(refresh.payload);
                let known = want.count.is_none_or(|known| known == count);
                assert!(known, "image {count} after {:?} of {:?}", want.count, want.name);
                (want.count, want.reissued) = (Some(count), false);
                self.seen.insert(want.name.clone(), count);
                self.counters.images += 1;
            }
            Message::Update(update) => {
                let count = count(update.payload);
                let before = want.count.expect("an update before the image");
                assert_eq!(before + 1, count, "a gap, a repetition or another order in {:?}", want.name);
                want.count = Some(count);
                self.counters.updates += 1;
                *self.seen.get_mut(&want.name).unwrap() = count;
                if self.reissue > 0 && !want.reissued && self.counters.updates.is_multiple_of(self.reissue) {
                    want.reissued = true;
                    let (name, (up, service)) = (want.name.clone(), self.using.unwrap());
                    self.request(up, service, stream, &name);
                }
            }
            Message::Status(status) => {
                assert_eq!(status.state.unwrap().stream, StreamState::Closed);
                let want = self.streams.remove(&stream).unwrap();
                self.seen.remove(&want.name);
                self.counters.ended += 1;
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn up(&mut self, _: UpstreamId) {
        self.counters.ups += 1;
    }

    fn services(&mut self, up: UpstreamId, services: Vec<(Action, Service)>) {
        for (_, service) in services {
            if service.info.is_some_and(|info| info.name == self.service) {
                self.offers.insert(up, service.id);
            }
        }
        self.choose();
    }

    fn down(&mut self, up: UpstreamId, _: &str) {
        self.counters.downs += 1;
        self.offers.remove(&up);
        if self.using.is_some_and(|(used, _)| used == up) {
            self.using = None;
            self.streams.clear();
            self.orders.clear();
        }
        self.choose();
    }
}

pub(crate) struct Shared {
    pub(crate) side: SinkSide,
    pub(crate) hub: Consumer,
}

impl Shared {
    fn send(&mut self) {
        let Self { side, hub } = self;
        for (up, message) in hub.orders.drain(..) {
            assert!(side.owns(up));
            side.order(up, message);
        }
        side.flush();
    }

    /// Closes an item.
    pub(crate) fn close(&mut self, name: &[u8]) {
        self.hub.wanted.retain(|wanted| wanted != name);
        self.hub.seen.remove(name);
        let found = self.hub.streams.iter().find(|(_, want)| want.name == name).map(|(stream, _)| *stream);
        if let (Some(stream), Some((up, _))) = (found, self.hub.using) {
            self.hub.streams.remove(&stream);
            self.hub.orders.push((up, Close::new(Domain::MARKET_PRICE, stream).to_vec().unwrap()));
            self.send();
        }
    }

    /// Opens another item.
    pub(crate) fn open(&mut self, name: &[u8]) {
        self.hub.wanted.push(name.to_vec());
        if let Some((up, service)) = self.hub.using {
            self.hub.next += 1;
            let stream = self.hub.next;
            self.hub.request(up, service, stream, name);
            self.hub.streams.insert(stream, Want { name: name.to_vec(), count: None, reissued: false });
            self.send();
        }
    }
}

pub(crate) struct RunningSink {
    pub(crate) shared: Arc<Mutex<Shared>>,
    stop: Arc<AtomicBool>,
    /// The feeds' thread does not read while this is set.
    pub(crate) asleep: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningSink {
    pub(crate) fn start(end: Box<dyn SinkEnd>, service: &str, names: &[Vec<u8>]) -> Self {
        let mut side = SinkSide::new(Some(end), UpstreamId(3), 8, "sink");
        let mut feeds = side.feeds().unwrap();
        let hub = Consumer { service: service.to_owned(), wanted: names.to_vec(), ..Consumer::default() };
        let poller = Poller::new().unwrap();
        poller.add(side.descriptor().unwrap(), 1, Interest::Read).unwrap();
        let shared = Arc::new(Mutex::new(Shared { side, hub }));
        let (stop, asleep) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let control = {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut events = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    events.clear();
                    poller.wait(Some(POLL_EVERY), &mut events).unwrap();
                    let mut shared = shared.lock().unwrap();
                    let Shared { side, hub } = &mut *shared;
                    side.poll(hub).unwrap();
                    shared.send();
                }
            })
        };
        let reader = {
            let (shared, stop, asleep) = (Arc::clone(&shared), Arc::clone(&stop), Arc::clone(&asleep));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if asleep.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    turn(&mut feeds, &shared);
                }
            })
        };
        Self { shared, stop, asleep, threads: vec![control, reader] }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("a thread of the sink has failed")
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().hub.counters
    }

    /// Stops the sink; panics if one of its threads has panicked.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn turn(feeds: &mut Feeds, shared: &Mutex<Shared>) {
    let Some(packet) = feeds.next(Duration::from_millis(50)).unwrap() else { return };
    let mut shared = shared.lock().unwrap();
    let Shared { side, hub } = &mut *shared;
    side.feed(packet, hub);
    for _ in 0..16 {
        match feeds.next(Duration::ZERO).unwrap() {
            Some(packet) => side.feed(packet, hub),
            None => {
                side.drained();
                break;
            }
        }
    }
    shared.send();
}

pub(crate) fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("ITEM{number}").into_bytes()).collect()
}
