//! Management of the node that programs attach to: requests of the family TIPCv2 as bytes, to a daemon or to the kernel.
//! `utipc-manage` makes and reads the bytes.

use utipc_client::Place;
use utipc_manage::{Family, FamilyQuestion, Header, Messages, Request, flag, kind};
use utipc_os::af_tipc::{self, Address, KernelSocket, Netlink};

use crate::{Engine, Error, NodeAddr, NodeId, Result};

/// Where requests go.
#[derive(Debug)]
pub struct Management(Way);

#[derive(Debug)]
enum Way {
    Daemon(utipc_client::Node),
    Kernel { netlink: Netlink, family: u16 },
}

impl Management {
    /// The daemon of this user or of the system, or the kernel, as `engine` or `UTIPC_ENGINE` says. Where it says neither,
    /// the kernel if no daemon answers and there is TIPC in it.
    ///
    /// # Errors
    /// Nobody is there; an embedded node has no other manager than its own program.
    pub fn open(engine: Option<Engine>) -> Result<Self> {
        let engine = match (engine, std::env::var("UTIPC_ENGINE")) {
            (Some(engine), _) => engine,
            (None, Ok(name)) if !name.is_empty() => name.parse()?,
            (None, _) => Engine::Auto,
        };
        let daemon = || utipc_client::Node::attach(Place::usual(), utipc_client::Spin::Parked);
        match engine {
            Engine::Kernel => Self::kernel(),
            Engine::Daemon => daemon().map(|node| Self(Way::Daemon(node))).map_err(Error::Daemon),
            Engine::Auto => match daemon() {
                Ok(node) => Ok(Self(Way::Daemon(node))),
                Err(error) if error.is_absent() => Self::kernel().map_err(|_| Error::Daemon(error)),
                Err(error) => Err(Error::Daemon(error)),
            },
            Engine::Embedded => {
                let why = "an embedded node is managed by its own program (choose the daemon or the kernel)";
                Err(Error::Engine { engine, why: why.to_owned() })
            }
        }
    }

    fn kernel() -> Result<Self> {
        let open = || -> std::io::Result<Self> {
            let netlink = Netlink::open()?;
            netlink.send(&FamilyQuestion::own(1))?;
            let family = Family::from_bytes(&netlink.receive()?);
            let Family(family) = family.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?;
            Ok(Self(Way::Kernel { netlink, family }))
        };
        open().map_err(|cause| {
            let why = format!("the kernel has no TIPC: {cause} (load its module: `modprobe tipc`)");
            Error::Engine { engine: Engine::Kernel, why }
        })
    }

    /// Whether it is the kernel that is asked: it does not understand what is ours.
    #[must_use]
    pub const fn is_kernel(&self) -> bool {
        matches!(self.0, Way::Kernel { .. })
    }

    /// Asks, and returns all messages of the answer.
    ///
    /// # Errors
    /// Nobody answers any more; what is refused is refused in the answer.
    pub fn ask(&self, request: &Request) -> Result<Vec<u8>> {
        match &self.0 {
            Way::Daemon(node) => {
                let version = utipc_manage::family::EXTENDED;
                // Its number is the kernel's affair.
                let header = Header { family: u16::MAX, sequence: 1, version, ..Header::default() };
                node.manage(&request.to_bytes(&header)).map_err(Error::Daemon)
            }
            Way::Kernel { netlink, family } => {
                let header = Header { family: *family, sequence: 1, ..Header::default() };
                let question = request.to_bytes(&header);
                let exchange = || -> std::io::Result<Vec<u8>> {
                    netlink.send(&question)?;
                    let mut all = Vec::new();
                    loop {
                        let packet = netlink.receive()?;
                        let over = Messages::new(&packet).any(|message| is_end(&message.header));
                        all.extend_from_slice(&packet);
                        if over || packet.is_empty() {
                            return Ok(all);
                        }
                    }
                };
                exchange().map_err(|cause| {
                    let why = format!("it does not answer: {cause} (try again)");
                    Error::Engine { engine: Engine::Kernel, why }
                })
            }
        }
    }

    /// Identity of a node that the kernel knows, by its address.
    #[must_use]
    pub fn kernel_identity(node: NodeAddr) -> Option<NodeId> {
        let socket = KernelSocket::open(af_tipc::Kind::Rdm).ok()?;
        af_tipc::node_identity(&socket, node.0).ok().map(NodeId)
    }

    /// Address of the kernel's node; [`NodeAddr::NONE`] while it has none.
    #[must_use]
    pub fn kernel_address() -> NodeAddr {
        let socket = KernelSocket::open(af_tipc::Kind::Rdm).ok();
        match socket.and_then(|socket| socket.local().ok()) {
            Some(Address::Port { node, .. }) => NodeAddr(node),
            _ => NodeAddr::NONE,
        }
    }
}

/// Whether nothing follows: the end of a list, or an error or acknowledgement.
const fn is_end(header: &Header) -> bool {
    header.family == kind::DONE || header.family == kind::ERROR && header.flags & flag::MULTI == 0
}
