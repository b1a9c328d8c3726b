//! The daemon engine: calls are requests to the daemon.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use utipc_client::{Error as ClientError, Node, Socket, SocketView};
use utipc_core::PropertyError;
use utipc_core::socket::{OptionValue, SocketOption, State};
use utipc_manage::{Entry, Errno, Request};

use super::operation::Operation;
use super::{NodeEngine, SocketEngine, Wait, entries};
use crate::{
    Binding, Call, Counters, Destination, Engine, Error, GroupPolicy, GroupRequest, LinkInfo, LinkProperty,
    MemberInfo, NodeAddr, PeerInfo, PortId, Received, RecvOptions, Result, Scope, ServiceAddress,
    ServiceRange, SocketKind, SocketStats, Spin, WaitReason,
};

fn list(node: &Node, request: &Request) -> Vec<Entry> {
    let reply = node.manage(&request.to_daemon()).unwrap_or_default();
    utipc_manage::entries(&reply).unwrap_or_default()
}

fn node_error(error: ClientError) -> Error {
    Operation::Other.client_error(error)
}

impl NodeEngine for Node {
    fn wait_for_address(&self, limit: Duration) -> Result<()> {
        let address = Self::wait_for_address(self, Wait::AtMost(limit)).map_err(node_error)?;
        address.map(drop).ok_or(Error::TimedOut { call: Call::ChooseAddress, reason: None, node: None })
    }

    fn open(&self, kind: SocketKind) -> Result<super::Socket> {
        Self::open(self, kind).map(super::Socket::Daemon).map_err(node_error)
    }

    fn address(&self) -> NodeAddr {
        Self::address(self)
    }

    fn barrier(&self, limit: Duration) -> Result<Vec<NodeAddr>> {
        Self::barrier(self, Wait::AtMost(limit)).map_err(node_error)
    }

    fn peers(&self) -> Vec<PeerInfo> {
        entries::peers(list(self, &Request::Nodes))
    }

    fn links(&self) -> Vec<LinkInfo> {
        entries::links(list(self, &Request::Links { broadcast: false }))
    }

    fn bindings(&self) -> Vec<Binding> {
        entries::bindings(list(self, &Request::Names))
    }

    fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        Self::lookup(self, service, NodeAddr::NONE).ok().flatten()
    }

    fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        if let Err(PropertyError::Range { what, range }) = property.check() {
            return Err(Error::OutOfRange { what, remedy: range });
        }
        let reply = self.manage(&entries::set_link(name, property).to_daemon()).map_err(node_error)?;
        utipc_manage::entries(&reply).map(drop).map_err(|refusal| match refusal.errno {
            Errno::INVALID => Error::NoSuchLink(name.to_owned()),
            _ => Error::Engine { engine: Engine::Daemon, why: refusal.to_string() },
        })
    }

    fn counters(&self) -> Counters {
        let text = list(self, &Request::Counters).into_iter().find_map(|entry| match entry {
            Entry::Counters(text) => Some(text),
            _ => None,
        });
        serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default()
    }
}

/// Makes a call with the handle that this process may use.
#[inline]
fn call<'a, T>(
    socket: &'a Socket,
    operation: Operation,
    make: impl FnOnce(&'a Socket) -> std::result::Result<T, ClientError>,
) -> Result<T> {
    socket.live().and_then(make).map_err(|error| operation.client_error(error))
}

/// What the node says about a socket; `None` without a daemon.
fn view<T>(socket: &Socket, read: impl FnOnce(SocketView) -> T) -> Option<T> {
    socket.live().and_then(Socket::look).ok().map(read)
}

impl SocketEngine for Socket {
    fn port(&self) -> u32 {
        // It changes when the socket resumes.
        self.live().map_or_else(|_| Self::port(self), Self::port)
    }

    fn peer(&self) -> Option<PortId> {
        view(self, |view| view.peer).flatten()
    }

    fn state(&self) -> State {
        view(self, |view| view.state).unwrap_or(State::Disconnecting)
    }

    fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        call(self, Operation::Bind(range), |s| s.bind(range, scope))
    }

    fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        call(self, Operation::Unbind, |s| s.unbind(which))
    }

    fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        call(self, Operation::Join(request.member.service), |s| s.join(request, policy))
    }

    fn group_members(&self) -> Result<Vec<MemberInfo>> {
        call(self, Operation::ListMembers, |s| {
            let (members, own) = (s.group_members()?, s.node_address());
            Ok(members.into_iter().map(|member| member.on(own)).collect())
        })
    }

    fn leave(&self) -> Result<()> {
        call(self, Operation::Leave, Self::leave)
    }

    fn listen(&self) -> Result<()> {
        call(self, Operation::Listen, Self::listen)
    }

    fn accept(&self, wait: Wait) -> Result<Option<(super::Socket, PortId)>> {
        let accepted = call(self, Operation::Accept, |s| s.accept(wait))?;
        Ok(accepted.map(|(socket, peer)| (super::Socket::Daemon(socket), peer)))
    }

    fn connect(&self, to: Option<Destination>) -> Result<()> {
        call(self, Operation::Connect, |s| s.connect(to))
    }

    fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        call(self, Operation::Connect, |s| s.wait_connected(wait))
    }

    fn shutdown(&self) -> Result<()> {
        call(self, Operation::Shutdown, Self::shutdown)
    }

    fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        call(self, Operation::Option, |s| s.set_option(option, value))
    }

    fn option(&self, option: SocketOption) -> Result<u32> {
        call(self, Operation::Option, |s| s.option(option))
    }

    fn set_spin(&self, spin: Spin) {
        // The next call that can fail reports the error.
        if let Ok(socket) = self.live() {
            socket.set_spin(spin);
        }
    }

    #[inline]
    fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        call(self, Operation::Send(to), |s| s.send(data, to, wait))
    }

    fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        call(self, Operation::Send(to), |s| s.send_keyed(data, to, key, wait))
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8], options: RecvOptions, wait: Wait) -> Result<Option<Received>> {
        call(self, Operation::Receive, |s| s.receive(buffer, options, wait))
    }

    fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        call(self, Operation::Receive, |s| s.receive_whole(data, wait))
    }

    fn wait_reason(&self) -> Option<WaitReason> {
        self.live().and_then(Self::wait_reason).ok().flatten()
    }

    fn stats(&self) -> SocketStats {
        self.live().and_then(Self::stats).unwrap_or_default()
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        call(self, Operation::Other, Self::descriptor)
    }
}
