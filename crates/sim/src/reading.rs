//! Applications reading their sockets, and detecting the end of connections.

use utipc_bench_kit::numbered;
use utipc_core::socket::{AcceptError, RecvError, SocketOption, State as SocketState};
use utipc_core::topology::{ByteOrder, TopologyEvent};
use utipc_core::wire::ErrorCode;
use utipc_core::{RecvOptions, ServiceRange};

use crate::check::{Broken, Violation};
use crate::cluster::{Action, Cluster};
use crate::connections::End;
use crate::host::Role;
use crate::subscribers::{WATCHED, subscription};

/// Longest time that a slow application leaves its socket unread, milliseconds.
const MAX_READ_DELAY_MS: u64 = 150;
/// Longest time that an application does not read at all, milliseconds.
const MAX_PAUSE_MS: u64 = 4000;
/// Time that the reader of a connection sleeps during a bulk transfer, milliseconds: longer than the peer needs to send
/// everything.
const READER_PAUSE_MS: u64 = 500;
/// Maximum number of unread bytes on a connection: the window of 1690 blocks that a receive buffer of 2 MiB allows, and
/// one message. A block with its overhead takes at most 1152 bytes.
const MAX_UNREAD: u32 = (1690 + 66) * 1152;
/// Size of the largest message.
const BUFFER: usize = 66_060;

/// Result of one read.
enum Read {
    /// Data, and the range that the sender addressed.
    Data(Vec<u8>, Option<ServiceRange>),
    /// A returned message; `true` if the socket does not exist.
    Returned(Vec<u8>, bool),
    Nothing,
    End,
}

impl Cluster {
    /// Handles a report that a socket may have changed.
    pub(crate) fn on_ready(&mut self, node: usize, port: u32) -> Result<(), Violation> {
        if !self.has_news(node, port) {
            return Ok(()); // reading causes further reports, which need no handling
        }
        if self.busy && self.rng.below(12) == 0 {
            let incarnation = self.hosts[node].incarnation;
            let longest = if self.rng.below(8) == 0 { MAX_PAUSE_MS } else { MAX_READ_DELAY_MS };
            let after = self.rng.below(longest);
            self.plan(self.now.plus_millis(after), Action::Read { node, incarnation, port });
            return Ok(());
        }
        self.read(node, port)
    }

    /// Makes the application at an end of a connection stop reading for a while.
    pub(crate) fn pause_reader(&mut self, id: u64, end: usize) {
        let connection = self.connections.get(id);
        let (node, port, open) = (connection.nodes[end], connection.ports[end], connection.ends[end]);
        let incarnation = self.hosts[node].incarnation;
        if open == End::Open
            && let Some(running) = self.running(node)
        {
            running.paused.insert(port);
            let at = self.now.plus_millis(READER_PAUSE_MS);
            self.plan(at, Action::Read { node, incarnation, port });
        }
    }

    pub(crate) fn resume_reader(&mut self, node: usize, port: u32) {
        if let Some(running) = self.running(node) {
            running.paused.remove(&port);
        }
    }

    fn has_news(&self, node: usize, port: u32) -> bool {
        let Some(running) = &self.hosts[node].running else { return false };
        if running.paused.contains(&port) {
            return false;
        }
        let Some(endpoint) = running.stack.endpoint(port) else { return running.roles.contains_key(&port) };
        let ready = endpoint.readiness();
        let connecting = match running.roles.get(&port) {
            Some(Role::Connection { id, end }) => self.connections.get(*id).ends[*end] == End::Connecting,
            Some(Role::Subscriber { asked, .. }) => *asked < WATCHED.len(),
            _ => false,
        };
        ready.readable || ready.read_closed || ready.hung_up || connecting
    }

    /// Reads all sockets of all nodes.
    pub(crate) fn read_everything(&mut self) -> Result<(), Violation> {
        for node in 0..self.hosts.len() {
            let ports: Vec<u32> =
                self.running(node).map_or(Vec::new(), |r| r.roles.keys().copied().collect());
            for port in ports {
                self.read(node, port)?;
            }
            self.flush(node)?;
        }
        Ok(())
    }

    /// Reads everything that a socket has.
    pub(crate) fn read(&mut self, node: usize, port: u32) -> Result<(), Violation> {
        let result = match self.hosts[node].running.as_ref().and_then(|r| r.roles.get(&port)) {
            None => Ok(()),
            Some(Role::Listener) => self.accept(node, port),
            Some(Role::Datagram(id)) => self.read_datagrams(node, port, *id),
            Some(Role::Connection { id, end }) => self.read_connection(node, port, *id, *end),
            Some(Role::Subscriber { id, .. }) => self.read_subscriber(node, port, *id),
        };
        result.map_err(|broken| self.broken(node, broken))
    }

    fn read_once(&mut self, node: usize, port: u32) -> Result<Read, Broken> {
        let now = self.now;
        let mut buffer = vec![0; BUFFER];
        let Some(running) = self.running(node) else { return Ok(Read::Nothing) };
        match running.stack.recv(now, port, &mut buffer, RecvOptions::default()) {
            Ok(got) => {
                if let Some(returned) = got.returned {
                    let no_port = returned.code == ErrorCode::NoPort;
                    self.note(b'r', node, &returned.data);
                    return Ok(Read::Returned(returned.data, no_port));
                }
                buffer.truncate(got.len);
                self.note(b'd', node, &buffer);
                Ok(if got.len == 0 { Read::End } else { Read::Data(buffer, got.destination) })
            }
            Err(RecvError::WouldBlock) => Ok(Read::Nothing),
            Err(e) => {
                self.note(b'e', node, format!("socket {port} ended: {e}").as_bytes());
                Ok(Read::End)
            }
        }
    }

    fn read_datagrams(&mut self, node: usize, port: u32, id: u64) -> Result<(), Broken> {
        loop {
            match self.read_once(node, port)? {
                Read::Data(data, range) => {
                    let head = numbered::check(&data).map_err(Broken::Corrupted)?;
                    self.datagrams.delivered(id, head, range, &self.contacts)?;
                }
                Read::Returned(data, no_port) => {
                    let head = numbered::check_front(&data).map_err(Broken::Corrupted)?;
                    self.datagrams.returned(id, head, no_port)?;
                }
                Read::Nothing => return Ok(()),
                Read::End => return Err(Broken::Corrupted(format!("socket {id} ended"))),
            }
        }
    }

    fn accept(&mut self, node: usize, listener: u32) -> Result<(), Broken> {
        loop {
            let now = self.now;
            let Some(running) = self.running(node) else { return Ok(()) };
            match running.stack.accept(now, listener) {
                Ok((port, peer)) => {
                    let id = self.connections.accepted(node, port, peer, &self.contacts)?;
                    if let Some(running) = self.running(node) {
                        running.roles.insert(port, Role::Connection { id, end: 1 });
                    }
                    self.read_connection(node, port, id, 1)?;
                }
                Err(AcceptError::WouldBlock) => return Ok(()),
                Err(e) => return Err(Broken::Setup(format!("accept at node {node}: {e}"))),
            }
        }
    }

    /// Updates the state of an end from its socket. Returns whether there may be something to read.
    fn follow(&mut self, node: usize, port: u32, id: u64) -> bool {
        let state = self.hosts[node].running.as_ref().and_then(|r| r.stack.endpoint(port)).map(|e| e.state());
        match state {
            Some(SocketState::Connecting) => false,
            Some(SocketState::Established) => {
                self.connections.established(id);
                true
            }
            _ => true,
        }
    }

    /// Checks that the unread data is not more than the window and one message.
    fn check_unread(&self, node: usize, port: u32) -> Result<(), Broken> {
        let endpoint = self.hosts[node].running.as_ref().and_then(|r| r.stack.endpoint(port));
        let used = endpoint.and_then(|e| e.option(SocketOption::ReceiveQueueUsed).ok()).unwrap_or(0);
        if used <= MAX_UNREAD {
            return Ok(());
        }
        Err(Broken::Memory(format!("{used} bytes unread on a connection of node {node}, beyond its window")))
    }

    fn read_connection(&mut self, node: usize, port: u32, id: u64, end: usize) -> Result<(), Broken> {
        self.check_unread(node, port)?;
        if !self.follow(node, port, id) {
            return Ok(());
        }
        loop {
            match self.read_once(node, port)? {
                Read::Data(data, _) => self.connections.received(id, end, &data)?,
                Read::Nothing => return Ok(()),
                Read::Returned(..) | Read::End => return self.end_connection(node, port, id, end),
            }
        }
    }

    fn end_connection(&mut self, node: usize, port: u32, id: u64, end: usize) -> Result<(), Broken> {
        let now = self.now;
        if let Some(running) = self.running(node) {
            running.roles.remove(&port);
            running.stack.close(now, port);
        }
        self.connections.broke(id, end, &self.contacts)
    }

    fn read_subscriber(&mut self, node: usize, port: u32, id: u64) -> Result<(), Broken> {
        if !self.follow(node, port, id) {
            return Ok(());
        }
        let now = self.now;
        let Some(running) = self.running(node) else { return Ok(()) };
        if let Some(Role::Subscriber { asked, .. }) = running.roles.get_mut(&port) {
            for service in WATCHED.into_iter().skip(*asked) {
                let request = subscription(service).to_bytes(ByteOrder::NATIVE);
                if running.stack.send(now, port, &request, None).is_err() {
                    break; // would block, or the connection has ended, which the next read reports
                }
                *asked += 1;
            }
        }
        loop {
            match self.read_once(node, port)? {
                Read::Data(data, _) => {
                    let event = TopologyEvent::from_bytes(&data, ByteOrder::NATIVE);
                    let event = event.map_err(|e| Broken::Topology(format!("node {node}: {e}")))?;
                    self.topology_events += 1;
                    if let Some(running) = self.running(node)
                        && let Some(Role::Subscriber { reported, .. }) = running.roles.get_mut(&port)
                    {
                        reported.apply(&event)?;
                    }
                }
                Read::Nothing => return Ok(()),
                Read::Returned(..) | Read::End => return self.end_connection(node, port, id, 0),
            }
        }
    }

    /// Checks after `node` has lost contact with `peer` that every connection between them has ended at this
    /// end.
    pub(crate) fn check_connections_end(&mut self, node: usize, peer: usize) -> Result<(), Violation> {
        for (id, end) in self.connections.open_ends(node, peer) {
            let port = self.connections.get(id).ports[end];
            let state =
                self.hosts[node].running.as_ref().and_then(|r| r.stack.endpoint(port)).map(|e| e.state());
            if state == Some(SocketState::Established) && self.connections.get(id).ends[end] == End::Open {
                let what = format!("connection {id} at node {node}, whose peer's node {peer} was lost");
                return Err(self.broken(node, Broken::Survived(what)));
            }
        }
        Ok(())
    }
}
