//! What an administrator asks.

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::entry::{Properties, Udp};
use crate::errno::{Errno, Refusal};
use crate::family::{
    EXTENDED, VERSION, bearer, command, link, longest, media, monitor, net, socket, top, udp,
};
use crate::netlink::{self, Header, Messages, flag};

/// One request of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Disables a bearer: its links go down.
    BearerDisable {
        /// `media:name`.
        name: String,
    },
    /// Enables one.
    BearerEnable {
        /// `media:name`; for Ethernet the name is that of the interface.
        name: String,
        /// Only nodes of this domain are linked; 0 for all.
        domain: u32,
        /// Priority of its links; the medium's if absent.
        priority: Option<u32>,
        /// Addresses of a UDP bearer.
        udp: Option<Udp>,
    },
    /// One bearer.
    BearerGet {
        /// Its name.
        name: String,
    },
    /// All bearers.
    Bearers,
    /// Changes a bearer's properties.
    BearerSet {
        /// Its name.
        name: String,
        /// Those to change.
        properties: Properties,
    },
    /// Copies the broadcasts of a UDP bearer to one more remote.
    BearerAdd {
        /// Its name.
        name: String,
        /// The remote.
        remote: Option<SocketAddr>,
    },
    /// The remotes of a UDP bearer.
    Remotes {
        /// Its name.
        name: String,
    },
    /// All sockets of the node.
    Sockets,
    /// The bindings of one.
    Bindings {
        /// Its port.
        port: u32,
    },
    /// One link.
    LinkGet {
        /// Its name.
        name: String,
    },
    /// All links.
    Links {
        /// The receiving sides of the broadcast link too.
        broadcast: bool,
    },
    /// Changes a link's properties.
    LinkSet {
        /// Its name.
        name: String,
        /// Those to change.
        properties: Properties,
    },
    /// Sets a link's counters to zero.
    LinkReset {
        /// Its name.
        name: String,
    },
    /// When links went down lately, and why. Ours.
    LinkHistory,
    /// One medium.
    MediaGet {
        /// Its name.
        name: String,
    },
    /// All media.
    Media,
    /// Changes what new bearers of a medium begin with.
    MediaSet {
        /// Its name.
        name: String,
        /// Those to change.
        properties: Properties,
    },
    /// All other nodes.
    Nodes,
    /// The own node and its cluster.
    Net,
    /// Changes them, while the node has no address.
    NetSet {
        /// Number of the cluster.
        id: Option<u32>,
        /// An explicit address.
        address: Option<u32>,
        /// An identity.
        identity: Option<[u8; 16]>,
    },
    /// Whether the address is an explicit one.
    LegacyAddress,
    /// The binding table.
    Names,
    /// The threshold of the neighbour monitor.
    MonitorGet,
    /// The monitor of every bearer.
    Monitors,
    /// Changes the threshold.
    MonitorSet {
        /// Nodes above which it is active.
        threshold: Option<u32>,
    },
    /// The nodes in the monitor of one bearer.
    MonitorPeers {
        /// Index of the bearer.
        bearer: u32,
    },
    /// Forgets a node that is down.
    PeerRemove {
        /// By its address,
        address: Option<u32>,
        /// or its identity.
        identity: Option<[u8; 16]>,
    },
    /// Sets a key; what it is does not matter while there is no encryption.
    KeySet,
    /// Forgets all keys.
    KeyFlush,
}

impl Request {
    /// Its command, and whether it asks for a list.
    #[must_use]
    pub const fn command(&self) -> (u8, bool) {
        match self {
            Self::BearerDisable { .. } => (command::BEARER_DISABLE, false),
            Self::BearerEnable { .. } => (command::BEARER_ENABLE, false),
            Self::BearerGet { .. } => (command::BEARER_GET, false),
            Self::Bearers => (command::BEARER_GET, true),
            Self::BearerSet { .. } => (command::BEARER_SET, false),
            Self::BearerAdd { .. } => (command::BEARER_ADD, false),
            Self::Remotes { .. } => (command::UDP_GET_REMOTEIP, true),
            Self::Sockets => (command::SOCK_GET, true),
            Self::Bindings { .. } => (command::PUBL_GET, true),
            Self::LinkGet { .. } => (command::LINK_GET, false),
            Self::Links { .. } => (command::LINK_GET, true),
            Self::LinkSet { .. } => (command::LINK_SET, false),
            Self::LinkReset { .. } => (command::LINK_RESET_STATS, false),
            Self::LinkHistory => (command::LINK_HISTORY, true),
            Self::MediaGet { .. } => (command::MEDIA_GET, false),
            Self::Media => (command::MEDIA_GET, true),
            Self::MediaSet { .. } => (command::MEDIA_SET, false),
            Self::Nodes => (command::NODE_GET, true),
            Self::Net => (command::NET_GET, true),
            Self::NetSet { .. } => (command::NET_SET, false),
            Self::LegacyAddress => (command::ADDR_LEGACY_GET, false),
            Self::Names => (command::NAME_TABLE_GET, true),
            Self::MonitorGet => (command::MON_GET, false),
            Self::Monitors => (command::MON_GET, true),
            Self::MonitorSet { .. } => (command::MON_SET, false),
            Self::MonitorPeers { .. } => (command::MON_PEER_GET, true),
            Self::PeerRemove { .. } => (command::PEER_REMOVE, false),
            Self::KeySet => (command::KEY_SET, false),
            Self::KeyFlush => (command::KEY_FLUSH, false),
        }
    }

    /// Whether it needs the right to manage: it changes the node.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(
            self,
            Self::BearerDisable { .. }
                | Self::BearerEnable { .. }
                | Self::BearerSet { .. }
                | Self::BearerAdd { .. }
                | Self::LinkSet { .. }
                | Self::LinkReset { .. }
                | Self::MediaSet { .. }
                | Self::NetSet { .. }
                | Self::MonitorSet { .. }
                | Self::PeerRemove { .. }
                | Self::KeySet
                | Self::KeyFlush
        )
    }

    /// As one message. Of `header` count family, sequence, port and version; the version is the kernel's if it is 0, and
    /// an acknowledgement is asked for.
    #[must_use]
    pub fn to_bytes(&self, header: &Header) -> Vec<u8> {
        let (command, dump) = self.command();
        let flags = flag::REQUEST | if dump { flag::DUMP } else { flag::ACK };
        let version = if header.version == 0 { VERSION } else { header.version };
        let mut out = Vec::new();
        netlink::put(&mut out, &Header { flags, command, version, ..*header }, |out| {
            self.write(&mut Writer::of_request(out));
        });
        out
    }

    fn write(&self, out: &mut Writer<'_>) {
        let named = |out: &mut Writer<'_>, nest, name: &str| out.nest(nest, |out| out.text(1, name));
        match self {
            Self::BearerDisable { name } | Self::BearerGet { name } | Self::Remotes { name } => {
                named(out, top::BEARER, name);
            }
            Self::BearerEnable { name, domain, priority, udp } => out.nest(top::BEARER, |out| {
                if *domain != 0 {
                    out.u32(bearer::DOMAIN, *domain);
                }
                if priority.is_some() {
                    Properties { priority: *priority, ..Properties::default() }.write(out, bearer::PROP);
                }
                out.text(bearer::NAME, name);
                if let Some(udp) = udp {
                    udp.write(out);
                }
            }),
            Self::BearerSet { name, properties } => out.nest(top::BEARER, |out| {
                properties.write(out, bearer::PROP);
                out.text(bearer::NAME, name);
            }),
            Self::BearerAdd { name, remote } => out.nest(top::BEARER, |out| {
                out.text(bearer::NAME, name);
                if let Some(remote) = remote {
                    out.nest(bearer::UDP_OPTS, |out| out.address(udp::REMOTE, *remote));
                }
            }),
            Self::Bindings { port } => out.nest(top::SOCK, |out| out.u32(socket::REF, *port)),
            Self::LinkGet { name } | Self::LinkReset { name } => named(out, top::LINK, name),
            Self::Links { broadcast: true } => out.nest(top::LINK, |out| out.flag(link::BROADCAST, true)),
            Self::LinkSet { name, properties } => out.nest(top::LINK, |out| {
                out.text(link::NAME, name);
                properties.write(out, link::PROP);
            }),
            Self::MediaGet { name } => named(out, top::MEDIA, name),
            Self::MediaSet { name, properties } => out.nest(top::MEDIA, |out| {
                out.text(media::NAME, name);
                properties.write(out, media::PROP);
            }),
            Self::NetSet { id, address, identity } => out.nest(top::NET, |out| {
                out.maybe(net::ID, *id);
                out.maybe(net::ADDR, *address);
                write_identity(out, identity.as_ref());
            }),
            Self::MonitorSet { threshold } => {
                out.nest(top::MON, |out| out.maybe(monitor::THRESHOLD, *threshold));
            }
            Self::MonitorPeers { bearer } => out.nest(top::MON, |out| out.u32(monitor::REF, *bearer)),
            Self::PeerRemove { address, identity } => out.nest(top::NET, |out| {
                out.maybe(net::ADDR, *address);
                write_identity(out, identity.as_ref());
            }),
            Self::KeySet => out.nest(top::NODE, |_| {}),
            Self::Bearers
            | Self::Sockets
            | Self::Links { broadcast: false }
            | Self::LinkHistory
            | Self::Media
            | Self::Nodes
            | Self::Net
            | Self::LegacyAddress
            | Self::Names
            | Self::MonitorGet
            | Self::Monitors
            | Self::KeyFlush => {}
        }
    }

    /// The first message of a packet: its header, and what it asks or why that cannot be. `None` if there is no whole message
    /// with a generic header.
    #[must_use]
    pub fn from_bytes(packet: &[u8]) -> Option<(Header, Result<Self, Refusal>)> {
        let message = Messages::new(packet).next().filter(|m| m.header.family >= netlink::kind::CONTROL)?;
        Some((message.header, Self::read(&message.header, Nest(message.body))))
    }

    fn read(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let nest = |kind| all.nest(kind).ok_or(Errno::INVALID);
        let name =
            |kind, most| -> Result<String, Refusal> { Ok(nest(kind)?.text(1, most)?.ok_or(Errno::INVALID)?) };
        let bearer_name = || name(top::BEARER, longest::BEARER);
        let link_name = || name(top::LINK, longest::LINK);
        let media_name = || name(top::MEDIA, longest::MEDIA);
        let dump = header.is_dump();
        Ok(match header.command {
            command::BEARER_DISABLE if !dump => Self::BearerDisable { name: bearer_name()? },
            command::BEARER_ENABLE if !dump => {
                let nest = nest(top::BEARER)?;
                Self::BearerEnable {
                    name: bearer_name()?,
                    domain: nest.u32(bearer::DOMAIN)?.unwrap_or(0),
                    priority: Properties::read_within(nest, bearer::PROP)?.priority,
                    udp: nest.nest(bearer::UDP_OPTS).map(Udp::read).transpose()?.flatten(),
                }
            }
            command::BEARER_GET if dump => Self::Bearers,
            command::BEARER_GET => Self::BearerGet { name: bearer_name()? },
            command::BEARER_SET if !dump => Self::BearerSet {
                name: bearer_name()?,
                properties: Properties::read_within(nest(top::BEARER)?, bearer::PROP)?,
            },
            command::BEARER_ADD if !dump => {
                let options = nest(top::BEARER)?.nest(bearer::UDP_OPTS);
                let remote = |o: Nest<'_>| o.address(udp::REMOTE)?.ok_or(Errno::INVALID);
                Self::BearerAdd { name: bearer_name()?, remote: options.map(remote).transpose()? }
            }
            command::UDP_GET_REMOTEIP if dump => Self::Remotes { name: bearer_name()? },
            command::SOCK_GET if dump => Self::Sockets,
            command::PUBL_GET if dump => {
                Self::Bindings { port: nest(top::SOCK)?.u32(socket::REF)?.ok_or(Errno::INVALID)? }
            }
            command::LINK_GET if dump => match all.nest(top::LINK) {
                None => Self::Links { broadcast: false },
                Some(nest) if nest.flag(link::BROADCAST) => Self::Links { broadcast: true },
                Some(_) => return Err(Errno::INVALID.into()),
            },
            command::LINK_GET => Self::LinkGet { name: link_name()? },
            command::LINK_SET if !dump => Self::LinkSet {
                name: link_name()?,
                properties: Properties::read_within(nest(top::LINK)?, link::PROP)?,
            },
            command::LINK_RESET_STATS if !dump => Self::LinkReset { name: link_name()? },
            command::LINK_HISTORY if dump && header.version >= EXTENDED => Self::LinkHistory,
            command::MEDIA_GET if dump => Self::Media,
            command::MEDIA_GET => Self::MediaGet { name: media_name()? },
            command::MEDIA_SET if !dump => Self::MediaSet {
                name: media_name()?,
                properties: Properties::read_within(nest(top::MEDIA)?, media::PROP)?,
            },
            command::NODE_GET if dump => Self::Nodes,
            command::NET_GET if dump => Self::Net,
            command::NET_SET if !dump => {
                let nest = nest(top::NET)?;
                Self::NetSet {
                    id: nest.u32(net::ID)?,
                    address: nest.u32(net::ADDR)?,
                    identity: read_identity(nest)?,
                }
            }
            command::NAME_TABLE_GET if dump => Self::Names,
            command::MON_SET if !dump => {
                Self::MonitorSet { threshold: nest(top::MON)?.u32(monitor::THRESHOLD)? }
            }
            command::MON_GET if dump => Self::Monitors,
            command::MON_GET => Self::MonitorGet,
            command::MON_PEER_GET if dump => {
                Self::MonitorPeers { bearer: nest(top::MON)?.u32(monitor::REF)?.ok_or(Errno::INVALID)? }
            }
            command::PEER_REMOVE if !dump => {
                let nest = nest(top::NET)?;
                Self::PeerRemove { address: nest.u32(net::ADDR)?, identity: read_identity(nest)? }
            }
            command::KEY_SET if !dump => nest(top::NODE).map(|_| Self::KeySet)?,
            command::KEY_FLUSH if !dump => Self::KeyFlush,
            command::ADDR_LEGACY_GET if !dump => Self::LegacyAddress,
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }
}

/// The identity is two numbers whose bytes in memory are its bytes.
pub(crate) fn write_identity(out: &mut Writer<'_>, identity: Option<&[u8; 16]>) {
    if let Some((first, rest)) = identity.and_then(|id| id.split_first_chunk::<8>()) {
        out.bytes(net::NODEID, first);
        out.bytes(net::NODEID_W1, rest);
    }
}

pub(crate) fn read_identity(nest: Nest<'_>) -> Result<Option<[u8; 16]>, Errno> {
    let Some(first) = nest.u64(net::NODEID)? else { return Ok(None) };
    let second = nest.u64(net::NODEID_W1)?.ok_or(Errno::INVALID)?;
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&first.to_ne_bytes());
    identity[8..].copy_from_slice(&second.to_ne_bytes());
    Ok(Some(identity))
}
