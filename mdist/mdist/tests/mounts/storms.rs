//! Messages per event, counted exactly: states of services and groups, for consumers that watch these parts of the
//! directory and for others; with a provider of the server's own, and behind a source distributor.

use std::collections::BTreeMap;
use std::time::Duration;

use mdist::backbone::feeds::Feeds;
use mdist::backbone::memory::Memory;
use mdist::backbone::sink_side::SinkSide;
use mdist::backbone::source_side::SourceSide;
use mdist::cache::FieldTypes;
use mdist::hub::{Batch, Hub, HubRequest, HubTurn, Now, Options, SideId, UpstreamId};
use rssl::rdm::directory::{self, Action, GroupStatus, Service, ServiceState, filter};
use rssl::rwf::{
    Class, Close, DataState, DataType, Domain, Key, Message, OwnedState, Refresh, RefreshFlags, Request,
    State, StreamState,
};

use crate::support::*;

const UP: UpstreamId = UpstreamId(0);
/// The provider's id of the service.
const SERVICE: u16 = 9;

/// A provider that answers every request. Each item is in group 1, except every 16th, which is in group 2.
#[derive(Default)]
struct Provider {
    streams: BTreeMap<(UpstreamId, i32), Vec<u8>>,
    requests: usize,
    messages: Vec<(UpstreamId, Vec<u8>)>,
}

impl Provider {
    fn take(&mut self, up: UpstreamId, message: &[u8]) {
        match Message::decode(message).unwrap() {
            Message::Request(request) => {
                self.requests += 1;
                let name = request.key.name.unwrap();
                self.streams.insert((up, request.stream), name.to_vec());
                let number: usize = std::str::from_utf8(&name[4..]).unwrap().parse().unwrap();
                let refresh = Refresh {
                    flags: RefreshFlags::REPLY,
                    state: State::OK,
                    group: if number.is_multiple_of(16) { &[0, 2] } else { &[0, 1] },
                    key: Some(request.key),
                    ..Refresh::new(request.domain, request.stream, DataType::FIELD_LIST, &FIELDS)
                };
                self.messages.push((up, refresh.to_vec().unwrap()));
            }
            Message::Close(close) => drop(self.streams.remove(&(up, close.stream))),
            _ => {}
        }
    }
}

/// The parts of a source distributor, and the server's end of the backbone.
struct Distributor {
    hub: Hub,
    batch: Batch,
    source: SourceSide,
    sink: SinkSide,
    feeds: Feeds,
}

/// A provider, a server, maybe a source distributor between them, and consumers.
struct Chain {
    rig: Rig,
    hub: Hub,
    provider: Provider,
    distributor: Option<Distributor>,
}

/// The messages that a consumer has got.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Updates of the directory.
    directory: usize,
    statuses: usize,
    images: usize,
}

fn counts(directory: usize, statuses: usize, images: usize) -> Counts {
    Counts { directory, statuses, images }
}

impl Chain {
    fn new(hops: usize, cache: bool) -> Self {
        let hub = || Hub::new(Options { cache, ..Options::default() }, FieldTypes::default());
        let distributor = (hops == 2).then(|| {
            let memory = Memory::new();
            let source = SourceSide::new(Some(Box::new(memory.source().unwrap())), SideId(0), "a source");
            let mut sink = SinkSide::new(Some(Box::new(memory.sink().unwrap())), UP, 4, "a sink");
            let feeds = sink.feeds().unwrap();
            Distributor { hub: hub(), batch: Batch::default(), source, sink, feeds }
        });
        let mut rig = Rig::with(mdist::mounts::Config::default(), 100_000, Box::new(mdist::mounts::AllowAll));
        rig.services.clear();
        let mut chain = Self { rig, hub: hub(), provider: Provider::default(), distributor };
        chain.connect();
        chain
    }

    /// The hub that the provider is connected to, and its log.
    fn first_hub(&mut self, out: &mut Batch, act: impl FnOnce(&mut Hub, Now, &mut Batch)) {
        match &mut self.distributor {
            Some(distributor) => act(&mut distributor.hub, self.rig.now, &mut distributor.batch),
            None => act(&mut self.hub, self.rig.now, out),
        }
    }

    fn connect(&mut self) {
        self.event(|hub, now, out| {
            hub.upstream_up(now, UP, false, out);
            hub.upstream_services(now, UP, vec![(Action::Add, service(SERVICE, "DIRECT_FEED"))], true, out);
        });
    }

    fn disconnect(&mut self) {
        self.provider.streams.clear();
        self.event(|hub, now, out| hub.upstream_down(now, UP, "the provider is gone", out));
    }

    fn directory(&mut self, state: Option<ServiceState>, groups: Vec<GroupStatus>) {
        let change = Service { id: SERVICE, state, groups, ..Service::default() };
        self.event(|hub, now, out| {
            hub.upstream_services(now, UP, vec![(Action::Update, change)], false, out);
        });
    }

    fn event(&mut self, act: impl FnOnce(&mut Hub, Now, &mut Batch)) {
        let mut out = Batch::default();
        self.first_hub(&mut out, act);
        self.turn(out);
    }

    /// Passes everything on until nothing moves.
    fn turn(&mut self, mut out: Batch) {
        let mut quiet = 0;
        while quiet < 3 {
            let mut moved = false;
            let now = self.rig.now;
            if let Some(d) = &mut self.distributor {
                d.source.poll().unwrap();
                let asks: Vec<HubRequest> = d.source.take_hub_requests();
                moved |= !asks.is_empty();
                asks.into_iter().for_each(|ask| d.hub.handle(now, ask, &mut d.batch));
                d.hub.tick(now, &mut d.batch);
                moved |= !d.batch.is_empty();
                if d.source.apply(&d.batch).unwrap() {
                    d.source.directory(&d.hub.services().services).unwrap();
                }
                d.batch.clear();
                d.source.flush().unwrap();
                d.sink.poll(&mut HubTurn { hub: &mut self.hub, log: &mut out, now }).unwrap();
                while let Some(packet) = d.feeds.next(Duration::ZERO).unwrap() {
                    moved = true;
                    d.sink.feed(packet, &mut HubTurn { hub: &mut self.hub, log: &mut out, now });
                }
                d.sink.drained();
            }
            let mut orders = Vec::new();
            self.first_hub(&mut out, |hub, now, out| {
                hub.tick(now, out);
                orders.extend(hub.outgoing());
            });
            orders.iter().for_each(|(up, order)| self.provider.take(*up, order));
            let messages = std::mem::take(&mut self.provider.messages);
            moved |= !orders.is_empty() || !messages.is_empty();
            self.first_hub(&mut out, |hub, now, out| {
                messages.iter().for_each(|(up, message)| hub.message(now, *up, message, out).unwrap());
            });
            self.hub.tick(now, &mut out);
            let batch = std::mem::take(&mut out);
            moved |= !batch.is_empty();
            self.rig.services.clone_from(&self.hub.services().services);
            self.rig.worker.apply(&batch, &self.rig.services);
            let requests: Vec<HubRequest> = self.rig.worker.hub_requests().collect();
            moved |= !requests.is_empty();
            requests.into_iter().for_each(|request| self.hub.handle(now, request, &mut out));
            if let Some(d) = &mut self.distributor {
                for (up, order) in self.hub.outgoing() {
                    moved = true;
                    d.sink.order(up, order);
                }
                d.sink.flush();
            }
            (0..self.rig.consumers.len()).for_each(|at| self.rig.read(at));
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }

    /// A consumer that has logged in with these attributes, watches parts of the directory, and opens items.
    fn consumer(&mut self, wanted: Option<u32>, attributes: &[(&str, u64)], items: usize) -> usize {
        self.rig.hub.answers_at_once = false;
        let at = self.rig.login_as(attributes);
        if let Some(wanted) = wanted {
            let request =
                Request::streaming(Domain::DIRECTORY, 2, Key { filter: Some(wanted), ..Key::default() });
            self.send(at, &request.to_vec().unwrap());
        }
        let id = self.rig.services[0].id;
        for number in 0..items {
            let name = format!("ITEM{number}");
            self.input(
                at,
                &Request::streaming(Domain::MARKET_PRICE, 10 + number as i32, Key::item(id, name.as_bytes()))
                    .to_vec()
                    .unwrap(),
            );
        }
        self.turn(Batch::default());
        let images = self.rig.received(at);
        let images = images.iter().filter(|m| m.message().head().domain == Domain::MARKET_PRICE).count();
        assert_eq!(images, items, "one image of each item");
        at
    }

    fn input(&mut self, at: usize, message: &[u8]) {
        let mut out = Vec::new();
        let consumer = &mut self.rig.consumers[at];
        consumer.write(message, &mut out);
        let mount = consumer.mount;
        self.rig.worker.input(mount, &out, self.rig.now);
    }

    fn send(&mut self, at: usize, message: &[u8]) {
        self.input(at, message);
        self.turn(Batch::default());
    }

    /// The messages since the last call; every item status and every announcement has this state.
    fn take(&mut self, at: usize) -> (Counts, Vec<Service>) {
        let mut counts = Counts::default();
        let mut services = Vec::new();
        for received in self.rig.received(at) {
            let message = received.message();
            match (message.head().domain, message.head().class) {
                (Domain::DIRECTORY, Class::Update) => {
                    counts.directory += 1;
                    let all = directory::decode(received.update().payload).unwrap();
                    services.extend(all.into_iter().map(|(_, service)| service));
                }
                (Domain::MARKET_PRICE, Class::Status) => counts.statuses += 1,
                (Domain::MARKET_PRICE, Class::Refresh) => {
                    assert_eq!(received.refresh().state.data, DataState::Ok, "an image is good");
                    counts.images += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        (counts, services)
    }

    /// Lets the time pass that the pace of recovery takes for this many items, and some more.
    fn recover(&mut self, items: usize) {
        for _ in 0..items / 250 + 5 {
            self.pass(Duration::from_millis(5));
        }
        for _ in 0..10 {
            self.pass(Duration::from_secs(1));
        }
    }

    fn pass(&mut self, time: Duration) {
        self.rig.now += time;
        self.turn(Batch::default());
    }
}

const SINGLE_OPEN: &[(&str, u64)] = &[("SingleOpen", 1), ("AllowSuspectData", 1)];

fn suspect(text: &[u8]) -> OwnedState {
    State { text, ..State::new(StreamState::Open, DataState::Suspect, 0, b"") }.to_owned()
}

/// Hops, use of the cache, and number of items of each case.
const CASES: [(usize, bool, usize); 6] =
    [(1, false, 32), (1, true, 32), (2, false, 32), (2, true, 32), (1, true, 10_000), (2, true, 10_000)];

#[test]
fn group_status_is_one_directory_message_or_a_status_for_each_item() {
    for (hops, cache, items) in CASES {
        let mut chain = Chain::new(hops, cache);
        let watches = chain.consumer(Some(filter::INFO | filter::STATE | filter::GROUP), SINGLE_OPEN, items);
        let other = chain.consumer(Some(filter::INFO | filter::STATE), SINGLE_OPEN, items);
        let state = suspect(b"line down");
        let group = GroupStatus { group: vec![0, 2], merged_to: None, status: Some(state.clone()) };
        chain.directory(None, vec![group.clone()]);
        let in_group = items.div_ceil(16);
        let (got, services) = chain.take(watches);
        assert_eq!(got, counts(1, 0, 0), "{hops} hops, {items} items");
        assert_eq!(services[0].groups, [group]);
        assert_eq!(chain.take(other).0, counts(0, in_group, 0), "{hops} hops, {items} items");
        // The same for the end of the trouble.
        let good = GroupStatus { status: Some(State::OK.to_owned()), group: vec![0, 2], merged_to: None };
        chain.directory(None, vec![good]);
        assert_eq!(chain.take(watches).0, counts(1, 0, 0), "{hops} hops, {items} items");
        assert_eq!(chain.take(other).0, counts(0, in_group, 0), "{hops} hops, {items} items");
    }
}

#[test]
fn merged_groups_are_one_directory_message_or_a_status_for_each_item() {
    for hops in [1, 2] {
        let mut chain = Chain::new(hops, true);
        let watches = chain.consumer(Some(filter::GROUP), SINGLE_OPEN, 32);
        let other = chain.consumer(None, SINGLE_OPEN, 32);
        let merge = GroupStatus { group: vec![0, 2], merged_to: Some(vec![0, 3]), status: None };
        chain.directory(None, vec![merge.clone()]);
        let (got, services) = chain.take(watches);
        assert_eq!((got, &services[0].groups), (counts(1, 0, 0), &vec![merge]), "{hops} hops");
        let moved = chain.rig.received(other);
        assert_eq!(moved.len(), 2, "{hops} hops");
        assert!(moved.iter().all(|m| m.status().group == Some(&[0, 3]) && m.status().state.is_none()));
        let status = GroupStatus { group: vec![0, 3], merged_to: None, status: Some(suspect(b"down")) };
        chain.directory(None, vec![status]);
        assert_eq!(chain.take(watches).0, counts(1, 0, 0), "{hops} hops");
        assert_eq!(chain.take(other).0, counts(0, 2, 0), "{hops} hops");
    }
}

#[test]
fn service_that_goes_down_and_up_is_announced_once_and_each_item_has_one_image() {
    for (hops, cache, items) in CASES {
        for status in [None, Some(suspect(b"maintenance"))] {
            let mut chain = Chain::new(hops, cache);
            let watches = chain.consumer(Some(filter::STATE), SINGLE_OPEN, items);
            let other = chain.consumer(None, SINGLE_OPEN, items);
            let text = status.clone().map_or(b"Service down".to_vec(), |status| status.text);
            chain.directory(Some(ServiceState { up: false, accepting: true, status }), Vec::new());
            let (got, services) = chain.take(watches);
            assert_eq!(got, counts(1, 0, 0), "{hops} hops, {items} items");
            let state = services[0].state.clone().unwrap();
            assert!(!state.up);
            assert_eq!(state.status.unwrap(), suspect(&text));
            assert_eq!(chain.take(other).0, counts(0, items, 0), "{hops} hops, {items} items");
            let requests = chain.provider.requests;
            chain.directory(Some(ServiceState { up: true, accepting: true, status: None }), Vec::new());
            chain.recover(items);
            assert_eq!(chain.take(watches).0, counts(1, 0, items), "{hops} hops, {items} items");
            assert_eq!(chain.take(other).0, counts(0, 0, items), "{hops} hops, {items} items");
            assert_eq!(chain.provider.requests - requests, items, "each item is requested once");
        }
    }
}

#[test]
fn lost_provider_is_announced_once_and_each_item_has_one_image_when_it_is_back() {
    for (hops, cache, items) in CASES {
        let mut chain = Chain::new(hops, cache);
        let watches = chain.consumer(Some(filter::STATE), SINGLE_OPEN, items);
        let other = chain.consumer(None, SINGLE_OPEN, items);
        chain.disconnect();
        let (got, services) = chain.take(watches);
        assert_eq!(got, counts(1, 0, 0), "{hops} hops, {items} items");
        let status = services[0].state.clone().unwrap().status.unwrap();
        assert_eq!((status.stream, status.data), (StreamState::Open, DataState::Suspect));
        assert_eq!(chain.take(other).0, counts(0, items, 0), "{hops} hops, {items} items");
        chain.pass(Duration::from_secs(1));
        chain.connect();
        chain.recover(items);
        assert_eq!(chain.take(watches).0, counts(1, 0, items), "{hops} hops, {items} items");
        assert_eq!(chain.take(other).0, counts(0, 0, items), "{hops} hops, {items} items");
    }
}

#[test]
fn announced_state_depends_on_the_login_as_that_of_single_items() {
    for hops in [1, 2] {
        let mut chain = Chain::new(hops, true);
        let own = [("SingleOpen", 0), ("AllowSuspectData", 0)];
        let watches = chain.consumer(Some(filter::STATE), &own, 32);
        let other = chain.consumer(None, &own, 32);
        chain.directory(Some(ServiceState { up: false, accepting: true, status: None }), Vec::new());
        let (got, services) = chain.take(watches);
        assert_eq!(got, counts(1, 0, 0), "{hops} hops");
        let status = services[0].state.clone().unwrap().status.unwrap();
        assert_eq!(status.stream, StreamState::ClosedRecover);
        let statuses = chain.rig.received(other);
        assert_eq!(statuses.len(), 32);
        assert!(statuses.iter().all(|m| m.state().unwrap().stream == StreamState::ClosedRecover));
        for at in [watches, other] {
            let streams = chain.rig.worker.stats(chain.rig.consumers[at].mount).unwrap().streams;
            assert!(streams <= 2, "{streams} streams are open beside login and directory");
        }
    }
}

#[test]
fn group_status_of_one_of_two_providers_is_not_announced_for_items_of_the_other() {
    let mut chain = Chain::new(1, true);
    let at = chain.consumer(Some(filter::GROUP), SINGLE_OPEN, 32);
    // A second provider of the service gets no request while the first one takes them, so its only item moves there.
    let other = UpstreamId(1);
    chain.event(|hub, now, out| {
        hub.upstream_up(now, other, false, out);
        hub.upstream_services(now, other, vec![(Action::Add, service(3, "DIRECT_FEED"))], true, out);
    });
    let mut streams = chain.provider.streams.iter();
    let (_, stream) = *streams.find(|(_, name)| **name == b"ITEM0").unwrap().0;
    let closed = Close::new(Domain::MARKET_PRICE, stream).to_vec().unwrap();
    let full = directory::Load { open_limit: Some(1), ..directory::Load::default() };
    chain.event(|hub, now, out| {
        let change = Service { id: SERVICE, load: Some(full), ..Service::default() };
        hub.upstream_services(now, UP, vec![(Action::Update, change)], false, out);
        hub.message(now, UP, &closed, out).unwrap();
    });
    chain.pass(Duration::from_secs(1));
    chain.take(at);
    let group = GroupStatus { group: vec![0, 2], merged_to: None, status: Some(suspect(b"line down")) };
    chain.directory(None, vec![group]);
    assert_eq!(chain.take(at).0, counts(0, 1, 0), "only the item of this provider");
}

#[test]
fn streams_of_a_sink_that_leaves_are_closed_in_portions() {
    /// Streams that the source distributor closes in a turn.
    const CLOSED: usize = 2048;
    let mut chain = Chain::new(2, true);
    chain.consumer(None, SINGLE_OPEN, 10_000);
    let Distributor { mut source, sink, .. } = chain.distributor.take().unwrap();
    drop(sink);
    let (mut closed, mut turns) = (0, 0);
    while closed < 10_000 {
        // The first turn finds that the sink has left, and closes a portion there too.
        source.poll().unwrap();
        source.flush().unwrap();
        let asks = source.take_hub_requests();
        assert!(asks.len() <= 2 * CLOSED, "{} streams in a turn", asks.len());
        closed += asks.len();
        turns += 1;
        assert!(turns < 100 && (closed == 10_000 || source.has_released()));
    }
    assert!(turns >= 3 && !source.has_released(), "{turns}");
}
