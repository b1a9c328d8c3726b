//! [`Node`]: a handle on the daemon's node.

use std::os::fd::OwnedFd;
use std::time::Duration;

use utipc_attach::{ProcessCall, Reply, Request};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};
use utipc_core::socket::SocketKind;
use utipc_os::spin::Mode;
use utipc_os::{Left, Wait};

use crate::attacher::Attacher;
use crate::attachment::connection::PAUSE;
use crate::base::Base;
use crate::error::Error;
use crate::place::Place;
use crate::ready::descriptor::Ends;
use crate::socket::Socket;

/// Pause before the second question about a barrier. Ours: a round trip on a fast network.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause between two such questions. Ours: as often as the node asks its peers.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A handle on the node of a daemon; clones share one attachment.
#[derive(Clone, Debug)]
pub struct Node {
    attacher: Attacher,
    /// Whether and how calls of its sockets spin.
    mode: Mode,
    /// Whether its connectionless sockets and its listeners resume after the daemon's death.
    resumes: bool,
}

impl Node {
    /// Attaches this process to the daemon at `place`; `mode` says whether and how calls of its sockets spin.
    ///
    /// # Errors
    /// [`Error::Absent`] if no daemon listens there, [`Error::Refused`].
    pub fn attach(place: Place, mode: Mode) -> Result<Self, Error> {
        Ok(Self { attacher: Attacher::attach(place)?, mode, resumes: false })
    }

    /// Sets whether connectionless sockets and listeners that are opened from now on attach to the next daemon when
    /// theirs dies.
    #[must_use]
    pub fn resuming(mut self, resumes: bool) -> Self {
        self.resumes = resumes;
        self
    }

    pub(crate) fn attacher(&self) -> &Attacher {
        &self.attacher
    }

    /// Whether and how calls of its sockets spin.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Opens a socket. If the daemon has died, attaches to the next one, for which it waits about a second.
    ///
    /// # Errors
    /// [`crate::Failure::Limit`], [`crate::Failure::NotAllowed`], [`Error::Absent`].
    pub fn open(&self, kind: SocketKind) -> Result<Socket, Error> {
        loop {
            let attachment = self.attacher.living()?;
            if attachment.notices.has_tasks() {
                // If the daemon has died, the request below fails too.
                let _ = attachment.fetch_notices();
            }
            let base = match Base::open(&attachment, kind, self.mode) {
                // The daemon has just died: look for the next one.
                Err(Error::Died(_)) => continue,
                opened => opened?,
            };
            return Ok(if self.resumes {
                Socket::resuming(base, Ends::default().into(), &self.attacher, self.mode)
            } else {
                Socket::new(base)
            });
        }
    }

    /// Address of the node as last reported.
    #[must_use]
    pub fn address(&self) -> NodeAddr {
        self.attacher.current().map_or(NodeAddr::NONE, |attachment| attachment.address())
    }

    /// Waits until the node's address is final; `None` if `wait` ends before.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn wait_for_address(&self, wait: Wait) -> Result<Option<NodeAddr>, Error> {
        let attachment = self.attacher.living()?;
        let end = wait.start();
        loop {
            let address = attachment.address();
            if !address.is_none() {
                return Ok(Some(address));
            }
            let sleeper = attachment.connection.bell().park();
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
        let attachment = self.attacher.living()?;
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
        match self.attacher.first() {
            Some(first) => first.lookup(to, domain),
            None => self.attacher.current()?.lookup(to, domain),
        }
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
        let attachment = self.attacher.current()?;
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
        self.attacher.current()?.call(&Request::Manage { from: 0 }, request, |reply, extra| {
            matches!(reply, Reply::Managed { .. }).then(|| (extra.payload.to_vec(), extra.fds.pop()))
        })
    }
}
