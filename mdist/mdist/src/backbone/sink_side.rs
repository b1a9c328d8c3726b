//! The point-to-point server's adapter: each source of a backbone is an upstream of its hub.
//!
//! Two threads use it, under the lock of the hub: the feeds' thread with [`SinkSide::feed`], and whoever waits for its
//! descriptor with [`SinkSide::poll`].

use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rssl::rdm::directory::{self, Action};
use rssl::rwf::{self, Class, Request, RequestFlags};

use super::feeds::{Feeds, Window};
use super::merge::{Broken, HISTORY, Merge};
use super::reconnecting::Reconnecting;
use super::source_side::WINDOW;
use super::wire::{Header, Record, VERSION};
use super::{Error, FeedId, Result, SinkEnd, SinkEvent, SourceId};
use crate::hub::{Now, UpstreamId};
use crate::metrics::components::Upstream;
use crate::upstream::is_wanted;

/// Before a sink that was cut, or had lost something, begins anew: if the reader has caught up, and in any case.
const DRAIN_MIN: Duration = Duration::from_millis(100);
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// What sources are to whoever uses them: upstreams.
pub trait UpstreamEvents {
    /// A message of an upstream, with the stream id of the order that opened its stream.
    ///
    /// # Errors
    /// Why its sender is of no use.
    fn message(&mut self, now: Now, up: UpstreamId, message: &[u8]) -> std::result::Result<(), String>;

    /// An upstream is there.
    fn up(&mut self, now: Now, up: UpstreamId);

    /// All its services, which replace those told before.
    fn services(&mut self, now: Now, up: UpstreamId, services: Vec<(Action, directory::Service)>);

    /// It is lost, with all its services and streams.
    fn down(&mut self, now: Now, up: UpstreamId, why: &str);
}

/// What the adapter has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets read.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages handed to the hub.
    pub messages: u64,
    /// How often a source said that this sink did not keep up.
    pub cuts: u64,
    /// How often entries were lost.
    pub gaps: u64,
    /// Sources that were lost, for whatever reason.
    pub sources_lost: u64,
    /// Images that had to be asked for again because the feed had passed them.
    pub asked_again: u64,
}

/// Where a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its directory is still to come.
    New,
    /// Its feeds are joined as they appear.
    On,
    /// Left alone until what is under way has been read.
    Draining {
        since: Instant,
        /// The reader has caught up once.
        read: bool,
    },
}

#[derive(Debug)]
struct Source {
    up: UpstreamId,
    name: String,
    phase: Phase,
    epoch: u32,
    /// The hub knows of it.
    shown: bool,
    services: Vec<directory::Service>,
    feeds: Vec<(u16, FeedId)>,
    messages: u64,
    bytes: u64,
    /// The widest of its feeds' windows, bytes.
    window: u64,
    merge: Merge,
}

/// The adapter.
pub struct SinkSide {
    end: Reconnecting<dyn SinkEnd>,
    name: String,
    first: u16,
    /// Services by name; none: all.
    wanted: Vec<String>,
    sources: HashMap<SourceId, Source>,
    /// By place above `first`.
    ups: Vec<Option<SourceId>>,
    events: Vec<SinkEvent>,
    /// Bytes of past packets that are kept of each source.
    history: usize,
    /// How many ends there were before this one.
    life: u64,
    /// What sources let be on its way to us.
    window: Window,
    stats: Stats,
}

impl fmt::Debug for SinkSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkSide").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl SinkSide {
    /// The sources of `end`, or of one that comes later ([`SinkSide::attach`]), become the hub's upstreams `first`, `first + 1` and so on, at most `most` at a time; `name` is for people.
    #[must_use]
    pub fn new(end: Option<Box<dyn SinkEnd>>, first: UpstreamId, most: u16, name: &str) -> Self {
        Self {
            end: Reconnecting::new(end),
            name: name.to_owned(),
            first: first.0,
            wanted: Vec::new(),
            sources: HashMap::new(),
            ups: vec![None; most.into()],
            events: Vec::new(),
            history: HISTORY,
            life: 0,
            window: Window::default(),
            stats: Stats::default(),
        }
    }

    /// Only services with these names are taken, and only their feeds joined, of directories that come from now on; none:
    /// all.
    pub fn accept_only(&mut self, services: Vec<String>) {
        self.wanted = services;
    }

    /// Bytes of past packets that are kept of each source while images are awaited; for sources that come from now on.
    pub fn set_history(&mut self, bytes: usize) {
        self.history = bytes;
    }

    /// Readable while [`SinkSide::poll`] has something to do; `None` while the end is away.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.descriptor()
    }

    /// Whether the end was lost since the last call, and why: all sources are lost with it.
    pub fn take_lost(&mut self, now: Now, hub: &mut impl UpstreamEvents) -> Option<Error> {
        let why = self.end.take_lost()?;
        let text = why.to_string();
        let sources: Vec<_> = self.sources.keys().copied().collect();
        sources.into_iter().for_each(|id| self.down(now, id, &text, hub));
        Some(why)
    }

    /// The feeds of this life ([`Feeds::life`]) have found that the end is over.
    pub fn lose(&mut self, life: u64, why: Error) {
        if life == self.life {
            self.end.lose(why);
        }
    }

    /// Whether there is no end: neither one that was given nor one that came.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.end.is_away()
    }

    /// There is an end again; its feeds are to be read with [`SinkSide::feeds`].
    pub fn attach(&mut self, end: Box<dyn SinkEnd>) {
        self.life += 1;
        self.end.replace(end);
    }

    /// The feeds, for a thread of their own; the first call for an end gives them away.
    pub fn feeds(&mut self) -> Option<Feeds> {
        let (window, life) = (self.window.clone(), self.life);
        self.end.reader().map(|reader| Feeds::new(reader, window, life))
    }

    /// What it has seen.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The sources that have a link: upstream, name, and whether the hub uses them at present.
    pub fn sources(&self) -> impl Iterator<Item = (SourceId, UpstreamId, &str, bool)> + '_ {
        self.sources.iter().map(|(id, source)| (*id, source.up, source.name.as_str(), source.shown))
    }

    /// What came of each source: its name, and its counters.
    pub fn sessions(&self) -> impl Iterator<Item = (String, Upstream)> + '_ {
        self.sources.iter().map(|(id, source)| {
            let upstream = Upstream {
                state: 1 + u64::from(source.shown),
                messages: source.messages,
                bytes: source.bytes,
                reconnects: u64::from(source.epoch) - 1,
            };
            (format!("{} {:08x}", source.name, id.0), upstream)
        })
    }

    /// Takes in a packet of a feed. The hot path.
    pub fn feed(&mut self, now: Now, packet: &mut [u8], hub: &mut impl UpstreamEvents) {
        // What no source says is no packet.
        let Ok(header) = Header::decode(packet) else { return };
        let Some(source) = self.sources.get_mut(&header.source) else { return };
        self.stats.packets += 1;
        self.stats.bytes += packet.len() as u64;
        source.bytes += packet.len() as u64;
        let before = self.stats.messages;
        let (up, messages) = (source.up, &mut self.stats.messages);
        let mut refused = None;
        let done = source.merge.packet(&header, packet, &mut |message| {
            *messages += 1;
            if let Err(why) = hub.message(now, up, message) {
                refused = Some(why);
            }
        });
        source.messages += self.stats.messages - before;
        self.done(now, header.source, done, refused, hub);
    }

    /// The feeds' thread has read all there was.
    pub fn drained(&mut self) {
        for source in self.sources.values_mut() {
            if let Phase::Draining { read, .. } = &mut source.phase {
                *read = true;
            }
        }
    }

    /// Takes in what sources have said, without waiting; to be called at least every [`super::POLL_EVERY`].
    ///
    /// # Errors
    /// The end is over.
    pub fn poll(&mut self, now: Now, hub: &mut impl UpstreamEvents) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        self.end.poll(&mut events)?;
        for event in events.drain(..) {
            match event {
                SinkEvent::SourceUp(id) => self.up(id),
                SinkEvent::SourceDown(id, why) => self.down(now, id, &why, hub),
                SinkEvent::Record(id, record) => self.record(now, id, &record, hub)?,
            }
        }
        self.events = events;
        let clock = Instant::now();
        let ids: Vec<_> = self.sources.keys().copied().collect();
        for id in ids {
            let Some(source) = self.sources.get_mut(&id) else { continue };
            let checked = source.merge.check(clock);
            self.done(now, id, checked, None, hub);
            self.rejoin(id, clock)?;
        }
        self.end.flush();
        Ok(())
    }

    /// Whether the hub's orders for this upstream are for a source of this backbone.
    #[must_use]
    pub fn owns(&self, up: UpstreamId) -> bool {
        self.place(up).is_some()
    }

    fn place(&self, up: UpstreamId) -> Option<usize> {
        up.0.checked_sub(self.first).map(usize::from).filter(|at| *at < self.ups.len())
    }

    /// An order of the hub; [`SinkSide::flush`] sends it.
    pub fn order(&mut self, up: UpstreamId, message: Vec<u8>) {
        let Some(id) = self.place(up).and_then(|at| self.ups.get(at).copied().flatten()) else { return };
        let Some(source) = self.sources.get_mut(&id).filter(|source| source.shown) else { return };
        // The hub's own message.
        let Ok(head) = rwf::peek(&message) else { return };
        let mut reissue = false;
        match head.class {
            Class::Request if source.merge.is_over(head.stream) => return,
            Class::Request => {
                reissue = source.merge.is_open(head.stream);
                let quiet =
                    Request::decode(&message).is_ok_and(|r| r.flags.contains(RequestFlags::NO_REFRESH));
                if !(reissue && quiet) {
                    source.merge.asked(head.stream, &message);
                }
            }
            Class::Close => source.merge.closed(head.stream),
            _ => {}
        }
        self.end.send(id, &Record::Ask { reissue, in_feed: false, message }.encode());
    }

    /// Sends what was ordered.
    pub fn flush(&mut self) {
        self.end.flush();
    }

    fn up(&mut self, id: SourceId) {
        let free = self.ups.iter_mut().enumerate().find(|(_, place)| place.is_none());
        let Some((at, place)) = free else {
            tracing::warn!(
                "{id} is not used: there are {} sources already (raise their number)",
                self.ups.len()
            );
            return;
        };
        *place = Some(id);
        let source = Source {
            // Both below the number of upstreams.
            up: UpstreamId(self.first + at as u16),
            name: String::new(),
            phase: Phase::New,
            epoch: 1,
            shown: false,
            services: Vec::new(),
            feeds: Vec::new(),
            messages: 0,
            bytes: 0,
            window: 0,
            merge: Merge::new(0, self.history),
        };
        self.sources.insert(id, source);
        let hello =
            Record::Hello { version: VERSION, address: self.end.address().0, name: self.name.clone() };
        self.end.send(id, &hello.encode());
    }

    fn down(&mut self, now: Now, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.remove(&id) else { return };
        self.stats.sources_lost += 1;
        tracing::info!("{id} ({}) is lost: {why}", source.name);
        for (feed, _) in source.merge.feeds() {
            self.end.ignore(feed);
        }
        if let Some(place) = self.place(source.up).and_then(|at| self.ups.get_mut(at)) {
            *place = None;
        }
        if source.shown {
            hub.down(now, source.up, why);
        }
    }

    /// After something that may have failed: messages to be sent again, or a new beginning.
    fn done(
        &mut self,
        now: Now,
        id: SourceId,
        done: std::result::Result<(), Broken>,
        refused: Option<String>,
        hub: &mut impl UpstreamEvents,
    ) {
        match (done, refused) {
            (Ok(()), None) => {
                let Some(source) = self.sources.get_mut(&id) else { return };
                for message in source.merge.take_again() {
                    self.stats.asked_again += 1;
                    self.end.send(id, &Record::Ask { reissue: true, in_feed: true, message }.encode());
                }
            }
            (Err(why @ (Broken::Gap { .. } | Broken::Stalled { .. } | Broken::TooMuch { .. })), None) => {
                self.stats.gaps += 1;
                self.begin_anew(now, id, &why.to_string(), hub);
            }
            (Err(Broken::Cut), None) => {
                self.stats.cuts += 1;
                self.begin_anew(now, id, "this sink did not keep up", hub);
            }
            (Err(Broken::Wire(_) | Broken::Nonsense { .. }), _) | (_, Some(_)) => {
                self.end.hang_up(id);
                self.down(now, id, "it sent what is not understood", hub);
            }
        }
    }

    /// Everything of a source is lost; its feeds are joined again when what is under way has been read.
    fn begin_anew(&mut self, now: Now, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        tracing::warn!("{id} ({}) begins anew: {why}", source.name);
        let sink = source.merge.sink;
        let merge = std::mem::replace(&mut source.merge, Merge::new(sink, self.history));
        merge.feeds().for_each(|(feed, _)| self.end.ignore(feed));
        source.phase = Phase::Draining { since: Instant::now(), read: false };
        source.epoch = source.epoch.wrapping_add(1);
        if std::mem::take(&mut source.shown) {
            hub.down(now, source.up, why);
        }
    }

    fn rejoin(&mut self, id: SourceId, clock: Instant) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id) else { return Ok(()) };
        let Phase::Draining { since, read } = source.phase else { return Ok(()) };
        if clock.saturating_duration_since(since) < if read { DRAIN_MIN } else { DRAIN_MAX } {
            return Ok(());
        }
        source.phase = Phase::On;
        self.join(id)
    }

    /// Joins the feeds that are not joined yet, and leaves those that are no more.
    fn join(&mut self, id: SourceId) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id).filter(|source| source.phase == Phase::On) else {
            return Ok(());
        };
        let known: Vec<_> = source.merge.feeds().map(|(feed, _)| feed).collect();
        for feed in known.iter().filter(|feed| !source.feeds.iter().any(|(_, wanted)| wanted == *feed)) {
            source.merge.leave(*feed);
            self.end.ignore(*feed);
        }
        for (_, feed) in source.feeds.iter().filter(|(_, feed)| !known.contains(feed)) {
            source.merge.join(*feed);
            self.end.listen(*feed)?;
            self.end.send(id, &Record::Join { epoch: source.epoch, feed: *feed }.encode());
        }
        Ok(())
    }

    fn record(&mut self, now: Now, id: SourceId, record: &[u8], hub: &mut impl UpstreamEvents) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id) else { return Ok(()) };
        match Record::decode(record) {
            Ok(Record::Welcome { version, sink, name }) if version == VERSION => {
                (source.merge.sink, source.name) = (sink, name);
            }
            Ok(Record::Directory { feeds, payload }) => match directory::decode(&payload) {
                Ok(services) => {
                    let services = services.into_iter().map(|(_, service)| service);
                    source.services = services.filter(|s| is_wanted(&self.wanted, s)).collect();
                    source.feeds = feeds;
                    source.feeds.retain(|(id, _)| source.services.iter().any(|s| s.id == *id));
                    if source.phase == Phase::New {
                        source.phase = Phase::On;
                    }
                    self.join(id)?;
                    self.show(now, id, hub);
                }
                Err(why) => self.refuse(now, id, &format!("its directory cannot be read: {why}"), hub),
            },
            Ok(Record::Joined { epoch, feed, number, window, .. }) if epoch == source.epoch => {
                source.window = source.window.max(window);
                let (up, messages) = (source.up, &mut self.stats.messages);
                let done = source.merge.joined(feed, number, &mut |message| {
                    *messages += 1;
                    // Of an item that was open before: none is.
                    let _ = hub.message(now, up, message);
                });
                self.done(now, id, done, None, hub);
                self.window.set(self.sources.values().map(|source| source.window).max().unwrap_or(WINDOW));
                self.show(now, id, hub);
            }
            Ok(Record::Answer(answer)) if source.shown => {
                source.bytes += record.len() as u64;
                let before = self.stats.messages;
                let (up, messages) = (source.up, &mut self.stats.messages);
                let mut refused = None;
                let done = source.merge.answer(answer, &mut |message| {
                    *messages += 1;
                    if let Err(why) = hub.message(now, up, message) {
                        refused = Some(why);
                    }
                });
                source.messages += self.stats.messages - before;
                self.done(now, id, done, refused, hub);
            }
            Ok(Record::Newest { feed, number }) => source.merge.newest(feed, number),
            Ok(Record::Cut { epoch, why }) if epoch == source.epoch => {
                self.stats.cuts += 1;
                self.begin_anew(now, id, &format!("this sink did not keep up: {why}"), hub);
            }
            // From before a new beginning.
            Ok(Record::Joined { .. } | Record::Answer(_) | Record::Cut { .. }) => {}
            Ok(Record::Welcome { version, .. }) => {
                let why = format!(
                    "it speaks version {version} of the backbone, this is {VERSION}: run the same on both sides"
                );
                self.refuse(now, id, &why, hub);
            }
            Ok(Record::Hello { .. } | Record::Join { .. } | Record::Ask { .. }) => {
                self.refuse(now, id, "it sent what only a sink sends", hub);
            }
            Err(why) => self.refuse(now, id, &why.to_string(), hub),
        }
        Ok(())
    }

    fn refuse(&mut self, now: Now, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        self.end.hang_up(id);
        self.down(now, id, why, hub);
    }

    /// Tells the hub of the services whose feeds are joined.
    fn show(&mut self, now: Now, id: SourceId, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        let joined: Vec<_> = source.merge.feeds().filter(|(_, on)| *on).map(|(feed, _)| feed).collect();
        let ready = |service: &&directory::Service| {
            let feed = source.feeds.iter().find(|(id, _)| *id == service.id);
            feed.is_some_and(|(_, feed)| joined.contains(feed))
        };
        let services: Vec<_> =
            source.services.iter().filter(ready).map(|service| (Action::Add, service.clone())).collect();
        if !source.shown {
            if services.is_empty() {
                return;
            }
            source.shown = true;
            hub.up(now, source.up);
        }
        hub.services(now, source.up, services);
    }
}
