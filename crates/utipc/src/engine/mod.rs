//! The engines behind the public API: a node in this process, a daemon's, or the kernel's.
//!
//! Everything that differs between engines is here. Sockets, connections and topology are written once, on top of it.

mod choice;
mod daemon;
mod embedded;
mod entries;
mod kernel;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use utipc_core::socket::{OptionValue, SocketOption, State};
pub(crate) use utipc_os::Wait;

pub(crate) use choice::Choice;
pub use choice::Engine;
pub(crate) use kernel::TipcNetlink;

use crate::{
    Binding, Counters, Destination, GroupPolicy, GroupRequest, LinkInfo, LinkProperty, MemberInfo, NodeAddr,
    PeerInfo, PortId, Received, RecvOptions, Result, Scope, ServiceAddress, ServiceRange, SocketKind,
    SocketStats, Spin, WaitReason,
};

/// A node of any engine.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Embedded(embedded::Node),
    Daemon(daemon::Node),
    Kernel(kernel::Node),
}

/// A socket of any engine.
#[derive(Debug)]
pub(crate) enum Socket {
    Embedded(embedded::Socket),
    Daemon(daemon::Socket),
    Kernel(kernel::Socket),
}

/// Calls the same method on each engine.
macro_rules! dispatch {
    ($enum:ident, $value:expr, $engine:ident => $call:expr) => {
        match $value {
            $enum::Embedded($engine) => $call,
            $enum::Daemon($engine) => $call,
            $enum::Kernel($engine) => $call,
        }
    };
}

impl Node {
    pub(crate) fn embedded(node: utipc_node::Node) -> Self {
        Self::Embedded(embedded::Node(node))
    }

    pub(crate) fn daemon(node: utipc_client::Node) -> Self {
        Self::Daemon(daemon::Node(node))
    }

    /// Opens the kernel's node, if the kernel has TIPC.
    pub(crate) fn kernel() -> Result<Self> {
        kernel::Node::open().map(Self::Kernel)
    }

    /// Waits until the node has its address.
    pub(crate) fn wait_for_address(&self, limit: Duration) -> Result<()> {
        match self {
            Self::Embedded(node) => node.wait_for_address(limit),
            Self::Daemon(node) => node.wait_for_address(limit),
            // The kernel's node serves this host even without an address, which comes with its first bearer.
            Self::Kernel(_) => Ok(()),
        }
    }

    /// Waits until the bindings of this number of peers have arrived, at most `limit`: only an embedded node needs it.
    pub(crate) fn wait_for_peers(&self, count: usize, limit: Duration) {
        if let Self::Embedded(node) = self {
            node.wait_for_peers(count, limit);
        }
    }

    pub(crate) fn open(&self, kind: SocketKind) -> Result<Socket> {
        match self {
            Self::Embedded(node) => Ok(Socket::Embedded(node.open(kind)?)),
            Self::Daemon(node) => Ok(Socket::Daemon(node.open(kind)?)),
            Self::Kernel(node) => Ok(Socket::Kernel(node.open_socket(kind)?)),
        }
    }

    /// Waits until all peers have the node's bindings; returns those that do not when `limit` is over.
    pub(crate) fn barrier(&self, limit: Duration) -> Result<Vec<NodeAddr>> {
        dispatch!(Node, self, node => node.barrier(limit))
    }

    pub(crate) fn address(&self) -> NodeAddr {
        dispatch!(Node, self, node => node.address())
    }

    pub(crate) fn peers(&self) -> Vec<PeerInfo> {
        dispatch!(Node, self, node => node.peers())
    }

    pub(crate) fn links(&self) -> Vec<LinkInfo> {
        dispatch!(Node, self, node => node.links())
    }

    pub(crate) fn bindings(&self) -> Vec<Binding> {
        dispatch!(Node, self, node => node.bindings())
    }

    pub(crate) fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        dispatch!(Node, self, node => node.lookup(service))
    }

    pub(crate) fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        dispatch!(Node, self, node => node.set_link(name, property))
    }

    pub(crate) fn counters(&self) -> Counters {
        match self {
            Self::Embedded(node) => node.counters(),
            Self::Daemon(node) => node.counters(),
            // The kernel counts per link only.
            Self::Kernel(_) => Counters::default(),
        }
    }

    pub(crate) fn poll(&self) -> Option<Duration> {
        match self {
            Self::Embedded(node) => node.poll(),
            Self::Daemon(_) | Self::Kernel(_) => None,
        }
    }

    pub(crate) fn drive(&self, limit: Duration) -> bool {
        match self {
            Self::Embedded(node) => node.drive(limit),
            Self::Daemon(_) | Self::Kernel(_) => false,
        }
    }

    /// `None` with a daemon or the kernel, whose sockets have descriptors of their own.
    pub(crate) fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>> {
        match self {
            Self::Embedded(node) => node.descriptor().map(Some),
            Self::Daemon(_) | Self::Kernel(_) => Ok(None),
        }
    }
}

impl Socket {
    pub(crate) fn port(&self) -> u32 {
        dispatch!(Socket, self, socket => socket.port())
    }

    pub(crate) fn peer(&self) -> Option<PortId> {
        dispatch!(Socket, self, socket => socket.peer())
    }

    pub(crate) fn state(&self) -> State {
        dispatch!(Socket, self, socket => socket.state())
    }

    pub(crate) fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        dispatch!(Socket, self, socket => socket.bind(range, scope))
    }

    pub(crate) fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        dispatch!(Socket, self, socket => socket.unbind(which))
    }

    pub(crate) fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        dispatch!(Socket, self, socket => socket.join(request, policy))
    }

    /// The members of the socket's group.
    pub(crate) fn group_members(&self) -> Result<Vec<MemberInfo>> {
        dispatch!(Socket, self, socket => socket.group_members())
    }

    pub(crate) fn leave(&self) -> Result<()> {
        dispatch!(Socket, self, socket => socket.leave())
    }

    pub(crate) fn listen(&self) -> Result<()> {
        dispatch!(Socket, self, socket => socket.listen())
    }

    /// Takes the next connection request: a socket for it and the peer's address. `None` if `wait` ends first, as for
    /// all calls that may wait.
    pub(crate) fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>> {
        Ok(match self {
            Self::Embedded(socket) => socket.accept(wait)?.map(|(new, peer)| (Self::Embedded(new), peer)),
            Self::Daemon(socket) => socket.accept(wait)?.map(|(new, peer)| (Self::Daemon(new), peer)),
            Self::Kernel(socket) => socket.accept(wait)?.map(|(new, peer)| (Self::Kernel(new), peer)),
        })
    }

    /// Requests a connection, or sets the default destination.
    pub(crate) fn connect(&self, to: Option<Destination>) -> Result<()> {
        dispatch!(Socket, self, socket => socket.connect(to))
    }

    /// Waits until the connection is set up.
    pub(crate) fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        dispatch!(Socket, self, socket => socket.wait_connected(wait))
    }

    pub(crate) fn shutdown(&self) -> Result<()> {
        dispatch!(Socket, self, socket => socket.shutdown())
    }

    /// Sets any option. Options pass through all engines as values; a new one needs code in `core` only.
    pub(crate) fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        dispatch!(Socket, self, socket => socket.set_option(option, value))
    }

    /// Reads any option as a number.
    pub(crate) fn option(&self, option: SocketOption) -> Result<u32> {
        dispatch!(Socket, self, socket => socket.option(option))
    }

    pub(crate) fn set_spin(&self, spin: Spin) {
        if let Self::Daemon(socket) = self {
            socket.set_spin(spin);
        }
    }

    /// The socket of the client library, whose lanes can be looked at.
    #[inline]
    pub(crate) fn attached(&self) -> Option<&utipc_client::Socket> {
        match self {
            Self::Daemon(socket) => socket.attached(),
            Self::Embedded(_) | Self::Kernel(_) => None,
        }
    }

    /// Sends `data`; returns the number of bytes taken.
    #[inline]
    pub(crate) fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        dispatch!(Socket, self, socket => socket.send(data, to, wait))
    }

    /// [`Self::send`] with a key for slow members of a group.
    pub(crate) fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        match self {
            Self::Embedded(socket) => socket.send_keyed(data, to, key, wait),
            Self::Daemon(socket) => socket.send_keyed(data, to, key, wait),
            // No policy uses it.
            Self::Kernel(socket) => socket.send(data, to, wait),
        }
    }

    /// Receives into the caller's memory.
    #[inline]
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>> {
        dispatch!(Socket, self, socket => socket.receive(buffer, options, wait))
    }

    /// Receives one message (on a stream: what has arrived) into `data`, which is resized to fit.
    pub(crate) fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        dispatch!(Socket, self, socket => socket.receive_whole(data, wait))
    }

    pub(crate) fn wait_reason(&self) -> Option<WaitReason> {
        match self {
            Self::Embedded(socket) => socket.wait_reason(),
            Self::Daemon(socket) => socket.wait_reason(),
            // The kernel does not report it.
            Self::Kernel(_) => None,
        }
    }

    pub(crate) fn stats(&self) -> SocketStats {
        dispatch!(Socket, self, socket => socket.stats())
    }

    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        match self {
            Self::Embedded(socket) => socket.descriptor(),
            Self::Daemon(socket) => socket.descriptor(),
            Self::Kernel(socket) => Ok(socket.descriptor()),
        }
    }
}
