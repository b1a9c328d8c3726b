//! A backbone within one process: for programs that run both ends, and for tests, with faults on demand.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::wire::MAX_PACKET;
use super::{
    Address, Carrier, Credit, Ended, Error, FeedId, FeedReader, Opening, Result, SinkEnd, SinkEvent, SinkId,
    SourceEnd, SourceEvent, SourceId,
};

/// Maximum number of bytes that wait for one reader; further packets are dropped, as on any backbone.
const QUEUE_MAX: usize = 4 << 20;

/// The backbone. Clones are handles on the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    next: u32,
    sources: HashMap<SourceId, Source>,
    sinks: HashMap<Address, Sink>,
    faults: Faults,
}

/// Injected faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Readers whose packets are held back.
    pub held: HashSet<Address>,
    /// Number of packets that a reader loses next.
    pub lose: HashMap<Address, u32>,
}

#[derive(Debug)]
struct Source {
    readiness: Readiness,
    events: VecDeque<SourceEvent>,
    credits: Vec<Credit>,
    connections: HashMap<SinkId, Address>,
}

#[derive(Debug)]
struct Sink {
    readiness: Readiness,
    events: VecDeque<SinkEvent>,
    connections: HashMap<SourceId, SinkId>,
    feeds: HashSet<FeedId>,
    packets: VecDeque<(Address, Vec<u8>)>,
    bytes: usize,
}

/// A descriptor that is readable from [`Readiness::set`] to [`Readiness::clear`].
#[derive(Clone, Debug)]
struct Readiness(Arc<OwnedFd>);

impl Readiness {
    fn new() -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|why| Error::Carrier { what: "make a descriptor", why: why.to_string() })?;
        Ok(Self(Arc::new(fd)))
    }

    fn set(&self) {
        // Fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

impl State {
    /// Puts a packet of a source into a reader's queue, unless it is to be lost or the queue is full.
    fn deliver(&mut self, from: SourceId, to: Address, packet: &[u8]) {
        let Some(sink) = self.sinks.get_mut(&to) else { return };
        match self.faults.lose.get_mut(&to).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None if sink.bytes + packet.len() > QUEUE_MAX => {}
            None => {
                sink.bytes += packet.len();
                sink.packets.push_back((Address(from.0.into()), packet.to_vec()));
            }
        }
    }

    /// Connects a source and a sink.
    fn connect(&mut self, source: SourceId, reader: Address) {
        let (Some(from), Some(to)) = (self.sources.get_mut(&source), self.sinks.get_mut(&reader)) else {
            return;
        };
        self.next += 1;
        let sink = SinkId(self.next);
        from.connections.insert(sink, reader);
        from.events.push_back(SourceEvent::Joined(sink));
        to.connections.insert(source, sink);
        to.events.push_back(SinkEvent::SourceUp(source));
        from.readiness.set();
        to.readiness.set();
    }

    /// Ends a connection; `report`: whether the source and the sink get an event of it.
    fn disconnect(&mut self, source: SourceId, sink: SinkId, why: &str, report: (bool, bool)) {
        let Some(from) = self.sources.get_mut(&source) else { return };
        let Some(reader) = from.connections.remove(&sink) else { return };
        if report.0 {
            from.events.push_back(SourceEvent::Left(sink, Ended::Closed));
            from.readiness.set();
        }
        if let Some(to) = self.sinks.get_mut(&reader) {
            to.connections.remove(&source);
            if report.1 {
                to.events.push_back(SinkEvent::SourceDown(source, why.to_owned()));
                to.readiness.set();
            }
        }
    }
}

impl Carrier for Memory {
    fn open_source(&self) -> anyhow::Result<Opening<dyn SourceEnd>> {
        Ok(Opening::Opened(Box::new(self.source()?)))
    }

    fn open_sink(&self) -> anyhow::Result<Opening<dyn SinkEnd>> {
        Ok(Opening::Opened(Box::new(self.sink()?)))
    }

    fn remedy(&self) -> &'static str {
        "close descriptors: the process has none left"
    }
}

impl Memory {
    /// A backbone without endpoints.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a source end.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn source(&self) -> Result<MemorySource> {
        let readiness = Readiness::new()?;
        let mut state = self.lock();
        state.next += 1;
        let id = SourceId(state.next);
        let source = Source {
            readiness: readiness.clone(),
            events: VecDeque::new(),
            credits: Vec::new(),
            connections: HashMap::new(),
        };
        state.sources.insert(id, source);
        let readers: Vec<_> = state.sinks.keys().copied().collect();
        readers.into_iter().for_each(|reader| state.connect(id, reader));
        drop(state);
        Ok(MemorySource { memory: self.clone(), id, readiness })
    }

    /// Opens a sink end.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn sink(&self) -> Result<MemorySink> {
        let readiness = Readiness::new()?;
        let mut state = self.lock();
        state.next += 1;
        let address = Address(state.next.into());
        let sink = Sink {
            readiness: readiness.clone(),
            events: VecDeque::new(),
            connections: HashMap::new(),
            feeds: HashSet::new(),
            packets: VecDeque::new(),
            bytes: 0,
        };
        state.sinks.insert(address, sink);
        let sources: Vec<_> = state.sources.keys().copied().collect();
        sources.into_iter().for_each(|source| state.connect(source, address));
        drop(state);
        Ok(MemorySink { memory: self.clone(), address, readiness, reader: true })
    }

    /// Changes the injected faults.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
        self.state.1.notify_all();
    }
}

/// A source end in memory. It leaves the backbone when dropped.
#[derive(Debug)]
pub struct MemorySource {
    memory: Memory,
    id: SourceId,
    readiness: Readiness,
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        let connections: Vec<_> = state
            .sources
            .get(&self.id)
            .map(|source| source.connections.keys().copied().collect())
            .unwrap_or_default();
        for sink in connections {
            state.disconnect(self.id, sink, "the source has gone", (false, true));
        }
        state.sources.remove(&self.id);
    }
}

impl AsFd for MemorySource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.0.as_fd()
    }
}

impl SourceEnd for MemorySource {
    fn id(&self) -> SourceId {
        self.id
    }

    fn address(&self) -> Address {
        Address(self.id.0.into())
    }

    fn open_feed(&mut self) -> Result<FeedId> {
        let mut state = self.memory.lock();
        state.next += 1;
        Ok(FeedId(state.next))
    }

    fn multicast(&mut self, feed: FeedId, packet: &[u8]) -> Result<()> {
        if packet.len() > MAX_PACKET {
            return Err(Error::TooLong { len: packet.len(), max: MAX_PACKET });
        }
        let mut state = self.memory.lock();
        let listeners = state.sinks.iter().filter(|(_, sink)| sink.feeds.contains(&feed));
        let listeners: Vec<_> = listeners.map(|(address, _)| *address).collect();
        listeners.into_iter().for_each(|to| state.deliver(self.id, to, packet));
        drop(state);
        self.memory.state.1.notify_all();
        Ok(())
    }

    fn unicast(&mut self, to: Address, packet: &[u8]) -> Result<()> {
        if packet.len() > MAX_PACKET {
            return Err(Error::TooLong { len: packet.len(), max: MAX_PACKET });
        }
        self.memory.lock().deliver(self.id, to, packet);
        self.memory.state.1.notify_all();
        Ok(())
    }

    fn keeps_order(&self, _: FeedId) -> bool {
        true
    }

    fn send(&mut self, sink: SinkId, record: &[u8]) {
        let mut state = self.memory.lock();
        let reader = state.sources.get(&self.id).and_then(|source| source.connections.get(&sink)).copied();
        if let Some(to) = reader.and_then(|reader| state.sinks.get_mut(&reader)) {
            to.events.push_back(SinkEvent::Record(self.id, record.to_vec()));
            to.readiness.set();
        }
    }

    fn flush(&mut self) {}

    fn queued(&self, _: SinkId) -> usize {
        0
    }

    fn poll(&mut self, events: &mut Vec<SourceEvent>) -> Result<()> {
        self.readiness.clear();
        if let Some(source) = self.memory.lock().sources.get_mut(&self.id) {
            events.extend(source.events.drain(..));
        }
        Ok(())
    }

    fn credits(&mut self, wait: Duration, credits: &mut Vec<Credit>) -> Result<()> {
        let end = Instant::now() + wait;
        let mut state = self.memory.lock();
        loop {
            if let Some(source) = state.sources.get_mut(&self.id) {
                credits.append(&mut source.credits);
            }
            let left = end.saturating_duration_since(Instant::now());
            if !credits.is_empty() || left.is_zero() {
                return Ok(());
            }
            (state, _) =
                self.memory.state.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn disconnect(&mut self, sink: SinkId) {
        let mut state = self.memory.lock();
        let reader = state.sources.get(&self.id).and_then(|source| source.connections.get(&sink)).copied();
        state.disconnect(self.id, sink, "the source has disconnected", (false, true));
        reader.into_iter().for_each(|reader| state.connect(self.id, reader));
    }
}

/// A sink end in memory. It leaves the backbone when dropped.
#[derive(Debug)]
pub struct MemorySink {
    memory: Memory,
    address: Address,
    readiness: Readiness,
    reader: bool,
}

impl MemorySink {
    fn with<T>(&self, f: impl FnOnce(&mut State, Address) -> T) -> T {
        f(&mut self.memory.lock(), self.address)
    }

    fn own<T>(&self, f: impl FnOnce(&mut Sink) -> T) -> Option<T> {
        self.with(|state, address| state.sinks.get_mut(&address).map(f))
    }
}

impl Drop for MemorySink {
    fn drop(&mut self) {
        self.with(|state, address| {
            let connections = state.sinks.remove(&address).map(|sink| sink.connections).unwrap_or_default();
            for (source, sink) in connections {
                state.disconnect(source, sink, "the sink has gone", (true, false));
            }
        });
    }
}

impl AsFd for MemorySink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.0.as_fd()
    }
}

impl SinkEnd for MemorySink {
    fn address(&self) -> Address {
        self.address
    }

    fn listen(&mut self, feed: FeedId) -> Result<()> {
        self.with(|state, address| {
            if let Some(sink) = state.sinks.get_mut(&address) {
                sink.feeds.insert(feed);
            }
            for source in state.sources.values_mut() {
                source.events.push_back(SourceEvent::Listens(address, feed));
                source.readiness.set();
            }
        });
        Ok(())
    }

    fn ignore(&mut self, feed: FeedId) {
        self.with(|state, address| {
            if let Some(sink) = state.sinks.get_mut(&address) {
                sink.feeds.remove(&feed);
            }
            for source in state.sources.values_mut() {
                source.events.push_back(SourceEvent::StoppedListening(address, feed));
                source.readiness.set();
            }
        });
    }

    fn send(&mut self, source: SourceId, record: &[u8]) {
        self.with(|state, address| {
            let sink = state.sinks.get(&address).and_then(|sink| sink.connections.get(&source)).copied();
            if let (Some(sink), Some(source)) = (sink, state.sources.get_mut(&source)) {
                source.events.push_back(SourceEvent::Record(sink, record.to_vec()));
                source.readiness.set();
            }
        });
    }

    fn flush(&mut self) {}

    fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()> {
        self.readiness.clear();
        self.own(|sink| events.extend(sink.events.drain(..)));
        Ok(())
    }

    fn disconnect(&mut self, source: SourceId) {
        self.with(|state, address| {
            let sink = state.sinks.get(&address).and_then(|sink| sink.connections.get(&source)).copied();
            if let Some(sink) = sink {
                state.disconnect(source, sink, "the sink has disconnected", (true, false));
                state.connect(source, address);
            }
        });
    }

    fn reader(&mut self) -> Option<Box<dyn FeedReader>> {
        let reader = MemoryReader { memory: self.memory.clone(), address: self.address };
        std::mem::take(&mut self.reader).then(|| Box::new(reader) as Box<dyn FeedReader>)
    }
}

/// Reads the feeds of a sink end in memory.
#[derive(Debug)]
struct MemoryReader {
    memory: Memory,
    address: Address,
}

impl FeedReader for MemoryReader {
    fn receive(&mut self, wait: Duration, buffer: &mut [u8]) -> Result<Option<(Address, usize)>> {
        let end = Instant::now() + wait;
        let mut state = self.memory.lock();
        loop {
            let held = state.faults.held.contains(&self.address);
            let Some(sink) = state.sinks.get_mut(&self.address) else {
                return Err(Error::Carrier { what: "read feeds", why: "the sink end has gone".into() });
            };
            let next = if held { None } else { sink.packets.pop_front() };
            if let Some((from, packet)) = next {
                sink.bytes -= packet.len();
                let len = packet.len().min(buffer.len());
                if let (Some(place), Some(bytes)) = (buffer.get_mut(..len), packet.get(..len)) {
                    place.copy_from_slice(bytes);
                }
                return Ok(Some((from, len)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            (state, _) =
                self.memory.state.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn credit(&mut self, to: Address, feed: FeedId, position: u64) {
        let mut state = self.memory.lock();
        let source = u32::try_from(to.0).map(SourceId).ok();
        if let Some(source) = source.and_then(|source| state.sources.get_mut(&source)) {
            source.credits.push(Credit { reader: self.address, feed, position });
        }
        drop(state);
        self.memory.state.1.notify_all();
    }
}
