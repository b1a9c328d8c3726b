//! A joined group: its thread moves messages between the ordered group and the layer, and events to the inbox.
//!
//! The thread takes messages and answers other members while the program computes. Programs send on their own threads;
//! only pieces of long messages, rosters and goodbyes may wait for the thread.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::ordered::{Ended, Incoming, Order, Ordered, OrderedError, Partition};
use utipc::{Error, Node};
use utipc_os::lock;
use utipc_os::reactor::Waker;

use crate::directory::Desk;
use crate::inbox::{End, Inbox};
use crate::layer::Layer;
use crate::name::Name;
use crate::node;
use crate::types::{CpgAddress, CsError, Reason};

/// Pause before a message is retried that had no room.
const RETRY: Duration = Duration::from_millis(1);
/// How long a goodbye may take; then the process leaves without it.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);
/// Time that a refused `cpg_mcast_joined` waits for a change, so that programs that repeat it at once leave the
/// processor to the threads that free space.
const SEND_PAUSE: Duration = Duration::from_millis(1);
/// How long `cpg_join` waits for the first view.
const JOIN_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of events that the thread takes before it checks for other work.
const BATCH: usize = 64;

#[derive(Debug)]
struct State {
    layer: Layer,
    /// The program leaves the group, and since when.
    leaving: Option<(Reason, Instant)>,
    /// The thread has ended.
    ended: bool,
    /// Calls that wait for a change. If none waits, a message needs no system call for them.
    waiting: usize,
}

/// The membership has ended without a leave: the transport has failed, or this program was too slow for the others.
#[derive(Debug)]
struct Lost;

/// A joined group.
#[derive(Debug)]
pub(crate) struct Membership {
    name: Arc<Name>,
    node: Node,
    state: Mutex<State>,
    changed: Condvar,
    /// `None` once the thread has left the group.
    ordered: RwLock<Option<Ordered>>,
    inbox: Arc<Inbox>,
    waker: Waker,
}

impl Membership {
    /// Joins a group, and waits a short time for its first view.
    pub(crate) fn join(
        node: &Node,
        name: Name,
        initial_ring: bool,
        inbox: Arc<Inbox>,
    ) -> Result<Arc<Self>, Error> {
        let pid = std::process::id();
        let ordered = Ordered::builder(name.service())
            .instance(pid)
            .order(Order::Agreed)
            .partition(Partition::All)
            .founder()
            .join(node)?;
        ordered.set_send_timeout(Some(Duration::ZERO));
        let desk = Desk::open(node, pid)?;
        let layer = Layer::new(ordered.port(), pid, name.clone(), initial_ring);
        let membership = Arc::new(Self {
            name: Arc::new(name),
            node: node.clone(),
            state: Mutex::new(State { layer, leaving: None, ended: false, waiting: 0 }),
            changed: Condvar::new(),
            ordered: RwLock::new(Some(ordered)),
            inbox,
            waker: Waker::new()?,
        });
        let own = Arc::clone(&membership);
        std::thread::Builder::new()
            .name("cpg".to_owned())
            .spawn(move || own.run(desk))
            .map_err(|cause| utipc_os::OsError::new("start", "the thread of a group", cause))?;
        membership.wait(JOIN_LIMIT, |state| state.layer.is_joined() || state.ended);
        Ok(membership)
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// The members, as the order of the group has them now.
    pub(crate) fn members(&self) -> Vec<CpgAddress> {
        lock(&self.state).layer.members()
    }

    /// Whether the process has left or is leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        let state = lock(&self.state);
        state.ended || state.leaving.is_some()
    }

    /// Whether a message might be sent now.
    pub(crate) fn can_send(&self) -> bool {
        lock(&self.state).layer.can_send()
    }

    /// Waits a short time for a change.
    pub(crate) fn pause(&self) {
        self.pause_with(lock(&self.state));
    }

    fn pause_with(&self, mut state: MutexGuard<'_, State>) {
        state.waiting += 1;
        let waited = self.changed.wait_timeout(state, SEND_PAUSE);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    }

    /// Sends a message; [`CsError::TryAgain`] after a short pause if it has to wait.
    pub(crate) fn multicast(&self, data: Vec<u8>, safe: bool) -> Result<(), CsError> {
        let mut state = lock(&self.state);
        if state.leaving.is_some() {
            return Err(CsError::NotExist);
        }
        if state.ended {
            return Err(CsError::Library);
        }
        if !state.layer.can_send() {
            self.pause_with(state);
            return Err(CsError::TryAgain);
        }
        let Some(message) = state.layer.submit(data, safe) else {
            self.flush(&mut state);
            drop(state);
            self.waker.wake();
            return Ok(());
        };
        drop(state);
        match self.send(&message, safe) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.pause();
                Err(CsError::TryAgain)
            }
            Err(()) => Err(CsError::Library),
        }
    }

    /// Leaves the group; returns at once.
    pub(crate) fn leave(&self, reason: Reason) {
        let mut state = lock(&self.state);
        if state.leaving.is_none() && !state.ended {
            state.leaving = Some((reason, Instant::now()));
            state.layer.say_bye(reason);
        }
        drop(state);
        self.waker.wake();
    }

    /// Waits until the thread has ended.
    pub(crate) fn wait_ended(&self, limit: Duration) -> bool {
        self.wait(limit, |state| state.ended)
    }

    fn wait(&self, limit: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let waited = self.changed.wait_timeout_while(state, limit, |state| !done(state));
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !waited.timed_out()
    }

    /// Sends on the ordered group; false if it has no room.
    fn send(&self, message: &[u8], safe: bool) -> Result<bool, ()> {
        let ordered = self.ordered.read().unwrap_or_else(PoisonError::into_inner);
        let Some(ordered) = &*ordered else { return Err(()) };
        let sent = if safe { ordered.multicast_safe(message) } else { ordered.multicast(message) };
        match sent {
            Ok(()) => Ok(true),
            Err(Error::Ordered { why: OrderedError::Waiting { .. }, .. }) => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Sends pieces, rosters and goodbyes while there is room.
    fn flush(&self, state: &mut State) {
        // If the membership has ended, the thread learns it by receiving.
        state.layer.send_next(|message, safe| matches!(self.send(message, safe), Ok(true)));
    }

    fn run(&self, desk: Desk) {
        // After a bug, no call may wait for this thread.
        let why = catch_unwind(AssertUnwindSafe(|| self.serve(&desk))).unwrap_or(Err(Lost));
        drop(desk);
        let ordered = self.ordered.write().unwrap_or_else(PoisonError::into_inner).take();
        if why.is_err() {
            self.inbox.end(End::Failed);
        }
        // Agreement with the others takes time; for them the process is not a member since its goodbye.
        if let Some(ordered) = ordered
            && why.is_ok()
        {
            let _ = ordered.leave();
        }
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// Serves the group until the process has left (`Ok`) or the transport has ended.
    fn serve(&self, desk: &Desk) -> Result<(), Lost> {
        loop {
            let room = self.inbox.has_room(&self.waker);
            let more = room && self.receive()?;
            let mut state = lock(&self.state);
            self.flush(&mut state);
            let retry = state.layer.has_to_send();
            if let Some((_, since)) = state.leaving
                && (since.elapsed() >= GOODBYE_LIMIT || !state.layer.is_joined())
            {
                if !state.layer.has_left() {
                    state.layer.force_left();
                    self.deliver(&mut state);
                }
                return Ok(());
            }
            let (leaving, joined) = (state.leaving.is_some(), state.layer.is_joined());
            drop(state);
            if joined {
                desk.answer(&self.name);
            }
            if !more {
                let limit = if retry { Some(RETRY) } else { leaving.then_some(GOODBYE_LIMIT / 10) };
                self.sleep(joined.then_some(desk), room, limit);
            }
        }
    }

    /// Takes events of the ordered group; returns whether there are more.
    fn receive(&self) -> Result<bool, Lost> {
        let ordered = self.ordered.read().unwrap_or_else(PoisonError::into_inner);
        let Some(ordered) = &*ordered else { return Ok(false) };
        for _ in 0..BATCH {
            let incoming = match ordered.receive_within(Duration::ZERO) {
                Ok(incoming) => incoming,
                Err(error) if error.is_would_block() => return Ok(false),
                Err(error) => {
                    if let Error::Ordered { why: OrderedError::Ended(Ended::Transport(_)), .. } = &error {
                        node::forget();
                    }
                    return Err(Lost);
                }
            };
            let mut state = lock(&self.state);
            let fits = match incoming {
                Incoming::Message(message) => {
                    state.layer.message(message.from.port, message.view, message.data)
                }
                Incoming::View(view) => {
                    state.layer.view(&view, |node| self.is_up(node));
                    true
                }
                _ => true,
            };
            if !fits {
                return Err(Lost);
            }
            self.deliver(&mut state);
        }
        Ok(true)
    }

    /// Moves events to the inbox.
    fn deliver(&self, state: &mut State) {
        while let Some(event) = state.layer.next_event() {
            self.inbox.push(&self.name, event);
        }
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn is_up(&self, node: u32) -> bool {
        node == self.node.address().0 || self.node.peers().iter().any(|peer| peer.addr.0 == node && peer.up)
    }

    /// Sleeps until something happens.
    fn sleep(&self, desk: Option<&Desk>, room: bool, limit: Option<Duration>) {
        let ordered = self.ordered.read().unwrap_or_else(PoisonError::into_inner);
        let mut watched = vec![PollFd::new(&self.waker, PollFlags::IN)];
        if let Some(desk) = desk.and_then(Desk::descriptor) {
            watched.push(PollFd::from_borrowed_fd(desk, PollFlags::IN));
        }
        if let Some(ordered) = ordered.as_ref().filter(|_| room) {
            watched.push(PollFd::from_borrowed_fd(ordered.as_fd(), PollFlags::IN));
        }
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        // An interrupted wait counts as a turn.
        let _ = poll(&mut watched, limit.as_ref());
        self.waker.drain();
    }
}
