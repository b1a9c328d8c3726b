//! The host bearer: frames between the nodes of one user on one host, over rings in shared memory.
//!
//! The medium is like an Ethernet whose switch is a directory: each node has a socket there, named by its address. A
//! new node connects to every socket that it finds, and passes the memory of one [`link`](peer) with each connection.
//! The connection ends with the process at its other end, so the death of a node is known at once. Reasons:
//! `docs/decisions/0020-host-bearer.md`.
//!
//! | Question | File |
//! |---|---|
//! | How do the nodes find each other? | `directory.rs` |
//! | What does a node say when it connects? | `hello.rs` |
//! | How do frames move between two nodes? | `peer.rs` |
//! | How does a thread wait for frames without the bearer? | `idle.rs` |

mod directory;
mod hello;
mod idle;
mod peer;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use utipc_core::NodeAddr;
use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_os::fdpass::{Channel, own_user};
use utipc_os::inotify::{Change, DirWatch};
use utipc_os::reactor::{Event as Ready, Interest, Reactor};
use utipc_os::runtime_dir::{network_namespace, private_dir, user_dir};
use utipc_os::timer::Timer;
use utipc_os::{OsError, clock};

use super::tally::{Counters, Tally};
use super::{Bearer, BearerError, Idle};
use directory::{Directory, Found, HostAddress};
use hello::Hello;
use idle::HostIdle;
use peer::{Peer, Push};

/// Largest frame, bytes: the largest packet of TIPC.
const MTU: usize = 65_535;

/// Maximum number of frames that one call of `receive` takes from one peer, and of their bytes; one frame may exceed
/// these.
const FRAMES_MAX: usize = 256;
/// See [`FRAMES_MAX`].
const BYTES_MAX: usize = 1 << 20;

/// Longest wait for room in the rings of a batch's receivers. Then frames are dropped; the link sends them again.
const SEND_STALL: Duration = Duration::from_millis(2);

/// Peers, as many as a node knows.
const PEERS_MAX: usize = utipc_core::limits::MAX_PEERS;

/// Maximum number of connections without a hello; the oldest is closed for a new one.
const UNIDENTIFIED_MAX: usize = 64;

/// Maximum number of connections accepted in one turn.
const ACCEPTS_MAX: usize = 16;

/// Calls of `receive_spinning` per check of the descriptors, which costs a system call.
const SPINS: u32 = 64;

/// Delay before another attempt to restore the own socket while a starting node holds the directory's lock.
const RETRY: Duration = Duration::from_millis(50);

/// Configuration of a host bearer.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The name after `host:`, 1 to 15 characters.
    pub name: String,
    /// The directory of the nodes; `None`: one for each user and network namespace. Nodes in containers share a
    /// directory that is mounted in each of them.
    pub directory: Option<PathBuf>,
    /// The node's address. If no other node of the directory has it, the bearer [owns](Bearer::owns_address) it.
    pub address: Option<NodeAddr>,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig { name: "local".into(), directory: None, address: None }
    }
}

/// Tokens of the reactor; those of peers and of connections without a hello follow, four for each.
const DOOR: u64 = 0;
const WATCH: u64 = 1;
const TIMER: u64 = 2;
const FIRST_PEER: u64 = 4;

/// The bearer; see the module.
pub struct HostBearer {
    name: String,
    directory: Directory,
    owns_address: bool,
    /// Watches everything below; the one descriptor of the bearer.
    reactor: Reactor,
    ready: Vec<Ready>,
    watch: Option<DirWatch>,
    timer: Timer,
    peers: Vec<Peer>,
    unidentified: Vec<(u64, Channel)>,
    /// Addresses of peers that are gone, until they are reported to the node.
    gone: Vec<MediaAddr>,
    idle: Arc<HostIdle>,
    next_token: u64,
    spins: u32,
    tally: Tally,
    buffer: Vec<u8>,
}

impl HostBearer {
    /// Joins the directory: finds the nodes in it, and can be found by later ones.
    ///
    /// # Errors
    /// No directory that only the user can write is available, or no descriptor is free.
    pub fn open(config: &HostConfig) -> Result<HostBearer, BearerError> {
        let path = match &config.directory {
            Some(path) => path.clone(),
            None => default_directory()?,
        };
        private_dir(&path)?;
        let watch = DirWatch::new(&path)
            .inspect_err(|error| tracing::warn!(%error, "a removed entry of this node is not restored"))
            .ok();
        let wanted = config.address.map(HostAddress::of_node);
        let (directory, found) = Directory::join(&path, wanted)?;
        let reactor = Reactor::new()?;
        let timer = Timer::new()?;
        if let Some(door) = directory.door() {
            reactor.add(door, DOOR, Interest::Read)?;
        }
        reactor.add(&timer, TIMER, Interest::Read)?;
        if let Some(watch) = &watch {
            reactor.add(watch, WATCH, Interest::Read)?;
        }
        let mut bearer = HostBearer {
            name: format!("host:{}", config.name),
            owns_address: wanted == Some(directory.own()),
            directory,
            reactor,
            ready: Vec::new(),
            watch,
            timer,
            peers: Vec::new(),
            unidentified: Vec::new(),
            gone: Vec::new(),
            idle: Arc::default(),
            next_token: FIRST_PEER,
            spins: 0,
            tally: Tally::default(),
            buffer: vec![0; MTU],
        };
        bearer.greet(found);
        Ok(bearer)
    }

    /// The addresses of the other nodes, as known now.
    #[must_use]
    pub fn peers(&self) -> Vec<MediaAddr> {
        self.peers.iter().map(Peer::address).collect()
    }

    /// The directory of the nodes.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn take_token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += peer::TOKENS;
        token
    }

    /// Connects to the nodes found in the directory.
    fn greet(&mut self, found: Vec<Found>) {
        for Found { address, channel } in found {
            let token = self.take_token();
            let made = Peer::invite(token, self.directory.own(), address, channel);
            if let Err(error) = made.and_then(|peer| self.add(peer)) {
                tracing::warn!(%address, %error, "a node on this host cannot be reached");
            }
        }
    }

    fn add(&mut self, peer: Peer) -> utipc_os::Result<()> {
        if let Some(at) = self.peers.iter().position(|known| known.address() == peer.address()) {
            self.remove(at);
        }
        if self.peers.len() >= PEERS_MAX {
            let cause = std::io::Error::from(std::io::ErrorKind::QuotaExceeded);
            return Err(OsError::new("add", "one more node on this host", cause));
        }
        peer.watch(&self.reactor)?;
        self.peers.push(peer);
        self.idle.set(&self.peers);
        // Its lane reports nothing before its first read.
        self.idle.set_more(true);
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        let peer = self.peers.swap_remove(at);
        peer.unwatch(&self.reactor);
        self.gone.push(peer.address());
        self.idle.set(&self.peers);
    }

    /// Does what the descriptors ask for, a bounded part in each call. Returns whether a descriptor was ready.
    fn serve(&mut self) -> Result<bool, BearerError> {
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.reactor.wait(Some(Duration::ZERO), &mut ready);
        let asked = !ready.is_empty() || matches!(waited, Ok(true));
        for event in &ready {
            match event.token {
                DOOR => self.accept(),
                WATCH => self.check_directory(),
                TIMER => {
                    self.timer.set(None)?;
                    self.rejoin();
                }
                token => self.serve_peer(token),
            }
        }
        self.ready = ready;
        waited?;
        Ok(asked)
    }

    /// Prepares a wait for the descriptor: peers wake this node from now on, and the descriptor is readable if
    /// something is already there.
    fn wait_by_descriptor(&self) {
        if self.idle.prepare_sleep() || !self.gone.is_empty() {
            self.reactor.waker().wake();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let channel = match self.directory.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "a node on this host cannot connect"),
            };
            if !channel.peer().is_ok_and(|peer| peer.uid == own_user()) {
                tracing::warn!("a process of another user tried to connect to this node");
                continue;
            }
            // Nearly always the hello has arrived already.
            self.welcome(channel);
        }
    }

    fn serve_peer(&mut self, token: u64) {
        if let Some(at) = self.unidentified.iter().position(|(known, _)| *known == token) {
            let (_, channel) = self.unidentified.remove(at);
            // The connection is watched again, with the rest of the peer.
            let _ = self.reactor.remove(&channel);
            return self.welcome(channel);
        }
        let Some(at) = self.peers.iter().position(|peer| peer.has(token)) else { return };
        if self.peers.get(at).is_some_and(|peer| peer.has_ended(token)) {
            self.remove_after_reading(at);
        }
    }

    /// Reads the hello of a new connection; a malformed one ends it.
    fn welcome(&mut self, channel: Channel) {
        let token = self.take_token();
        let added = match Hello::receive(&channel) {
            Ok(Some(hello)) => Peer::answer(token, hello, channel).and_then(|peer| self.add(peer)),
            Ok(None) => self.reactor.add(&channel, token, Interest::Read).map(|()| {
                if self.unidentified.len() >= UNIDENTIFIED_MAX {
                    self.unidentified.remove(0);
                }
                self.unidentified.push((token, channel));
            }),
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            tracing::warn!(%error, "a node on this host was refused");
        }
    }

    /// Marks a peer whose process has gone; its last frames are read first.
    fn remove_after_reading(&mut self, at: usize) {
        if let Some(peer) = self.peers.get_mut(at) {
            peer.unwatch(&self.reactor);
            peer.end();
        }
    }

    fn check_directory(&mut self) {
        let own = self.directory.own().to_string();
        let mut gone = false;
        if let Some(watch) = &self.watch {
            let taken = watch.take(&mut |change| match change {
                Change::Gone(name) => gone |= name == own,
                Change::Unknown => gone = true,
                Change::Appeared(_) => {}
            });
            if let Err(error) = taken {
                tracing::warn!(%error, "the directory of this host's nodes is no longer watched");
                let _ = self.reactor.remove(watch);
                self.watch = None;
            }
        }
        if gone {
            self.rejoin();
        }
    }

    /// Restores the own socket in the directory, if it is missing, and connects to the nodes that have joined since.
    fn rejoin(&mut self) {
        let known: Vec<_> = self.peers.iter().map(Peer::host_address).collect();
        if let Some(door) = self.directory.door() {
            let _ = self.reactor.remove(door);
        }
        let rejoined = self.directory.restore(&known);
        if let Some(Err(error)) =
            self.directory.door().map(|door| self.reactor.add(door, DOOR, Interest::Read))
        {
            tracing::warn!(%error, "later nodes on this host cannot connect");
        }
        match rejoined {
            Ok(found) => self.greet(found),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let _ = self.timer.set(Some(clock::monotonic() + RETRY));
            }
            Err(error) => tracing::warn!(%error, "the entry of this node cannot be restored"),
        }
    }

    /// Passes on what lies in the rings of peers that have reported something, and asks for further reports. Returns
    /// whether there is more.
    fn read(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> bool {
        let mut more = false;
        for at in (0..self.peers.len()).rev() {
            let Some(peer) = self.peers.get_mut(at) else { continue };
            if !peer.has_ready() {
                continue;
            }
            let (buffer, tally) = (&mut self.buffer, &mut self.tally);
            let address = peer.address();
            let read = peer.read((FRAMES_MAX, BYTES_MAX), buffer, &mut |frame| {
                tally.frame(frame.len());
                sink(address, frame);
            });
            match read {
                Ok(true) => more = true,
                Ok(false) if peer.is_ended() => self.remove(at),
                Ok(false) => {}
                Err(corrupt) => {
                    tracing::warn!(%address, %corrupt, "a node on this host is disconnected");
                    self.remove(at);
                }
            }
        }
        self.idle.set_more(more);
        more
    }

    /// Sends one frame to one peer.
    fn send_to(&mut self, at: usize, pieces: [&[u8]; 2], until: &mut Option<Duration>) {
        let Some(peer) = self.peers.get_mut(at) else { return };
        let len = (pieces[0].len() + pieces[1].len()) as u64;
        match peer.push(pieces, || stall(until)) {
            Push::Sent => {
                self.tally.counters.tx_frames += 1;
                self.tally.counters.tx_bytes += len;
            }
            Push::Dropped => self.tally.counters.tx_dropped += 1,
        }
    }
}

/// Whether the batch may still wait for room; yields the processor if so.
fn stall(until: &mut Option<Duration>) -> bool {
    let now = clock::monotonic();
    let end = *until.get_or_insert(now + SEND_STALL);
    if now < end {
        std::thread::yield_now();
    }
    now < end
}

impl Bearer for HostBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        format!("{}, shared memory, nodes in {}", self.name, self.directory.path().display())
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.reactor.as_fd()]
    }

    fn local_address(&self) -> MediaAddr {
        self.directory.own().media()
    }

    fn mtu(&self) -> usize {
        MTU
    }

    fn has_broadcast(&self) -> bool {
        false
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        self.peers()
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        let mut until = None;
        for frame in batch.frames().iter().filter(|frame| frame.bearer == id) {
            let pieces = batch.pieces(frame);
            if frame.is_empty() || frame.len() > MTU {
                self.tally.counters.tx_refused += 1;
                continue;
            }
            match frame.to {
                Target::Broadcast => {
                    for at in 0..self.peers.len() {
                        self.send_to(at, pieces, &mut until);
                    }
                }
                Target::Unicast(to) => match self.peers.iter().position(|peer| peer.address() == to) {
                    Some(at) => self.send_to(at, pieces, &mut until),
                    None if matches!(to, MediaAddr::Ethernet(_)) => self.tally.counters.tx_dropped += 1,
                    None => self.tally.counters.tx_refused += 1,
                },
            }
        }
        for peer in &mut self.peers {
            peer.flush();
        }
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.tally.counters.rx_calls += 1;
        self.serve()?;
        let more = self.read(sink);
        self.wait_by_descriptor();
        Ok(more)
    }

    fn receive_spinning(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.spins = self.spins.wrapping_add(1);
        // Peers need not wake a spinning node: each wake-up would cost them a system call.
        let asked = self.spins.is_multiple_of(SPINS) && self.serve()?;
        let more = self.read(sink);
        if asked {
            self.wait_by_descriptor();
        }
        Ok(more)
    }

    fn counters(&self) -> Counters {
        self.tally.counters
    }

    fn owns_address(&self) -> bool {
        self.owns_address
    }

    fn take_gone(&mut self) -> Option<MediaAddr> {
        self.gone.pop()
    }

    fn idle(&self) -> Option<Arc<dyn Idle>> {
        Some(Arc::clone(&self.idle) as Arc<dyn Idle>)
    }
}

/// One directory for each network namespace, which is the boundary of a host's other media too.
fn default_directory() -> Result<PathBuf, BearerError> {
    let base = user_dir("utipc")?;
    Ok(base.join(format!("nodes-{}", network_namespace())))
}
