//! Sockets whose descriptor the program owns: it may duplicate it, pass it to other processes or keep it over an exec.
//! Such a socket lives until the last copy is closed. Decision 13, docs/spec/attach.md §9.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{ProcessCall, Reply, Request, SocketCall};
use utipc_core::socket::SocketKind;
use utipc_os::{lock, packets};

use crate::descriptor::Descriptor;
use crate::{Error, Node, Socket};

/// Whether a descriptor of unknown origin may be that of a socket, so that [`Node::claim`] is worth a try.
#[must_use]
pub fn may_be_claimed(fd: impl AsFd) -> bool {
    packets::is_marked(fd)
}

impl Node {
    /// Claims the socket of a descriptor that came from another process or was kept over an exec. From now on the
    /// program's descriptor of this socket has the number `number`.
    ///
    /// # Errors
    /// [`utipc_attach::Failure::NoSocket`] if it is not the descriptor of a socket, or the socket has ended.
    pub fn claim(&self, number: RawFd, fd: impl AsFd) -> Result<Socket, Error> {
        let attachment = self.living()?;
        let port = attachment.call_with(
            &Request::Process(ProcessCall::Claim),
            &[fd.as_fd()],
            |reply, _| match reply {
                Reply::Claimed { port } => Some(port),
                _ => None,
            },
        )?;
        let look = SocketCall::Look.on(port);
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

    /// Opens a socket that lives until the last copy of its descriptor is closed; see [`Socket::keep`].
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_kept(&self, kind: SocketKind) -> Result<(Socket, OwnedFd), Error> {
        let socket = self.open(kind)?;
        let near = socket.keep()?;
        Ok((socket, near))
    }
}

impl Socket {
    /// Fetches the descriptor of this socket, for the program to own. The socket lives until the last copy of it is
    /// closed, in any process, and this value is dropped. The caller sets its number with [`Socket::renumber`].
    ///
    /// # Errors
    /// [`utipc_attach::Failure::Limit`].
    pub fn keep(&self) -> Result<OwnedFd, Error> {
        let near = self.fetch_near(&SocketCall::Keep.on(self.port()))?;
        self.keep_far_end();
        Ok(near)
    }

    /// Sets the number of the program's descriptor. `None`: the program is about to close its last copy; this library
    /// does not use it after the return.
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

    /// Makes the level of the program's descriptor follow the readiness of the socket. Call it before the first poll.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn begin_polling(&self) -> Result<(), Error> {
        let Some(descriptor) = self.descriptor.get().filter(|descriptor| !descriptor.is_polled()) else {
            return Ok(());
        };
        let receiver = lock(&self.state.receiver);
        if descriptor.is_polled() {
            return Ok(());
        }
        self.keep_level(receiver, descriptor)?;
        self.note_full_node()
    }

    /// Makes the socket hosted until this process is its sole holder again. Call it before the descriptor is passed to
    /// another process, which may use it at any time.
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

    /// Kind of the socket.
    #[must_use]
    pub fn socket_kind(&self) -> SocketKind {
        self.state.kind
    }
}
