//! The node of a daemon: calls are commands to it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use utipc_client::{Error as ClientError, Failure, SocketView};
use utipc_core::PropertyError;
use utipc_core::socket::{BindError, ConnectError, OptionValue, RecvError, SendError, SocketOption, State};
use utipc_os::Wait;

use crate::{
    Binding, Counters, Destination, Error, LinkInfo, LinkProperty, NodeAddr, PeerInfo, PortId, Received,
    RecvOptions, Result, Scope, ServiceAddress, ServiceRange, SocketKind, SocketStats, Spin, WaitReason,
};

#[derive(Clone, Debug)]
pub(crate) struct Node(pub(super) utipc_client::Node);

#[derive(Debug)]
pub(crate) struct Socket(utipc_client::Socket);

/// The public error; `meaning` knows the failures that the call expects.
fn explain(
    error: ClientError,
    meaning: impl FnOnce(Failure) -> std::result::Result<Error, Failure>,
) -> Error {
    match error {
        ClientError::Died(socket) => Error::DaemonDied { socket },
        ClientError::System(error) => Error::System(error),
        ClientError::Failed(failure) => {
            meaning(failure).unwrap_or_else(|other| Error::Daemon(ClientError::Failed(other)))
        }
        other => Error::Daemon(other),
    }
}

fn plain(error: ClientError) -> Error {
    explain(error, Err)
}

impl Node {
    pub(super) fn wait_for_address(&self, limit: Duration) -> Result<()> {
        let settled = self.0.wait_for_address(Wait::AtMost(limit)).map_err(plain)?;
        settled.map(drop).ok_or(Error::TimedOut { call: "the choice of a node address", reason: None })
    }

    pub(super) fn open(&self, kind: SocketKind) -> Result<Socket> {
        self.0.open(kind).map(Socket).map_err(plain)
    }

    pub(super) fn address(&self) -> NodeAddr {
        self.0.address()
    }

    // Questions without an error of their own: the calls on sockets tell when the daemon has gone.

    pub(super) fn peers(&self) -> Vec<PeerInfo> {
        self.0.peers().unwrap_or_default()
    }

    pub(super) fn links(&self) -> Vec<LinkInfo> {
        self.0.links().unwrap_or_default()
    }

    pub(super) fn bindings(&self) -> Vec<Binding> {
        self.0.bindings().unwrap_or_default()
    }

    pub(super) fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        self.0.lookup(service, NodeAddr::NONE).ok().flatten()
    }

    pub(super) fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        if let Err(PropertyError::Range { what, range }) = property.check() {
            return Err(Error::OutOfRange { what, remedy: range });
        }
        self.0.set_link(name, property).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::NoLink(name) => Ok(Error::NoSuchLink(name)),
                other => Err(other),
            })
        })
    }

    pub(super) fn counters(&self) -> Counters {
        let text = self.0.counters().unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

impl Socket {
    pub(super) fn port(&self) -> u32 {
        self.0.port()
    }

    fn look<T>(&self, what: impl FnOnce(SocketView) -> T) -> Option<T> {
        self.0.live().and_then(utipc_client::Socket::look).ok().map(what)
    }

    pub(super) fn peer(&self) -> Option<PortId> {
        self.look(|view| view.peer).flatten()
    }

    pub(super) fn state(&self) -> State {
        self.look(|view| view.state).unwrap_or(State::Disconnecting)
    }

    pub(super) fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        self.0.live().and_then(|s| s.bind(range, scope)).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Bind(why) => Ok(Error::Bind { range, why }),
                Failure::NoSocket(_) => Ok(Error::Bind { range, why: BindError::InvalidState }),
                other => Err(other),
            })
        })
    }

    pub(super) fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        self.0.live().and_then(|s| s.unbind(which)).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Bind(why) => Ok(Error::Unbind(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn listen(&self) -> Result<()> {
        self.0.live().and_then(|s| s.listen()).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Call(why) => Ok(Error::Listen(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn accept(&self, limit: Wait) -> Result<Option<(Self, PortId)>> {
        let accepted = self.0.live().and_then(|s| s.accept(limit)).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Accept(why) => Ok(Error::Accept(why)),
                other => Err(other),
            })
        })?;
        Ok(accepted.map(|(socket, peer)| (Self(socket), peer)))
    }

    pub(super) fn connect(&self, to: Option<Destination>) -> Result<()> {
        self.0.live().and_then(|s| s.connect(to)).map_err(connecting)
    }

    pub(super) fn wait_connected(&self, limit: Wait) -> Result<Option<()>> {
        self.0.live().and_then(|s| s.wait_connected(limit)).map_err(connecting)
    }

    pub(super) fn shutdown(&self) -> Result<()> {
        self.0.live().and_then(|s| s.shutdown()).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Call(why) => Ok(Error::Shutdown(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        self.0.live().and_then(|s| s.set_option(option, value)).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Option(why) => Ok(Error::Option(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn set_spin(&self, spin: Spin) {
        // A call that can fail will tell what is wrong with it.
        if let Ok(socket) = self.0.live() {
            socket.set_spin(spin);
        }
    }

    #[inline]
    pub(super) fn send(&self, data: &[u8], to: Option<Destination>, limit: Wait) -> Result<Option<usize>> {
        self.0.live().and_then(|s| s.send(data, to, limit)).map_err(|error| {
            explain(error, |failure| match failure {
                Failure::Send(why) => Ok(Error::Send { to, why }),
                Failure::NoSocket(_) => Ok(Error::Send { to, why: SendError::Broken }),
                Failure::Overload => Ok(Error::Send { to, why: SendError::NoBuffers }),
                other => Err(other),
            })
        })
    }

    #[inline]
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        limit: Wait,
    ) -> Result<Option<Received>> {
        self.0.live().and_then(|s| s.receive(buffer, options, limit)).map_err(receiving)
    }

    pub(super) fn receive_whole(&self, data: &mut Vec<u8>, limit: Wait) -> Result<Option<Received>> {
        self.0.live().and_then(|s| s.receive_whole(data, limit)).map_err(receiving)
    }

    pub(super) fn wait_reason(&self) -> Option<WaitReason> {
        self.0.live().and_then(utipc_client::Socket::wait_reason).ok().flatten()
    }

    pub(super) fn stats(&self) -> SocketStats {
        self.0.live().and_then(utipc_client::Socket::stats).unwrap_or_default()
    }

    pub(super) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.0.live().and_then(|s| s.descriptor()).map_err(plain)
    }
}

fn connecting(error: ClientError) -> Error {
    explain(error, |failure| match failure {
        Failure::Connect(why) => Ok(Error::Connect(why)),
        Failure::NoSocket(_) => Ok(Error::Connect(ConnectError::Aborted)),
        other => Err(other),
    })
}

fn receiving(error: ClientError) -> Error {
    explain(error, |failure| match failure {
        Failure::Receive(why) => Ok(Error::Receive(why)),
        Failure::NoSocket(_) => Ok(Error::Receive(RecvError::NotConnected)),
        other => Err(other),
    })
}
