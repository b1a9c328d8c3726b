//! Management of a daemon or of the kernel: exchanges requests of the netlink family TIPCv2 as bytes. The crate
//! `utipc-manage` encodes and decodes them.

use std::os::fd::OwnedFd;
use std::path::Path;

use utipc_client::Place;
use utipc_manage::capture::CaptureRequest;
use utipc_manage::{Entry, Request, entries};
use utipc_os::af_tipc::{self, Address, KernelSocket};

use crate::engine::TipcNetlink;
use crate::{Engine, Error, NodeAddr, NodeId, Result};

/// A connection to the daemon or the kernel for management requests.
#[derive(Debug)]
pub struct Management(Target);

#[derive(Debug)]
enum Target {
    Daemon(utipc_client::Node),
    Kernel(TipcNetlink),
}

impl Management {
    /// Connects to the daemon of this user or of the system, or to the kernel, as `engine` or else `UTIPC_ENGINE`
    /// selects. If neither is given: to the daemon, or to the kernel if no daemon answers and the kernel has TIPC.
    ///
    /// # Errors
    /// [`Error::Daemon`] or [`Error::Engine`] if the target is not available. An embedded node is managed by its own
    /// program only.
    pub fn open(engine: Option<Engine>) -> Result<Self> {
        let engine = match (engine, std::env::var("UTIPC_ENGINE")) {
            (Some(engine), _) => engine,
            (None, Ok(name)) if !name.is_empty() => name.parse()?,
            (None, _) => Engine::Auto,
        };
        let daemon = || utipc_client::Node::attach(Place::usual(), utipc_client::Spin::Parked);
        match engine {
            Engine::Kernel => Self::kernel(),
            Engine::Daemon => daemon().map(|node| Self(Target::Daemon(node))).map_err(Error::Daemon),
            Engine::Auto => match daemon() {
                Ok(node) => Ok(Self(Target::Daemon(node))),
                Err(error) if error.is_absent() => Self::kernel().map_err(|_| Error::Daemon(error)),
                Err(error) => Err(Error::Daemon(error)),
            },
            Engine::Embedded => {
                let why = "an embedded node is managed by its own program (choose the daemon or the kernel)";
                Err(Error::Engine { engine, why: why.to_owned() })
            }
        }
    }

    /// Connects to the daemon whose socket has this path.
    ///
    /// # Errors
    /// [`Error::Daemon`] if no daemon answers there, or it refuses.
    pub fn of_daemon(socket: &Path) -> Result<Self> {
        let node = utipc_client::Node::attach(Place::at(socket), utipc_client::Spin::Parked);
        node.map(|node| Self(Target::Daemon(node))).map_err(Error::Daemon)
    }

    fn kernel() -> Result<Self> {
        TipcNetlink::open().map(|netlink| Self(Target::Kernel(netlink))).map_err(|cause| {
            let why = format!("the kernel has no TIPC: {cause} (load its module: `modprobe tipc`)");
            Error::Engine { engine: Engine::Kernel, why }
        })
    }

    /// Whether requests go to the kernel, which lacks utipc's own attributes and commands.
    #[must_use]
    pub const fn is_kernel(&self) -> bool {
        matches!(self.0, Target::Kernel(_))
    }

    /// Sends a request and returns all messages of the reply. A refusal is part of the reply.
    ///
    /// # Errors
    /// [`Error::Daemon`] or [`Error::Engine`] if the target no longer answers.
    pub fn ask(&self, request: &Request) -> Result<Vec<u8>> {
        self.ask_some(request, usize::MAX).map(|(reply, _)| reply)
    }

    /// As [`Management::ask`], but a daemon is asked for no further part of a list once the reply has `most` bytes;
    /// also returns whether the list is complete.
    ///
    /// # Errors
    /// As [`Management::ask`].
    pub fn ask_some(&self, request: &Request, most: usize) -> Result<(Vec<u8>, bool)> {
        match &self.0 {
            Target::Daemon(node) => node.manage_some(&request.to_daemon(), most).map_err(Error::Daemon),
            Target::Kernel(netlink) => {
                netlink.exchange(request).map(|reply| (reply, true)).map_err(|cause| {
                    let why = format!("the kernel does not answer: {cause} (try again)");
                    Error::Engine { engine: Engine::Kernel, why }
                })
            }
        }
    }

    /// Begins a capture at the daemon. Returns the reply and, unless it is a refusal, a packet socket: each packet is a
    /// record of `utipc_manage::capture`. The capture lasts as long as this connection and the socket.
    ///
    /// # Errors
    /// [`Error::Daemon`] if the daemon no longer answers, [`Error::Engine`] of the kernel, which has no captures.
    pub fn capture(&self, request: &CaptureRequest) -> Result<(Vec<u8>, Option<OwnedFd>)> {
        let Target::Daemon(node) = &self.0 else {
            let why = "the kernel's node has no captures (use tcpdump on its interface)".to_owned();
            return Err(Error::Engine { engine: Engine::Kernel, why });
        };
        let request = Request::Capture(request.clone()).to_daemon();
        node.manage_with_descriptor(&request).map_err(Error::Daemon)
    }

    /// The counters of the daemon's node as a JSON object, with those of the daemon as its member `daemon`; `None` of
    /// the kernel, which has none.
    ///
    /// # Errors
    /// [`Error::Daemon`] if the daemon no longer answers, [`Error::Engine`] if it refuses.
    pub fn counters(&self) -> Result<Option<Vec<u8>>> {
        if self.is_kernel() {
            return Ok(None);
        }
        let found = entries(&self.ask(&Request::Counters)?).map_err(|refusal| Error::Engine {
            engine: Engine::Daemon,
            why: format!("the daemon does not show its counters: {refusal}"),
        })?;
        Ok(found.into_iter().find_map(|entry| match entry {
            Entry::Counters(text) => Some(text),
            _ => None,
        }))
    }

    /// The identity of a node that the kernel knows, by its address.
    #[must_use]
    pub fn kernel_identity(node: NodeAddr) -> Option<NodeId> {
        let socket = KernelSocket::open(af_tipc::Kind::Rdm).ok()?;
        af_tipc::node_identity(&socket, node.0).ok().map(NodeId)
    }

    /// The address of the kernel's node; [`NodeAddr::NONE`] while it has none.
    #[must_use]
    pub fn kernel_address() -> NodeAddr {
        let socket = KernelSocket::open(af_tipc::Kind::Rdm).ok();
        match socket.and_then(|socket| socket.local().ok()) {
            Some(Address::Port { node, .. }) => NodeAddr(node),
            _ => NodeAddr::NONE,
        }
    }
}
