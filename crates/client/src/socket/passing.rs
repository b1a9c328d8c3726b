//! Sockets whose descriptor the program owns: it may duplicate it, pass it to other processes or keep it over an exec.
//! Such a socket lives until the last copy is closed. Decision 13, docs/spec/attach.md §9.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use utipc_attach::{ProcessCall, Reply, Request, SocketCall};
use utipc_core::socket::SocketKind;
use utipc_os::packets;

use crate::base::Base;
use crate::error::Error;
use crate::node::Node;
use crate::socket::Socket;
use crate::state::SocketState;

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
        let attachment = self.attacher().living()?;
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
        let state = SocketState::new(port, kind, true, self.mode());
        state.hosted.set(true);
        state.has_other_holders.set(true);
        let socket = Socket::new(Base::new(attachment, state));
        socket.renumber(Some(number));
        // If this process is the sole holder, it gets the data path.
        socket.base().attachment.unshare(&socket.base().state)?;
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
        let near = self.base().fetch_end(&SocketCall::Keep.on(self.port()))?;
        if self.life.resumes() {
            self.ready.keep_far_end();
        }
        Ok(near)
    }

    /// Sets the number of the program's descriptor. `None`: the program is about to close its last copy; this library
    /// does not use it after the return.
    pub fn renumber(&self, number: Option<RawFd>) {
        match self.life.child() {
            Some(inherited) => inherited.renumber(number),
            None => self.ready.renumber(number),
        }
    }

    /// Makes the socket hosted until this process is its sole holder again. Call it before the descriptor is passed to
    /// another process, which may use it at any time.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn before_passing(&self) -> Result<(), Error> {
        self.base().attachment.host_while_shared(&self.base().state)
    }

    /// Sets whether a signal whose handler was installed without `SA_RESTART` ends a call that waits, with
    /// [`Error::Interrupted`].
    pub fn set_interruptible(&self, interruptible: bool) {
        self.base().state.interruptible.set(interruptible);
    }

    /// Whether other processes may hold the socket too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.base().state.has_other_holders.get()
    }
}
