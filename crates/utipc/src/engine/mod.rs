//! The engines behind the public API: a node in this process, a daemon's, or the kernel's.
//!
//! Each implements [`NodeEngine`] and [`SocketEngine`]; everything that differs between engines is there. Sockets,
//! connections and topology are written once, on top of it.

mod choice;
mod daemon;
mod embedded;
mod entries;
mod kernel;
mod operation;

use std::ops::Deref;
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

/// The node of an engine.
pub(crate) trait NodeEngine {
    /// Waits until the node has its address. A node that serves this host even without one need not wait.
    fn wait_for_address(&self, _limit: Duration) -> Result<()> {
        Ok(())
    }

    /// Waits until the bindings of this number of peers have arrived, at most `limit`: only an embedded node needs it.
    fn wait_for_peers(&self, _count: usize, _limit: Duration) {}

    fn open(&self, kind: SocketKind) -> Result<Socket>;

    /// Waits until all peers have the node's bindings; returns those that do not when `limit` is over.
    fn barrier(&self, limit: Duration) -> Result<Vec<NodeAddr>>;

    fn address(&self) -> NodeAddr;

    // Queries have no error of their own: calls on sockets report a daemon that has gone.

    fn peers(&self) -> Vec<PeerInfo>;

    fn links(&self) -> Vec<LinkInfo>;

    fn bindings(&self) -> Vec<Binding>;

    fn lookup(&self, service: ServiceAddress) -> Option<PortId>;

    fn set_link(&self, name: &str, property: LinkProperty) -> Result<()>;

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn poll(&self) -> Option<Duration> {
        None
    }

    fn drive(&self, _limit: Duration) -> bool {
        false
    }

    /// `None` for an engine whose sockets have descriptors of their own.
    fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}

/// A socket of an engine. Calls that may wait return `None` if `wait` ends first.
pub(crate) trait SocketEngine {
    fn port(&self) -> u32;

    fn peer(&self) -> Option<PortId>;

    fn state(&self) -> State;

    fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()>;

    fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()>;

    fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()>;

    fn group_members(&self) -> Result<Vec<MemberInfo>>;

    fn leave(&self) -> Result<()>;

    fn listen(&self) -> Result<()>;

    /// Takes the next connection request: a socket for it and the peer's address.
    fn accept(&self, wait: Wait) -> Result<Option<(Socket, PortId)>>;

    /// Requests a connection, or sets the default destination.
    fn connect(&self, to: Option<Destination>) -> Result<()>;

    /// Waits until the connection is set up.
    fn wait_connected(&self, wait: Wait) -> Result<Option<()>>;

    fn shutdown(&self) -> Result<()>;

    /// Sets any option. Options pass through all engines as values; a new one needs code in `core` only.
    fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()>;

    /// Reads any option as a number.
    fn option(&self, option: SocketOption) -> Result<u32>;

    /// Only a daemon's socket waits for other processes of this host without driving a node.
    fn set_spin(&self, _spin: Spin) {}

    /// Sends `data`; returns the number of bytes taken.
    fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>>;

    /// [`SocketEngine::send`] with a key for slow members of a group, of which an engine without policies knows none.
    fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        _key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        self.send(data, to, wait)
    }

    /// Receives into the caller's memory.
    fn receive(&self, buffer: &mut [u8], options: RecvOptions, wait: Wait) -> Result<Option<Received>>;

    /// Receives one message (on a stream: what has arrived) into `data`, which is resized to fit.
    fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>>;

    /// `None` too if the engine does not report it.
    fn wait_reason(&self) -> Option<WaitReason> {
        None
    }

    fn stats(&self) -> SocketStats;

    fn descriptor(&self) -> Result<BorrowedFd<'_>>;
}

/// A node of any engine.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Embedded(utipc_node::Node),
    Daemon(utipc_client::Node),
    Kernel(kernel::Node),
}

impl Deref for Node {
    type Target = dyn NodeEngine;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Embedded(node) => node,
            Self::Daemon(node) => node,
            Self::Kernel(node) => node,
        }
    }
}

/// A socket of any engine. Calls that move messages are dispatched statically, all others by [`Deref`].
#[derive(Debug)]
pub(crate) enum Socket {
    Embedded(embedded::Socket),
    Daemon(utipc_client::Socket),
    Kernel(kernel::Socket),
}

impl Deref for Socket {
    type Target = dyn SocketEngine;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Embedded(socket) => socket,
            Self::Daemon(socket) => socket,
            Self::Kernel(socket) => socket,
        }
    }
}

/// Calls the same method on each engine.
macro_rules! dispatch {
    ($socket:expr, $method:ident($($argument:expr),*)) => {
        match $socket {
            Self::Embedded(socket) => SocketEngine::$method(socket, $($argument),*),
            Self::Daemon(socket) => SocketEngine::$method(socket, $($argument),*),
            Self::Kernel(socket) => SocketEngine::$method(socket, $($argument),*),
        }
    };
}

impl Socket {
    /// The socket of the client library, which can be polled busily.
    #[inline]
    pub(crate) fn attached(&self) -> Option<&utipc_client::Socket> {
        match self {
            Self::Daemon(socket) => socket.live().ok(),
            Self::Embedded(_) | Self::Kernel(_) => None,
        }
    }

    #[inline]
    pub(crate) fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        dispatch!(self, send(data, to, wait))
    }

    pub(crate) fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        dispatch!(self, send_keyed(data, to, key, wait))
    }

    #[inline]
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>> {
        dispatch!(self, receive(buffer, options, wait))
    }

    pub(crate) fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        dispatch!(self, receive_whole(data, wait))
    }
}
