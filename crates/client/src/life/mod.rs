//! The life of a socket's handle: in a forked child, and with the next daemon after the death of its own, it leads to
//! another one.

pub(crate) mod record;
pub(crate) mod resume;

use std::sync::{Arc, OnceLock};

use utipc_attach::Failure;
use utipc_os::Wait;

use crate::attachment::resuming::Resume;
use crate::attachment::{Attachment, fork};
use crate::base::Base;
use crate::error::Error;
use crate::life::record::Record;
use crate::life::resume::{Resumable, Resumption, Waited};
use crate::ready::Readiness;

/// A handle on a socket.
pub(crate) trait Handle: Resumable {
    fn life(&self) -> &Life<Self>;

    fn readiness(&self) -> &Readiness;

    /// The same socket as a forked child holds it.
    fn inherited(&self, own: Arc<Attachment>) -> Self;
}

/// The life of one handle.
#[derive(Debug)]
pub(crate) struct Life<S> {
    base: Base,
    /// Set if it attaches to the next daemon when its own dies.
    resumption: Option<Arc<Resumption<S>>>,
    /// In a forked child: the same socket as the child holds it. Set only while forks are locked out.
    inherited: OnceLock<Box<S>>,
}

impl<S: Handle> Life<S> {
    pub(crate) fn new(base: Base, resumption: Option<Arc<Resumption<S>>>) -> Self {
        Self { base, resumption, inherited: OnceLock::new() }
    }

    /// Whether the handle leads to no other one.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.base.attachment.is_own() && self.resumption.is_none()
    }

    /// Whether calls have to be made by [`Life::across_restarts`].
    #[inline]
    pub(crate) fn may_resume(&self) -> bool {
        self.resumption.is_some()
    }

    /// Whether the socket keeps its descriptor when its daemon dies.
    pub(crate) fn resumes(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.resumes())
    }

    pub(crate) fn resumption(&self) -> Option<&Resumption<S>> {
        self.resumption.as_deref()
    }

    /// The socket that has taken the place of this one, if any.
    pub(crate) fn next(&self) -> Option<&S> {
        self.resumption.as_ref().and_then(|resumption| resumption.next())
    }

    /// The socket in a forked child that has used it.
    pub(crate) fn child(&self) -> Option<&S> {
        self.inherited.get().map(|inherited| &**inherited)
    }

    /// Records a state that the program has given to the socket, for the next daemon.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Record)) {
        if let Some(resumption) = &self.resumption {
            resumption.note(change);
        }
    }

    /// The handle that this process may use.
    #[cold]
    pub(crate) fn current(socket: &S) -> Result<&S, Error> {
        let life = socket.life();
        match life.next() {
            Some(next) => Self::current(next),
            None if life.base.attachment.is_own() => Ok(socket),
            None => Self::in_child(socket, true),
        }
    }

    /// The socket in a forked child, claimed at the first call. `used`: the child is going to use it, not only to close
    /// it.
    #[cold]
    pub(crate) fn in_child(socket: &S, used: bool) -> Result<&S, Error> {
        let Self { base: Base { attachment, .. }, inherited, .. } = socket.life();
        if let Some(inherited) = inherited.get() {
            return Self::current(inherited);
        }
        let not_shared = || Error::NotShared(attachment.connection.path().to_owned());
        let mut attachments = fork::attachments();
        if !attachment.has_inheritance() {
            return Err(not_shared());
        }
        let own = attachment.claim(&mut attachments)?;
        let inherited = inherited.get_or_init(|| Box::new(socket.inherited(own)));
        drop(attachments);
        let Base { attachment, state } = &inherited.life().base;
        match inherited.life().base.look() {
            Err(Error::Failed(Failure::NoSocket(_))) => return Err(not_shared()),
            looked => looked?,
        };
        if used {
            // If the parent closed it before the claim, this process has got no notice that it is sole holder.
            attachment.unshare(state)?;
        }
        Ok(inherited)
    }

    /// Calls `call`, which sends, receives or accepts, with the current handle. If the daemon dies meanwhile, waits for
    /// the next one.
    #[cold]
    pub(crate) fn across_restarts<T>(
        socket: &S,
        wait: Wait,
        mut call: impl FnMut(&S) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        loop {
            let mut socket = socket;
            while let Some(next) = socket.life().next() {
                socket = next;
            }
            let Some(resumption) = socket.life().resumption() else { return call(socket) };
            if let Some(notice) = resumption.take_notice() {
                // The byte that announced the notice must not hide the first message from a program that waits for
                // edges.
                let _ = socket.readiness().after_receive(false, true);
                return Err(notice);
            }
            match call(socket) {
                Err(Error::Died(path)) if resumption.resumes() => match resumption.wait(wait) {
                    Waited::Resumed => {}
                    Waited::TimedOut => return Ok(None),
                    Waited::GaveUp => return Err(Error::Died(path)),
                },
                done => return done,
            }
        }
    }
}
