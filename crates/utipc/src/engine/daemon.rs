//! The daemon engine: calls are requests to the daemon.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use utipc_client::{Error as ClientError, Failure, SocketView};
use utipc_core::PropertyError;
use utipc_core::socket::{BindError, ConnectError, OptionValue, RecvError, SendError, SocketOption, State};
use utipc_manage::{Entry, Errno, Request};
use utipc_os::Wait;

use super::entries;
use crate::{
    Binding, Call, Counters, Destination, Engine, Error, GroupPolicy, GroupRequest, LinkInfo, LinkProperty,
    MemberInfo, NodeAddr, PeerInfo, PortId, Received, RecvOptions, Result, Scope, ServiceAddress,
    ServiceRange, SocketKind, SocketStats, Spin, WaitReason,
};

#[derive(Clone, Debug)]
pub(crate) struct Node(pub(super) utipc_client::Node);

#[derive(Debug)]
pub(crate) struct Socket(utipc_client::Socket);

/// Translates a client error; `translate` knows the failures that the call expects and gives back the rest.
fn public_error(
    error: ClientError,
    translate: impl FnOnce(Failure) -> std::result::Result<Error, Failure>,
) -> Error {
    match error {
        ClientError::Died(socket) => Error::DaemonDied { socket },
        ClientError::Resumed(socket) => Error::Resumed { socket },
        ClientError::System(error) => Error::System(error),
        ClientError::Failed(failure) => {
            translate(failure).unwrap_or_else(|other| Error::Daemon(ClientError::Failed(other)))
        }
        other => Error::Daemon(other),
    }
}

fn daemon_error(error: ClientError) -> Error {
    public_error(error, Err)
}

impl Node {
    pub(super) fn wait_for_address(&self, limit: Duration) -> Result<()> {
        let address = self.0.wait_for_address(Wait::AtMost(limit)).map_err(daemon_error)?;
        address.map(drop).ok_or(Error::TimedOut { call: Call::ChooseAddress, reason: None, node: None })
    }

    pub(super) fn open(&self, kind: SocketKind) -> Result<Socket> {
        self.0.open(kind).map(Socket).map_err(daemon_error)
    }

    pub(super) fn address(&self) -> NodeAddr {
        self.0.address()
    }

    pub(super) fn barrier(&self, limit: Duration) -> Result<Vec<NodeAddr>> {
        self.0.barrier(Wait::AtMost(limit)).map_err(daemon_error)
    }

    // Queries have no error of their own: calls on sockets report a daemon that has gone.

    fn list(&self, request: &Request) -> Vec<Entry> {
        let reply = self.0.manage(&request.to_daemon()).unwrap_or_default();
        utipc_manage::entries(&reply).unwrap_or_default()
    }

    pub(super) fn peers(&self) -> Vec<PeerInfo> {
        entries::peers(self.list(&Request::Nodes))
    }

    pub(super) fn links(&self) -> Vec<LinkInfo> {
        entries::links(self.list(&Request::Links { broadcast: false }))
    }

    pub(super) fn bindings(&self) -> Vec<Binding> {
        entries::bindings(self.list(&Request::Names))
    }

    pub(super) fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        self.0.lookup(service, NodeAddr::NONE).ok().flatten()
    }

    pub(super) fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        if let Err(PropertyError::Range { what, range }) = property.check() {
            return Err(Error::OutOfRange { what, remedy: range });
        }
        let reply = self.0.manage(&entries::set_link(name, property).to_daemon()).map_err(daemon_error)?;
        utipc_manage::entries(&reply).map(drop).map_err(|refusal| match refusal.errno {
            Errno::INVALID => Error::NoSuchLink(name.to_owned()),
            _ => Error::Engine { engine: Engine::Daemon, why: refusal.to_string() },
        })
    }

    pub(super) fn counters(&self) -> Counters {
        let text = self.list(&Request::Counters).into_iter().find_map(|entry| match entry {
            Entry::Counters(text) => Some(text),
            _ => None,
        });
        serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default()
    }
}

impl Socket {
    pub(super) fn port(&self) -> u32 {
        // It changes when the socket resumes.
        self.0.live().map_or_else(|_| self.0.port(), utipc_client::Socket::port)
    }

    fn with_view<T>(&self, read: impl FnOnce(SocketView) -> T) -> Option<T> {
        self.0.live().and_then(utipc_client::Socket::look).ok().map(read)
    }

    pub(super) fn peer(&self) -> Option<PortId> {
        self.with_view(|view| view.peer).flatten()
    }

    pub(super) fn state(&self) -> State {
        self.with_view(|view| view.state).unwrap_or(State::Disconnecting)
    }

    pub(super) fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        self.0.live().and_then(|s| s.bind(range, scope)).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Bind(why) => Ok(Error::Bind { range, why }),
                Failure::NoSocket(_) => Ok(Error::Bind { range, why: BindError::InvalidState }),
                other => Err(other),
            })
        })
    }

    pub(super) fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        self.0.live().and_then(|s| s.unbind(which)).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Bind(why) => Ok(Error::Unbind(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        let group = request.member.service;
        self.0.live().and_then(|s| s.join(request, policy)).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Join(why) => Ok(Error::Join { group, why }),
                other => Err(other),
            })
        })
    }

    pub(super) fn group_members(&self) -> Result<Vec<MemberInfo>> {
        let members = self.0.live().and_then(|s| Ok((s.group_members()?, s.node_address())));
        let (members, own) = members.map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Leave(why) => Ok(Error::Leave(why)),
                Failure::State => Ok(Error::Engine {
                    engine: Engine::Daemon,
                    why:
                        "the daemon is of a release that does not list members (restart it with this release)"
                            .into(),
                }),
                other => Err(other),
            })
        })?;
        Ok(members.into_iter().map(|member| member.on(own)).collect())
    }

    pub(super) fn leave(&self) -> Result<()> {
        self.0.live().and_then(|s| s.leave()).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Leave(why) => Ok(Error::Leave(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn listen(&self) -> Result<()> {
        self.0.live().and_then(|s| s.listen()).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Call(why) => Ok(Error::Listen(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>> {
        let accepted = self.0.live().and_then(|s| s.accept(wait)).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Accept(why) => Ok(Error::Accept(why)),
                other => Err(other),
            })
        })?;
        Ok(accepted.map(|(socket, peer)| (Self(socket), peer)))
    }

    pub(super) fn connect(&self, to: Option<Destination>) -> Result<()> {
        self.0.live().and_then(|s| s.connect(to)).map_err(connect_error)
    }

    pub(super) fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        self.0.live().and_then(|s| s.wait_connected(wait)).map_err(connect_error)
    }

    pub(super) fn shutdown(&self) -> Result<()> {
        self.0.live().and_then(|s| s.shutdown()).map_err(|error| {
            public_error(error, |failure| match failure {
                Failure::Call(why) => Ok(Error::Shutdown(why)),
                other => Err(other),
            })
        })
    }

    pub(super) fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        self.0.live().and_then(|s| s.set_option(option, value)).map_err(option_error)
    }

    pub(super) fn option(&self, option: SocketOption) -> Result<u32> {
        self.0.live().and_then(|s| s.option(option)).map_err(option_error)
    }

    #[inline]
    pub(super) fn attached(&self) -> Option<&utipc_client::Socket> {
        self.0.live().ok()
    }

    pub(super) fn set_spin(&self, spin: Spin) {
        // The next call that can fail reports the error.
        if let Ok(socket) = self.0.live() {
            socket.set_spin(spin);
        }
    }

    #[inline]
    pub(super) fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        self.0.live().and_then(|s| s.send(data, to, wait)).map_err(|error| send_error(error, to))
    }

    pub(super) fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        self.0.live().and_then(|s| s.send_keyed(data, to, key, wait)).map_err(|error| send_error(error, to))
    }

    #[inline]
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>> {
        self.0.live().and_then(|s| s.receive(buffer, options, wait)).map_err(receive_error)
    }

    pub(super) fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        self.0.live().and_then(|s| s.receive_whole(data, wait)).map_err(receive_error)
    }

    pub(super) fn wait_reason(&self) -> Option<WaitReason> {
        self.0.live().and_then(utipc_client::Socket::wait_reason).ok().flatten()
    }

    pub(super) fn stats(&self) -> SocketStats {
        self.0.live().and_then(utipc_client::Socket::stats).unwrap_or_default()
    }

    pub(super) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.0.live().and_then(|s| s.descriptor()).map_err(daemon_error)
    }
}

fn send_error(error: ClientError, to: Option<Destination>) -> Error {
    public_error(error, |failure| match failure {
        Failure::Send(why) => Ok(Error::Send { to, why }),
        Failure::NoSocket(_) => Ok(Error::Send { to, why: SendError::Broken }),
        Failure::Overload => Ok(Error::Send { to, why: SendError::NoBuffers }),
        other => Err(other),
    })
}

fn connect_error(error: ClientError) -> Error {
    public_error(error, |failure| match failure {
        Failure::Connect(why) => Ok(Error::Connect(why)),
        Failure::NoSocket(_) => Ok(Error::Connect(ConnectError::Aborted)),
        other => Err(other),
    })
}

fn option_error(error: ClientError) -> Error {
    public_error(error, |failure| match failure {
        Failure::Option(why) => Ok(Error::Option(why)),
        other => Err(other),
    })
}

fn receive_error(error: ClientError) -> Error {
    public_error(error, |failure| match failure {
        Failure::Receive(why) => Ok(Error::Receive(why)),
        Failure::NoSocket(_) => Ok(Error::Receive(RecvError::NotConnected)),
        other => Err(other),
    })
}
