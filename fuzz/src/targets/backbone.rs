//! The backbone: decoders of packets, records and credits, and a server's hub that gets any input from a
//! source.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mdist::backbone::sink_side::SinkSide;
use mdist::backbone::wire::{
    Answer, AnswerKind, Entry, HEADER, Header, Part, Record, Records, VERSION, decode_credit, encode_credit,
};
use mdist::backbone::{Address, FeedId, FeedReader, Result, SinkEnd, SinkEvent, SourceId};
use mdist::cache::FieldTypes;
use mdist::hub::{Batch, Hub, HubRequest, HubTurn, ItemSpec, Now, Options, SideId, UpstreamId};
use rssl::dictionary::Fields;
use rssl::rdm::directory::{self, Service};
use rssl::rwf::{Domain, Key, Refresh, State, Update};
use rssl::wire::to_vec;

use crate::source::Source;
use crate::{Seen, magnitude};

const SOURCE: SourceId = SourceId(7);
const FEED: FeedId = FeedId(3);
/// This sink's number at the source.
const SINK: u32 = 1;

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    if source.flag() {
        let bytes = source.bytes(data.len());
        packet(bytes, seen);
        records(bytes, seen);
    } else {
        Server::new().run(&mut source, seen);
    }
}

/// Decoded values must encode to the same bytes, and decode to the same values again.
fn packet(bytes: &[u8], seen: &mut Seen) {
    match Header::decode(bytes) {
        Ok(header) => {
            assert_eq!(Header::decode(&[&header.encode(), &bytes[HEADER..]].concat()), Ok(header));
            seen.note(("header", header.part.is_some()));
        }
        Err(reason) => seen.note(("no header", core::mem::discriminant(&reason))),
    }
    let mut rest = bytes.get(HEADER..).unwrap_or_default();
    while !rest.is_empty() {
        let before = rest.len();
        match Entry::take(&mut rest) {
            Ok(entry) => {
                assert!(rest.len() < before);
                let mut again = Vec::new();
                entry.append(&mut again);
                assert_eq!(again.len(), entry.size());
                assert_eq!(Entry::take(&mut again.as_slice()), Ok(entry));
                seen.note(("entry", core::mem::discriminant(&entry)));
            }
            Err(reason) => {
                seen.note(("no entry", core::mem::discriminant(&reason)));
                break;
            }
        }
    }
    if let Ok((feed, position)) = decode_credit(bytes) {
        assert_eq!(decode_credit(&encode_credit(feed, position)), Ok((feed, position)));
        seen.note("credit");
    }
}

fn records(bytes: &[u8], seen: &mut Seen) {
    match Record::decode(bytes) {
        Ok(record) => {
            let again = Record::decode(&record.encode()).expect("the record is valid");
            // Names are for display: bytes that are not text are replaced, and long names are truncated.
            let named = matches!(record, Record::Hello { .. } | Record::Welcome { .. } | Record::Cut { .. });
            assert!(
                again == record
                    || named && core::mem::discriminant(&again) == core::mem::discriminant(&record)
            );
            seen.note(("record", core::mem::discriminant(&record)));
        }
        Err(reason) => seen.note(("no record", core::mem::discriminant(&reason))),
    }
    let mut stream = Records::default();
    for piece in bytes.chunks(5) {
        stream.put(piece);
        loop {
            match stream.take() {
                Ok(Some(record)) => seen.note(("piece", magnitude(record.len()))),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A transport endpoint whose input is the source.
struct End(Arc<Mutex<Vec<SinkEvent>>>);

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        static NOTHING: OnceLock<File> = OnceLock::new();
        NOTHING.get_or_init(|| File::open("/dev/null").expect("/dev/null")).as_fd()
    }
}

impl SinkEnd for End {
    fn address(&self) -> Address {
        Address(1)
    }

    fn listen(&mut self, _: FeedId) -> Result<()> {
        Ok(())
    }

    fn ignore(&mut self, _: FeedId) {}

    fn send(&mut self, _: SourceId, _: &[u8]) {}

    fn flush(&mut self) {}

    fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()> {
        events.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn disconnect(&mut self, _: SourceId) {}

    fn reader(&mut self) -> Option<Box<dyn FeedReader>> {
        None
    }
}

/// A server's half of the backbone, with its hub.
struct Server {
    sink: SinkSide,
    events: Arc<Mutex<Vec<SinkEvent>>>,
    hub: Hub,
    log: Batch,
    now: Now,
    /// Number of the next entry from a correct source.
    next: u64,
    position: u64,
}

impl Server {
    fn new() -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let end: Box<dyn SinkEnd> = Box::new(End(events.clone()));
        let hub = Hub::new(Options::default(), FieldTypes::new(Arc::new(Fields::default())));
        Self {
            sink: SinkSide::new(Some(end), UpstreamId(0), 2, "fuzzed"),
            events,
            hub,
            log: Batch::default(),
            now: Duration::from_secs(1),
            next: 1,
            position: 0,
        }
    }

    fn push_event(&mut self, event: SinkEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    fn record(&mut self, record: &Record) {
        self.push_event(SinkEvent::Record(SOURCE, record.encode()));
    }

    fn run(&mut self, source: &mut Source<'_>, seen: &mut Seen) {
        if source.flag() {
            // Begin with these steps, because few inputs would contain them.
            self.push_event(SinkEvent::SourceUp(SOURCE));
            self.record(&Record::Welcome { version: VERSION, sink: SINK, sender: 1, name: "source".into() });
            self.directory(FEED);
            self.turn(seen);
            self.joined(0);
            self.open(1);
        }
        for _ in 0..64 {
            if source.is_empty() {
                break;
            }
            self.act(source, seen);
            self.turn(seen);
        }
    }

    fn directory(&mut self, feed: FeedId) {
        let state = directory::ServiceState { up: true, accepting: true, ..Default::default() };
        let info = directory::Info {
            name: "FUZZ".into(),
            capabilities: vec![Domain::MARKET_PRICE.0],
            ..Default::default()
        };
        let service = Service { id: 5, info: Some(info), state: Some(state), ..Default::default() };
        let payload =
            to_vec(|w| directory::encode_all(w, directory::filter::ALL, std::slice::from_ref(&service)));
        self.record(&Record::Directory { feeds: vec![(5, feed)], payload: payload.expect("a directory") });
    }

    fn joined(&mut self, number: u64) {
        (self.next, self.position) = (number + 1, 0);
        self.record(&Record::Joined { epoch: 0, feed: FEED, number, position: 0, window: 1 << 20 });
    }

    fn open(&mut self, name: u8) {
        let name = [b'A' + name % 4];
        let service = self.hub.services().services.first().map_or(1, |service| service.id);
        let key = Key { name: Some(&name), ..Key::default() };
        let spec = ItemSpec::new(service, Domain::MARKET_PRICE, &key, None, false).expect("a short key");
        let ask = HubRequest::Open {
            side: SideId(0),
            token: name[0].into(),
            spec,
            worst_qos: None,
            streaming: true,
        };
        self.hub.handle(self.now, ask, &mut self.log);
    }

    fn act(&mut self, source: &mut Source<'_>, seen: &mut Seen) {
        let what = source.below(12);
        seen.note(("act", what));
        match what {
            0 => self.push_event(SinkEvent::SourceUp(SOURCE)),
            1 => self.push_event(SinkEvent::SourceDown(SOURCE, "so".into())),
            2 => self.record(&Record::Welcome {
                version: VERSION,
                sink: source.u8().into(),
                sender: 1,
                name: String::new(),
            }),
            3 => self.directory(FeedId(u32::from(source.u8() & 1) + FEED.0)),
            4 => self.joined(source.u8().into()),
            5 => {
                let bytes = source.u8().into();
                let bytes = source.bytes(bytes).to_vec();
                self.push_event(SinkEvent::Record(SOURCE, bytes));
            }
            6 => {
                let answer = self.answer(source);
                self.record(&Record::Answer(answer));
            }
            7 => self.record(&Record::Cut { epoch: source.u8().into(), why: "slow".into() }),
            8 => self.record(&Record::Newest { feed: FEED, number: self.next + u64::from(source.u8() & 3) }),
            9 => self.open(source.u8()),
            10 => self.now += Duration::from_millis(u64::from(source.u8()) * 20),
            _ => self.packet(source),
        }
    }

    fn message(source: &mut Source<'_>, stream: i32) -> Vec<u8> {
        let kind = source.u8();
        let bytes = source.bytes((kind >> 3).into());
        let encoded = match kind & 3 {
            0 => return bytes.to_vec(),
            1 => to_vec(|w| {
                Update { stream, domain: Domain::MARKET_PRICE, payload: bytes, ..Update::default() }.encode(w)
            }),
            _ => to_vec(|w| {
                let state = State::default();
                Refresh { stream, domain: Domain::MARKET_PRICE, state, payload: bytes, ..Refresh::default() }
                    .encode(w)
            }),
        };
        encoded.expect("a short message")
    }

    fn answer(&self, source: &mut Source<'_>) -> Answer {
        use AnswerKind::{Complete, Image, Notice, Opened, Refused, Reply};
        let (stream, item) = (i32::from(source.u8() & 7), i32::from(source.u8() & 7));
        Answer {
            kind: source.pick(&[Opened, Image, Complete, Complete, Notice, Reply, Refused]),
            feed: if source.u8() > 250 { FeedId(9) } else { FEED },
            as_of: (self.next + 4).saturating_sub(u64::from(source.u8() & 15)),
            stream,
            item,
            message: Self::message(source, stream),
        }
    }

    fn packet(&mut self, source: &mut Source<'_>) {
        let mut packet = vec![0; HEADER];
        let mut count = source.u8() & 7;
        let flaws = source.u8();
        for _ in 0..count {
            let item = i32::from(source.u8() & 7);
            let message = Self::message(source, item);
            let entry = match source.u8() & 7 {
                0 => Entry::Gone { item, message: &message },
                1 => Entry::Image { sink: SINK, stream: item, complete: source.flag(), message: &message },
                2 if flaws > 200 => Entry::Cut { sink: SINK },
                _ => Entry::Message(&message),
            };
            entry.append(&mut packet);
        }
        let first = if flaws & 1 == 0 { self.next } else { source.u8().into() };
        if flaws & 6 == 6 {
            count = source.u8();
        }
        let part = (flaws & 24 == 24).then(|| Part {
            offset: source.u8().into(),
            total: source.u16().into(),
            last: source.flag(),
        });
        let (count, position, unordered) = (count.into(), self.position, flaws & 96 == 96);
        let header = Header { count, source: SOURCE, feed: FEED, first, position, part, unordered };
        packet[..HEADER].copy_from_slice(&header.encode());
        self.position += packet.len() as u64;
        self.next = first + u64::from(header.count);
        let before = packet.clone();
        let turn = &mut HubTurn { hub: &mut self.hub, log: &mut self.log, now: self.now };
        self.sink.feed(&mut packet, turn);
        assert_eq!(packet, before, "the packet must not change");
    }

    fn turn(&mut self, seen: &mut Seen) {
        let turn = &mut HubTurn { hub: &mut self.hub, log: &mut self.log, now: self.now };
        self.sink.poll(turn).expect("the endpoint never fails");
        self.hub.tick(self.now, &mut self.log);
        let orders: Vec<_> = self.hub.outgoing().collect();
        for (up, order) in orders {
            self.sink.order(up, order);
        }
        self.sink.flush();
        for entry in &self.log.entries {
            seen.note((
                "said",
                core::mem::discriminant(&entry.kind),
                magnitude(self.log.message(entry).len()),
            ));
        }
        seen.note(("sources", self.sink.sources().filter(|source| source.3).count()));
        self.log.clear();
    }
}
