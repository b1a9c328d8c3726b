//! The point-to-point server's endpoint on TIPC.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use utipc::{
    Change, Importance, Node, OptionValue, Scope, ServiceAddress, ServiceRange, Socket, SocketOption,
    Topology,
};

use super::connection::Connection;
use super::{Options, address, failed, port, refused};
use crate::backbone::wire::encode_credit;
use crate::backbone::{Address, FeedId, FeedReader, Result, SinkEnd, SinkEvent, SourceId};
use crate::net::{Event, Interest, Poller};

const TOPOLOGY: u64 = 1 << 32;
/// Pause between two attempts to connect to an announced source.
const RETRY: Duration = Duration::from_millis(200);
/// Largest message of TIPC, bytes.
const BUFFER: usize = 66_000;
/// Smallest and largest receive buffer of feeds, bytes: the size that the unread part of a window needs, and
/// the limit of a socket.
const RECEIVE_BUFFER: (u32, u32) = (1 << 20, 16 << 20);

/// A sink end.
pub struct TipcSink {
    node: Node,
    options: Options,
    poller: Poller,
    ready: Vec<Event>,
    data: Arc<Socket>,
    reader: Option<Reader>,
    topology: Topology,
    sources: HashMap<SourceId, Source>,
    lost: Vec<(SourceId, String)>,
    buffer: Vec<u8>,
}

/// A source that is announced, or was announced when it was connected.
#[derive(Debug)]
struct Source {
    announced: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Away { retry: Instant },
    Connecting(Connection),
    Up(Connection),
}

impl fmt::Debug for TipcSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TipcSink")
            .field("data", &self.data.port())
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

impl TipcSink {
    /// Opens a sink end on `node`.
    ///
    /// # Errors
    /// The node or the system refuses a socket.
    pub fn open(node: &Node, options: Options) -> Result<Self> {
        let data = node.rdm().map_err(failed("open a socket for feeds"))?;
        data.set_importance(Importance::High).map_err(failed("set the importance of credits"))?;
        let (least, most) = RECEIVE_BUFFER;
        let bytes = options.receive_buffer.map_or(most, |bytes| bytes.clamp(least, most));
        data.set_option(SocketOption::ReceiveBuffer, OptionValue::Number(bytes))
            .map_err(failed("set the receive buffer"))?;
        if let Some(spin) = options.spin {
            data.set_spin(spin);
        }
        let data = Arc::new(data);
        let mut topology = node.topology().map_err(failed("watch sources"))?;
        let range = ServiceRange::new(options.source_type, 0, u32::MAX);
        topology.services(range).map_err(failed("watch sources"))?;
        let poller = Poller::new().map_err(refused("poll"))?;
        poller.add(topology.socket(), TOPOLOGY, Interest::Read).map_err(refused("poll for sources"))?;
        Ok(Self {
            node: node.clone(),
            options,
            poller,
            ready: Vec::new(),
            reader: Some(Reader { data: Arc::clone(&data) }),
            data,
            topology,
            sources: HashMap::new(),
            lost: Vec::new(),
            buffer: vec![0; BUFFER],
        })
    }

    /// Handles topology events: sources that come and go.
    fn read_topology(&mut self) -> Result<()> {
        while let Some(event) = self.topology.next(Duration::ZERO).map_err(failed("watch sources"))? {
            let id = SourceId(event.found.lower);
            match event.change {
                Change::ServiceUp => {
                    let away = State::Away { retry: Instant::now() };
                    let source = self.sources.entry(id).or_insert(Source { announced: true, state: away });
                    source.announced = true;
                }
                Change::ServiceDown => {
                    if let Some(source) = self.sources.get_mut(&id) {
                        source.announced = false;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Connects to announced sources; removes those that are neither announced nor connected.
    fn connect(&mut self, events: &mut Vec<SinkEvent>) -> Result<()> {
        let now = Instant::now();
        self.sources.retain(|_, source| source.announced || !matches!(source.state, State::Away { .. }));
        for (id, source) in &mut self.sources {
            if !matches!(source.state, State::Away { retry } if retry <= now) {
                continue;
            }
            source.state = State::Away { retry: now + RETRY };
            let socket = self.node.seqpacket().map_err(failed("open a socket for a source"))?;
            let to = ServiceAddress::new(self.options.source_type, id.0);
            socket.set_nonblocking(true);
            let state = match socket.connect(to) {
                Ok(()) => State::Up(Connection::new(socket)),
                Err(why) if why.is_temporary() => State::Connecting(Connection::new(socket)),
                // The source has just gone, or refuses for now.
                Err(_) => continue,
            };
            let (connection, interest) = match &state {
                State::Up(connection) => {
                    events.push(SinkEvent::SourceUp(*id));
                    (connection, Interest::Read)
                }
                State::Connecting(connection) => (connection, Interest::Both),
                State::Away { .. } => continue,
            };
            self.poller
                .add(&connection.socket, id.0.into(), interest)
                .map_err(refused("poll a source's connection"))?;
            source.state = state;
        }
        Ok(())
    }

    fn serve(&mut self, id: SourceId, event: Event, events: &mut Vec<SinkEvent>) {
        let Some(source) = self.sources.get_mut(&id) else { return };
        let away = State::Away { retry: Instant::now() + RETRY };
        match std::mem::replace(&mut source.state, away) {
            State::Away { .. } => {}
            State::Connecting(connection) => {
                match connection.socket.within(Duration::ZERO).finish_connect() {
                    Ok(()) => {
                        // From now on only input has to be reported.
                        if self.poller.change(&connection.socket, id.0.into(), Interest::Read).is_ok() {
                            source.state = State::Up(connection);
                            events.push(SinkEvent::SourceUp(id));
                        }
                    }
                    Err(why) if why.is_temporary() => source.state = State::Connecting(connection),
                    // The next attempt follows while the source is announced.
                    Err(_) => {}
                }
            }
            State::Up(mut connection) => {
                let mut state = Ok(());
                if event.writable {
                    state = connection.flush(&self.poller, id.0.into());
                }
                if event.readable && state.is_ok() {
                    state = connection
                        .read(&mut self.buffer, |record| events.push(SinkEvent::Record(id, record)));
                }
                match state {
                    Ok(()) => source.state = State::Up(connection),
                    Err(why) => self.lost.push((id, why.to_string())),
                }
            }
        }
    }

    fn connection(&mut self, source: SourceId) -> Option<&mut Connection> {
        match self.sources.get_mut(&source).map(|source| &mut source.state) {
            Some(State::Up(connection)) => Some(connection),
            _ => None,
        }
    }
}

impl AsFd for TipcSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl SinkEnd for TipcSink {
    fn address(&self) -> Address {
        address(self.data.port())
    }

    fn listen(&mut self, feed: FeedId) -> Result<()> {
        let service = ServiceAddress::new(self.options.feed_type, feed.0);
        self.data.bind(service, Scope::Cluster).map_err(failed("listen to a feed"))
    }

    fn ignore(&mut self, feed: FeedId) {
        let service = ServiceAddress::new(self.options.feed_type, feed.0);
        // Fails only if it is not bound, which is the purpose.
        let _ = self.data.unbind(service, Scope::Cluster);
    }

    fn send(&mut self, source: SourceId, record: &[u8]) {
        if let Some(connection) = self.connection(source) {
            connection.queue(record);
        }
    }

    fn flush(&mut self) {
        for (id, source) in &mut self.sources {
            let State::Up(connection) = &mut source.state else { continue };
            if let Err(why) = connection.flush(&self.poller, id.0.into()) {
                source.state = State::Away { retry: Instant::now() + RETRY };
                self.lost.push((*id, why.to_string()));
            }
        }
    }

    fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(Some(Duration::ZERO), &mut ready).map_err(refused("poll"))?;
        for event in ready.drain(..) {
            match event.token {
                TOPOLOGY => self.read_topology()?,
                token => self.serve(SourceId(token as u32), event, events),
            }
        }
        self.ready = ready;
        events.extend(self.lost.drain(..).map(|(source, why)| SinkEvent::SourceDown(source, why)));
        self.connect(events)
    }

    fn disconnect(&mut self, source: SourceId) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.state = State::Away { retry: Instant::now() + RETRY };
        }
    }

    fn reader(&mut self) -> Option<Box<dyn FeedReader>> {
        self.reader.take().map(|reader| Box::new(reader) as Box<dyn FeedReader>)
    }
}

/// Reads feeds with a blocking call: polling a daemon's socket would cost two more thread switches.
#[derive(Debug)]
struct Reader {
    data: Arc<Socket>,
}

impl FeedReader for Reader {
    fn receive(&mut self, wait: Duration, buffer: &mut [u8]) -> Result<Option<(Address, usize)>> {
        match self.data.within(wait).receive_with(buffer, utipc::RecvOptions::default()) {
            Ok(received) => Ok(Some((address(received.source), received.len))),
            Err(why) if why.is_temporary() => Ok(None),
            Err(why) => Err(failed("read feeds")(why)),
        }
    }

    fn credit(&mut self, to: Address, feed: FeedId, position: u64) {
        // A lost credit does not matter: the next one replaces it.
        let _ = self.data.within(Duration::ZERO).send_to(&encode_credit(feed, position), port(to));
    }
}
