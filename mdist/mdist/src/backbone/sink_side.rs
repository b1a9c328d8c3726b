//! The point-to-point server's adapter: each source of a backbone is an upstream of its hub.
//!
//! Two threads use it, under the lock of the hub: the feeds' thread calls [`SinkSide::feed`], and the thread that polls
//! its descriptor calls [`SinkSide::poll`].

use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rssl::dictionary::{Enums, Fields};
use rssl::rdm::directory::{self, Action};
use rssl::rwf::{self, Class, Request, RequestFlags};

use super::feeds::{Feeds, Window};
use super::merge::{HISTORY, Merge, MergeError};
use super::reconnecting::Reconnecting;
use super::senders::Senders;
use super::source_side::WINDOW;
use super::wire::{Answer, Header, Record, VERSION};
use super::{Address, Error, FeedId, Result, SinkEnd, SinkEvent, SourceId};
use crate::dictionaries::{Half, Incoming};
use crate::hub::{HubTurn, UpstreamId};
use crate::metrics::components::{self, Upstream};
use crate::upstream::is_wanted;

/// Pause before feeds are joined again in a resynchronisation, if the reader has caught up.
const DRAIN_MIN: Duration = Duration::from_millis(100);
/// Longest such pause.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Reason for which a source disconnects this sink from its feeds.
const TOO_SLOW: &str = "this sink is too slow";

/// Receives the messages of the sources. Each source is an upstream.
pub trait UpstreamEvents {
    /// A message of an upstream, with the stream id of the request that opened its stream.
    ///
    /// # Errors
    /// The message is invalid: the upstream has to be disconnected.
    fn message(&mut self, up: UpstreamId, message: &[u8]) -> std::result::Result<(), String>;

    /// An upstream is available. It recovers its items itself, and its messages have the states of its services.
    fn up(&mut self, up: UpstreamId);

    /// All services of an upstream; they replace those of earlier calls.
    fn services(&mut self, up: UpstreamId, services: Vec<(Action, directory::Service)>);

    /// An upstream is lost, with all its services and streams.
    fn down(&mut self, up: UpstreamId, why: &str);
}

impl UpstreamEvents for HubTurn<'_> {
    fn message(&mut self, up: UpstreamId, message: &[u8]) -> std::result::Result<(), String> {
        HubTurn::message(self, up, message).map_err(|why| why.to_string())
    }

    fn up(&mut self, up: UpstreamId) {
        self.upstream_up(up, false);
        self.hub.upstream_recovers(up);
    }

    fn services(&mut self, up: UpstreamId, services: Vec<(Action, directory::Service)>) {
        self.upstream_services(up, services, true);
    }

    fn down(&mut self, up: UpstreamId, why: &str) {
        self.upstream_down(up, why);
    }
}

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its directory has not arrived yet.
    AwaitingDirectory,
    /// Its feeds are joined as they appear.
    Active,
    /// Resynchronising: packets under way are read before its feeds are joined again.
    Draining {
        since: Instant,
        /// Whether the reader has caught up once.
        caught_up: bool,
    },
}

#[derive(Debug)]
struct Source {
    up: UpstreamId,
    name: String,
    phase: Phase,
    epoch: u32,
    /// Whether the hub has it as an upstream.
    announced: bool,
    services: Vec<directory::Service>,
    /// Feeds by service id.
    feeds: Vec<(u16, FeedId)>,
    messages: u64,
    bytes: u64,
    /// The widest of its feeds' windows, bytes.
    window: u64,
    merge: Merge,
    /// Its dictionaries of fields and of enumerated types.
    incoming: [Incoming; 2],
}

/// The adapter.
pub struct SinkSide {
    end: Reconnecting<dyn SinkEnd>,
    name: String,
    /// Upstream number of the first slot.
    first: u16,
    /// Services to accept, by name; empty: all.
    accepted: Vec<String>,
    sources: HashMap<SourceId, Source>,
    /// The sources by upstream number, above `first`.
    slots: Vec<Option<SourceId>>,
    events: Vec<SinkEvent>,
    /// Bytes of past packets kept for each source.
    history: usize,
    /// Number of earlier endpoints.
    generation: u64,
    /// The widest window among the sources.
    window: Window,
    /// The addresses from which the sources send.
    senders: Senders,
    /// Dictionaries that have arrived since the last [`SinkSide::take_dictionaries`], each with the name of its source.
    dictionaries: Vec<(String, Half)>,
    stats: components::Sink,
}

impl fmt::Debug for SinkSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkSide").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl SinkSide {
    /// Makes the sources of `end` the hub's upstreams `first`, `first + 1` and so on, at most `max` at a time; without
    /// an endpoint, those of one that is attached later ([`SinkSide::attach`]). `name` is for logs.
    #[must_use]
    pub fn new(end: Option<Box<dyn SinkEnd>>, first: UpstreamId, max: u16, name: &str) -> Self {
        Self {
            end: Reconnecting::new(end),
            name: name.to_owned(),
            first: first.0,
            accepted: Vec::new(),
            sources: HashMap::new(),
            slots: vec![None; max.into()],
            events: Vec::new(),
            history: HISTORY,
            generation: 0,
            window: Window::default(),
            senders: Senders::default(),
            dictionaries: Vec::new(),
            stats: components::Sink::default(),
        }
    }

    /// Accepts only services with these names, and joins only their feeds; empty: all. Applies to later directories.
    pub fn accept_only(&mut self, services: Vec<String>) {
        self.accepted = services;
    }

    /// Sets the bytes of past packets kept for each source while images are awaited. Applies to later sources.
    pub fn set_history(&mut self, bytes: usize) {
        self.history = bytes;
    }

    /// Readable while [`SinkSide::poll`] has something to do; `None` while the endpoint is absent.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.descriptor()
    }

    /// Reason why the endpoint was lost since the last call, if it was. All its sources are then lost.
    pub fn take_lost(&mut self, hub: &mut impl UpstreamEvents) -> Option<Error> {
        let why = self.end.take_lost()?;
        let text = why.to_string();
        let sources: Vec<_> = self.sources.keys().copied().collect();
        sources.into_iter().for_each(|id| self.source_down(id, &text, hub));
        Some(why)
    }

    /// Drops the endpoint, which feeds of this generation ([`Feeds::generation`]) have found to be lost.
    pub fn lose(&mut self, generation: u64, why: Error) {
        if generation == self.generation {
            self.end.lose(why);
        }
    }

    /// Whether the endpoint is absent.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.end.is_away()
    }

    /// Attaches another endpoint; call [`SinkSide::feeds`] for its feeds.
    pub fn attach(&mut self, end: Box<dyn SinkEnd>) {
        self.generation += 1;
        self.end.replace(end);
    }

    /// The feeds, for a thread of their own; `None` from the second call for an endpoint on.
    pub fn feeds(&mut self) -> Option<Feeds> {
        let (window, senders) = (self.window.clone(), self.senders.clone());
        self.end.reader().map(|reader| Feeds::new(reader, window, senders, self.generation))
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> components::Sink {
        components::Sink { foreign: self.senders.foreign(), ..self.stats }
    }

    /// The connected sources: id, upstream, name, and whether the hub has them as an upstream.
    pub fn sources(&self) -> impl Iterator<Item = (SourceId, UpstreamId, &str, bool)> + '_ {
        self.sources.iter().map(|(id, source)| (*id, source.up, source.name.as_str(), source.announced))
    }

    /// The dictionaries that sources have sent since the last call, each with the name of its source.
    pub fn take_dictionaries(&mut self) -> Vec<(String, Half)> {
        std::mem::take(&mut self.dictionaries)
    }

    /// Name and counters of each source.
    pub fn sessions(&self) -> impl Iterator<Item = (String, Upstream)> + '_ {
        self.sources.iter().map(|(id, source)| {
            let upstream = Upstream {
                state: 1 + u64::from(source.announced),
                messages: source.messages,
                bytes: source.bytes,
                reconnects: u64::from(source.epoch) - 1,
            };
            (format!("{} {:08x}", source.name, id.0), upstream)
        })
    }

    /// Handles a packet that [`Feeds`] has returned, and thereby found to be from its source. This is the hot path.
    pub fn feed(&mut self, packet: &mut [u8], hub: &mut impl UpstreamEvents) {
        // Ignore undecodable packets.
        let Ok(header) = Header::decode(packet) else { return };
        let Some(source) = self.sources.get_mut(&header.source) else { return };
        self.stats.packets += 1;
        self.stats.bytes += packet.len() as u64;
        source.bytes += packet.len() as u64;
        let before = self.stats.messages;
        let (up, messages) = (source.up, &mut self.stats.messages);
        let mut refused = None;
        let outcome = source.merge.packet(&header, packet, &mut |message| {
            *messages += 1;
            if let Err(why) = hub.message(up, message) {
                refused = Some(why);
            }
        });
        source.messages += self.stats.messages - before;
        self.handle_outcome(header.source, outcome, refused, hub);
    }

    /// Reports that the feeds' thread has read all packets that were there.
    pub fn drained(&mut self) {
        for source in self.sources.values_mut() {
            if let Phase::Draining { caught_up, .. } = &mut source.phase {
                *caught_up = true;
            }
        }
    }

    /// Handles events of the endpoint and timers, without waiting; call it at least every [`super::POLL_EVERY`].
    ///
    /// # Errors
    /// None at present: a failing endpoint is dropped, see [`SinkSide::take_lost`].
    pub fn poll(&mut self, hub: &mut impl UpstreamEvents) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        self.end.poll(&mut events)?;
        for event in events.drain(..) {
            match event {
                SinkEvent::SourceUp(id) => self.source_up(id),
                SinkEvent::SourceDown(id, why) => self.source_down(id, &why, hub),
                SinkEvent::Record(id, record) => self.handle_record(id, &record, hub)?,
            }
        }
        self.events = events;
        let clock = Instant::now();
        let ids: Vec<_> = self.sources.keys().copied().collect();
        for id in ids {
            let Some(source) = self.sources.get_mut(&id) else { continue };
            let checked = source.merge.check(clock);
            self.handle_outcome(id, checked, None, hub);
            self.rejoin(id, clock)?;
        }
        self.end.flush();
        Ok(())
    }

    /// Whether this upstream number is for a source of this backbone.
    #[must_use]
    pub fn owns(&self, up: UpstreamId) -> bool {
        self.slot(up).is_some()
    }

    fn slot(&self, up: UpstreamId) -> Option<usize> {
        up.0.checked_sub(self.first).map(usize::from).filter(|at| *at < self.slots.len())
    }

    /// Queues a message of the hub for a source; [`SinkSide::flush`] sends it.
    pub fn order(&mut self, up: UpstreamId, message: Vec<u8>) {
        let Some(id) = self.slot(up).and_then(|at| self.slots.get(at).copied().flatten()) else { return };
        let Some(source) = self.sources.get_mut(&id).filter(|source| source.announced) else { return };
        // Cannot fail: the hub has encoded the message.
        let Ok(head) = rwf::peek(&message) else { return };
        let mut reissue = false;
        match head.class {
            Class::Request if source.merge.has_ended(head.stream) => return,
            Class::Request => {
                reissue = source.merge.is_open(head.stream);
                let quiet =
                    Request::decode(&message).is_ok_and(|r| r.flags.contains(RequestFlags::NO_REFRESH));
                if !(reissue && quiet) {
                    source.merge.requested(head.stream, &message);
                }
            }
            Class::Close => source.merge.closed(head.stream),
            _ => {}
        }
        self.end.send(id, &Record::Ask { reissue, in_feed: false, message }.encode());
    }

    /// Sends queued messages.
    pub fn flush(&mut self) {
        self.end.flush();
    }

    fn source_up(&mut self, id: SourceId) {
        let free = self.slots.iter_mut().enumerate().find(|(_, slot)| slot.is_none());
        let Some((at, slot)) = free else {
            tracing::warn!(
                "{id} is not used: {} sources are connected already, the most that a server uses",
                self.slots.len()
            );
            return;
        };
        *slot = Some(id);
        let source = Source {
            // Fits: below the number of slots.
            up: UpstreamId(self.first + at as u16),
            name: String::new(),
            phase: Phase::AwaitingDirectory,
            epoch: 1,
            announced: false,
            services: Vec::new(),
            feeds: Vec::new(),
            messages: 0,
            bytes: 0,
            window: 0,
            merge: Merge::new(0, self.history),
            incoming: [Half::Fields(Fields::default()), Half::Enums(Enums::default())]
                .map(|kind| Incoming::new(&kind)),
        };
        self.sources.insert(id, source);
        let hello =
            Record::Hello { version: VERSION, address: self.end.address().0, name: self.name.clone() };
        self.end.send(id, &hello.encode());
    }

    fn source_down(&mut self, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.remove(&id) else { return };
        self.stats.lost += 1;
        self.senders.leave(id);
        tracing::info!("{id} ({}) is lost: {why}", source.name);
        for (feed, _) in source.merge.feeds() {
            self.end.ignore(feed);
        }
        if let Some(slot) = self.slot(source.up).and_then(|at| self.slots.get_mut(at)) {
            *slot = None;
        }
        if source.announced {
            hub.down(source.up, why);
        }
    }

    /// Handles the outcome of a merge: sends requests that have to be repeated, resynchronises after a gap,
    /// disconnects a source after an invalid message. `refused`: the reason why the hub refused a message.
    fn handle_outcome(
        &mut self,
        id: SourceId,
        outcome: std::result::Result<(), MergeError>,
        refused: Option<String>,
        hub: &mut impl UpstreamEvents,
    ) {
        match (outcome, refused) {
            (Ok(()), None) => {
                let Some(source) = self.sources.get_mut(&id) else { return };
                for message in source.merge.take_retries() {
                    self.stats.asked_again += 1;
                    self.end.send(id, &Record::Ask { reissue: true, in_feed: true, message }.encode());
                }
            }
            (
                Err(why @ (MergeError::Gap { .. } | MergeError::Stalled { .. } | MergeError::TooMuch { .. })),
                None,
            ) => {
                self.stats.gaps += 1;
                self.resynchronise(id, &why.to_string(), hub);
            }
            (Err(MergeError::Cut), None) => {
                self.stats.cuts += 1;
                self.resynchronise(id, TOO_SLOW, hub);
            }
            (Err(MergeError::Wire(_) | MergeError::Invalid { .. }), _) | (_, Some(_)) => {
                self.disconnect(id, "it sent an invalid message", hub);
            }
        }
    }

    /// Drops all streams and images of a source, and joins its feeds again when the packets under way have been
    /// read.
    fn resynchronise(&mut self, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        tracing::warn!("resynchronising with {id} ({}): {why}", source.name);
        let sink = source.merge.sink;
        let merge = std::mem::replace(&mut source.merge, Merge::new(sink, self.history));
        merge.feeds().for_each(|(feed, _)| self.end.ignore(feed));
        source.phase = Phase::Draining { since: Instant::now(), caught_up: false };
        source.epoch = source.epoch.wrapping_add(1);
        if std::mem::take(&mut source.announced) {
            hub.down(source.up, why);
        }
    }

    /// Ends the drain of a resynchronisation, if it is over.
    fn rejoin(&mut self, id: SourceId, clock: Instant) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id) else { return Ok(()) };
        let Phase::Draining { since, caught_up } = source.phase else { return Ok(()) };
        if clock.saturating_duration_since(since) < if caught_up { DRAIN_MIN } else { DRAIN_MAX } {
            return Ok(());
        }
        source.phase = Phase::Active;
        self.join(id)
    }

    /// Joins feeds that the source has added, and leaves those that it has removed.
    fn join(&mut self, id: SourceId) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id).filter(|source| source.phase == Phase::Active) else {
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

    fn handle_record(&mut self, id: SourceId, record: &[u8], hub: &mut impl UpstreamEvents) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id) else { return Ok(()) };
        match Record::decode(record) {
            Ok(Record::Welcome { version, sink, sender, name }) if version == VERSION => {
                self.senders.set(id, Address(sender));
                (source.merge.sink, source.name) = (sink, name);
            }
            Ok(Record::Directory { feeds, payload }) => match directory::decode(&payload) {
                Ok(services) => self.handle_directory(id, feeds, services, hub)?,
                Err(why) => self.disconnect(id, &format!("its directory is invalid: {why}"), hub),
            },
            Ok(Record::Dictionary { enums, first, last, payload }) => {
                let [fields, types] = &mut source.incoming;
                match if enums { types } else { fields }.take(&payload, first, last) {
                    Ok(Some(half)) => self.dictionaries.push((source.name.clone(), half)),
                    Ok(None) => {}
                    Err(why) => self.disconnect(id, &format!("its dictionary is invalid: {why}"), hub),
                }
            }
            Ok(Record::Joined { epoch, feed, number, window, .. }) if epoch == source.epoch => {
                source.window = source.window.max(window);
                self.handle_joined(id, feed, number, hub);
            }
            Ok(Record::Answer(answer)) if source.announced => {
                source.bytes += record.len() as u64;
                self.handle_answer(id, answer, hub);
            }
            Ok(Record::Newest { feed, number }) => source.merge.newest(feed, number),
            Ok(Record::Cut { epoch, why }) if epoch == source.epoch => {
                self.stats.cuts += 1;
                self.resynchronise(id, &format!("{TOO_SLOW}: {why}"), hub);
            }
            // A feed from before a resynchronisation.
            Ok(Record::Joined { .. } | Record::Answer(_) | Record::Cut { .. }) => {}
            Ok(Record::Welcome { version, .. }) => {
                let why = format!(
                    "it uses version {version} of the backbone's format and this program {VERSION}: run the same version of mdist on both sides"
                );
                self.disconnect(id, &why, hub);
            }
            Ok(Record::Hello { .. } | Record::Join { .. } | Record::Ask { .. }) => {
                self.disconnect(id, "it sent a record that only a sink sends", hub);
            }
            Err(why) => self.disconnect(id, &why.to_string(), hub),
        }
        Ok(())
    }

    fn handle_directory(
        &mut self,
        id: SourceId,
        feeds: Vec<(u16, FeedId)>,
        services: Vec<(Action, directory::Service)>,
        hub: &mut impl UpstreamEvents,
    ) -> Result<()> {
        let Some(source) = self.sources.get_mut(&id) else { return Ok(()) };
        let services = services.into_iter().map(|(_, service)| service);
        source.services = services.filter(|s| is_wanted(&self.accepted, s)).collect();
        source.feeds = feeds;
        source.feeds.retain(|(id, _)| source.services.iter().any(|s| s.id == *id));
        if source.phase == Phase::AwaitingDirectory {
            source.phase = Phase::Active;
        }
        self.join(id)?;
        self.announce(id, hub);
        Ok(())
    }

    fn handle_joined(&mut self, id: SourceId, feed: FeedId, number: u64, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        // No item of the feed is open yet, so these are states of its service, which the hub has to know first.
        let (up, mut states) = (source.up, Vec::new());
        let outcome = source.merge.joined(feed, number, &mut |message| states.push(message.to_vec()));
        self.handle_outcome(id, outcome, None, hub);
        self.window.set(self.sources.values().map(|source| source.window).max().unwrap_or(WINDOW));
        self.announce(id, hub);
        let mut refused = None;
        for message in states {
            self.stats.messages += 1;
            refused = hub.message(up, &message).err().or(refused);
        }
        self.handle_outcome(id, Ok(()), refused, hub);
    }

    fn handle_answer(&mut self, id: SourceId, answer: Answer, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        let before = self.stats.messages;
        let (up, messages) = (source.up, &mut self.stats.messages);
        let mut refused = None;
        let outcome = source.merge.answer(answer, &mut |message| {
            *messages += 1;
            if let Err(why) = hub.message(up, message) {
                refused = Some(why);
            }
        });
        source.messages += self.stats.messages - before;
        self.handle_outcome(id, outcome, refused, hub);
    }

    fn disconnect(&mut self, id: SourceId, why: &str, hub: &mut impl UpstreamEvents) {
        self.end.disconnect(id);
        self.source_down(id, why, hub);
    }

    /// Announces the services whose feeds are joined to the hub.
    fn announce(&mut self, id: SourceId, hub: &mut impl UpstreamEvents) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        let joined: Vec<_> =
            source.merge.feeds().filter(|(_, active)| *active).map(|(feed, _)| feed).collect();
        let ready = |service: &&directory::Service| {
            let feed = source.feeds.iter().find(|(id, _)| *id == service.id);
            feed.is_some_and(|(_, feed)| joined.contains(feed))
        };
        let services: Vec<_> =
            source.services.iter().filter(ready).map(|service| (Action::Add, service.clone())).collect();
        if !source.announced {
            if services.is_empty() {
                return;
            }
            source.announced = true;
            tracing::info!("connected to {id} ({})", source.name);
            hub.up(source.up);
        }
        hub.services(source.up, services);
    }
}
