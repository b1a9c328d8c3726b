//! A worker without sockets: consumers are `rssl` channels, the hub is a table that answers at once or on request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mdist::dictionaries::Dictionaries;
use mdist::hub::{Batch, HubRequest, ItemId, ItemSpec, Kind, SideId, Target};
use mdist::mounts::{AllowAll, Config, Disconnect, MountId, Permissions, Reason, Shared, Worker};
use rssl::rdm::directory::{Info, Service, ServiceState};
use rssl::rwf::{
    Close, DataState, DataType, Domain, Key, Message, Post, PostFlags, Qos, Refresh, RefreshFlags, Request,
    RequestFlags, State, Status, StreamState, Update,
};
use rssl::transport::{Channel, ClientOptions, InputBuffer, Pulled};

pub(crate) const SIDE: SideId = SideId(3);

/// A message that a consumer read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Received(pub(crate) Vec<u8>);

impl Received {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::decode(&self.0).expect("the server sends valid messages")
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

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.message())
    }
}

pub(crate) struct TestConsumer {
    pub(crate) mount: MountId,
    channel: Channel,
    input: InputBuffer,
    pub(crate) inbox: Vec<Received>,
    /// Whether it reads its socket.
    pub(crate) reads: bool,
}

/// An item of the test hub.
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
    /// Requests for images are answered at once.
    pub(crate) answers_at_once: bool,
    pub(crate) sent_upstream: Vec<(u64, Target, Vec<u8>)>,
    pub(crate) opens: usize,
    pub(crate) closes: usize,
    pub(crate) image_requests: usize,
}

impl Hub {
    pub(crate) fn item(&self, name: &str) -> ItemId {
        let at = self
            .items
            .iter()
            .position(|item| item.as_ref().is_some_and(|item| named(&item.spec) == name.as_bytes()));
        ItemId(at.unwrap_or_else(|| panic!("{name} is not open")) as u32)
    }

    fn handle(&mut self, request: HubRequest, batch: &mut Batch) {
        match request {
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
                self.image_requests += 1;
                assert!(self.items[item.index()].is_some(), "an image of an item that is not held");
                self.waiting.push((token, item, true));
            }
            HubRequest::Close { item, holds, .. } => {
                self.closes += 1;
                let entry = self.items[item.index()].as_mut().expect("a held item");
                assert!(holds > 0 && holds <= entry.holds, "gives back {holds} of {}", entry.holds);
                entry.holds -= holds;
                if entry.holds == 0 {
                    self.items[item.index()] = None;
                }
            }
            HubRequest::SendUpstream { token, to, message, .. } => {
                self.sent_upstream.push((token, to, message))
            }
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
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        state: State { stream, data, code: 0, text: b"" },
        group: &[0, 1],
        key: Some(Key { service: Some(spec.service), ..key }),
        ..Refresh::new(spec.domain, 1, DataType::FIELD_LIST, &FIELDS)
    };
    refresh.to_vec().unwrap()
}

/// BID 39.90, ASK 39.94.
pub(crate) const FIELDS: [u8; 15] = [8, 0, 2, 0, 22, 3, 12, 0x0f, 0x96, 0, 25, 3, 12, 0x0f, 0x9a];

pub(crate) fn update(domain: Domain) -> Vec<u8> {
    let update = Update { kind: 1, ..Update::new(domain, 1, DataType::FIELD_LIST, &FIELDS) };
    update.to_vec().unwrap()
}

/// A post of [`FIELDS`] on stream 5 that asks for an acknowledgement.
pub(crate) fn post_on_5(id: u32) -> Vec<u8> {
    let post = Post {
        domain: Domain::MARKET_PRICE,
        stream: 5,
        flags: PostFlags::COMPLETE | PostFlags::ACK,
        container: DataType::FIELD_LIST,
        post_id: Some(id),
        payload: &FIELDS,
        ..Post::default()
    };
    post.to_vec().unwrap()
}

pub(crate) fn status(domain: Domain, state: State<'_>) -> Vec<u8> {
    Status::new(domain, 1, state).to_vec().unwrap()
}

impl TestConsumer {
    /// Writes a message through its channel.
    pub(crate) fn write(&mut self, message: &[u8], out: &mut Vec<u8>) {
        self.channel.write(message, out).unwrap();
    }
}

pub(crate) struct Rig {
    /// The real hub in place of the test hub.
    pub(crate) real: Option<crate::with_hub::RealHub>,
    pub(crate) worker: Worker,
    pub(crate) hub: Hub,
    pub(crate) now: Duration,
    pub(crate) consumers: Vec<TestConsumer>,
    pub(crate) services: Vec<Service>,
    pub(crate) disconnects: Vec<Disconnect>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) dictionaries: Arc<Dictionaries>,
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

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config { posts: true, ..Config::default() }, 1000, Box::new(AllowAll))
    }

    pub(crate) fn with(config: Config, pool: usize, permissions: Box<dyn Permissions>) -> Self {
        let shared = Arc::new(Shared::new(pool));
        let max_message = config.transport.max_fragment.into();
        let dictionaries =
            Arc::new(Dictionaries::of(&rssl::dictionary::Dictionary::small(), max_message).unwrap());
        let mut rig = Self {
            real: None,
            worker: Worker::new(SIDE, Arc::new(config), shared.clone(), dictionaries.clone(), permissions),
            dictionaries,
            hub: Hub { answers_at_once: true, ..Hub::default() },
            now: Duration::from_secs(100),
            consumers: Vec::new(),
            services: vec![service(1, "DIRECT_FEED")],
            disconnects: Vec::new(),
            shared,
        };
        rig.show_services();
        rig
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

    /// Applies one message of the hub for all streams of an item.
    pub(crate) fn push_message(&mut self, item: ItemId, message: &[u8]) {
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
        self.consumers.push(TestConsumer {
            mount,
            channel,
            input: InputBuffer::default(),
            inbox: Vec::new(),
            reads: true,
        });
        let at = self.consumers.len() - 1;
        for _ in 0..3 {
            let mut out = Vec::new();
            self.consumers[at].channel.take_output(&mut out);
            if !out.is_empty() {
                self.bytes(at, &out);
            }
        }
        at
    }

    pub(crate) fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.worker.input(self.consumers[at].mount, bytes, self.now);
        self.run();
    }

    pub(crate) fn send(&mut self, at: usize, message: &[u8]) {
        let mut out = Vec::new();
        self.consumers[at].channel.write(message, &mut out).unwrap();
        self.bytes(at, &out);
    }

    /// Runs until no request, answer or output is left.
    pub(crate) fn run(&mut self) {
        loop {
            let requests: Vec<HubRequest> = self.worker.hub_requests().collect();
            let mut batch = Batch::default();
            let any = !requests.is_empty();
            for request in requests {
                match &mut self.real {
                    Some(real) => real.hub.handle(self.now, request, &mut batch),
                    None => self.hub.handle(request, &mut batch),
                }
            }
            if let Some(real) = &mut self.real {
                real.turn(self.now, &mut batch);
                self.services.clone_from(&real.hub.services().services);
            } else if self.hub.answers_at_once {
                self.hub.answer(&mut batch);
            }
            self.worker.apply(&batch, &self.services);
            let mut dirty = Vec::new();
            self.worker.dirty(&mut dirty);
            self.disconnects.extend(self.worker.disconnects());
            for at in 0..self.consumers.len() {
                if self.consumers[at].reads {
                    self.read(at);
                }
            }
            if !any && dirty.is_empty() && batch.is_empty() {
                return;
            }
        }
    }

    /// Writes to a socket that takes `space` bytes.
    pub(crate) fn take(&mut self, at: usize, space: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        let whole = self.worker.write(self.consumers[at].mount, self.now, |bytes| {
            let some = bytes.len().min(space - taken.len());
            taken.extend_from_slice(&bytes[..some]);
            Ok::<_, ()>((some > 0).then_some(some))
        });
        assert_eq!(whole, Ok(self.worker.waiting(self.consumers[at].mount) == 0));
        taken
    }

    /// Reads all of a consumer's output.
    pub(crate) fn read(&mut self, at: usize) {
        let bytes = self.take(at, usize::MAX);
        let TestConsumer { channel, input, inbox, .. } = &mut self.consumers[at];
        input.receive(&bytes, |received| {
            loop {
                match received.pull(channel).expect("the server sends valid frames") {
                    Pulled::NeedMore => return,
                    Pulled::Message(message) => inbox.push(Received(message.to_vec())),
                    _ => {}
                }
            }
        });
    }

    pub(crate) fn received(&mut self, at: usize) -> Vec<Received> {
        std::mem::take(&mut self.consumers[at].inbox)
    }

    /// The only message since the last call.
    pub(crate) fn one(&mut self, at: usize) -> Received {
        let mut received = self.received(at);
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    pub(crate) fn login(&mut self) -> usize {
        self.login_as(&[("SingleOpen", 1), ("AllowSuspectData", 1)])
    }

    pub(crate) fn login_as(&mut self, attributes: &[(&str, u64)]) -> usize {
        let at = self.connect();
        self.send(at, &login_request("user", attributes));
        let received = self.one(at);
        assert_eq!(received.refresh().state, State { text: received.refresh().state.text, ..State::OK });
        at
    }

    /// A server with one consumer that is logged in.
    pub(crate) fn logged_in() -> (Self, usize) {
        let mut rig = Self::new();
        let at = rig.login();
        (rig, at)
    }

    /// Opens an item, which has one answer.
    pub(crate) fn open(&mut self, at: usize, stream: i32, name: &str) {
        self.request(at, stream, name);
        assert_eq!(self.one(at).stream(), stream);
    }

    /// The hub answers the requests that wait.
    pub(crate) fn answer(&mut self) {
        let mut batch = Batch::default();
        self.hub.answer(&mut batch);
        self.apply(&batch);
    }

    /// Applies an update of an open item.
    pub(crate) fn push_update(&mut self, name: &str) {
        let item = self.hub.item(name);
        self.push_message(item, &update(Domain::MARKET_PRICE));
    }

    pub(crate) fn request(&mut self, at: usize, stream: i32, name: &str) {
        self.request_with(at, stream, name, RequestFlags::STREAMING);
    }

    pub(crate) fn request_with(&mut self, at: usize, stream: i32, name: &str, flags: RequestFlags) {
        self.send(at, &request(stream, name, flags));
    }

    pub(crate) fn close(&mut self, at: usize, stream: i32) {
        self.close_domain(at, stream, Domain::MARKET_PRICE);
    }

    pub(crate) fn close_domain(&mut self, at: usize, stream: i32, domain: Domain) {
        self.send(at, &Close::new(domain, stream).to_vec().unwrap());
    }

    /// The only disconnect since the last call.
    pub(crate) fn only_disconnect(&mut self) -> (MountId, Reason) {
        assert_eq!(self.disconnects.len(), 1, "{:?}", self.disconnects);
        let disconnect = self.disconnects.remove(0);
        (disconnect.mount, disconnect.reason)
    }
}

pub(crate) fn request(stream: i32, name: &str, flags: RequestFlags) -> Vec<u8> {
    Request::new(Domain::MARKET_PRICE, stream, flags, Key::item(1, name.as_bytes())).to_vec().unwrap()
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
    Request::new(
        Domain::LOGIN,
        stream,
        flags,
        Key { name: Some(user.as_bytes()), name_type: Some(1), attrib: Some(attrib), ..Key::default() },
    )
    .to_vec()
    .unwrap()
}
