//! Sockets that a program holds by a descriptor of its own: it may give it other numbers, pass it to other processes, keep
//! it over an exec. Such a socket lives until the last copy is closed. DESIGN L1, docs/spec/attach.md §9.

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

/// Whether a descriptor of unknown origin is that of a socket which [`Node::claim`] may take.
#[must_use]
pub fn may_be_claimed(fd: impl AsFd) -> bool {
    packets::is_marked(fd)
}

impl Node {
    /// The socket that a descriptor from another process, or from before an exec, stands for; its descriptor is `number` from
    /// now on.
    ///
    /// # Errors
    /// [`Failure::NoSocket`] if it stands for none (any more).
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
        socket.shared.hosted.store(true, Relaxed);
        socket.shared.shared.store(true, Relaxed);
        socket.renumber(Some(number));
        // If nobody else has it, its data path is this process's.
        socket.attachment.unshare(&socket.shared)?;
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
    /// The descriptor that stands for this socket, for the program to own: the socket lives until the last copy of it is
    /// closed, in whatever process, and this value is dropped. The caller says by [`Socket::renumber`] which number it has.
    ///
    /// # Errors
    /// [`Failure::Limit`]; [`Failure::State`] if the daemon is of an older release.
    pub fn keep(&self) -> Result<OwnedFd, Error> {
        if !self.attachment.passes() {
            return Err(Failure::State.into());
        }
        self.fetch_near(&Request::Keep { port: self.port() })
    }

    /// The number that the program's descriptor has from now on. With `None` the program is about to close its last one; it is
    /// not used any more when this returns.
    pub fn renumber(&self, number: Option<RawFd>) {
        if let Some(heir) = self.heir.get() {
            return heir.renumber(number);
        }
        match (self.descriptor.get(), number) {
            (Some(descriptor), number) => descriptor.renumber(number, self.attachment.is_own()),
            (None, Some(number)) => drop(self.descriptor.set(Descriptor::lent(number))),
            (None, None) => {}
        }
    }

    /// The program is about to poll its descriptor: from now on its level is the readiness of the socket.
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
        self.was_filled()
    }

    /// The descriptor is about to be passed to another process, which may use it at any time: its data path goes by the
    /// daemon until this process is the only one again.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn before_passing(&self) -> Result<(), Error> {
        self.attachment.host_while_shared(&self.shared)
    }

    /// Whether a signal that is handled while a call waits ends it, with [`Error::Interrupted`], if its handler wants that.
    pub fn set_interruptible(&self, interruptible: bool) {
        self.shared.interruptible.store(interruptible, Relaxed);
    }

    /// Whether other processes may hold it too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared.shared.load(Relaxed)
    }

    /// Kind.
    #[must_use]
    pub fn socket_kind(&self) -> SocketKind {
        self.shared.kind
    }
}
