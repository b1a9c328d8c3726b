//! What the threads that use a socket share: its two halves, and letters about its lanes.
//!
//! Notices come with whatever reply is next, in whatever thread; that thread only puts them into the letter boxes of the
//! sockets that they concern. Whoever next has the half of a socket in hand does what the letters say. So no lock is
//! ever waited for while the connection to the daemon is held.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex};

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::addr::{Importance, NodeAddr, ServiceRange};
use utipc_core::socket::{Received, SocketKind};
use utipc_os::spin::{Mode, Spin};

use crate::attachment::lock;
use crate::lanes::head::Style;
use crate::lanes::pair::ReadyBox;
use crate::lanes::receive::Receiver;
use crate::lanes::send::Sender;

/// Own messages that wait to come back, at most.
const RETURNED_MAX: usize = 1024;

/// What has happened to one half of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Letter {
    /// The node has something for it.
    Ready,
    /// A lane to or from the socket `other`, which is on another node if that is given.
    Lane { other: u32, node: Option<NodeAddr>, lane: LaneId },
    /// The lane's other end is gone.
    Over(LaneId),
}

/// Letters to one half of a socket. Each is about a lane, of which the daemon bounds the number, or says what one says
/// as well as many.
#[derive(Debug, Default)]
pub(crate) struct LetterBox {
    letters: Mutex<Vec<Letter>>,
    some: AtomicBool,
}

impl LetterBox {
    pub(crate) fn put(&self, letter: Letter) {
        let mut letters = lock(&self.letters);
        let again = matches!(letter, Letter::Ready) && letters.iter().any(|l| matches!(l, Letter::Ready));
        if !again {
            letters.push(letter);
        }
        self.some.store(true, Release);
    }

    /// Lanes that there were are no more.
    pub(crate) fn forget_lanes(&self) {
        lock(&self.letters).retain(|letter| !matches!(letter, Letter::Lane { .. }));
    }

    /// There is something beside letters.
    fn announce(&self) {
        self.some.store(true, Release);
    }

    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Acquire)
    }

    pub(crate) fn take(&self) -> Vec<Letter> {
        let mut letters = lock(&self.letters);
        self.some.store(false, Release);
        core::mem::take(&mut *letters)
    }
}

/// Half of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Receive = 1,
    Send = 2,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) port: u32,
    pub(crate) kind: SocketKind,
    pub(crate) receiver: Mutex<Receiver>,
    pub(crate) sender: Mutex<Sender>,
    pub(crate) to_receiver: LetterBox,
    pub(crate) to_sender: LetterBox,
    pub(crate) ready: Arc<ReadyBox>,
    /// How threads wait; one at a time looks before it sleeps.
    pub(crate) receive_spin: Mutex<Spin>,
    pub(crate) send_spin: Mutex<Spin>,
    style: AtomicU32,
    /// The half whose last call had to wait, or 0.
    waited: AtomicU8,
    /// Own messages that came back without leaving this process, for the receiver.
    returned: Mutex<Vec<Received>>,
    /// The service by which this process has connected it.
    pub(crate) service: Mutex<Option<ServiceRange>>,
    /// It takes lanes no more: all of its messages go by the node.
    pub(crate) hosted: AtomicBool,
    /// It is so only as long as another process holds it too.
    pub(crate) shared: AtomicBool,
    /// A signal ends a call that waits.
    pub(crate) interruptible: AtomicBool,
    /// It was made for a connection request: the node knows its importance and service.
    pub(crate) accepted: bool,
}

impl Shared {
    pub(crate) fn new(port: u32, kind: SocketKind, accepted: bool, mode: Mode) -> Self {
        let shared = Self {
            port,
            kind,
            receiver: Mutex::new(Receiver::new()),
            sender: Mutex::default(),
            to_receiver: LetterBox::default(),
            to_sender: LetterBox::default(),
            ready: Arc::default(),
            receive_spin: Mutex::new(Spin::new(mode)),
            send_spin: Mutex::new(Spin::new(mode)),
            style: AtomicU32::new(0),
            waited: AtomicU8::new(0),
            returned: Mutex::default(),
            service: Mutex::default(),
            hosted: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            interruptible: AtomicBool::new(false),
            accepted,
        };
        shared.set_style(Style::new(kind));
        shared
    }

    /// The same socket in a child that was forked: nothing is taken over but what no lock of the parent guards.
    pub(crate) fn inherited(&self) -> Self {
        // A thread that waited in the parent may have it.
        let mode = self.receive_spin.try_lock().map_or(Mode::Adaptive, |spin| spin.mode());
        let heir = Self::new(self.port, self.kind, true, mode);
        heir.set_style(self.style());
        heir.interruptible.store(self.interruptible.load(Relaxed), Relaxed);
        heir.hosted.store(true, Relaxed);
        heir.shared.store(!self.hosted.load(Relaxed) || self.shared.load(Relaxed), Relaxed);
        heir
    }

    /// Puts a notice into the boxes of those whom it concerns.
    pub(crate) fn note(&self, notice: Notice) {
        let of = |end| if end == LaneEnd::Reader { &self.to_receiver } else { &self.to_sender };
        match notice {
            Notice::Readiness { .. } => self.to_receiver.put(Letter::Ready),
            Notice::Lane { other, lane, end, .. } => of(end).put(Letter::Lane { other, node: None, lane }),
            Notice::NodeLane { peer, lane, end, .. } => {
                of(end).put(Letter::Lane { other: peer.port, node: Some(peer.node), lane });
            }
            Notice::LaneOver { lane, end, .. } => of(end).put(Letter::Over(lane)),
            _ => {}
        }
    }

    /// A message comes back; a bounded number waits.
    pub(crate) fn give_back(&self, returned: Received) {
        let mut waiting = lock(&self.returned);
        if waiting.len() < RETURNED_MAX {
            waiting.push(returned);
        }
        drop(waiting);
        self.to_receiver.announce();
    }

    pub(crate) fn take_returned(&self) -> Vec<Received> {
        core::mem::take(&mut *lock(&self.returned))
    }

    pub(crate) fn style(&self) -> Style {
        let bits = self.style.load(Relaxed);
        Style {
            importance: Importance::from_number(bits & 3).unwrap_or(Importance::Low),
            source_droppable: bits & 4 != 0,
            dest_droppable: bits & 8 != 0,
        }
    }

    pub(crate) fn set_style(&self, style: Style) {
        let bits = style.importance as u32
            | u32::from(style.source_droppable) << 2
            | u32::from(style.dest_droppable) << 3;
        self.style.store(bits, Relaxed);
    }

    /// Notes that a call on this half has to wait, or that it has not.
    pub(crate) fn set_waits(&self, half: Half, waits: bool) {
        let now = self.waited.load(Relaxed);
        if waits {
            self.waited.store(half as u8, Relaxed);
        } else if now == half as u8 {
            self.waited.store(0, Relaxed);
        }
    }

    pub(crate) fn waits(&self, half: Half) -> bool {
        self.waited.load(Relaxed) == half as u8
    }
}
