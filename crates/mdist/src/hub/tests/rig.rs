//! A hub between model publishers and model sides. The publishers' items are one table of fields; a stream that is live
//! must show exactly that table's row whenever nothing is on its way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::cache::FieldTypes;
use rssl::rdm::directory::{Action, Info, Load, Service as Listed, ServiceState};
use rssl::rwf::{
    self, Ack, Class, Close, DataState, DataType, Domain, Key, Message, Post, Refresh, RefreshFlags, Request,
    RequestFlags, State, Status, StreamState, Update,
};
use rssl::wire::to_vec;

use super::super::*;

pub(super) type Fields = BTreeMap<i16, Vec<u8>>;

/// A field list payload.
pub(super) fn encode(fields: &Fields) -> Vec<u8> {
    let mut out = vec![0x08];
    out.extend((fields.len() as u16).to_be_bytes());
    for (id, value) in fields {
        out.extend(id.to_be_bytes());
        out.push(value.len() as u8);
        out.extend(value);
    }
    out
}

pub(super) fn decode(payload: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let Some((3.., mut rest)) = Some((payload.len(), payload.get(3..).unwrap_or(&[]))) else { return fields };
    while let [a, b, len, tail @ ..] = rest {
        let (value, tail) = tail.split_at(*len as usize);
        fields.insert(i16::from_be_bytes([*a, *b]), value.to_vec());
        rest = tail;
    }
    fields
}

/// How a model answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Image,
    Nothing,
    NotFound,
    Recover,
    /// A refresh whose flags have neither solicited nor clear-cache.
    Plain,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) domain: Domain,
    pub(super) streaming: bool,
    pub(super) private: bool,
    pub(super) service: u16,
}

/// One provider.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) up: UpstreamId,
    pub(super) alive: bool,
    pub(super) answer: Answer,
    pub(super) streams: BTreeMap<i32, Stream>,
    pub(super) requests: usize,
    pub(super) closes: usize,
    pub(super) seen: Vec<Vec<u8>>,
    pub(super) outgoing: VecDeque<Vec<u8>>,
}

impl Model {
    pub(super) fn say(&mut self, message: Vec<u8>) {
        self.outgoing.push_back(message);
    }

    pub(super) fn stream_of(&self, name: &str) -> Option<i32> {
        self.streams.iter().find(|(_, s)| s.name == name).map(|(id, _)| *id)
    }

    pub(super) fn status(&mut self, name: &str, stream: StreamState, data: DataState, code: u8) {
        let id = self.stream_of(name).expect("an open stream");
        let domain = self.streams[&id].domain;
        if !matches!(stream, StreamState::Open | StreamState::Unspecified) {
            self.streams.remove(&id);
        }
        let state = State::new(stream, data, code, b"model");
        let status = Status {
            domain,
            stream: id,
            state: Some(state),
            container: DataType::NO_DATA,
            ..Status::default()
        };
        self.say(to_vec(|w| status.encode(w)).unwrap());
    }
}

/// One stream as a client of a side sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) name: String,
    pub(super) item: Option<ItemId>,
    pub(super) snapshot: bool,
    pub(super) live: bool,
    pub(super) over: bool,
    pub(super) fields: Fields,
    pub(super) images: u32,
    pub(super) updates: u32,
    pub(super) state: Option<(StreamState, DataState)>,
    pub(super) code: u8,
    pub(super) notices: Vec<(StreamState, DataState, u8)>,
    pub(super) refused: Option<(StreamState, u8)>,
    pub(super) replies: Vec<Vec<u8>>,
}

/// A side: applies the batch as mounts do.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) id: SideId,
    pub(super) views: BTreeMap<Token, View>,
    holds: HashMap<ItemId, u32>,
    by_item: HashMap<ItemId, Vec<Token>>,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) directories: usize,
}

impl Side {
    /// The view's refresh or update.
    fn show(view: &mut View, message: &Message<'_>) {
        match message {
            Message::Refresh(r) => {
                if r.flags.contains(RefreshFlags::CLEAR_CACHE) {
                    view.fields.clear();
                }
                view.fields.extend(decode(r.payload));
                view.state = Some((r.state.stream, r.state.data));
                view.code = r.state.code;
                view.images += u32::from(r.flags.contains(RefreshFlags::COMPLETE));
            }
            Message::Update(u) => {
                view.fields.extend(decode(u.payload));
                view.updates += 1;
            }
            Message::Status(s) => {
                if let Some(state) = s.state {
                    view.state = Some((state.stream, state.data));
                    view.code = state.code;
                }
            }
            other => view.replies.push(to_vec(|w| other.encode(w)).unwrap()),
        }
    }

    fn apply(&mut self, batch: &Batch) -> Vec<Ask> {
        let mut asks = Vec::new();
        let me = self.id;
        for entry in batch.entries.iter().filter(|e| e.is_for(me)) {
            let bytes = batch.message(entry);
            let message =
                (!bytes.is_empty()).then(|| Message::decode(bytes).expect("the hub writes good messages"));
            if let Some(message) = &message
                && entry.kind != Kind::Refused
                && !matches!(message, Message::Ack(_))
            {
                assert_eq!(message.head().stream, entry.item.stream());
            }
            match entry.kind {
                Kind::Opened => {
                    *self.holds.entry(entry.item).or_default() += 1;
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        view.item = Some(entry.item);
                        self.by_item.entry(entry.item).or_default().push(entry.token);
                    }
                    asks.extend(self.let_go(entry.item));
                }
                Kind::Image => {
                    let Some(view) = self.views.get_mut(&entry.token).filter(|v| !v.over) else { continue };
                    let Some(Message::Refresh(r)) = &message else { panic!("an image is a refresh") };
                    assert!(r.flags.contains(RefreshFlags::SOLICITED));
                    view.live = true;
                    Self::show(view, message.as_ref().unwrap());
                    if view.snapshot && r.flags.contains(RefreshFlags::COMPLETE) {
                        assert_eq!(r.state.stream, StreamState::NonStreaming);
                        view.over = true;
                    }
                }
                Kind::Notice => {
                    let Some(view) = self.views.get_mut(&entry.token).filter(|v| !v.over) else { continue };
                    let Some(Message::Status(s)) = &message else { panic!("a notice is a status") };
                    let state = s.state.expect("with a state");
                    view.notices.push((state.stream, state.data, state.code));
                }
                Kind::Message => {
                    for token in self.by_item.get(&entry.item).into_iter().flatten() {
                        if let Some(view) = self.views.get_mut(token).filter(|v| v.live) {
                            Self::show(view, message.as_ref().unwrap());
                        }
                    }
                }
                Kind::Gone => {
                    for token in self.by_item.remove(&entry.item).into_iter().flatten() {
                        if let Some(view) = self.views.get_mut(&token) {
                            view.over = true;
                            view.live = false;
                            view.item = None;
                        }
                    }
                    asks.extend(self.let_go(entry.item));
                }
                Kind::Services => {
                    self.directory = batch.directory(entry).cloned();
                    self.directories += 1;
                }
                Kind::Reply => {
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        Self::show(view, message.as_ref().unwrap());
                    }
                }
                Kind::Refused => {
                    let Some(Message::Status(s)) = &message else { panic!("a refusal is a status") };
                    let state = s.state.expect("with a state");
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        view.refused = Some((state.stream, state.code));
                        view.over = true;
                    }
                }
            }
        }
        asks
    }

    /// Gives back the holds of an item that has no view any more.
    fn let_go(&mut self, item: ItemId) -> Option<Ask> {
        if self.by_item.get(&item).is_some_and(|t| !t.is_empty()) {
            return None;
        }
        let holds = self.holds.remove(&item)?;
        Some(Ask::Close { side: self.id, item, holds })
    }
}

pub(super) struct Rig {
    pub(super) hub: Engine,
    pub(super) now: Now,
    pub(super) models: Vec<Model>,
    pub(super) sides: Vec<Side>,
    pub(super) table: HashMap<String, Fields>,
    pub(super) out: Batch,
    next_token: Token,
    counter: u32,
    /// Parts that models cut refreshes into.
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

pub(super) fn price_key(name: &str) -> Key<'_> {
    Key { name: Some(name.as_bytes()), ..Key::default() }
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
            hub: Engine::new(options, FieldTypes::default()),
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

    /// The same provider again.
    pub(super) fn back(&mut self, model: usize) {
        self.models[model].alive = true;
        self.hub.upstream_up(self.now, UpstreamId(model as u16), false, &mut self.out);
        self.services(model, vec![listed(5, "QUOTES", true)]);
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.hub.ask(self.now, ask, &mut self.out);
        self.run();
    }

    /// Opens without running what follows.
    pub(super) fn start(&mut self, side: usize, name: &str, streaming: bool, private: bool) -> Token {
        self.start_in(5, side, name, streaming, private)
    }

    /// In a service with another id.
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
        let ask = Ask::Open { side: SideId(side as u16), token, spec, worst_qos: None, streaming };
        self.hub.ask(self.now, ask, &mut self.out);
        token
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

    /// One more stream of an item that the side has: as mounts do it.
    pub(super) fn join(&mut self, side: usize, first: Token) -> Token {
        self.next_token += 1;
        let token = self.next_token;
        let View { name, item, .. } = self.sides[side].views[&first].clone();
        self.sides[side].views.insert(token, View { name, item, ..View::default() });
        let item = item.expect("an open item");
        self.sides[side].by_item.entry(item).or_default().push(token);
        self.ask(Ask::Image { side: SideId(side as u16), token, item });
        token
    }

    /// The view ends; its item, if it was the last.
    pub(super) fn forget(&mut self, side: usize, token: Token) -> Option<Ask> {
        let s = &mut self.sides[side];
        let view = s.views.remove(&token).expect("a view");
        if let Some(tokens) = view.item.and_then(|i| s.by_item.get_mut(&i)) {
            tokens.retain(|t| *t != token);
        }
        view.item.and_then(|i| s.let_go(i))
    }

    pub(super) fn end(&mut self, side: usize, token: Token) {
        if let Some(ask) = self.forget(side, token) {
            self.ask(ask);
        }
    }

    pub(super) fn view(&self, side: usize, token: Token) -> &View {
        &self.sides[side].views[&token]
    }

    fn row(&mut self, name: &str) -> &mut Fields {
        self.table.entry(name.to_owned()).or_insert_with(|| {
            (1..10)
                .map(|n| (n, vec![n as u8; 2 + n as usize % 5]))
                .chain([(22, name.as_bytes().to_vec())])
                .collect()
        })
    }

    /// Changes some fields of an item, and tells those who have it open.
    pub(super) fn update(&mut self, name: &str) {
        self.counter += 1;
        let n = self.counter;
        let changed: Fields =
            [(22, n.to_be_bytes().to_vec()), (1 + (n % 20) as i16, vec![n as u8; 3])].into();
        self.row(name).extend(changed.clone());
        for model in self.models.iter_mut().filter(|m| m.alive) {
            let streams: Vec<_> =
                model.streams.iter().filter(|(_, s)| s.name == name && s.streaming).collect();
            let updates: Vec<_> =
                streams.iter().map(|(id, s)| update_message(**id, s.domain, &changed)).collect();
            model.outgoing.extend(updates);
        }
    }

    /// What a provider answers to one message.
    fn answer(&mut self, model: usize, message: &[u8]) {
        self.models[model].seen.push(message.to_vec());
        match Message::decode(message).expect("the hub writes good messages") {
            Message::Request(r) => self.answer_request(model, &r),
            Message::Close(Close { stream, .. }) => {
                self.models[model].closes += 1;
                self.models[model].streams.remove(&stream);
            }
            Message::Post(Post { domain, stream, post_id: Some(id), .. })
                if self.models[model].answer != Answer::Nothing =>
            {
                let ack = Ack { domain, stream, ack_id: id, ..Ack::default() };
                self.models[model].say(to_vec(|w| ack.encode(w)).unwrap());
            }
            _ => {}
        }
    }

    fn answer_request(&mut self, model: usize, r: &Request<'_>) {
        let name = String::from_utf8(r.key.name.expect("a name").to_vec()).unwrap();
        let m = &mut self.models[model];
        m.requests += 1;
        let stream = Stream {
            name: name.clone(),
            domain: r.domain,
            streaming: r.flags.contains(RequestFlags::STREAMING),
            private: r.flags.contains(RequestFlags::PRIVATE),
            service: r.key.service.expect("a service"),
        };
        if let Some(old) = m.streams.insert(r.stream, stream) {
            assert_eq!(old.name, name, "a reissue has the key of its stream");
        }
        match m.answer {
            Answer::Image | Answer::Plain => {
                self.image(model, r.stream, m_solicited(self.models[model].answer))
            }
            Answer::Nothing => {}
            Answer::NotFound => m.status(&name, StreamState::Closed, DataState::Suspect, 1),
            Answer::Recover => m.status(&name, StreamState::ClosedRecover, DataState::Suspect, 0),
        }
    }

    /// A provider's refresh, in as many parts as the rig says.
    pub(super) fn image(&mut self, model: usize, id: i32, solicited: bool) {
        for part in self.image_parts(model, id, solicited) {
            self.models[model].say(part);
        }
        if !self.models[model].streams[&id].streaming {
            self.models[model].streams.remove(&id);
        }
    }

    pub(super) fn image_parts(&mut self, model: usize, id: i32, solicited: bool) -> Vec<Vec<u8>> {
        let stream = self.models[model].streams[&id].clone();
        let row = self.row(&stream.name).clone();
        let parts = self.parts;
        let size = row.len().div_ceil(parts);
        let mut rows = row.into_iter();
        (0..parts)
            .map(|n| {
                let fields: Fields = rows.by_ref().take(size).collect();
                let mut flags = RefreshFlags::NONE;
                if solicited {
                    flags.insert(RefreshFlags::SOLICITED);
                }
                if n == 0 && solicited {
                    flags.insert(RefreshFlags::CLEAR_CACHE);
                }
                if n + 1 == parts {
                    flags.insert(RefreshFlags::COMPLETE);
                }
                if stream.private {
                    flags.insert(RefreshFlags::PRIVATE);
                }
                let state = if stream.streaming { StreamState::Open } else { StreamState::NonStreaming };
                let payload = encode(&fields);
                let refresh = Refresh {
                    domain: stream.domain,
                    stream: id,
                    flags,
                    container: DataType::FIELD_LIST,
                    state: State::new(state, DataState::Ok, 0, b"All is well"),
                    group: &[0, 7],
                    key: Some(Key { service: Some(stream.service), ..price_key(&stream.name) }),
                    part: (parts > 1).then_some(n as u16),
                    payload: &payload,
                    ..Refresh::default()
                };
                to_vec(|w| refresh.encode(w)).unwrap()
            })
            .collect()
    }

    /// One message of a provider to the hub.
    pub(super) fn feed(&mut self, model: usize, message: &[u8]) {
        let up = self.models[model].up;
        self.hub.message(self.now, up, message, &mut self.out).expect("models behave");
    }

    /// Gives the batch to the sides, and their asks to the hub, until all is told.
    pub(super) fn deliver(&mut self) {
        while !self.out.is_empty() {
            let batch = std::mem::take(&mut self.out);
            for n in 0..self.sides.len() {
                for ask in self.sides[n].apply(&batch) {
                    self.hub.ask(self.now, ask, &mut self.out);
                }
            }
        }
    }

    /// Everything that is on its way arrives.
    pub(super) fn run(&mut self) {
        loop {
            self.deliver();
            let orders: Vec<_> = self.hub.orders().collect();
            for (up, message) in &orders {
                assert!(self.models[up.0 as usize].alive, "nothing is sent to who is gone");
                self.answer(up.0 as usize, message);
            }
            let mut moved = !orders.is_empty();
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

    /// Time goes on; what falls due is done when it does.
    pub(super) fn pass(&mut self, time: Now) {
        let end = self.now + time;
        while let Some(due) = self.hub.deadline().filter(|d| *d <= end) {
            self.now = self.now.max(due);
            self.hub.tick(self.now, &mut self.out);
            self.run();
        }
        self.now = end;
    }

    /// Every live stream shows what the publisher has.
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

    /// As `check`, and every stream is live and good.
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

fn m_solicited(answer: Answer) -> bool {
    answer == Answer::Image
}

pub(super) fn update_message(stream: i32, domain: Domain, fields: &Fields) -> Vec<u8> {
    let payload = encode(fields);
    let update = Update {
        domain,
        stream,
        container: DataType::FIELD_LIST,
        kind: 1,
        payload: &payload,
        ..Update::default()
    };
    to_vec(|w| update.encode(w)).unwrap()
}

pub(super) fn class_of(message: &[u8]) -> Class {
    rwf::peek(message).unwrap().class
}
