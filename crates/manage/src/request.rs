//! Requests of administrators.

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::capture::CaptureRequest;
use crate::entry::{Properties, Udp};
use crate::errno::{Errno, Refusal};
use crate::family::{
    EXTENDED, VERSION, bearer, command, group, link, longest, media, monitor, net, socket, top, udp,
};
use crate::identity;
use crate::key::KeyChange;
use crate::netlink::{self, Header, Messages, flag};

/// One request of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Disables a bearer; its links go down.
    BearerDisable {
        /// `media:name`.
        name: String,
    },
    /// Enables a bearer.
    BearerEnable {
        /// `media:name`; for Ethernet, the name of the interface.
        name: String,
        /// The domain of nodes to link with; 0 for all.
        domain: u32,
        /// Priority of its links; by default the medium's.
        priority: Option<u32>,
        /// Addresses of a UDP bearer.
        udp: Option<Udp>,
    },
    /// Shows one bearer.
    BearerGet {
        /// Its name.
        name: String,
    },
    /// Lists all bearers.
    Bearers,
    /// Changes a bearer's properties.
    BearerSet {
        /// Its name.
        name: String,
        /// The properties to change.
        properties: Properties,
    },
    /// Adds a remote to which a UDP bearer copies its broadcasts.
    BearerAdd {
        /// Its name.
        name: String,
        /// The remote.
        remote: Option<SocketAddr>,
    },
    /// Removes a remote of a UDP bearer. utipc's own.
    BearerRemove {
        /// Its name.
        name: String,
        /// The remote.
        remote: SocketAddr,
    },
    /// Lists the remotes of a UDP bearer.
    Remotes {
        /// Its name.
        name: String,
    },
    /// Lists all sockets of the node.
    Sockets,
    /// Lists the bindings of a socket.
    Bindings {
        /// Its port.
        port: u32,
    },
    /// Shows one link.
    LinkGet {
        /// Its name.
        name: String,
    },
    /// Lists all links.
    Links {
        /// Whether to include the receiving sides of the broadcast link.
        broadcast: bool,
    },
    /// Changes a link's properties.
    LinkSet {
        /// Its name.
        name: String,
        /// The properties to change.
        properties: Properties,
    },
    /// Resets a link's counters to zero.
    LinkReset {
        /// Its name.
        name: String,
    },
    /// Lists the quota usage of all users together, and of each user. A utipc extension.
    Quotas,
    /// Lists the keys of the node, without the keys themselves. A utipc extension.
    Keys,
    /// Lists the sockets that are in groups. A utipc extension.
    Groups,
    /// Lists the members of a socket's group. A utipc extension.
    GroupMembers {
        /// The socket.
        port: u32,
    },
    /// Lists recent link failures. A utipc extension.
    LinkHistory,
    /// Shows the counters of the node and its daemon. A utipc extension.
    Counters,
    /// Begins a capture; a descriptor comes with the answer, see [`crate::capture`]. A utipc extension.
    Capture(CaptureRequest),
    /// Shows one medium.
    MediaGet {
        /// Its name.
        name: String,
    },
    /// Lists all media.
    Media,
    /// Changes the initial properties of a medium's new bearers.
    MediaSet {
        /// Its name.
        name: String,
        /// The properties to change.
        properties: Properties,
    },
    /// Lists all other nodes.
    Nodes,
    /// Shows the own node and its cluster.
    Net,
    /// Configures this node and its cluster, while the node has no address.
    NetSet {
        /// Cluster number.
        id: Option<u32>,
        /// An explicit address.
        address: Option<u32>,
        /// An identity.
        identity: Option<[u8; 16]>,
    },
    /// Shows whether the own address is explicit.
    LegacyAddress,
    /// Lists the binding table.
    Names,
    /// Shows the threshold of the neighbour monitor.
    MonitorGet,
    /// Lists the monitors of all bearers.
    Monitors,
    /// Changes the threshold of the neighbour monitor.
    MonitorSet {
        /// Number of nodes above which the monitor is active.
        threshold: Option<u32>,
    },
    /// Lists the nodes in the monitor of a bearer.
    MonitorPeers {
        /// Index of the bearer.
        bearer: u32,
    },
    /// Removes a node that is down.
    PeerRemove {
        /// The node's address; `None`: by identity.
        address: Option<u32>,
        /// The node's identity; `None`: by address.
        identity: Option<[u8; 16]>,
    },
    /// Sets a key, or when the node makes new session keys, or both.
    KeySet(KeyChange),
    /// Removes all keys.
    KeyFlush,
}

impl Request {
    /// Its command, and whether it requests a list.
    #[must_use]
    pub const fn command(&self) -> (u8, bool) {
        match self {
            Self::BearerDisable { .. } => (command::BEARER_DISABLE, false),
            Self::BearerEnable { .. } => (command::BEARER_ENABLE, false),
            Self::BearerGet { .. } => (command::BEARER_GET, false),
            Self::Bearers => (command::BEARER_GET, true),
            Self::BearerSet { .. } => (command::BEARER_SET, false),
            Self::BearerAdd { .. } => (command::BEARER_ADD, false),
            Self::BearerRemove { .. } => (command::BEARER_REMOVE, false),
            Self::Remotes { .. } => (command::UDP_GET_REMOTEIP, true),
            Self::Sockets => (command::SOCK_GET, true),
            Self::Bindings { .. } => (command::PUBL_GET, true),
            Self::LinkGet { .. } => (command::LINK_GET, false),
            Self::Links { .. } => (command::LINK_GET, true),
            Self::LinkSet { .. } => (command::LINK_SET, false),
            Self::LinkReset { .. } => (command::LINK_RESET_STATS, false),
            Self::LinkHistory => (command::LINK_HISTORY, true),
            Self::Counters => (command::COUNTERS_GET, true),
            Self::Capture(_) => (command::CAPTURE, false),
            Self::Quotas => (command::QUOTA_GET, true),
            Self::Keys => (command::KEY_GET, true),
            Self::Groups => (command::GROUP_GET, true),
            Self::GroupMembers { .. } => (command::GROUP_MEMBER_GET, true),
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
            Self::KeySet(_) => (command::KEY_SET, false),
            Self::KeyFlush => (command::KEY_FLUSH, false),
        }
    }

    /// Whether it changes the node, or shows messages of other users, and so requires management rights.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(
            self,
            Self::BearerDisable { .. }
                | Self::BearerEnable { .. }
                | Self::BearerSet { .. }
                | Self::BearerAdd { .. }
                | Self::BearerRemove { .. }
                | Self::LinkSet { .. }
                | Self::LinkReset { .. }
                | Self::Capture(_)
                | Self::MediaSet { .. }
                | Self::NetSet { .. }
                | Self::MonitorSet { .. }
                | Self::PeerRemove { .. }
                | Self::KeySet(_)
                | Self::KeyFlush
        )
    }

    /// Encodes the request as one message. Family, sequence, port and version are taken from `header`; version 0 stands
    /// for the kernel's. Requests other than lists ask for an acknowledgement.
    #[must_use]
    pub fn to_bytes(&self, header: &Header) -> Vec<u8> {
        let (command, dump) = self.command();
        let flags = flag::REQUEST | if dump { flag::DUMP } else { flag::ACK };
        let version = if header.version == 0 { VERSION } else { header.version };
        let mut out = Vec::new();
        netlink::put(&mut out, &Header { flags, command, version, ..*header }, |out| {
            self.write(&mut Writer::for_request(out));
        });
        out
    }

    /// Encodes the request for a daemon, whose reply may contain utipc's own attributes. The daemon ignores the family
    /// number, which the kernel assigns.
    #[must_use]
    pub fn to_daemon(&self) -> Vec<u8> {
        self.to_bytes(&Header { family: u16::MAX, sequence: 1, version: EXTENDED, ..Header::default() })
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
            Self::BearerRemove { name, remote } => out.nest(top::BEARER, |out| {
                out.text(bearer::NAME, name);
                out.nest(bearer::UDP_OPTS, |out| out.address(udp::REMOTE, *remote));
            }),
            Self::Bindings { port } => out.nest(top::SOCK, |out| out.u32(socket::REF, *port)),
            Self::GroupMembers { port } => out.nest(top::SOCK, |out| out.u32(group::PORT, *port)),
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
                out.optional_u32(net::ID, *id);
                out.optional_u32(net::ADDR, *address);
                identity::write(out, identity.as_ref());
            }),
            Self::MonitorSet { threshold } => {
                out.nest(top::MON, |out| out.optional_u32(monitor::THRESHOLD, *threshold));
            }
            Self::MonitorPeers { bearer } => out.nest(top::MON, |out| out.u32(monitor::REF, *bearer)),
            Self::PeerRemove { address, identity } => out.nest(top::NET, |out| {
                out.optional_u32(net::ADDR, *address);
                identity::write(out, identity.as_ref());
            }),
            Self::KeySet(change) => out.nest(top::NODE, |out| change.write(out)),
            Self::Capture(capture) => out.nest(top::NODE, |out| capture.write(out)),
            Self::Bearers
            | Self::Sockets
            | Self::Links { broadcast: false }
            | Self::LinkHistory
            | Self::Counters
            | Self::Quotas
            | Self::Keys
            | Self::Groups
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

    /// Decodes the first message of a packet: its header, and the request or the reason to refuse it. `None` if the
    /// message is incomplete or has no generic netlink header.
    #[must_use]
    pub fn from_bytes(packet: &[u8]) -> Option<(Header, Result<Self, Refusal>)> {
        let message = Messages::new(packet).next().filter(|m| m.header.family >= netlink::kind::CONTROL)?;
        Some((message.header, Self::read(&message.header, Nest(message.body))))
    }

    fn read(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        match header.command {
            command::BEARER_DISABLE
            | command::BEARER_ENABLE
            | command::BEARER_GET
            | command::BEARER_SET
            | command::BEARER_ADD
            | command::BEARER_REMOVE
            | command::UDP_GET_REMOTEIP => Self::read_bearer(header, all),
            command::LINK_GET | command::LINK_SET | command::LINK_RESET_STATS | command::LINK_HISTORY => {
                Self::read_link(header, all)
            }
            command::MEDIA_GET | command::MEDIA_SET => Self::read_media(header, all),
            command::MON_SET | command::MON_GET | command::MON_PEER_GET => Self::read_monitor(header, all),
            _ => Self::read_node(header, all),
        }
    }

    fn read_bearer(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let dump = header.is_dump();
        let nest = || nest(all, top::BEARER);
        let name = || name(all, top::BEARER, longest::BEARER);
        Ok(match header.command {
            command::BEARER_DISABLE if !dump => Self::BearerDisable { name: name()? },
            command::BEARER_ENABLE if !dump => {
                let nest = nest()?;
                Self::BearerEnable {
                    name: name()?,
                    domain: nest.u32(bearer::DOMAIN)?.unwrap_or(0),
                    priority: Properties::read_within(nest, bearer::PROP)?.priority,
                    udp: nest.nest(bearer::UDP_OPTS).map(Udp::read).transpose()?.flatten(),
                }
            }
            command::BEARER_GET if dump => Self::Bearers,
            command::BEARER_GET => Self::BearerGet { name: name()? },
            command::BEARER_SET if !dump => {
                Self::BearerSet { name: name()?, properties: Properties::read_within(nest()?, bearer::PROP)? }
            }
            command::BEARER_ADD if !dump => {
                let options = nest()?.nest(bearer::UDP_OPTS);
                let remote = |o: Nest<'_>| o.address(udp::REMOTE)?.ok_or(Errno::INVALID);
                Self::BearerAdd { name: name()?, remote: options.map(remote).transpose()? }
            }
            command::BEARER_REMOVE if !dump => {
                let remote = nest()?.nest(bearer::UDP_OPTS).ok_or(Errno::INVALID)?.address(udp::REMOTE)?;
                Self::BearerRemove { name: name()?, remote: remote.ok_or(Errno::INVALID)? }
            }
            command::UDP_GET_REMOTEIP if dump => Self::Remotes { name: name()? },
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    fn read_link(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let dump = header.is_dump();
        let name = || name(all, top::LINK, longest::LINK);
        Ok(match header.command {
            command::LINK_GET if dump => match all.nest(top::LINK) {
                None => Self::Links { broadcast: false },
                Some(nest) if nest.flag(link::BROADCAST) => Self::Links { broadcast: true },
                Some(_) => return Err(Errno::INVALID.into()),
            },
            command::LINK_GET => Self::LinkGet { name: name()? },
            command::LINK_SET if !dump => Self::LinkSet {
                name: name()?,
                properties: Properties::read_within(nest(all, top::LINK)?, link::PROP)?,
            },
            command::LINK_RESET_STATS if !dump => Self::LinkReset { name: name()? },
            command::LINK_HISTORY if dump && header.version >= EXTENDED => Self::LinkHistory,
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    fn read_media(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let dump = header.is_dump();
        let name = || name(all, top::MEDIA, longest::MEDIA);
        Ok(match header.command {
            command::MEDIA_GET if dump => Self::Media,
            command::MEDIA_GET => Self::MediaGet { name: name()? },
            command::MEDIA_SET if !dump => Self::MediaSet {
                name: name()?,
                properties: Properties::read_within(nest(all, top::MEDIA)?, media::PROP)?,
            },
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    fn read_monitor(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let dump = header.is_dump();
        let nest = || nest(all, top::MON);
        Ok(match header.command {
            command::MON_SET if !dump => Self::MonitorSet { threshold: nest()?.u32(monitor::THRESHOLD)? },
            command::MON_GET if dump => Self::Monitors,
            command::MON_GET => Self::MonitorGet,
            command::MON_PEER_GET if dump => {
                Self::MonitorPeers { bearer: nest()?.u32(monitor::REF)?.ok_or(Errno::INVALID)? }
            }
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    /// Decodes all other requests: about sockets, nodes, the own node, the binding table and keys.
    fn read_node(header: &Header, all: Nest<'_>) -> Result<Self, Refusal> {
        let dump = header.is_dump();
        Ok(match header.command {
            command::SOCK_GET if dump => Self::Sockets,
            command::PUBL_GET if dump => {
                Self::Bindings { port: nest(all, top::SOCK)?.u32(socket::REF)?.ok_or(Errno::INVALID)? }
            }
            command::NODE_GET if dump => Self::Nodes,
            command::NET_GET if dump => Self::Net,
            command::NET_SET if !dump => {
                let nest = nest(all, top::NET)?;
                Self::NetSet {
                    id: nest.u32(net::ID)?,
                    address: nest.u32(net::ADDR)?,
                    identity: identity::read(nest)?,
                }
            }
            command::NAME_TABLE_GET if dump => Self::Names,
            command::COUNTERS_GET if dump && header.version >= EXTENDED => Self::Counters,
            command::QUOTA_GET if dump && header.version >= EXTENDED => Self::Quotas,
            command::KEY_GET if dump && header.version >= EXTENDED => Self::Keys,
            command::GROUP_GET if dump && header.version >= EXTENDED => Self::Groups,
            command::GROUP_MEMBER_GET if dump && header.version >= EXTENDED => {
                Self::GroupMembers { port: nest(all, top::SOCK)?.u32(group::PORT)?.ok_or(Errno::INVALID)? }
            }
            command::CAPTURE if !dump => Self::Capture(CaptureRequest::read(nest(all, top::NODE)?)?),
            command::PEER_REMOVE if !dump => {
                let nest = nest(all, top::NET)?;
                Self::PeerRemove { address: nest.u32(net::ADDR)?, identity: identity::read(nest)? }
            }
            command::KEY_SET if !dump => Self::KeySet(KeyChange::read(nest(all, top::NODE)?)?),
            command::KEY_FLUSH if !dump => Self::KeyFlush,
            command::ADDR_LEGACY_GET if !dump => Self::LegacyAddress,
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }
}

/// The top-level nest of this type, which the request must have.
fn nest(all: Nest<'_>, kind: u16) -> Result<Nest<'_>, Errno> {
    all.nest(kind).ok_or(Errno::INVALID)
}

/// The name in a top-level nest, of at most `most` bytes.
fn name(all: Nest<'_>, kind: u16, most: usize) -> Result<String, Refusal> {
    Ok(nest(all, kind)?.text(1, most)?.ok_or(Errno::INVALID)?)
}
