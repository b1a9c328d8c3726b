//! [`Node`]: a handle on the daemon's node.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use utipc_attach::{ProcessCall, Reply, Request};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};
use utipc_core::socket::SocketKind;
use utipc_os::spin::Mode;
use utipc_os::{Left, fork, lock};

use crate::attachment::Attachment;
use crate::fork::attachments;
use crate::overdue::PAUSE;
use crate::{Error, Place, Socket, Wait};

/// Pauses between tries to find the next daemon after one has died; a service manager restarts it within about their
/// sum.
const DAEMON_BACKOFF: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(5), ms(10), ms(25), ms(50), ms(100), ms(250), ms(500)]
};

/// Pause before the second question about a barrier. Ours: a round trip on a fast network.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause between two such questions. Ours: as often as the node asks its peers.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A handle on the node of a daemon; clones share one attachment.
#[derive(Clone, Debug)]
pub struct Node {
    place: Arc<Place>,
    /// The attachment that this handle was made with. While it lives, lookups take no lock.
    first: Arc<Attachment>,
    /// The current attachment; replaced when a socket is opened after the daemon has died.
    attachment: Arc<Mutex<Arc<Attachment>>>,
    /// Whether and how calls of its sockets spin.
    mode: Mode,
    /// Whether its connectionless sockets and its listeners resume after the daemon's death.
    resumes: bool,
    /// The process that made the handle, see [`fork::generation`].
    generation: u32,
    /// In a forked child: the node as the child has it. Set only while forks are locked out.
    inherited: Arc<OnceLock<Box<Node>>>,
}

impl Node {
    /// Attaches this process to the daemon at `place`; `mode` says whether and how calls of its sockets spin.
    ///
    /// # Errors
    /// [`Error::Absent`] if no daemon listens there, [`Error::Refused`].
    pub fn attach(place: Place, mode: Mode) -> Result<Self, Error> {
        let attachment = find(&place)?;
        Ok(Self::with(Arc::new(place), attachment, mode))
    }

    fn with(place: Arc<Place>, attachment: Arc<Attachment>, mode: Mode) -> Self {
        let first = Arc::clone(&attachment);
        let attachment = Arc::new(Mutex::new(attachment));
        Self {
            place,
            first,
            attachment,
            mode,
            resumes: false,
            generation: fork::generation(),
            inherited: Arc::default(),
        }
    }

    /// Sets whether connectionless sockets and listeners that are opened from now on attach to the next daemon when
    /// theirs dies.
    #[must_use]
    pub fn resuming(mut self, resumes: bool) -> Self {
        self.resumes = resumes;
        self
    }

    /// The handle that this process may use: `self`, except in a forked child, which attaches on its own. It takes no
    /// lock of the parent: a thread that exists only in the parent may hold it.
    fn live(&self) -> Result<&Self, Error> {
        if self.generation == fork::generation() {
            return Ok(self);
        }
        if let Some(inherited) = self.inherited.get() {
            return inherited.live();
        }
        let mut locked = attachments();
        let olds = locked.inherited();
        let same = olds.iter().rev().find(|old| self.place.paths().iter().any(|path| path == old.path()));
        let attachment = match same.map(|old| old.claim(&mut locked)) {
            Some(Ok(attachment)) => attachment,
            // The parent's daemon has died: look for the next one.
            Some(Err(_)) | None => {
                drop(locked);
                let attachment = find(&self.place)?;
                locked = attachments();
                attachment
            }
        };
        let resumes = self.resumes;
        let inherited =
            || Box::new(Self::with(Arc::clone(&self.place), attachment, self.mode).resuming(resumes));
        let inherited = self.inherited.get_or_init(inherited);
        drop(locked);
        Ok(inherited)
    }

    /// Whether and how calls of its sockets spin.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The current attachment, whether or not its daemon lives.
    fn current(&self) -> Result<Arc<Attachment>, Error> {
        Ok(Arc::clone(&lock(&self.live()?.attachment)))
    }

    /// An attachment to a living daemon: if the current one has died, to the next.
    pub(crate) fn living(&self) -> Result<Arc<Attachment>, Error> {
        self.live()?.own_living()
    }

    fn own_living(&self) -> Result<Arc<Attachment>, Error> {
        let mut attachment = lock(&self.attachment);
        let mut pauses = DAEMON_BACKOFF.iter();
        while attachment.is_over() {
            match find(&self.place) {
                Ok(next) => *attachment = next,
                Err(error) if error.is_absent() => match pauses.next() {
                    Some(pause) => std::thread::sleep(*pause),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::clone(&attachment))
    }

    /// Opens a socket. If the daemon has died, attaches to the next one, for which it waits about a second.
    ///
    /// # Errors
    /// [`crate::Failure::Limit`], [`crate::Failure::NotAllowed`], [`Error::Absent`].
    pub fn open(&self, kind: SocketKind) -> Result<Socket, Error> {
        loop {
            let attachment = self.living()?;
            if attachment.has_tasks() {
                // If the daemon has died, the request below fails too.
                let _ = attachment.fetch_notices();
            }
            match self.open_on(&attachment, kind) {
                // The daemon has just died: look for the next one.
                Err(Error::Died(_)) => {}
                opened => {
                    return opened.map(|socket| if self.resumes { socket.resuming(self) } else { socket });
                }
            }
        }
    }

    /// Opens a socket at this daemon.
    pub(crate) fn open_on(&self, attachment: &Arc<Attachment>, kind: SocketKind) -> Result<Socket, Error> {
        let port =
            attachment.call(&Request::Process(ProcessCall::Open { kind }), &[], |reply, _| match reply {
                Reply::Opened { port } => Some(port),
                _ => None,
            })?;
        Ok(Socket::new(Arc::clone(attachment), port, kind, false, self.mode))
    }

    /// Address of the node as last reported.
    #[must_use]
    pub fn address(&self) -> NodeAddr {
        self.current().map_or(NodeAddr::NONE, |attachment| attachment.address())
    }

    /// Waits until the node's address is final; `None` if `wait` ends before.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn wait_for_address(&self, wait: Wait) -> Result<Option<NodeAddr>, Error> {
        let attachment = self.living()?;
        let end = wait.start();
        loop {
            let address = attachment.address();
            if !address.is_none() {
                return Ok(Some(address));
            }
            let sleeper = attachment.bell().park();
            // The notice of the address comes with the reply, or rings the doorbell.
            match attachment.request(&Request::Process(ProcessCall::Notices), &[]) {
                Err(Error::Silent(_)) if end.left() != Left::Nothing => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                done => done?,
            }
            if !attachment.address().is_none() {
                continue;
            }
            match end.left() {
                Left::Nothing => return Ok(None),
                Left::Time(limit) => drop(sleeper.sleep(&[], limit)?),
            }
        }
    }

    /// Waits until all peers have the bindings of this node. Returns the peers that do not have them when `wait` is
    /// over, at most the first 64; none if all have.
    ///
    /// # Errors
    /// [`crate::Failure::Limit`] if this process waits for too many barriers; [`Error::Died`].
    pub fn barrier(&self, wait: Wait) -> Result<Vec<NodeAddr>, Error> {
        let attachment = self.living()?;
        let end = wait.start();
        let (mut known, mut pause) = (None, FIRST_PAUSE);
        loop {
            let last = end.left() == Left::Nothing;
            let (number, awaited) = attachment.call(
                &Request::Process(ProcessCall::Barrier { number: known, last }),
                &[],
                |reply, _| match reply {
                    Reply::Awaited { number, nodes } => Some((number, nodes)),
                    _ => None,
                },
            )?;
            if last || awaited.is_empty() {
                return Ok(awaited);
            }
            known = Some(number);
            std::thread::sleep(match end.left() {
                Left::Nothing => Duration::ZERO,
                Left::Time(left) => pause.min(left.unwrap_or(pause)),
            });
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Looks up the socket to which the next message to a service address would go.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn lookup(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<PortId>, Error> {
        if self.first.is_own() && !self.first.is_over() {
            return self.first.lookup(to, domain);
        }
        self.current()?.lookup(to, domain)
    }

    /// Sends one netlink request of the family TIPCv2 to the node; returns the netlink messages of all parts of the
    /// reply. A refusal is an error message among them.
    ///
    /// # Errors
    /// [`Error::Died`]; [`crate::Failure::State`] if `request` is not a netlink message.
    pub fn manage(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        self.manage_some(request, usize::MAX).map(|(reply, _)| reply)
    }

    /// As [`Node::manage`], but requests no further part of a list once it has `most` bytes; also returns whether the
    /// list is complete.
    ///
    /// # Errors
    /// As [`Node::manage`].
    pub fn manage_some(&self, request: &[u8], most: usize) -> Result<(Vec<u8>, bool), Error> {
        let attachment = self.current()?;
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let next = attachment.call(&Request::Manage { from }, request, |reply, extra| match reply {
                Reply::Managed { next } => {
                    all.extend_from_slice(extra.payload);
                    Some(next)
                }
                _ => None,
            })?;
            match next.filter(|next| *next > from) {
                Some(_) if all.len() >= most => return Ok((all, false)),
                Some(next) => from = next,
                None => return Ok((all, true)),
            }
        }
    }

    /// Sends one request as [`Node::manage`], and returns the descriptor that comes with the reply too.
    ///
    /// # Errors
    /// As [`Node::manage`].
    pub fn manage_with_descriptor(&self, request: &[u8]) -> Result<(Vec<u8>, Option<OwnedFd>), Error> {
        self.current()?.call(&Request::Manage { from: 0 }, request, |reply, extra| {
            matches!(reply, Reply::Managed { .. }).then(|| (extra.payload.to_vec(), extra.fds.pop()))
        })
    }
}

/// Attaches to the first daemon of `place` that answers.
fn find(place: &Place) -> Result<Arc<Attachment>, Error> {
    for path in place.paths() {
        if let Some(attachment) = crate::fork::attach(path)? {
            return Ok(attachment);
        }
    }
    Err(Error::Absent(place.paths().to_vec()))
}
