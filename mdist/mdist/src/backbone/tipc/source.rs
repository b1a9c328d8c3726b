//! The source distributor's endpoint on TIPC.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use utipc::{
    Change, Importance, Node, NodeAddr, PortId, Scope, ServiceAddress, ServiceRange, Socket, SubscriptionId,
    Topology,
};

use super::connection::Connection;
use super::{CREDITS_PER_TURN, Options, address, failed, port, refused};
use crate::backbone::wire::{MAX_PACKET, decode_credit};
use crate::backbone::{
    Address, Credit, Ended, Error, FeedId, Result, SinkId, SourceEnd, SourceEvent, SourceId,
};
use crate::net::{Event, Interest, Poller};

const LISTENER: u64 = 1 << 32;
const TOPOLOGY: u64 = LISTENER + 1;
/// Longest time that a multicast may wait for TIPC links. It is longer than a link needs to detect that its
/// peer is lost.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// Largest message of TIPC, bytes.
const BUFFER: usize = 66_000;

/// The readers of a feed.
#[derive(Debug, Default)]
struct Readers {
    ports: Vec<PortId>,
    /// Whether a packet was multicast since the feed last had no reader. It may still be under way, on another
    /// link than unicast.
    multicast_sent: bool,
}

impl Readers {
    /// The only reader, if it is on another node and a unicast cannot overtake an earlier multicast. Unicast over the
    /// node lane costs half as much as a multicast, which is a command to the daemon.
    fn sole_remote(&self, here: NodeAddr) -> Option<PortId> {
        match self.ports.as_slice() {
            [one] if !self.multicast_sent && one.node != here => Some(*one),
            _ => None,
        }
    }

    /// Whether unicasts keep their place among multicasts: all readers are on this node, where both take the same
    /// lanes, or the only one gets unicasts anyway.
    fn keep_order(&self, here: NodeAddr) -> bool {
        self.ports.iter().all(|port| port.node == here) || self.sole_remote(here).is_some()
    }

    /// Records that a packet is multicast.
    fn note_multicast(&mut self) {
        self.multicast_sent |= !self.ports.is_empty();
    }

    fn remove(&mut self, port: PortId) {
        self.ports.retain(|known| *known != port);
        self.multicast_sent &= !self.ports.is_empty();
    }
}

/// A source end.
pub struct TipcSource {
    id: SourceId,
    options: Options,
    poller: Poller,
    ready: Vec<Event>,
    data: Socket,
    listener: Socket,
    topology: Topology,
    subscriptions: HashMap<SubscriptionId, FeedId>,
    readers: HashMap<FeedId, Readers>,
    connections: HashMap<SinkId, Connection>,
    lost: Vec<(SinkId, Ended)>,
    next: u32,
    next_feed: u32,
    buffer: Vec<u8>,
}

impl fmt::Debug for TipcSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TipcSource")
            .field("id", &self.id)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

impl TipcSource {
    /// Opens a source end on `node`.
    ///
    /// # Errors
    /// The node or the system refuses a socket.
    pub fn open(node: &Node, options: Options) -> Result<Self> {
        // Random, so that ids of sources and feeds are unique on the backbone.
        let (id, next_feed) = (SourceId(random()?), random()?);
        let data = node.rdm().map_err(failed("open a socket for feeds"))?;
        data.set_importance(Importance::High).map_err(failed("set the importance of feeds"))?;
        data.set_send_timeout(Some(SEND_LIMIT));
        if let Some(spin) = options.spin {
            data.set_spin(spin);
        }
        let topology = node.topology().map_err(failed("watch sinks"))?;
        let listener = node.seqpacket().map_err(failed("open a socket for sinks"))?;
        listener.listen().map_err(failed("listen for sinks"))?;
        listener.set_nonblocking(true);
        let service = ServiceAddress::new(options.source_type, id.0);
        listener
            .bind(service, Scope::Cluster)
            .map_err(|why| refused_announcement(why, options.source_type))?;
        let poller = Poller::new().map_err(refused("poll"))?;
        poller.add(&listener, LISTENER, Interest::Read).map_err(refused("poll for sinks"))?;
        poller.add(topology.socket(), TOPOLOGY, Interest::Read).map_err(refused("poll for readers"))?;
        Ok(Self {
            id,
            options,
            poller,
            ready: Vec::new(),
            data,
            listener,
            topology,
            subscriptions: HashMap::new(),
            readers: HashMap::new(),
            connections: HashMap::new(),
            lost: Vec::new(),
            next: 1,
            next_feed,
            buffer: vec![0; BUFFER],
        })
    }

    fn accept(&mut self, events: &mut Vec<SourceEvent>) -> Result<()> {
        loop {
            match self.listener.within(Duration::ZERO).accept() {
                Ok((socket, _)) => {
                    let sink = SinkId(self.next);
                    self.next = self.next.wrapping_add(1).max(1);
                    self.poller
                        .add(&socket, sink.0.into(), Interest::Read)
                        .map_err(refused("poll a sink's connection"))?;
                    self.connections.insert(sink, Connection::new(socket));
                    events.push(SourceEvent::Joined(sink));
                }
                Err(why) if why.is_temporary() => return Ok(()),
                Err(why) => return Err(failed("accept a sink")(why)),
            }
        }
    }

    /// Handles topology events: readers that come and go.
    fn read_topology(&mut self, events: &mut Vec<SourceEvent>) -> Result<()> {
        while let Some(event) = self.topology.next(Duration::ZERO).map_err(failed("watch readers"))? {
            let Some(feed) = self.subscriptions.get(&event.subscription).copied() else { continue };
            let readers = self.readers.entry(feed).or_default();
            match event.change {
                Change::ServiceUp => {
                    readers.ports.push(event.port);
                    events.push(SourceEvent::Listens(address(event.port), feed));
                }
                Change::ServiceDown => {
                    readers.remove(event.port);
                    events.push(SourceEvent::StoppedListening(address(event.port), feed));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn lose(&mut self, sink: SinkId, why: Ended) {
        if self.connections.remove(&sink).is_some() {
            self.lost.push((sink, why));
        }
    }
}

/// The error of a source that cannot be announced, with the remedy if the daemon's policy is the reason.
fn refused_announcement(why: utipc::Error, source_type: u32) -> Error {
    let is_policy = matches!(&why, utipc::Error::Daemon(utipc::DaemonError::Failed(failure))
        if matches!(failure, utipc::DaemonFailure::NotAllowed { .. }));
    let what = "announce the source";
    if !is_policy {
        return failed(what)(why);
    }
    let why = format!(
        "{why}: run src_dist as the daemon's user, or add `\"{source_type}\" = [\"USER\"]` below [policy.bind] in utipcd.toml and reload utipcd"
    );
    Error::Carrier { what, why }
}

/// The result of sending a packet. It is lost if no reader is left or a TIPC link is stuck: readers find the gap by the
/// numbers.
fn sent_or_lost(sent: utipc::Result<usize>, what: &'static str) -> Result<()> {
    match sent {
        Ok(_) | Err(utipc::Error::Send { .. } | utipc::Error::TimedOut { .. }) => Ok(()),
        Err(why) => Err(failed(what)(why)),
    }
}

fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| refused("draw a random number")(why.into()))?;
    Ok(u32::from_ne_bytes(bytes))
}

impl AsFd for TipcSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl SourceEnd for TipcSource {
    fn id(&self) -> SourceId {
        self.id
    }

    fn address(&self) -> Address {
        address(self.data.port())
    }

    fn open_feed(&mut self) -> Result<FeedId> {
        let feed = FeedId(self.next_feed);
        self.next_feed = self.next_feed.wrapping_add(1);
        let range = ServiceRange::new(self.options.feed_type, feed.0, feed.0);
        let subscription = self.topology.services(range).map_err(failed("watch readers"))?;
        self.subscriptions.insert(subscription, feed);
        Ok(feed)
    }

    fn multicast(&mut self, feed: FeedId, packet: &[u8]) -> Result<()> {
        if packet.len() > MAX_PACKET {
            return Err(Error::TooLong { len: packet.len(), max: MAX_PACKET });
        }
        let readers = self.readers.entry(feed).or_default();
        let sent = if let Some(one) = readers.sole_remote(self.data.port().node) {
            self.data.send_to(packet, one)
        } else {
            readers.note_multicast();
            let range = ServiceRange::new(self.options.feed_type, feed.0, feed.0);
            self.data.send_to(packet, range)
        };
        sent_or_lost(sent, "multicast")
    }

    fn unicast(&mut self, to: Address, packet: &[u8]) -> Result<()> {
        if packet.len() > MAX_PACKET {
            return Err(Error::TooLong { len: packet.len(), max: MAX_PACKET });
        }
        sent_or_lost(self.data.send_to(packet, port(to)), "send to one reader")
    }

    fn keeps_order(&self, feed: FeedId) -> bool {
        let here = self.data.port().node;
        self.readers.get(&feed).is_none_or(|readers| readers.keep_order(here))
    }

    fn send(&mut self, sink: SinkId, record: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&sink) {
            connection.queue(record);
        }
    }

    fn flush(&mut self) {
        let mut ended = Vec::new();
        for (sink, connection) in &mut self.connections {
            if let Err(why) = connection.flush(&self.poller, sink.0.into()) {
                ended.push((*sink, why));
            }
        }
        ended.into_iter().for_each(|(sink, why)| self.lose(sink, why));
    }

    fn queued(&self, sink: SinkId) -> usize {
        self.connections.get(&sink).map_or(0, Connection::queued)
    }

    fn poll(&mut self, events: &mut Vec<SourceEvent>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(Some(Duration::ZERO), &mut ready).map_err(refused("poll"))?;
        for event in ready.drain(..) {
            match event.token {
                LISTENER => self.accept(events)?,
                TOPOLOGY => self.read_topology(events)?,
                token => {
                    let sink = SinkId(token as u32);
                    let Some(connection) = self.connections.get_mut(&sink) else { continue };
                    let mut state = Ok(());
                    if event.writable {
                        state = connection.flush(&self.poller, token);
                    }
                    if event.readable && state.is_ok() {
                        state = connection
                            .read(&mut self.buffer, |record| events.push(SourceEvent::Record(sink, record)));
                    }
                    if let Err(why) = state {
                        self.lose(sink, why);
                    }
                }
            }
        }
        self.ready = ready;
        events.extend(self.lost.drain(..).map(|(sink, why)| SourceEvent::Left(sink, why)));
        Ok(())
    }

    fn credits(&mut self, wait: Duration, credits: &mut Vec<Credit>) -> Result<()> {
        let mut wait = wait;
        let mut buffer = [0; 64];
        for _ in 0..CREDITS_PER_TURN {
            match self.data.within(wait).receive_with(&mut buffer, utipc::RecvOptions::default()) {
                Ok(received) => {
                    let bytes = buffer.get(..received.len).unwrap_or(&[]);
                    // Anything else does not come from a sink: ignore it.
                    if let Ok((feed, position)) = decode_credit(bytes) {
                        credits.push(Credit { reader: address(received.source), feed, position });
                    }
                    wait = Duration::ZERO;
                }
                Err(why) if why.is_temporary() => return Ok(()),
                Err(why) => return Err(failed("read credits")(why)),
            }
        }
        Ok(())
    }

    fn disconnect(&mut self, sink: SinkId) {
        self.connections.remove(&sink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sole_remote_reader_gets_unicast_unless_it_may_overtake_a_multicast() {
        let port = |node| PortId { port: 7, node: NodeAddr(node) };
        let (here, one, other) = (NodeAddr(1), port(2), port(3));
        let mut readers = Readers::default();
        readers.note_multicast();
        readers.ports.push(one);
        assert_eq!(readers.sole_remote(here), Some(one), "the multicast before had no reader");
        assert!(readers.keep_order(here) && readers.keep_order(one.node));
        assert_eq!(readers.sole_remote(one.node), None, "a reader on the same node is served by lanes");
        readers.ports.push(other);
        assert_eq!(readers.sole_remote(here), None);
        assert!(!readers.keep_order(here), "two links");
        readers.note_multicast();
        readers.remove(other);
        assert_eq!(readers.sole_remote(here), None, "the last multicast may be under way");
        readers.remove(one);
        readers.ports.push(other);
        assert_eq!(readers.sole_remote(here), Some(other));
    }
}
