//! A hub between model publishers and model sides. The publishers' items are one table of fields; when no message is
//! under way, each live stream must show its row of the table.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::cache::FieldTypes;
use rssl::rdm::directory::{Action, Info, Load, Service as Listed, ServiceState};
use rssl::rwf::{DataState, Domain, StreamState};

use super::super::*;
use super::models::{Answer, Fields, Model, price_key};
use super::sides::{Side, View};

pub(super) const OK: Option<(StreamState, DataState)> = Some((StreamState::Open, DataState::Ok));
pub(super) const STALE: Option<(StreamState, DataState)> = Some((StreamState::Open, DataState::Suspect));
pub(super) const LOST: Option<(StreamState, DataState)> =
    Some((StreamState::ClosedRecover, DataState::Suspect));

pub(super) struct Rig {
    pub(super) hub: Hub,
    pub(super) now: Now,
    pub(super) models: Vec<Model>,
    pub(super) sides: Vec<Side>,
    pub(super) table: HashMap<String, Fields>,
    pub(super) out: Batch,
    next_token: Token,
    pub(super) counter: u32,
    /// Number of parts of a refresh.
    pub(super) parts: usize,
}

pub(super) fn listed(id: u16, name: &str, up: bool) -> Listed {
    Listed {
        id,
        info: Some(Info { name: name.into(), capabilities: vec![6, 7, 8], ..Info::default() }),
        state: Some(ServiceState { up, accepting: true, status: None }),
        ..Listed::default()
    }
}

impl Rig {
    pub(super) fn new(options: Options, sides: u16) -> Self {
        let sides = (0..sides).map(|n| Side {
            id: SideId(n),
            views: BTreeMap::new(),
            holds: HashMap::new(),
            by_item: HashMap::new(),
            directory: None,
            directories: 0,
        });
        Self {
            hub: Hub::new(options, FieldTypes::default()),
            now: Now::from_secs(1000),
            models: Vec::new(),
            sides: sides.collect(),
            table: HashMap::new(),
            out: Batch::default(),
            next_token: 0,
            counter: 0,
            parts: 1,
        }
    }

    /// A hub with a provider that offers service 5 "QUOTES".
    pub(super) fn with_provider(options: Options, sides: u16) -> Self {
        let mut rig = Self::new(options, sides);
        rig.provider();
        rig
    }

    /// A provider that offers service 5 "QUOTES".
    pub(super) fn provider(&mut self) -> usize {
        let up = self.model(false);
        self.services(up, vec![listed(5, "QUOTES", true)]);
        up
    }

    /// An upstream without a directory yet.
    pub(super) fn model(&mut self, publishes: bool) -> usize {
        let up = UpstreamId(self.models.len() as u16);
        self.models.push(Model {
            up,
            alive: true,
            answer: Answer::Image,
            streams: BTreeMap::new(),
            requests: 0,
            closes: 0,
            seen: Vec::new(),
            outgoing: VecDeque::new(),
        });
        self.hub.upstream_up(self.now, up, publishes, &mut self.out);
        self.deliver();
        up.0 as usize
    }

    pub(super) fn services(&mut self, model: usize, services: Vec<Listed>) {
        let changes = services.into_iter().map(|s| (Action::Add, s)).collect();
        self.hub.upstream_services(self.now, UpstreamId(model as u16), changes, true, &mut self.out);
        self.run();
    }

    pub(super) fn change(&mut self, model: usize, action: Action, service: Listed) {
        let changes = vec![(action, service)];
        self.hub.upstream_services(self.now, UpstreamId(model as u16), changes, false, &mut self.out);
        self.run();
    }

    pub(super) fn service_state(&mut self, model: usize, up: bool, accepting: bool) {
        let state = Some(ServiceState { up, accepting, status: None });
        self.change(model, Action::Update, Listed { id: 5, state, ..Listed::default() });
    }

    pub(super) fn window(&mut self, model: usize, window: Option<u64>, limit: Option<u64>) {
        let load = Some(Load { open_window: window, open_limit: limit, ..Load::default() });
        self.change(model, Action::Update, Listed { id: 5, load, ..Listed::default() });
    }

    pub(super) fn down(&mut self, model: usize) {
        let m = &mut self.models[model];
        m.alive = false;
        m.streams.clear();
        m.outgoing.clear();
        self.hub.upstream_down(self.now, m.up, "test", &mut self.out);
        self.run();
    }

    /// Reconnects a provider.
    pub(super) fn back(&mut self, model: usize) {
        self.models[model].alive = true;
        self.hub.upstream_up(self.now, UpstreamId(model as u16), false, &mut self.out);
        self.services(model, vec![listed(5, "QUOTES", true)]);
    }

    pub(super) fn handle(&mut self, request: HubRequest) {
        self.hub.handle(self.now, request, &mut self.out);
        self.run();
    }

    /// Opens an item, without passing the messages that follow.
    pub(super) fn start(&mut self, side: usize, name: &str, streaming: bool, private: bool) -> Token {
        self.start_in(5, side, name, streaming, private)
    }

    /// Opens an item of another service.
    pub(super) fn start_in(
        &mut self,
        service: u16,
        side: usize,
        name: &str,
        streaming: bool,
        private: bool,
    ) -> Token {
        self.next_token += 1;
        let token = self.next_token;
        let view = View { name: name.into(), snapshot: !streaming, ..View::default() };
        self.sides[side].views.insert(token, view);
        let spec = ItemSpec::new(service, Domain::MARKET_PRICE, &price_key(name), None, private).unwrap();
        let ask = HubRequest::Open { side: SideId(side as u16), token, spec, worst_qos: None, streaming };
        self.hub.handle(self.now, ask, &mut self.out);
        token
    }

    /// Changes an item, and passes its updates.
    pub(super) fn updated(&mut self, name: &str) {
        self.update(name);
        self.run();
    }

    /// Passes a status of the first provider.
    pub(super) fn status(&mut self, name: &str, stream: StreamState, data: DataState, code: u8) {
        self.models[0].status(name, stream, data, code);
        self.run();
    }

    pub(super) fn open(&mut self, side: usize, name: &str) -> Token {
        let token = self.start(side, name, true, false);
        self.run();
        token
    }

    pub(super) fn snapshot(&mut self, side: usize, name: &str) -> Token {
        let token = self.start(side, name, false, false);
        self.run();
        token
    }

    /// Adds a stream of an item that the side holds, as mounts do.
    pub(super) fn join(&mut self, side: usize, first: Token) -> Token {
        self.next_token += 1;
        let token = self.next_token;
        let View { name, item, .. } = self.sides[side].views[&first].clone();
        self.sides[side].views.insert(token, View { name, item, ..View::default() });
        let item = item.expect("an open item");
        self.sides[side].by_item.entry(item).or_default().push(token);
        self.handle(HubRequest::Image { side: SideId(side as u16), token, item });
        token
    }

    /// Removes a view; returns the close of its item, if it was the last one.
    pub(super) fn forget(&mut self, side: usize, token: Token) -> Option<HubRequest> {
        let s = &mut self.sides[side];
        let view = s.views.remove(&token).expect("a view");
        if let Some(tokens) = view.item.and_then(|i| s.by_item.get_mut(&i)) {
            tokens.retain(|t| *t != token);
        }
        view.item.and_then(|i| s.let_go(i))
    }

    pub(super) fn end(&mut self, side: usize, token: Token) {
        if let Some(ask) = self.forget(side, token) {
            self.handle(ask);
        }
    }

    pub(super) fn view(&self, side: usize, token: Token) -> &View {
        &self.sides[side].views[&token]
    }

    /// Passes one message of a provider to the hub.
    pub(super) fn feed(&mut self, model: usize, message: &[u8]) {
        let up = self.models[model].up;
        self.hub.message(self.now, up, message, &mut self.out).expect("models behave");
    }

    /// Passes the batch to the sides and their requests to the hub, until none is left.
    pub(super) fn deliver(&mut self) {
        while !self.out.is_empty() {
            let batch = std::mem::take(&mut self.out);
            for n in 0..self.sides.len() {
                for ask in self.sides[n].apply(&batch) {
                    self.hub.handle(self.now, ask, &mut self.out);
                }
            }
        }
    }

    /// Passes all messages that are under way.
    pub(super) fn run(&mut self) {
        loop {
            self.deliver();
            let outgoing: Vec<_> = self.hub.outgoing().collect();
            for (up, message) in &outgoing {
                assert!(self.models[up.0 as usize].alive, "nothing is sent to a lost upstream");
                self.answer(up.0 as usize, message);
            }
            let mut moved = !outgoing.is_empty();
            for n in 0..self.models.len() {
                while let Some(message) = self.models[n].outgoing.pop_front() {
                    self.feed(n, &message);
                    moved = true;
                }
            }
            if !moved && self.out.is_empty() {
                return;
            }
        }
    }

    /// Advances the time, and ticks the hub at its deadlines.
    pub(super) fn pass(&mut self, time: Now) {
        let end = self.now + time;
        while let Some(due) = self.hub.deadline().filter(|d| *d <= end) {
            self.now = self.now.max(due);
            self.hub.tick(self.now, &mut self.out);
            self.run();
        }
        self.now = end;
    }

    /// The process does not run for this time: its timers are late.
    pub(super) fn stand_still(&mut self, time: Now) {
        self.now += time;
        self.hub.tick(self.now, &mut self.out);
        self.run();
    }

    /// Checks that each live stream has the publisher's values.
    pub(super) fn check(&self) {
        assert_eq!(self.hub.stats().cache_errors, 0);
        for side in &self.sides {
            for (token, view) in &side.views {
                if view.over || view.state != Some((StreamState::Open, DataState::Ok)) {
                    continue;
                }
                assert_eq!(view.fields, self.table[&view.name], "{:?} {token} {}", side.id, view.name);
            }
        }
    }

    /// Checks that each stream is live and good, and has the publisher's values.
    pub(super) fn check_all(&self) {
        for side in &self.sides {
            for (token, view) in side.views.iter().filter(|(_, v)| !v.snapshot) {
                assert!(!view.over, "{token} is over: {view:?}");
                assert_eq!(view.state, Some((StreamState::Open, DataState::Ok)), "{token}: {view:?}");
            }
        }
        self.check();
    }
}
