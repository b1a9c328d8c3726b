//! The source distributor's adapter: a side of its hub, served to all sinks of a backbone.
//!
//! What the hub tells all streams of an item goes into the feed of the item's service, once, whoever has it; what it tells
//! one stream goes by the link to the sink whose stream it is, with the number of the feed's last entry before it.

mod pacing;
mod sending;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rssl::rdm::directory;
use rssl::rwf::{self, Class, Refresh, RefreshFlags, Request, RequestFlags};

use self::pacing::{Asked, Pace};
use super::feed_out::FeedOut;
use super::lasting::Lasting;
use super::wire::{self, AnswerKind, Entry, MAX_FEEDS, Record, VERSION};
use super::{Address, Credit, Error, FeedId, Result, SinkId, SourceEnd, SourceEvent};
use crate::hub::{self, Ask, Batch, ItemId, ItemSpec, Kind, SideId, Target, Token};

/// Bytes that may be on their way to one sink, unless configured for its service.
pub const WINDOW: u64 = 8 << 20;
/// How long a feed may wait for a sink that does not keep up, unless configured for its service.
pub const HOLD: Duration = Duration::from_millis(200);
/// A sink that has said nothing for so long is told how far its feeds have got.
const QUIET: Duration = Duration::from_secs(1);
/// No feed.
const NONE: u16 = u16::MAX;

/// How a service is sent, and what happens to a sink that does not keep up with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All sinks wait for it so long; then it is cut.
    pub hold: Duration,
    /// Bytes that may be on their way to it, of the feed and of images: unread, or read and not yet used.
    pub window: u64,
    /// How long a packet that is not full waits for more; zero: until the end of the turn.
    pub flush: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { hold: HOLD, window: WINDOW, flush: Duration::ZERO }
    }
}

/// What the adapter has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets multicast.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages in them.
    pub entries: u64,
    /// Images sent to one sink.
    pub images: u64,
    /// Sinks that were cut because they did not keep up.
    pub cuts: u64,
    /// How often a feed had to wait for a sink.
    pub waits: u64,
    /// Links to sinks that broke or were broken.
    pub left: u64,
}

/// A sink.
#[derive(Debug)]
struct Sink {
    name: String,
    reader: Option<Address>,
    epoch: u32,
    /// Feeds that it wants and does not listen to yet.
    wanted: Vec<u16>,
    joined: Vec<Joined>,
    /// Bytes that it has not said to have read.
    in_flight: u64,
    /// When it last said so.
    heard: Instant,
    streams: HashMap<i32, Stream>,
    pace: Pace,
}

#[derive(Debug)]
struct Joined {
    feed: u16,
    /// The position up to which it has read.
    credited: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    item: ItemId,
    service: u16,
    private: bool,
}

/// Who has an item.
#[derive(Debug, Default)]
struct Holders {
    /// How often the hub said `Opened`.
    holds: u32,
    streams: Vec<(SinkId, i32)>,
}

/// The adapter.
pub struct SourceSide {
    end: Lasting<dyn SourceEnd>,
    side: SideId,
    name: String,
    policies: HashMap<String, Policy>,
    policy: Policy,
    feeds: Vec<FeedOut>,
    /// Of each feed.
    feed_policies: Vec<Policy>,
    services: HashMap<u16, u16>,
    /// Feeds that somebody has joined.
    used: Vec<u32>,
    /// Of each item: the feed that carries it, or [`NONE`].
    feed_of: Vec<u16>,
    holders: Vec<Holders>,
    sinks: HashMap<SinkId, Sink>,
    listening: HashSet<(Address, FeedId)>,
    directory: Option<Vec<u8>>,
    asks: Vec<Ask>,
    /// Sinks that were given up, and the feeds that are still to say so.
    ends: Vec<(u16, SinkId)>,
    /// Tokens whose image is to go into the feed.
    in_feed: HashSet<Token>,
    events: Vec<SourceEvent>,
    credits: Vec<Credit>,
    scratch: Vec<u8>,
    checked: Instant,
    stats: Stats,
}

impl fmt::Debug for SourceSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSide")
            .field("side", &self.side)
            .field("sinks", &self.sinks.len())
            .field("feeds", &self.feeds.len())
            .finish_non_exhaustive()
    }
}

fn token(sink: SinkId, stream: i32) -> Token {
    u64::from(sink.0) << 32 | u64::from(stream.cast_unsigned())
}

fn of_token(token: Token) -> (SinkId, i32) {
    (SinkId((token >> 32) as u32), (token as u32).cast_signed())
}

impl SourceSide {
    /// Serves the hub's side `side` to the sinks of `end`, or of one that comes later ([`SourceSide::attach`]); `name` is
    /// for people.
    #[must_use]
    pub fn new(end: Option<Box<dyn SourceEnd>>, side: SideId, name: &str) -> Self {
        Self {
            end: Lasting::new(end),
            side,
            name: name.to_owned(),
            policies: HashMap::new(),
            policy: Policy::default(),
            feeds: Vec::new(),
            feed_policies: Vec::new(),
            services: HashMap::new(),
            used: Vec::new(),
            feed_of: Vec::new(),
            holders: Vec::new(),
            sinks: HashMap::new(),
            listening: HashSet::new(),
            directory: None,
            asks: Vec::new(),
            ends: Vec::new(),
            in_feed: HashSet::new(),
            events: Vec::new(),
            credits: Vec::new(),
            scratch: Vec::new(),
            checked: Instant::now(),
            stats: Stats::default(),
        }
    }

    /// Readable while [`SourceSide::poll`] has something to do; `None` while the end is away.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.descriptor()
    }

    /// Whether the end was lost since the last call, and why: all sinks are lost with it.
    pub fn take_lost(&mut self) -> Option<Error> {
        let why = self.end.take_lost()?;
        let text = why.to_string();
        let sinks: Vec<_> = self.sinks.keys().copied().collect();
        sinks.into_iter().for_each(|id| self.lose(id, &text));
        self.listening.clear();
        self.ends.clear();
        Some(why)
    }

    /// Whether there is no end: neither one that was given nor one that came.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.end.is_away()
    }

    /// There is an end again: the feeds begin anew on it.
    ///
    /// # Errors
    /// As [`SourceSide::directory`], which is done for `services`.
    pub fn attach(&mut self, end: Box<dyn SourceEnd>, services: &[directory::Service]) -> Result<()> {
        self.end.replace(end);
        for feed in &mut self.feeds {
            *feed = FeedOut::new(self.end.id(), self.end.open_feed()?);
        }
        self.directory(services)
    }

    /// The policy of a service, or with `None` of all that have none of their own; for services that appear from now on.
    pub fn set_policy(&mut self, service: Option<&str>, policy: Policy) {
        match service {
            Some(name) => drop(self.policies.insert(name.to_owned(), policy)),
            None => self.policy = policy,
        }
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The sinks that have a link: their names, unread bytes of feeds, and bytes that wait on their link.
    pub fn sinks(&self) -> impl Iterator<Item = (SinkId, &str, u64, usize)> + '_ {
        self.sinks.iter().map(|(id, sink)| (*id, sink.name.as_str(), sink.in_flight, self.end.queued(*id)))
    }

    /// Shows the sinks the hub's services; to be called at the start and for `Kind::Services`.
    ///
    /// # Errors
    /// The backbone refuses a feed.
    pub fn directory(&mut self, services: &[directory::Service]) -> Result<()> {
        for service in services {
            if self.services.contains_key(&service.id) || self.feeds.len() >= MAX_FEEDS {
                continue;
            }
            let name = service.info.as_ref().map_or("", |info| info.name.as_str());
            let policy = self.policies.get(name).copied().unwrap_or(self.policy);
            let id = self.end.open_feed()?;
            // Below `MAX_FEEDS`.
            self.services.insert(service.id, self.feeds.len() as u16);
            self.feeds.push(FeedOut::new(self.end.id(), id));
            self.feed_policies.push(policy);
            self.used.push(0);
        }
        let feeds: Vec<_> = services
            .iter()
            .filter_map(|service| {
                Some((service.id, self.feeds.get(usize::from(*self.services.get(&service.id)?))?.id))
            })
            .collect();
        let payload = match rssl::wire::to_vec(|w| directory::encode_all(w, u32::MAX, services)) {
            Ok(payload) => payload,
            Err(why) => {
                tracing::error!("the directory cannot be shown to the sinks: {why}");
                return Ok(());
            }
        };
        let record = Record::Directory { feeds, payload }.encode();
        for id in self.sinks.keys() {
            self.end.send(*id, &record);
        }
        self.directory = Some(record);
        self.end.flush();
        Ok(())
    }

    /// Takes in what sinks have said, without waiting; [`SourceSide::take_asks`] has what the hub is to be asked then.
    ///
    /// # Errors
    /// The end is over.
    pub fn poll(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        self.end.poll(&mut events)?;
        let now = Instant::now();
        for event in events.drain(..) {
            match event {
                SourceEvent::Joined(id) => {
                    let sink = Sink {
                        name: String::new(),
                        reader: None,
                        epoch: 0,
                        wanted: Vec::new(),
                        joined: Vec::new(),
                        in_flight: 0,
                        heard: now,
                        streams: HashMap::new(),
                        pace: Pace::default(),
                    };
                    self.sinks.insert(id, sink);
                }
                SourceEvent::Left(id, why) => self.lose(id, &why),
                SourceEvent::Record(id, record) => {
                    if let Err(why) = self.record(id, &record)? {
                        self.end.hang_up(id);
                        self.lose(id, &why);
                    }
                }
                SourceEvent::Listens(reader, feed) => {
                    self.listening.insert((reader, feed));
                    self.joins()?;
                }
                SourceEvent::Deaf(reader, feed) => {
                    self.listening.remove(&(reader, feed));
                    let Some(feed) = self.feeds.iter().position(|known| known.id == feed) else { continue };
                    let id =
                        self.sinks.iter().find(|(_, sink)| sink.reader == Some(reader)).map(|(id, _)| *id);
                    id.into_iter().for_each(|id| self.leave(id, Some(feed as u16)));
                }
            }
        }
        self.events = events;
        self.quiet(now);
        self.end.flush();
        self.go_on();
        Ok(())
    }

    /// What the hub is to be asked, in order.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// Sinks that have not said for long that they have read what was sent may have missed it.
    fn quiet(&mut self, now: Instant) {
        if now - self.checked < QUIET / 2 {
            return;
        }
        self.checked = now;
        for (id, sink) in &mut self.sinks {
            if sink.in_flight == 0 || now - sink.heard < QUIET {
                continue;
            }
            sink.heard = now;
            for joined in &sink.joined {
                let Some(feed) = self.feeds.get(usize::from(joined.feed)) else { continue };
                let number = feed.number() - u64::from(feed.waiting());
                self.end.send(*id, &Record::Newest { feed: feed.id, number }.encode());
            }
        }
    }

    /// A record of a sink; the inner error breaks its link.
    fn record(&mut self, id: SinkId, record: &[u8]) -> Result<std::result::Result<(), String>> {
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(Ok(())) };
        match Record::decode(record) {
            Ok(Record::Hello { version, .. }) if version != VERSION => Ok(Err(format!(
                "it speaks version {version} of the backbone, this is {VERSION}: run the same on both sides"
            ))),
            Ok(Record::Hello { address, name, .. }) => {
                (sink.reader, sink.name) = (Some(Address(address)), name);
                let welcome = Record::Welcome { version: VERSION, sink: id.0, name: self.name.clone() };
                self.end.send(id, &welcome.encode());
                if let Some(directory) = &self.directory {
                    self.end.send(id, directory);
                }
                Ok(Ok(()))
            }
            Ok(Record::Join { epoch, feed }) => {
                let feed = self.feeds.iter().position(|known| known.id == feed);
                if epoch > sink.epoch {
                    sink.epoch = epoch;
                    sink.pace = Pace::default();
                    self.leave(id, None);
                }
                if let (Some(feed), Some(sink)) = (feed, self.sinks.get_mut(&id)) {
                    let feed = feed as u16;
                    if !sink.wanted.contains(&feed) && !sink.joined.iter().any(|joined| joined.feed == feed) {
                        sink.wanted.push(feed);
                    }
                    self.joins()?;
                }
                Ok(Ok(()))
            }
            Ok(Record::Ask { reissue, in_feed, message }) => {
                Ok(self.paced(id, Asked { reissue, in_feed, message }))
            }
            Ok(_) => Ok(Err("it sent what only a source sends".into())),
            Err(why) => Ok(Err(why.to_string())),
        }
    }

    /// Lets those join who listen.
    fn joins(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        for (id, sink) in &mut self.sinks {
            let Some(reader) = sink.reader else { continue };
            sink.wanted.retain(|feed| {
                let listens = self
                    .feeds
                    .get(usize::from(*feed))
                    .is_some_and(|feed| self.listening.contains(&(reader, feed.id)));
                if listens {
                    ready.push((*id, *feed));
                }
                !listens
            });
        }
        for (id, feed) in ready {
            // Everything before the sink's first entry has left.
            self.seal(feed)?;
            let (Some(out), Some(sink)) = (self.feeds.get(usize::from(feed)), self.sinks.get_mut(&id)) else {
                continue;
            };
            let (number, position) = (out.number(), out.position());
            sink.joined.push(Joined { feed, credited: position });
            if let Some(used) = self.used.get_mut(usize::from(feed)) {
                *used += 1;
            }
            let (epoch, feed_id) = (sink.epoch, out.id);
            let window = self.policy_of(feed).window;
            let joined = Record::Joined { epoch, feed: feed_id, number, position, window };
            self.end.send(id, &joined.encode());
        }
        Ok(())
    }

    /// A request, close, post or generic message of a sink.
    fn ask(&mut self, id: SinkId, asked: Asked) -> std::result::Result<(), String> {
        let Asked { reissue, in_feed, message } = asked;
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        let head = rwf::peek(&message).map_err(|why| why.to_string())?;
        let (stream, side) = (head.stream, self.side);
        let known = sink.streams.get(&stream).copied();
        let token = token(id, stream);
        match head.class {
            Class::Request => {
                let request = Request::decode(&message).map_err(|why| why.to_string())?;
                if let Some(known) = known {
                    if known.item != ItemId::NONE && !request.flags.contains(RequestFlags::NO_REFRESH) {
                        if in_feed && !known.private {
                            self.in_feed.insert(token);
                        }
                        sink.pace.asked();
                        self.asks.push(Ask::Image { side, token, item: known.item });
                    }
                    return Ok(());
                }
                let service = request.key.service.ok_or("a request without a service")?;
                let feed = self.services.get(&service);
                let joined = feed.is_some_and(|feed| sink.joined.iter().any(|joined| joined.feed == *feed));
                if reissue || !joined {
                    // For what has ended, or from before a cut: the sink will hear of that.
                    return Ok(());
                }
                let private = request.flags.contains(RequestFlags::PRIVATE);
                let spec = ItemSpec::new(service, request.domain, &request.key, request.qos, private)
                    .map_err(|why| why.to_string())?;
                let streaming = request.flags.contains(RequestFlags::STREAMING);
                sink.streams.insert(stream, Stream { item: ItemId::NONE, service, private });
                sink.pace.asked();
                self.asks.push(Ask::Open { side, token, spec, worst_qos: request.worst_qos, streaming });
            }
            Class::Close => {
                if let Some(known) = sink.streams.remove(&stream) {
                    self.release(id, stream, known.item);
                }
            }
            Class::Post | Class::Generic => {
                let key = match rwf::Message::decode(&message) {
                    Ok(rwf::Message::Post(post)) => post.key,
                    _ => None,
                };
                let to = match known.filter(|known| known.item != ItemId::NONE) {
                    Some(known) => Target::Item(known.item),
                    None => match key.and_then(|key| key.service) {
                        Some(service) => Target::Service(service),
                        None => return Ok(()),
                    },
                };
                self.asks.push(Ask::Up { side, token, to, message });
            }
            Class::Refresh | Class::Status | Class::Update | Class::Ack => {
                return Err("it sent a message that only a source sends".into());
            }
        }
        Ok(())
    }

    /// One stream less on an item.
    fn release(&mut self, id: SinkId, stream: i32, item: ItemId) {
        self.in_feed.remove(&token(id, stream));
        let Some(holders) = self.holders.get_mut(item.index()) else { return };
        holders.streams.retain(|held| *held != (id, stream));
        if holders.streams.is_empty() && holders.holds > 0 {
            self.asks.push(Ask::Close { side: self.side, item, holds: std::mem::take(&mut holders.holds) });
            if let Some(feed) = self.feed_of.get_mut(item.index()) {
                *feed = NONE;
            }
        }
    }

    /// A sink leaves a feed, or all of them and everything it has open.
    fn leave(&mut self, id: SinkId, feed: Option<u16>) {
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        for joined in &sink.joined {
            if feed.is_none_or(|feed| feed == joined.feed) {
                let index = usize::from(joined.feed);
                if let (Some(used), Some(out)) = (self.used.get_mut(index), self.feeds.get(index)) {
                    *used -= 1;
                    let unread = out.position().saturating_sub(joined.credited);
                    sink.in_flight = sink.in_flight.saturating_sub(unread);
                }
            }
        }
        sink.joined.retain(|joined| feed.is_some_and(|feed| feed != joined.feed));
        if feed.is_none() {
            sink.wanted.clear();
            let streams = std::mem::take(&mut sink.streams);
            for (stream, known) in streams {
                self.release(id, stream, known.item);
            }
        }
    }

    /// A sink that does not leave by itself: whatever it still reads, it must not take what comes for the items that were
    /// its own.
    fn leave_at_once(&mut self, id: SinkId) {
        if let Some(sink) = self.sinks.get(&id) {
            self.ends.extend(sink.joined.iter().map(|joined| (joined.feed, id)));
        }
        self.leave(id, None);
    }

    /// Puts the ends of sinks into the feeds, before anything that was asked of the hub after them.
    fn put_ends(&mut self) -> Result<()> {
        while let Some((feed, id)) = self.ends.pop() {
            self.put_always(feed, &Entry::Cut { sink: id.0 })?;
        }
        Ok(())
    }

    fn lose(&mut self, id: SinkId, why: &str) {
        self.leave_at_once(id);
        if let Some(sink) = self.sinks.remove(&id) {
            self.stats.left += 1;
            tracing::info!("{id} ({}) has left: {why}", sink.name);
        }
    }

    /// Tells the sinks what a batch of the hub says; [`SourceSide::flush`] sends it. Whether services have changed: then
    /// [`SourceSide::directory`] is to be called.
    ///
    /// # Errors
    /// The end is over.
    pub fn apply(&mut self, batch: &Batch) -> Result<bool> {
        self.put_ends()?;
        let mut services = false;
        for (at, entry) in batch.entries.iter().enumerate() {
            if entry.kind == Kind::Message {
                // The hot path: one table, one copy.
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE && entry.is_for(self.side) {
                    let message = batch.message(entry);
                    if is_status(message) && last_words(batch, at) {
                        continue;
                    }
                    self.put(feed, &Entry::Message(message))?;
                } else if entry.is_for(self.side) {
                    self.private(entry, batch.message(entry));
                }
            } else if entry.is_for(self.side) {
                services |= entry.kind == Kind::Services;
                self.other(batch, at, entry)?;
            }
        }
        Ok(services)
    }

    #[cold]
    fn other(&mut self, batch: &Batch, at: usize, entry: &hub::Entry) -> Result<()> {
        let (id, stream) = of_token(entry.token);
        match entry.kind {
            Kind::Message | Kind::Services => {}
            Kind::Opened => self.opened(id, stream, entry.item),
            Kind::Image => {
                let message = batch.message(entry);
                let complete = Refresh::decode(message)
                    .is_ok_and(|refresh| refresh.flags.contains(RefreshFlags::COMPLETE));
                self.stats.images += 1;
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE && self.in_feed.contains(&entry.token) {
                    if complete {
                        self.in_feed.remove(&entry.token);
                        if let Some(sink) = self.sinks.get_mut(&id) {
                            sink.pace.answered(AnswerKind::Complete, message.len());
                        }
                    }
                    return self.put(feed, &Entry::Image { sink: id.0, stream, complete, message });
                }
                self.answer(
                    if complete { AnswerKind::Complete } else { AnswerKind::Image },
                    id,
                    stream,
                    message,
                );
                let snapshot = self.stream(id, stream).is_some_and(|known| known.item == ItemId::NONE);
                if complete && snapshot {
                    self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
                }
            }
            Kind::Notice => self.answer(AnswerKind::Notice, id, stream, batch.message(entry)),
            Kind::Reply => self.answer(AnswerKind::Reply, id, stream, batch.message(entry)),
            Kind::Refused => {
                self.answer(AnswerKind::Refused, id, stream, batch.message(entry));
                let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.remove(&stream));
                known.into_iter().for_each(|known| self.release(id, stream, known.item));
            }
            Kind::Gone => {
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE {
                    let before = batch.entries.get(..at).unwrap_or(&[]).iter().rev();
                    let last = before
                        .take_while(|other| other.item == entry.item || other.item == ItemId::NONE)
                        .find(|other| other.kind == Kind::Message)
                        .map_or(&[][..], |other| batch.message(other));
                    let message = if is_status(last) { last } else { &[] };
                    self.put(feed, &Entry::Gone { item: entry.item.stream(), message })?;
                }
                let Some(holders) = self.holders.get_mut(entry.item.index()) else { return Ok(()) };
                for (id, stream) in holders.streams.drain(..) {
                    self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
                    self.in_feed.remove(&token(id, stream));
                }
                let holds = std::mem::take(&mut holders.holds);
                if let Some(feed) = self.feed_of.get_mut(entry.item.index()) {
                    *feed = NONE;
                }
                if holds > 0 {
                    self.asks.push(Ask::Close { side: self.side, item: entry.item, holds });
                }
            }
        }
        Ok(())
    }

    fn stream(&self, id: SinkId, stream: i32) -> Option<Stream> {
        self.sinks.get(&id)?.streams.get(&stream).copied()
    }

    fn opened(&mut self, id: SinkId, stream: i32, item: ItemId) {
        let index = item.index();
        if self.holders.len() <= index {
            self.holders.resize_with(index + 1, Holders::default);
            self.feed_of.resize(index + 1, NONE);
        }
        let Some(holders) = self.holders.get_mut(index) else { return };
        holders.holds += 1;
        let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.get_mut(&stream));
        let Some(known) = known else {
            // Closed before it was open.
            self.release(id, stream, item);
            return;
        };
        known.item = item;
        holders.streams.push((id, stream));
        if known.private {
            return;
        }
        if let (Some(feed), Some(place)) = (self.services.get(&known.service), self.feed_of.get_mut(index)) {
            *place = *feed;
        }
        self.answer(AnswerKind::Opened, id, stream, &[]);
    }

    /// A message of an item that no feed carries: a private stream's, which nobody else is to see.
    #[cold]
    fn private(&mut self, entry: &hub::Entry, message: &[u8]) {
        let Some(holders) = self.holders.get(entry.item.index()) else { return };
        for (id, stream) in holders.streams.clone() {
            self.answer(AnswerKind::Reply, id, stream, message);
        }
    }

    /// Queues an answer for one stream.
    fn answer(&mut self, kind: AnswerKind, id: SinkId, stream: i32, message: &[u8]) {
        let known = self.stream(id, stream);
        if known.is_none() && kind != AnswerKind::Reply {
            // Closed meanwhile, or ended. Posts that are on no item's stream are answered there.
            return;
        }
        let index = known.and_then(|known| self.services.get(&known.service)).copied().unwrap_or(NONE);
        let feed = self.feeds.get(usize::from(index));
        let (feed, as_of) = feed.map_or((FeedId(0), 0), |feed| (feed.id, feed.number()));
        let item =
            known.filter(|known| known.item != ItemId::NONE && !known.private).map_or(0, |k| k.item.stream());
        self.scratch.clear();
        wire::answer(&mut self.scratch, kind, feed, as_of, stream, item, message);
        self.end.send(id, &self.scratch);
        if let Some(sink) = self.sinks.get_mut(&id) {
            sink.pace.answered(kind, self.scratch.len());
        }
    }

    /// Appends an entry to a feed.
    #[inline]
    fn put(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        if self.used.get(usize::from(feed)).is_none_or(|used| *used == 0) {
            return Ok(());
        }
        self.put_always(feed, entry)
    }

    #[inline]
    fn put_always(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        let index = usize::from(feed);
        let size = entry.size();
        let Some(out) = self.feeds.get_mut(index) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        self.seal(feed)?;
        let Some(out) = self.feeds.get_mut(index) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        for packet in out.parts(entry) {
            self.stats.entries += 1;
            self.multicast(feed, packet.len(), |side, id| side.end.multicast(id, &packet))?;
        }
        Ok(())
    }

    /// Sends what [`SourceSide::apply`] has gathered, but for packets that wait for more: the feeds first, so that images
    /// seldom are ahead of them.
    ///
    /// # Errors
    /// The end is over.
    pub fn flush(&mut self) -> Result<()> {
        self.put_ends()?;
        for feed in 0..self.feeds.len() {
            if !self.waits_for_more(feed as u16) {
                self.seal(feed as u16)?;
            }
        }
        self.end.flush();
        self.go_on();
        Ok(())
    }
}

fn is_status(message: &[u8]) -> bool {
    message.get(2).is_some_and(|class| class & 0x1F == Class::Status as u8)
}

/// Whether the status at `at` is what the streams of an item that ends are told last: it goes with the word of the end.
#[cold]
fn last_words(batch: &Batch, at: usize) -> bool {
    let Some((status, after)) = batch.entries.get(at..).and_then(<[hub::Entry]>::split_first) else {
        return false;
    };
    after
        .iter()
        .take_while(|entry| entry.item == status.item || entry.item == ItemId::NONE)
        .find(|entry| matches!(entry.kind, Kind::Gone | Kind::Message))
        .is_some_and(|entry| entry.kind == Kind::Gone)
}
