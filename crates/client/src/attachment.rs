//! One attachment: the connection of this process to a daemon, shared by all its sockets.
//!
//! One round trip at a time; the daemon answers each at once. Replies bring notices of what changed meanwhile. A thread
//! per attachment does nothing but wait for the end of the connection: the daemon's death wakes every call at once.

use std::collections::{HashMap, HashSet};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use utipc_attach::{
    Envelope, Greeting, Hello, LaneEnd, LaneId, MAX_PACKET, Notice, PairId, Refusal, Reply, Request, Welcome,
    agree, decode, encode,
};
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::hidden::{Hiding, raise};
use utipc_os::{OsError, fork, hangup};

use crate::bell::Bell;
use crate::error::Error;
use crate::fork::{Heritage, Known, heed, known};
use crate::lanes::pair::Pair;
use crate::lanes::receive::Receiver;
use crate::lanes::send::Sender;
use crate::names::Names;
use crate::residents::Residents;
use crate::shared::Shared;

/// The version from which on a daemon lets processes share sockets.
const SHARES: u16 = 2;

/// Pauses before a process that the daemon has cut before it said a word tries again: it was late, or too many came at once.
const CUT_PAUSES: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(5), ms(25), ms(100), ms(250), ms(500), ms(500), ms(1000)]
};

/// How often sockets that are opened meanwhile may delay a fork.
const SHARE_TRIES: usize = 100;

/// The connection, and whether the daemon is still there.
#[derive(Debug)]
pub(crate) struct Attachment {
    path: PathBuf,
    /// Version of the protocol.
    version: u16,
    /// The process that it belongs to, see [`fork::generation`].
    generation: u32,
    /// What the child of the next, or last, fork claims; used while [`known`] is held only.
    heritage: Mutex<Option<Heritage>>,
    /// In a forked child: its own attachment to the same daemon. Set while [`known`] is held only.
    heir: OnceLock<Arc<Attachment>>,
    /// Before the channel, which it hides.
    _hiding: Hiding,
    channel: Channel,
    wire: Mutex<Wire>,
    pub(crate) residents: Mutex<Residents>,
    /// Arenas shared with other processes, by pair and own side: where sockets of this process talk to each other it has
    /// both. Its lock is taken before that of the wire, never after it.
    pairs: Mutex<HashMap<(PairId, u8), Arc<Pair>>>,
    /// The daemon keeps the descriptors of sockets with lanes; one of version 1 must see every message for that.
    pub(crate) settles: bool,
    /// The binding table. Its lock is taken before that of the wire too.
    pub(crate) names: Names,
    /// What is left to do about sockets that are closed.
    chores: Mutex<Vec<Chore>>,
    /// A thread looks whether large rings are used.
    pub(crate) watches_rings: AtomicBool,
    /// The bell's number before the last look for notices.
    heeded: AtomicU32,
    /// Address of the node.
    address: AtomicU32,
    life: Arc<Life>,
}

/// Something that a notice asks for and that cannot be done while the wire is held.
#[derive(Clone, Copy, Debug)]
enum Chore {
    /// The lane that a closed socket has written is over.
    LaneDone(LaneId),
    /// The arena is not used any more.
    PairOver(PairId),
    /// Another process holds the socket too.
    Share(u32),
    /// This process is the socket's sole holder again.
    SoleHolder(u32),
}

/// What the watching thread shares with the attachment.
#[derive(Debug)]
struct Life {
    over: AtomicBool,
    bell: Bell,
}

impl Life {
    /// The daemon is gone: whoever waits shall see it.
    fn end(&self) {
        self.over.store(true, Release);
        self.bell.ring();
    }
}

/// Buffers of the round trip.
#[derive(Debug, Default)]
struct Wire {
    out: Vec<u8>,
    input: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// What a reply brought beside its value.
pub(crate) struct Extra<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) fds: &'a mut Vec<OwnedFd>,
}

impl Attachment {
    /// Attaches this process to the daemon at `path`; `None` if nobody is there.
    pub(crate) fn open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        heed()?;
        let opened = Self::open_patiently(path)?;
        if let Some(attachment) = &opened {
            known().add(attachment);
        }
        Ok(opened)
    }

    /// Tries again, for a few seconds at most, when the daemon has hung up.
    fn open_patiently(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        let mut pauses = CUT_PAUSES.iter();
        loop {
            match (Self::open_unknown(path), pauses.next()) {
                (Err(Error::HungUp(_)), Some(pause)) => std::thread::sleep(*pause),
                (opened, _) => return opened,
            }
        }
    }

    /// A fork does not know of it yet: nothing may wait for a daemon's answer and keep others from forking.
    fn open_unknown(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        let channel = match Channel::connect(path) {
            Ok(channel) => channel,
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | PermissionDenied) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let nonsense = || Error::Nonsense(path.to_owned());
        let mut wire = Wire { input: vec![0; MAX_PACKET], ..Wire::default() };
        wire.out.extend_from_slice(&Greeting::OWN.to_bytes());
        encode(&Hello { program: program(), takes_lanes: true }, &[], &mut wire.out);
        let hung_up = || Error::HungUp(path.to_owned());
        if channel.send(&[IoSlice::new(&wire.out)], &[], true)? != Put::Sent {
            return Err(hung_up());
        }
        let Got::Packet(len) = channel.receive(&mut wire.input, &mut wire.fds, MAX_FDS, true)? else {
            return Err(hung_up());
        };
        let (greeting, rest) = Greeting::from_bytes(&wire.input[..len]).ok_or_else(nonsense)?;
        let refused = |why| Error::Refused { path: path.to_owned(), why };
        if agree(Greeting::OWN, greeting).is_none() {
            let release = format!("(protocol {} to {})", greeting.oldest, greeting.newest);
            return Err(refused(Refusal::Version { release }));
        }
        let (answer, _) = decode::<Result<Welcome, Refusal>>(rest).map_err(|_| nonsense())?;
        let welcome = answer.map_err(refused)?;
        let bell = Bell::open(wire.fds.first().ok_or_else(nonsense)?)?;
        wire.fds.clear();
        let channel = Channel::from_fd(raise(channel.into_fd()));
        let attachment = Arc::new(Self {
            _hiding: Hiding::of(&channel),
            path: path.to_owned(),
            version: welcome.version,
            generation: fork::generation(),
            heritage: Mutex::default(),
            heir: OnceLock::new(),
            channel,
            wire: Mutex::new(wire),
            residents: Mutex::default(),
            pairs: Mutex::default(),
            names: Names::default(),
            chores: Mutex::default(),
            watches_rings: AtomicBool::new(false),
            heeded: AtomicU32::new(bell.seq()),
            address: AtomicU32::new(welcome.node.0),
            settles: welcome.version >= 2,
            life: Arc::new(Life { over: AtomicBool::new(false), bell }),
        });
        attachment.watch()?;
        Ok(Some(attachment))
    }

    /// Whether this process made it, not one that it was forked from.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Version of the protocol.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Before a fork: all sockets become hosted, and the daemon says what the child claims them by.
    pub(crate) fn share(&self) -> Result<(), Error> {
        if self.version < SHARES {
            return Ok(());
        }
        let open = || lock(&self.residents).all();
        let mut sockets = open();
        for _ in 0..SHARE_TRIES {
            if sockets.is_empty() {
                return Ok(());
            }
            // Nobody sends or receives until the daemon has done it.
            let mut halves: Vec<_> =
                sockets.iter().map(|socket| (lock(&socket.receiver), lock(&socket.sender))).collect();
            for (socket, (receiver, _)) in sockets.iter().zip(&mut halves) {
                if let Some(partly) = receiver.begun() {
                    self.command(&Request::MakeHosted { port: socket.port, partly: Some(partly) }, &[])?;
                }
            }
            let mut wire = lock(&self.wire);
            // What a socket that nobody has yet was told of its lanes is void.
            lock(&self.residents).forget_lanes();
            let now = open();
            let known: HashSet<_> = sockets.iter().map(Arc::as_ptr).collect();
            if !now.iter().all(|socket| known.contains(&Arc::as_ptr(socket))) {
                // Others were opened meanwhile, and may have lanes.
                drop((wire, halves));
                sockets = now;
                continue;
            }
            let (heritage, more) =
                self.round_trip_by(&mut wire, &Request::Fork, &[], &[], |reply, extra| match reply {
                    Reply::Number(number) => {
                        extra.fds.pop().map(|descriptor| Heritage::new(number, descriptor))
                    }
                    _ => None,
                })?;
            let heritage = heritage?;
            for (socket, (receiver, sender)) in sockets.iter().zip(&mut halves) {
                if !socket.hosted.swap(true, Relaxed) {
                    socket.shared.store(true, Relaxed);
                }
                give_lanes_back(socket, receiver, sender);
            }
            drop((wire, halves));
            *lock(&self.heritage) = Some(heritage);
            // Who sleeps on a lane has to look at the node from now on.
            self.ring();
            return if more { self.command(&Request::Notices, &[]) } else { Ok(()) };
        }
        Err(Error::NotShared(self.path.clone()))
    }

    /// After a fork, in the parent.
    pub(crate) fn forget_heritage(&self) {
        lock(&self.heritage).take();
    }

    /// In a forked child: attaches it, once, and claims what it has inherited.
    pub(crate) fn claim(self: &Arc<Self>, known: &mut Known<'_>) -> Result<Arc<Self>, Error> {
        if self.is_own() {
            return Ok(Arc::clone(self));
        }
        if let Some(heir) = self.heir.get() {
            return heir.claim(known);
        }
        if self.is_over() {
            return Err(self.died());
        }
        let heir = Self::open_patiently(&self.path)?.ok_or_else(|| self.died())?;
        known.add(&heir);
        if let Some(Heritage { number, descriptor, hiding }) = lock(&self.heritage).take() {
            // It is used up with this call.
            drop(hiding);
            let nonce = utipc_os::random::seed()?;
            let channel = Channel::from_fd(descriptor);
            channel.send(&[IoSlice::new(&nonce.to_le_bytes())], &[], true)?;
            let request = Request::Inherit { heritage: number, nonce };
            heir.call(&request, &[], |reply, _| matches!(reply, Reply::Number(_)).then_some(()))?;
        }
        Ok(Arc::clone(self.heir.get_or_init(|| heir)))
    }

    /// Starts the thread that notices the daemon's death.
    fn watch(&self) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        let started = hangup::watch("utipc daemon", self.channel.as_fd(), move || life.end());
        started.map_err(|cause| {
            let error = OsError::new("start", "the thread that watches the daemon", cause);
            Error::System(error.with_remedy("raise the limit of threads, `ulimit -u`"))
        })
    }

    /// Address of the node, as far as it is known.
    pub(crate) fn address(&self) -> NodeAddr {
        NodeAddr(self.address.load(Relaxed))
    }

    pub(crate) fn know_address(&self, node: NodeAddr) {
        self.address.store(node.0, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.over.load(Acquire)
    }

    /// What wakes a thread that waits for the node.
    pub(crate) fn bell(&self) -> &Bell {
        &self.life.bell
    }

    /// The error of every call once the daemon is gone.
    pub(crate) fn died(&self) -> Error {
        Error::Died(self.path.clone())
    }

    /// One round trip; `take` gets the reply, unless the command failed, and what came with it.
    pub(crate) fn call<T>(
        &self,
        request: &Request,
        payload: &[u8],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let done = self.round_trip(request, payload, take)?;
        self.to_the_last_notice(done)
    }

    /// The same of a request that takes descriptors along.
    pub(crate) fn call_with<T>(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let done = self.round_trip_by(&mut lock(&self.wire), request, &[], fds, take)?;
        self.to_the_last_notice(done)
    }

    fn to_the_last_notice<T>(&self, (result, mut more): (Result<T, Error>, bool)) -> Result<T, Error> {
        while more {
            (_, more) = self.round_trip(&Request::Notices, &[], |_, _| Some(()))?;
        }
        result
    }

    /// The answer, and whether more notices wait.
    fn round_trip<T>(
        &self,
        request: &Request,
        payload: &[u8],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<(Result<T, Error>, bool), Error> {
        self.round_trip_by(&mut lock(&self.wire), request, payload, &[], take)
    }

    fn round_trip_by<T>(
        &self,
        wire: &mut Wire,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<(Result<T, Error>, bool), Error> {
        let Wire { out, input, fds } = wire;
        out.clear();
        encode(request, &[], out);
        fds.clear();
        let parts = [IoSlice::new(out), IoSlice::new(payload)];
        let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
        let seen = self.bell().seq();
        if self.is_over() || self.channel.send(parts, passed, true)? != Put::Sent {
            return Err(self.lost());
        }
        let Got::Packet(len) = self.channel.receive(input, fds, MAX_FDS, true)? else {
            return Err(self.lost());
        };
        let nonsense = || Error::Nonsense(self.path.clone());
        let (envelope, payload) = decode::<Envelope>(&input[..len]).map_err(|_| nonsense())?;
        let Envelope { notices, more, reply } = envelope;
        let done = self.heed(&notices, &reply);
        if !done {
            // Whoever looks next finds news.
            self.heeded.store(seen.wrapping_sub(1), Relaxed);
        } else if !more {
            self.heeded.store(seen, Relaxed);
        }
        if !notices.is_empty() {
            // The thread that fetched them is not the one that waits for them.
            self.ring();
        }
        let result = match reply {
            Reply::Failed(failure) => Err(Error::Failed(failure)),
            reply => take(reply, Extra { payload, fds }).ok_or_else(nonsense),
        };
        Ok((result, more))
    }

    /// A command whose answer is that it is done.
    pub(crate) fn command(&self, request: &Request, payload: &[u8]) -> Result<(), Error> {
        self.call(request, payload, |reply, _| (reply == Reply::Done).then_some(()))
    }

    /// Wakes the other threads of this process. The own ring is no news.
    pub(crate) fn ring(&self) {
        let before = self.bell().ring();
        let _ = self.heeded.compare_exchange(before, before.wrapping_add(1), AcqRel, Relaxed);
    }

    /// Whether the daemon has something to tell, or has died: two loads.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.bell().seq() != self.heeded.load(Relaxed)
    }

    /// A lane that this process has written is closed: its memory is free.
    pub(crate) fn retire(&self, lane: LaneId) {
        let pair = lock(&self.pairs).get(&(lane.pair, lane.writer)).cloned();
        if let Some(pair) = pair {
            pair.retire(lane.slot);
        }
    }

    /// Gives the data path of a socket back: from now on everything of it goes by the node.
    pub(crate) fn host(&self, socket: &Shared) -> Result<(), Error> {
        self.give_back(socket, false)
    }

    /// The same until no other process holds it.
    pub(crate) fn host_while_shared(&self, socket: &Shared) -> Result<(), Error> {
        self.give_back(socket, true)
    }

    fn give_back(&self, socket: &Shared, shared: bool) -> Result<(), Error> {
        let mut receiver = lock(&socket.receiver);
        let mut sender = lock(&socket.sender);
        socket.hosted.store(true, Relaxed);
        socket.shared.store(shared, Relaxed);
        let request = Request::MakeHosted { port: socket.port, partly: receiver.begun() };
        let done = self.command(&request, &[]);
        give_lanes_back(socket, &mut receiver, &mut sender);
        drop((receiver, sender));
        self.ring();
        done
    }

    /// Takes the data path of a socket back that was hosted only because another process held it too.
    pub(crate) fn unshare(&self, socket: &Shared) -> Result<(), Error> {
        let mut receiver = lock(&socket.receiver);
        let mut sender = lock(&socket.sender);
        let was_shared = socket.shared.swap(false, Relaxed);
        // One that was opened while the process forked is not marked.
        if !was_shared && socket.hosted.load(Relaxed) {
            return Ok(());
        }
        socket.hosted.store(false, Relaxed);
        sender.forget_refusals();
        receiver.forget_refusals();
        match self.command(&Request::Lend { port: socket.port }, &[]) {
            Err(Error::Failed(_)) => {
                // Somebody holds it again: another fork.
                socket.hosted.store(true, Relaxed);
                socket.shared.store(true, Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// The lane that a closed socket has written is over.
    pub(crate) fn lane_is_over(&self, lane: LaneId) {
        lock(&self.chores).push(Chore::LaneDone(lane));
    }

    pub(crate) fn has_chores(&self) -> bool {
        !lock(&self.chores).is_empty()
    }

    /// Fetches what the daemon has to tell. The caller holds no half of a socket.
    #[cold]
    pub(crate) fn fetch_news(&self) -> Result<(), Error> {
        // Their lock is free again before the first is done: each is a command, and its reply may bring more.
        let chores = std::mem::take(&mut *lock(&self.chores));
        for chore in chores {
            match chore {
                Chore::LaneDone(lane) => {
                    self.lane_done(lane, LaneEnd::Writer)?;
                    self.retire(lane);
                }
                Chore::Share(port) => {
                    let socket = lock(&self.residents).get(port);
                    if let Some(socket) = socket {
                        self.host_while_shared(&socket)?;
                    }
                }
                Chore::SoleHolder(port) => {
                    let socket = lock(&self.residents).get(port);
                    if let Some(socket) = socket {
                        self.unshare(&socket)?;
                    }
                }
                Chore::PairOver(pair) => lock(&self.pairs).retain(|(id, _), _| *id != pair),
            }
        }
        self.command(&Request::Notices, &[])
    }

    /// The connection has just broken.
    pub(crate) fn lost(&self) -> Error {
        self.life.end();
        self.died()
    }

    /// The daemon shares what no daemon writes: there is nothing more to be had from it.
    #[cold]
    pub(crate) fn broken(&self) -> Error {
        self.channel.shut();
        self.life.end();
        Error::Nonsense(self.path.clone())
    }

    /// Puts each notice where it belongs; false if some are left to be seen to without the wire.
    fn heed(&self, notices: &[Notice], reply: &Reply) -> bool {
        if let Reply::Accepted { port, .. } | Reply::Claimed { port } = *reply {
            lock(&self.residents).expect(port);
        }
        let mut chores = Vec::new();
        for notice in notices {
            match *notice {
                Notice::Address(node) => self.know_address(node),
                Notice::PairOver(pair) => chores.push(Chore::PairOver(pair)),
                Notice::Share { port } => chores.push(Chore::Share(port)),
                Notice::SoleHolder { port } => chores.push(Chore::SoleHolder(port)),
                Notice::Readiness { port } | Notice::Lane { port, .. } | Notice::NodeLane { port, .. } => {
                    let _ = self.deliver(port, *notice);
                }
                // The socket is closed; the end of its lane is still to be answered.
                Notice::LaneOver { port, lane, end, .. }
                    if !self.deliver(port, *notice) && end == LaneEnd::Writer =>
                {
                    chores.push(Chore::LaneDone(lane));
                }
                // Delivered, or of a later version.
                _ => {}
            }
        }
        let done = chores.is_empty();
        lock(&self.chores).extend(chores);
        done
    }

    /// Puts a notice into the letter box of its socket, or keeps it till that has one; false if there is no such socket.
    fn deliver(&self, port: u32, notice: Notice) -> bool {
        let mut residents = lock(&self.residents);
        let Some(socket) = residents.get(port) else { return residents.keep(port, notice) };
        drop(residents);
        socket.note(notice);
        true
    }

    /// A socket of this attachment: notices about it go to `socket`.
    pub(crate) fn enter(&self, socket: &Arc<Shared>) {
        let mut residents = lock(&self.residents);
        // Nobody else puts a letter into its box before these.
        for notice in residents.enter(socket) {
            socket.note(notice);
        }
    }

    /// The socket is closed.
    pub(crate) fn leave(&self, port: u32) {
        lock(&self.residents).leave(port);
    }

    /// The arena of a lane, from the side of its `end`.
    pub(crate) fn pair(&self, lane: LaneId, end: LaneEnd) -> Result<Arc<Pair>, Error> {
        let writer = u8::from(lane.writer != 0);
        let side = if end == LaneEnd::Writer { writer } else { 1 - writer };
        let mut pairs = lock(&self.pairs);
        if let Some(pair) = pairs.get(&(lane.pair, side)) {
            return Ok(Arc::clone(pair));
        }
        let pair = match pairs.get(&(lane.pair, 1 - side)) {
            Some(other) => other.other_side(),
            None => {
                let request = Request::FetchPair { pair: lane.pair };
                let (arena, knock) = self.call(&request, &[], |reply, extra| {
                    let mut fds = extra.fds.drain(..).filter(|_| reply == Reply::Done);
                    Some((fds.next()?, fds.next()))
                })?;
                Pair::open(lane.pair, side, &arena, knock)?
            }
        };
        let pair = Arc::new(pair);
        pairs.insert((lane.pair, side), Arc::clone(&pair));
        Ok(pair)
    }

    /// This end is done with a lane.
    pub(crate) fn lane_done(&self, lane: LaneId, end: LaneEnd) -> Result<(), Error> {
        match self.command(&Request::LaneDone { lane, end }, &[]) {
            // The daemon has done with it already.
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Ends the watching thread; the daemon sees that this process has left. What a child inherits is not its own to end.
        if self.is_own() {
            self.channel.shut();
        }
    }
}

/// A socket is hosted now: its lanes are the daemon's.
fn give_lanes_back(socket: &Shared, receiver: &mut Receiver, sender: &mut Sender) {
    for lane in receiver.ids() {
        drop(receiver.remove(lane));
    }
    // Lanes that it was to read and has not seen yet are over too.
    socket.to_receiver.forget_lanes();
    receiver.node_is_ready();
    for lane in sender.take_all() {
        // Its memory is free when the reader has read to the end.
        lane.pair.keep(lane.id.slot, lane.writer);
    }
}

/// The name under which operators see this process.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A thread that panicked in a call left nothing half done that another one would trip over.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
