//! Sockets that a program holds by a descriptor of its own, which it may duplicate, pass to other processes or keep
//! over an exec. Such a socket lives until the last copy is closed. Decision 13, docs/spec/attach.md §9.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, Reply, Request};
use utipc_core::socket::SocketKind;
use utipc_os::packets;

use crate::attachment::Attachment;
use crate::descriptor::Descriptor;
use crate::{Error, Node, Socket};

/// The version from which on a daemon knows such sockets.
const PASSES: u16 = 3;

/// Whether a descriptor of unknown origin may stand for a socket that [`Node::claim`] takes.
#[must_use]
pub fn may_be_claimed(fd: impl AsFd) -> bool {
    packets::is_marked(fd)
}

impl Node {
    /// Claims the socket that a descriptor from another process, or from before an exec, stands for. `number` is the
    /// number of its descriptor from now on.
    ///
    /// # Errors
    /// [`Failure::NoSocket`] if it stands for no socket, or not any more.
    pub fn claim(&self, number: RawFd, fd: impl AsFd) -> Result<Socket, Error> {
        let attachment = self.living()?;
        let inode = packets::inode(&fd)?;
        let port =
            attachment.call_with(
                &Request::Claim { inode, nonce: 0 },
                &[fd.as_fd()],
                |reply, _| match reply {
                    Reply::Claimed { port } => Some(port),
                    _ => None,
                },
            )?;
        let look = Request::Look { port };
        let kind = attachment.call(&look, &[], |reply, _| match reply {
            Reply::Socket(view) => Some(view.kind),
            _ => None,
        })?;
        let socket = Socket::new(attachment, port, kind, true, self.mode());
        socket.state.hosted.store(true, Relaxed);
        socket.state.has_other_holders.store(true, Relaxed);
        socket.renumber(Some(number));
        // If this process is the sole holder, it gets the data path.
        socket.attachment.unshare(&socket.state)?;
        Ok(socket)
    }

    /// Opens a socket that lives as long as a copy of the descriptor does; see [`Socket::keep`].
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_kept(&self, kind: SocketKind) -> Result<(Socket, OwnedFd), Error> {
        let socket = self.open(kind)?;
        let near = socket.keep()?;
        Ok((socket, near))
    }
}

impl Attachment {
    pub(crate) fn passes(&self) -> bool {
        self.version() >= PASSES
    }
}

impl Socket {
    /// The descriptor that stands for this socket, for the program to own. The socket lives until the last copy of it
    /// is closed, in any process, and this value is dropped. The caller sets its number by [`Socket::renumber`].
    ///
    /// # Errors
    /// [`Failure::Limit`]; [`Failure::State`] if the daemon is of an older release.
    pub fn keep(&self) -> Result<OwnedFd, Error> {
        if !self.attachment.passes() {
            return Err(Failure::State.into());
        }
        self.fetch_near(&Request::Keep { port: self.port() })
    }

    /// Sets the number of the program's descriptor. `None`: the program is about to close its last copy, which is not
    /// used any more when this returns.
    pub fn renumber(&self, number: Option<RawFd>) {
        if let Some(inherited) = self.inherited.get() {
            return inherited.renumber(number);
        }
        match (self.descriptor.get(), number) {
            (Some(descriptor), number) => descriptor.renumber(number, self.attachment.is_own()),
            (None, Some(number)) => drop(self.descriptor.set(Descriptor::lent(number))),
            (None, None) => {}
        }
    }

    /// Call it before the program polls its descriptor: from now on its level is the readiness of the socket.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn begin_polling(&self) -> Result<(), Error> {
        let Some(descriptor) = self.descriptor.get().filter(|descriptor| !descriptor.is_polled()) else {
            return Ok(());
        };
        let receiver = self.receiver_to_poll()?;
        if descriptor.is_polled() {
            return Ok(());
        }
        self.keep_level(receiver, descriptor)?;
        self.note_full_node()
    }

    /// Call it before the descriptor is passed to another process, which may use it at any time: all messages go by the
    /// daemon until this process is the sole holder again.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn before_passing(&self) -> Result<(), Error> {
        self.attachment.host_while_shared(&self.state)
    }

    /// Sets whether a signal whose handler was installed without `SA_RESTART` ends a call that waits, with
    /// [`Error::Interrupted`].
    pub fn set_interruptible(&self, interruptible: bool) {
        self.state.interruptible.store(interruptible, Relaxed);
    }

    /// Whether other processes may hold the socket too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.state.has_other_holders.load(Relaxed)
    }

    /// Kind.
    #[must_use]
    pub fn socket_kind(&self) -> SocketKind {
        self.state.kind
    }
}
