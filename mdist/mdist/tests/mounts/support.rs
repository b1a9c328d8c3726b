//! A worker without sockets: clients are `rssl` channels, the hub is a table that answers at once or when told to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mdist::dictionaries::Dictionaries;
use mdist::hub::{Batch, HubRequest, ItemId, ItemSpec, Kind, SideId, Target};
use mdist::mounts::{AllowAll, Config, Disconnect, MountId, Permissions, Reason, Shared, Worker};
use rssl::rdm::directory::{Info, Service, ServiceState};
use rssl::rwf::{
    Close, DataState, DataType, Domain, Key, Message, Qos, Refresh, RefreshFlags, Request, RequestFlags,
    State, Status, StreamState, Update,
};
use rssl::transport::{Channel, ClientOptions, InputBuffer, Pulled};
use rssl::wire::to_vec;

pub(crate) const SIDE: SideId = SideId(3);

/// What a client read, owned.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Heard(pub(crate) Vec<u8>);

impl Heard {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::decode(&self.0).expect("the server sends what can be read")
    }
    pub(crate) fn stream(&self) -> i32 {
        self.message().head().stream
    }
    pub(crate) fn state(&self) -> Option<State<'_>> {
        match self.message() {
            Message::Refresh(refresh) => Some(refresh.state),
            Message::Status(status) => status.state,
            _ => None,
        }
    }
    pub(crate) fn refresh(&self) -> Refresh<'_> {
        match self.message() {
            Message::Refresh(refresh) => refresh,
            other => panic!("a refresh was expected, not {other:?}"),
        }
    }
    pub(crate) fn status(&self) -> Status<'_> {
        match self.message() {
            Message::Status(status) => status,
            other => panic!("a status was expected, not {other:?}"),
        }
    }
    pub(crate) fn update(&self) -> Update<'_> {
        match self.message() {
            Message::Update(update) => update,
            other => panic!("an update was expected, not {other:?}"),
        }
    }
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.message())
    }
}

pub(crate) struct Client {
    pub(crate) mount: MountId,
    channel: Channel,
    input: InputBuffer,
    pub(crate) inbox: Vec<Heard>,
    /// Whether it reads what the server wrote.
    pub(crate) reads: bool,
}

/// An item of the pretended hub.
#[derive(Debug)]
pub(crate) struct HubItem {
    pub(crate) spec: ItemSpec,
    pub(crate) holds: u32,
}

#[derive(Default)]
pub(crate) struct Hub {
    pub(crate) items: Vec<Option<HubItem>>,
    pub(crate) images: HashMap<Vec<u8>, Vec<u8>>,
    /// Tokens that wait for an image, oldest first: token, item, streaming.
    pub(crate) waiting: Vec<(u64, ItemId, bool)>,
    /// Images are given at once.
    pub(crate) prompt: bool,
    pub(crate) ups: Vec<(u64, Target, Vec<u8>)>,
    pub(crate) opens: usize,
    pub(crate) closes: usize,
    pub(crate) images_asked: usize,
}

impl Hub {
    pub(crate) fn item(&self, name: &str) -> ItemId {
        let at = self
            .items
            .iter()
            .position(|item| item.as_ref().is_some_and(|item| named(&item.spec) == name.as_bytes()));
        ItemId(at.unwrap_or_else(|| panic!("{name} is not open")) as u32)
    }

    fn handle(&mut self, ask: HubRequest, batch: &mut Batch) {
        match ask {
            HubRequest::Open { side, token, spec, streaming, .. } => {
                assert_eq!(side, SIDE);
                self.opens += 1;
                if !streaming {
                    let item = ItemId(u32::MAX - 1);
                    self.images.entry(b"snapshot".to_vec()).or_default().clone_from(&spec.key.to_vec());
                    let image = image(&spec, StreamState::NonStreaming, DataState::Ok);
                    batch.push(Kind::Image, side, item, token, &image);
                    return;
                }
                let found = self
                    .items
                    .iter()
                    .position(|item| item.as_ref().is_some_and(|item| item.spec == spec && !spec.private));
                let at = found.unwrap_or_else(|| {
                    let free = self.items.iter().position(Option::is_none).unwrap_or(self.items.len());
                    if free == self.items.len() {
                        self.items.push(None);
                    }
                    self.items[free] = Some(HubItem { spec, holds: 0 });
                    free
                });
                self.items[at].as_mut().unwrap().holds += 1;
                batch.push_bare(Kind::Opened, side, ItemId(at as u32), token);
                self.waiting.push((token, ItemId(at as u32), true));
            }
            HubRequest::Image { side, token, item } => {
                assert_eq!(side, SIDE);
                self.images_asked += 1;
                assert!(self.items[item.index()].is_some(), "an image of an item that is not held");
                self.waiting.push((token, item, true));
            }
            HubRequest::Close { item, holds, .. } => {
                self.closes += 1;
                let entry = self.items[item.index()].as_mut().expect("closes what it holds");
                assert!(holds > 0 && holds <= entry.holds, "gives back {holds} of {}", entry.holds);
                entry.holds -= holds;
                if entry.holds == 0 {
                    self.items[item.index()] = None;
                }
            }
            HubRequest::SendUpstream { token, to, message, .. } => self.ups.push((token, to, message)),
        }
    }

    pub(crate) fn answer(&mut self, batch: &mut Batch) {
        for (token, item, _) in std::mem::take(&mut self.waiting) {
            if let Some(entry) = &self.items[item.index()] {
                let image = image(&entry.spec, StreamState::Open, DataState::Ok);
                batch.push(Kind::Image, SIDE, item, token, &image);
            }
        }
    }
}

pub(crate) fn named(spec: &ItemSpec) -> Vec<u8> {
    Key::decode(&spec.key).unwrap().name.unwrap_or_default().to_vec()
}

/// An image of an item: one field list, with the service's id in its key.
pub(crate) fn image(spec: &ItemSpec, stream: StreamState, data: DataState) -> Vec<u8> {
    let key = Key::decode(&spec.key).unwrap();
    let refresh = Refresh {
        domain: spec.domain,
        stream: 1,
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        container: DataType::FIELD_LIST,
        state: State { stream, data, code: 0, text: b"" },
        group: &[0, 1],
        key: Some(Key { service: Some(spec.service), ..key }),
        payload: &FIELDS,
        ..Refresh::default()
    };
    to_vec(|w| refresh.encode(w)).unwrap()
}

/// BID 39.90, ASK 39.94.
pub(crate) const FIELDS: [u8; 15] = [8, 0, 2, 0, 22, 3, 12, 0x0f, 0x96, 0, 25, 3, 12, 0x0f, 0x9a];

pub(crate) fn update(domain: Domain) -> Vec<u8> {
    let update = Update {
        domain,
        stream: 1,
        container: DataType::FIELD_LIST,
        kind: 1,
        payload: &FIELDS,
        ..Update::default()
    };
    to_vec(|w| update.encode(w)).unwrap()
}

pub(crate) fn status(domain: Domain, state: State<'_>) -> Vec<u8> {
    to_vec(|w| Status { domain, stream: 1, state: Some(state), ..Status::default() }.encode(w)).unwrap()
}

pub(crate) struct Room {
    /// The real hub in place of the pretended one.
    pub(crate) real: Option<crate::with_hub::Real>,
    pub(crate) worker: Worker,
    pub(crate) hub: Hub,
    pub(crate) now: Duration,
    pub(crate) clients: Vec<Client>,
    pub(crate) services: Vec<Service>,
    pub(crate) cuts: Vec<Disconnect>,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) fn service(id: u16, name: &str) -> Service {
    Service {
        id,
        info: Some(Info {
            name: name.into(),
            capabilities: vec![6, 7, 8, 10, 200],
            qos: vec![Qos::REALTIME_TICK],
            dictionaries_used: vec!["RWFFld".into(), "RWFEnum".into()],
            ..Info::default()
        }),
        state: Some(ServiceState { up: true, accepting: true, status: None }),
        ..Service::default()
    }
}

impl Room {
    pub(crate) fn new() -> Self {
        Self::with(Config::default(), 1000, Box::new(AllowAll))
    }

    pub(crate) fn with(config: Config, pool: usize, permissions: Box<dyn Permissions>) -> Self {
        let shared = Arc::new(Shared::new(pool));
        let dictionaries = Arc::new(
            Dictionaries::of(&rssl::dictionary::Dictionary::small(), config.dictionary_part).unwrap(),
        );
        let mut room = Self {
            real: None,
            worker: Worker::new(SIDE, Arc::new(config), shared.clone(), dictionaries, permissions),
            hub: Hub { prompt: true, ..Hub::default() },
            now: Duration::from_secs(100),
            clients: Vec::new(),
            services: vec![service(1, "DIRECT_FEED")],
            cuts: Vec::new(),
            shared,
        };
        room.show_services();
        room
    }

    pub(crate) fn show_services(&mut self) {
        let mut batch = Batch::default();
        batch.push_bare(Kind::Services, SideId::ALL, ItemId::NONE, 0);
        self.apply(&batch);
    }

    pub(crate) fn apply(&mut self, batch: &Batch) {
        self.worker.apply(batch, &self.services);
        self.run();
    }

    /// One hub message for all streams of an item.
    pub(crate) fn tell(&mut self, item: ItemId, message: &[u8]) {
        let mut batch = Batch::default();
        batch.push(Kind::Message, SideId::ALL, item, 0, message);
        self.apply(&batch);
    }

    pub(crate) fn connect(&mut self) -> usize {
        self.connect_with(ClientOptions::default())
    }

    pub(crate) fn connect_with(&mut self, options: ClientOptions) -> usize {
        let mount = self.worker.open(self.now, "192.0.2.1:4000".into());
        let channel = Channel::client(options);
        self.clients.push(Client {
            mount,
            channel,
            input: InputBuffer::default(),
            inbox: Vec::new(),
            reads: true,
        });
        let at = self.clients.len() - 1;
        for _ in 0..3 {
            let mut out = Vec::new();
            self.clients[at].channel.take_output(&mut out);
            if !out.is_empty() {
                self.bytes(at, &out);
            }
        }
        at
    }

    pub(crate) fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.worker.input(self.clients[at].mount, bytes, self.now);
        self.run();
    }

    pub(crate) fn send(&mut self, at: usize, message: &[u8]) {
        let mut out = Vec::new();
        self.clients[at].channel.write(message, &mut out).unwrap();
        self.bytes(at, &out);
    }

    /// Until nothing is to be asked, answered or written.
    pub(crate) fn run(&mut self) {
        loop {
            let asks: Vec<HubRequest> = self.worker.hub_requests().collect();
            let mut batch = Batch::default();
            let any = !asks.is_empty();
            for ask in asks {
                match &mut self.real {
                    Some(real) => real.engine.handle(self.now, ask, &mut batch),
                    None => self.hub.handle(ask, &mut batch),
                }
            }
            if let Some(real) = &mut self.real {
                real.turn(self.now, &mut batch);
                self.services.clone_from(&real.engine.services().services);
            } else if self.hub.prompt {
                self.hub.answer(&mut batch);
            }
            self.worker.apply(&batch, &self.services);
            let mut dirty = Vec::new();
            self.worker.dirty(&mut dirty);
            self.cuts.extend(self.worker.disconnects());
            for at in 0..self.clients.len() {
                if self.clients[at].reads {
                    self.read(at);
                }
            }
            if !any && dirty.is_empty() && batch.is_empty() {
                return;
            }
        }
    }

    /// Takes what a socket takes that has room for so many bytes.
    pub(crate) fn take(&mut self, at: usize, room: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        let whole = self.worker.write(self.clients[at].mount, self.now, |bytes| {
            let some = bytes.len().min(room - taken.len());
            taken.extend_from_slice(&bytes[..some]);
            Ok::<_, ()>((some > 0).then_some(some))
        });
        assert_eq!(whole, Ok(self.worker.waiting(self.clients[at].mount) == 0));
        taken
    }

    /// Takes all that waits for a client.
    pub(crate) fn read(&mut self, at: usize) {
        let bytes = self.take(at, usize::MAX);
        let Client { channel, input, inbox, .. } = &mut self.clients[at];
        input.receive(&bytes, |received| {
            loop {
                match received.pull(channel).expect("the server's frames are right") {
                    Pulled::NeedMore => return,
                    Pulled::Message(message) => inbox.push(Heard(message.to_vec())),
                    _ => {}
                }
            }
        });
    }

    pub(crate) fn heard(&mut self, at: usize) -> Vec<Heard> {
        std::mem::take(&mut self.clients[at].inbox)
    }

    /// The one message that came.
    pub(crate) fn one(&mut self, at: usize) -> Heard {
        let mut heard = self.heard(at);
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard.remove(0)
    }

    pub(crate) fn login(&mut self) -> usize {
        self.login_as(&[("SingleOpen", 1), ("AllowSuspectData", 1)])
    }

    pub(crate) fn login_as(&mut self, attributes: &[(&str, u64)]) -> usize {
        let at = self.connect();
        self.send(at, &login_request("user", attributes));
        let heard = self.one(at);
        assert_eq!(heard.refresh().state, State { text: heard.refresh().state.text, ..State::OK });
        at
    }

    pub(crate) fn request(&mut self, at: usize, stream: i32, name: &str) {
        self.ask(at, stream, name, RequestFlags::STREAMING);
    }

    pub(crate) fn ask(&mut self, at: usize, stream: i32, name: &str, flags: RequestFlags) {
        self.send(at, &request(stream, name, flags));
    }

    pub(crate) fn close(&mut self, at: usize, stream: i32) {
        self.send(
            at,
            &to_vec(|w| Close { domain: Domain::MARKET_PRICE, stream, ..Close::default() }.encode(w))
                .unwrap(),
        );
    }

    /// What was cut, and that nothing else was.
    pub(crate) fn cut(&mut self) -> (MountId, Reason) {
        assert_eq!(self.cuts.len(), 1, "{:?}", self.cuts);
        let cut = self.cuts.remove(0);
        (cut.mount, cut.reason)
    }
}

pub(crate) fn request(stream: i32, name: &str, flags: RequestFlags) -> Vec<u8> {
    let request = Request {
        domain: Domain::MARKET_PRICE,
        stream,
        flags,
        container: DataType::NO_DATA,
        key: Key::item(1, name.as_bytes()),
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}

/// As stock consumers send it: user name, then attributes as an element list written by hand.
pub(crate) fn login_request(user: &str, attributes: &[(&str, u64)]) -> Vec<u8> {
    login_request_on(1, RequestFlags::STREAMING, user, attributes)
}

pub(crate) fn login_request_on(
    stream: i32,
    flags: RequestFlags,
    user: &str,
    attributes: &[(&str, u64)],
) -> Vec<u8> {
    let mut elements = vec![8, 0, attributes.len() as u8 + 1];
    elements.extend_from_slice(b"\x0dApplicationId\x11\x03256");
    for (name, value) in attributes {
        elements.push(name.len() as u8);
        elements.extend_from_slice(name.as_bytes());
        elements.extend_from_slice(&[4, 1, *value as u8]);
    }
    let attrib = rssl::rwf::Attrib { container: DataType::ELEMENT_LIST, data: &elements };
    let request = Request {
        domain: Domain::LOGIN,
        stream,
        flags,
        container: DataType::NO_DATA,
        key: Key { name: Some(user.as_bytes()), name_type: Some(1), attrib: Some(attrib), ..Key::default() },
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}
