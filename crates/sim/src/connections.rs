//! Model of connections. Each end reads an exact prefix of the data that the other end wrote, and all of it
//! unless contact is lost. A connection breaks if its peer is gone or unreachable, and otherwise does not.

use std::collections::BTreeMap;

use utipc_bench_kit::numbered;
use utipc_core::{PortId, SocketKind, Time};

use crate::check::Broken;
use crate::contact::Contacts;

/// Longest setup of a connection, milliseconds: the connect timeout of 8 s plus a margin.
const SETUP_MS: u64 = 9000;

/// State of one end, as its application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Does not exist yet.
    Absent,
    /// The client waits for the server.
    Connecting,
    /// In use.
    Open,
    /// Closed by its application.
    Closed,
    /// The end has reported the end of the connection.
    Broken,
    /// Its node crashed.
    Dead,
}

impl End {
    pub(crate) fn is_gone(self) -> bool {
        matches!(self, Self::Closed | Self::Broken | Self::Dead)
    }
}

/// A connection; end 0 is the client, end 1 the server.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: SocketKind,
    pub(crate) ends: [End; 2],
    pub(crate) nodes: [usize; 2],
    pub(crate) ports: [u32; 2],
    /// Bytes (STREAM) or messages that each end sent.
    pub(crate) sent: [u64; 2],
    /// Bytes or messages received by each end.
    got: [u64; 2],
    since: Time,
    /// Number of losses of contact between the two nodes until the server accepted, or, before that, until
    /// setup began.
    epochs: u64,
    /// Number of losses of contact between any nodes until setup began.
    losses: u64,
    /// Whether the server end is the node's topology server.
    internal: bool,
    /// Whether the connection needs no further checks.
    finished: bool,
}

/// All connections of a run.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<u64, Connection>,
    by_client: BTreeMap<PortId, u64>,
    pub(crate) made: u64,
    pub(crate) broken: u64,
    pub(crate) bytes: u64,
}

fn stream_of(id: u64, end: usize) -> u64 {
    (id * 2 + end as u64) | 1 << 48
}

impl Connections {
    /// Records that a client starts to connect to a server on another node.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        kind: SocketKind,
        client: (usize, PortId),
        server: usize,
        internal: bool,
        contacts: &Contacts,
    ) -> u64 {
        let id = self.all.len() as u64 + 1;
        let connection = Connection {
            kind,
            ends: [End::Connecting, End::Absent],
            nodes: [client.0, server],
            ports: [client.1.port, 0],
            sent: [0; 2],
            got: [0; 2],
            since: now,
            epochs: contacts.both_epochs(client.0, server),
            losses: contacts.losses,
            internal,
            finished: false,
        };
        self.all.insert(id, connection);
        self.by_client.insert(client.1, id);
        id
    }

    pub(crate) fn get(&self, id: u64) -> &Connection {
        &self.all[&id]
    }

    fn get_mut(&mut self, id: u64) -> &mut Connection {
        self.all.get_mut(&id).expect("connection numbers come from the model")
    }

    /// Records that the client's socket is connected.
    pub(crate) fn established(&mut self, id: u64) {
        let connection = self.get_mut(id);
        if connection.ends[0] == End::Connecting {
            connection.ends[0] = End::Open;
            self.made += 1;
        }
    }

    /// Records that a server accepted the request of the socket `client`. Losses of contact while the request
    /// waited do not affect the connection, because the connection starts with the reply and the client
    /// continues to wait for it.
    pub(crate) fn accepted(
        &mut self,
        node: usize,
        port: u32,
        client: PortId,
        contacts: &Contacts,
    ) -> Result<u64, Broken> {
        let Some(id) = self.by_client.get(&client).copied() else {
            return Err(Broken::Setup(format!("node {node} accepted {client}, which never connected")));
        };
        let connection = self.get_mut(id);
        if connection.ends[1] != End::Absent || connection.nodes[1] != node {
            return Err(Broken::Setup(format!("connection {id} was accepted again, at node {node}")));
        }
        connection.ends[1] = End::Open;
        connection.ports[1] = port;
        let [a, b] = connection.nodes;
        if contacts.is_up(b, a) {
            connection.epochs = contacts.both_epochs(a, b);
        }
        Ok(id)
    }

    /// Number of the stream that an end sends.
    pub(crate) fn stream(&self, id: u64, end: usize) -> u64 {
        stream_of(id, end)
    }

    pub(crate) fn sent(&mut self, id: u64, end: usize, amount: u64) {
        self.get_mut(id).sent[end] += amount;
    }

    /// Records that an end has read these bytes, or on a SEQPACKET connection this message.
    pub(crate) fn received(&mut self, id: u64, end: usize, data: &[u8]) -> Result<(), Broken> {
        let from = stream_of(id, 1 - end);
        self.bytes += data.len() as u64;
        let connection = self.get_mut(id);
        let got = connection.got[end];
        let wrong = |what: String| Err(Broken::NotAPrefix(format!("connection {id}, end {end}: {what}")));
        if connection.kind == SocketKind::Stream {
            if let Some(at) = numbered::first_wrong(from, got, data) {
                return wrong(format!("byte {at} differs ({} bytes read at {got})", data.len()));
            }
            connection.got[end] += data.len() as u64;
        } else {
            match numbered::check(data) {
                Ok(n) if n.flow == from && n.number == got => connection.got[end] += 1,
                Ok(n) => return wrong(format!("message {} of {:x} instead of {got}", n.number, n.flow)),
                Err(reason) => return wrong(reason),
            }
        }
        if connection.got[end] > connection.sent[1 - end] {
            return wrong(format!("{} received, {} sent", connection.got[end], connection.sent[1 - end]));
        }
        Ok(())
    }

    /// Records that the application closes an end.
    pub(crate) fn closed(&mut self, id: u64, end: usize) {
        self.get_mut(id).ends[end] = End::Closed;
    }

    pub(crate) fn died(&mut self, id: u64, end: usize) {
        self.get_mut(id).ends[end] = End::Dead;
    }

    /// Records that an end reports that the connection has ended or was not set up.
    pub(crate) fn broke(&mut self, id: u64, end: usize, contacts: &Contacts) -> Result<(), Broken> {
        let connection = self.get_mut(id);
        let [a, b] = connection.nodes;
        let connecting = connection.ends[end] == End::Connecting;
        let lost = contacts.both_epochs(a, b) != connection.epochs;
        let peer = connection.ends[1 - end];
        connection.ends[end] = End::Broken;
        self.broken += 1;
        let connection = self.get(id);
        let description =
            format!("connection {id} ({:?}) of node {a} to node {b}, end {end}", connection.kind);
        if connecting {
            let excused =
                lost || contacts.losses != connection.losses || !contacts.is_up(a, b) || peer.is_gone();
            return if excused {
                Ok(())
            } else {
                Err(Broken::Setup(format!("{description} was refused or timed out")))
            };
        }
        if lost || peer.is_gone() { Ok(()) } else { Err(Broken::SpuriousBreak(description)) }
    }

    /// The open ends at `node` whose peer is at `peer`. After a loss of contact none may remain.
    pub(crate) fn open_ends(&self, node: usize, peer: usize) -> Vec<(u64, usize)> {
        let ends = |c: &Connection| {
            (0..2)
                .filter(move |e| c.ends[*e] == End::Open && c.nodes[*e] == node && c.nodes[1 - *e] == peer)
                .collect::<Vec<_>>()
        };
        self.all.iter().flat_map(|(id, c)| ends(c).into_iter().map(|e| (*id, e))).collect()
    }

    /// The first connection that is not finished; repeat until none is left or the quiet period is over.
    pub(crate) fn check_finished(&self, now: Time, contacts: &Contacts) -> Result<(), Broken> {
        for (id, c) in self.all.iter().filter(|(_, c)| !c.finished) {
            let [a, b] = c.nodes;
            let description =
                || format!("connection {id} ({:?}) of node {a} to node {b}: {:?}", c.kind, c.ends);
            let lost = contacts.both_epochs(a, b) != c.epochs;
            if c.ends[0] == End::Connecting && now > c.since.plus_millis(SETUP_MS) {
                return Err(Broken::Setup(format!("{} has neither succeeded nor failed", description())));
            }
            for end in 0..2 {
                let peer = c.ends[1 - end];
                if c.ends[end] == End::Open && !c.internal && (peer.is_gone() || lost) {
                    return Err(Broken::Survived(format!("{}, end {end} is still open", description())));
                }
                // All data that an end wrote must arrive, unless the reader closed before or contact was lost.
                let reader_there = matches!(peer, End::Open | End::Broken);
                let all = c.got[1 - end] == c.sent[end];
                if !lost && reader_there && !all && !c.internal && c.ends[end] != End::Dead && !both_broke(c)
                {
                    let (got, sent) = (c.got[1 - end], c.sent[end]);
                    return Err(Broken::Lost(format!("{}, {got} of {sent} from end {end}", description())));
                }
            }
        }
        Ok(())
    }

    /// Marks ended connections after the quiet period. They need no further checks.
    pub(crate) fn mark_finished(&mut self) {
        for c in self.all.values_mut() {
            c.finished = c.ends.iter().all(|e| e.is_gone() || *e == End::Absent);
        }
    }
}

/// Whether the connection ended although neither application closed it. The cause is then a lost contact, so
/// data may be missing.
fn both_broke(c: &Connection) -> bool {
    c.ends.iter().all(|e| matches!(e, End::Broken | End::Dead))
}
