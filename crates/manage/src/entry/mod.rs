//! Entries: the values that the messages of replies contain.

mod groups;
mod keys;
mod links;
mod monitors;
mod quotas;
mod sockets;

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{
    bearer, command, counters, longest, media, monitor, net, node, property, publication, top, udp,
};
use crate::identity;

pub use groups::{Group, GroupMember};
pub use keys::KeyState;
pub use links::{Down, Link, Path, Stats, Wide};
pub use monitors::{Domain, Monitor, MonitorPeer};
pub use quotas::{Quota, ResourceUse};
pub use sockets::{Connection, Process, Socket};

/// Longest text in utipc's own attributes, in bytes.
const MAX_TEXT: usize = 256;

/// Properties of a bearer, a link or a medium; in a request, those to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Priority, 0 to 31.
    pub priority: Option<u32>,
    /// Tolerance in milliseconds.
    pub tolerance: Option<u32>,
    /// Window in packets.
    pub window: Option<u32>,
    /// Largest packet in bytes; UDP only.
    pub mtu: Option<u32>,
    /// Method of the broadcast link: 1 broadcast, 2 replicast, 4 chosen for each message.
    pub broadcast: Option<u32>,
    /// If the method is chosen for each message: percentage of nodes above which it is broadcast.
    pub ratio: Option<u32>,
}

impl Properties {
    pub(crate) fn write(&self, out: &mut Writer<'_>, kind: u16) {
        out.nest(kind, |out| {
            out.optional_u32(property::PRIO, self.priority);
            out.optional_u32(property::TOL, self.tolerance);
            out.optional_u32(property::WIN, self.window);
            out.optional_u32(property::MTU, self.mtu);
            out.optional_u32(property::BROADCAST, self.broadcast);
            out.optional_u32(property::BROADCAST_RATIO, self.ratio);
        });
    }

    /// Without the nest, all properties are `None`.
    pub(crate) fn read_within(nest: Nest<'_>, kind: u16) -> Result<Self, Errno> {
        let nest = nest.nest(kind).unwrap_or_default();
        Ok(Self {
            priority: nest.u32(property::PRIO)?,
            tolerance: nest.u32(property::TOL)?,
            window: nest.u32(property::WIN)?,
            mtu: nest.u32(property::MTU)?,
            broadcast: nest.u32(property::BROADCAST)?,
            ratio: nest.u32(property::BROADCAST_RATIO)?,
        })
    }
}

/// Addresses of a UDP bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// The bearer's own address.
    pub local: SocketAddr,
    /// The multicast group, or the first remote.
    pub remote: SocketAddr,
    /// Whether each broadcast is sent to every remote of a list instead of a multicast group.
    pub replicast: bool,
}

impl Udp {
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.nest(bearer::UDP_OPTS, |out| {
            out.address(udp::LOCAL, self.local);
            out.address(udp::REMOTE, self.remote);
            out.flag(udp::MULTI_REMOTEIP, self.replicast);
        });
    }

    pub(crate) fn read(nest: Nest<'_>) -> Result<Option<Self>, Errno> {
        let (local, remote) = (nest.address(udp::LOCAL)?, nest.address(udp::REMOTE)?);
        let replicast = nest.flag(udp::MULTI_REMOTEIP);
        let (local, remote) = (local.ok_or(Errno::INVALID)?, remote.ok_or(Errno::INVALID)?);
        Ok(Some(Self { local, remote, replicast }))
    }
}

/// A bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// `media:name`.
    pub name: String,
    /// Priority, tolerance, window; for UDP also the MTU.
    pub properties: Properties,
    /// Addresses of a UDP bearer.
    pub udp: Option<Udp>,
}

/// A binding, in the list of a socket or in the binding table. In a socket's list it has neither scope nor port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Service type.
    pub service: u32,
    /// Lowest instance.
    pub lower: u32,
    /// Highest instance.
    pub upper: u32,
    /// 1 zone (obsolete), 2 cluster, 3 node.
    pub scope: u32,
    /// Node address of the socket.
    pub node: u32,
    /// Port number of the socket.
    pub port: u32,
    /// Distinguishes the bindings of a socket.
    pub key: u32,
}

/// A medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Its name.
    pub name: String,
    /// Initial properties of new bearers.
    pub properties: Properties,
}

/// A peer node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its address.
    pub address: u32,
    /// Whether it is reachable.
    pub up: bool,
    /// Its identity. The attribute is the kernel's, but the kernel does not put it into replies; utipc does if
    /// the request has version [`EXTENDED`](crate::family::EXTENDED).
    pub identity: Option<[u8; 16]>,
    /// State of contact and capability bits. A utipc extension.
    pub contact: Option<Contact>,
}

/// Contact with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Number of its state.
    pub state: u32,
    /// The node's capability bits.
    pub capabilities: u32,
}

/// The own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Cluster number.
    pub id: u32,
    /// Identity; all zeros if it has none.
    pub identity: [u8; 16],
    /// Address. The attribute is the kernel's, but the kernel does not put it into replies; utipc does if the
    /// request has version [`EXTENDED`](crate::family::EXTENDED).
    pub address: Option<u32>,
}

/// The content of one message of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at the types")]
pub enum Entry {
    Bearer(Bearer),
    /// A remote of a UDP bearer.
    Remote(SocketAddr),
    Socket(Socket),
    /// A binding of a socket.
    Binding(Publication),
    Link(Link),
    /// A link that went down.
    History(Link),
    Media(Media),
    Node(Node),
    Net(Net),
    /// Whether the own address is explicit.
    LegacyAddress(bool),
    /// An entry of the binding table.
    Name(Publication),
    /// The threshold of the monitor.
    Threshold(u32),
    Monitor(Monitor),
    MonitorPeer(MonitorPeer),
    Quota(Quota),
    Group(Group),
    GroupMember(GroupMember),
    Key(KeyState),
    /// The counters of the node and its daemon, a JSON object.
    Counters(Vec<u8>),
}

impl Entry {
    /// The command in the header of its message.
    #[must_use]
    pub const fn command(&self) -> u8 {
        match self {
            Self::Bearer(_) | Self::Remote(_) => command::BEARER_GET,
            Self::Socket(_) => command::SOCK_GET,
            Self::Binding(_) => command::PUBL_GET,
            Self::Link(_) => command::LINK_GET,
            Self::History(_) => command::LINK_HISTORY,
            Self::Media(_) => command::MEDIA_GET,
            Self::Node(_) => command::NODE_GET,
            Self::Net(_) => command::NET_GET,
            Self::LegacyAddress(_) => command::ADDR_LEGACY_GET,
            Self::Name(_) => command::NAME_TABLE_GET,
            Self::Threshold(_) | Self::Monitor(_) => command::MON_GET,
            Self::MonitorPeer(_) => command::MON_PEER_GET,
            Self::Quota(_) => command::QUOTA_GET,
            Self::Group(_) => command::GROUP_GET,
            Self::GroupMember(_) => command::GROUP_MEMBER_GET,
            Self::Key(_) => command::KEY_GET,
            Self::Counters(_) => command::COUNTERS_GET,
        }
    }

    /// Writes its attributes; those that the kernel does not put into replies only if `extended`.
    pub(crate) fn write(&self, out: &mut Writer<'_>, extended: bool) {
        match self {
            Self::Bearer(b) => out.nest(top::BEARER, |out| {
                out.text(bearer::NAME, &b.name);
                b.properties.write(out, bearer::PROP);
                if let Some(udp) = &b.udp {
                    udp.write(out);
                }
            }),
            Self::Remote(remote) => out.address(udp::REMOTE, *remote),
            Self::Socket(s) => out.nest(top::SOCK, |out| s.write(out, extended)),
            Self::Binding(p) => out.nest(top::PUBL, |out| {
                out.u32(publication::KEY, p.key);
                out.u32(publication::TYPE, p.service);
                out.u32(publication::LOWER, p.lower);
                out.u32(publication::UPPER, p.upper);
            }),
            Self::Link(l) | Self::History(l) => out.nest(top::LINK, |out| l.write(out, extended)),
            Self::Media(m) => out.nest(top::MEDIA, |out| {
                out.text(media::NAME, &m.name);
                m.properties.write(out, media::PROP);
            }),
            Self::Node(n) => out.nest(top::NODE, |out| {
                out.u32(node::ADDR, n.address);
                out.flag(node::UP, n.up);
                if let Some(identity) = n.identity.filter(|_| extended) {
                    out.bytes(node::ID, &identity);
                }
                if let Some(contact) = n.contact.filter(|_| extended) {
                    out.u32(node::STATE, contact.state);
                    out.u32(node::CAPABILITIES, contact.capabilities);
                }
            }),
            Self::Net(n) => out.nest(top::NET, |out| {
                out.u32(net::ID, n.id);
                identity::write(out, Some(&n.identity));
                out.optional_u32(net::ADDR, n.address.filter(|_| extended));
            }),
            Self::LegacyAddress(legacy) => out.nest(top::NET, |out| out.flag(net::ADDR_LEGACY, *legacy)),
            Self::Name(p) => out.nest(top::NAME_TABLE, |out| {
                out.nest(1, |out| {
                    out.u32(publication::TYPE, p.service);
                    out.u32(publication::LOWER, p.lower);
                    out.u32(publication::UPPER, p.upper);
                    out.u32(publication::SCOPE, p.scope);
                    out.u32(publication::NODE, p.node);
                    out.u32(publication::REF, p.port);
                    out.u32(publication::KEY, p.key);
                });
            }),
            Self::Threshold(nodes) => out.nest(top::MON, |out| out.u32(monitor::THRESHOLD, *nodes)),
            Self::Monitor(m) => out.nest(top::MON, |out| {
                out.u32(monitor::REF, m.bearer);
                out.flag(monitor::ACTIVE, m.active);
                out.text(monitor::BEARER_NAME, &m.name);
                out.u32(monitor::PEERCNT, m.nodes);
                out.u32(monitor::LISTGEN, m.generation);
            }),
            Self::MonitorPeer(p) => out.nest(top::MON_PEER, |out| p.write(out)),
            Self::Quota(q) => out.nest(top::NODE, |out| q.write(out)),
            Self::Group(g) => out.nest(top::SOCK, |out| g.write(out)),
            Self::GroupMember(m) => out.nest(top::SOCK, |out| m.write(out)),
            Self::Key(k) => out.nest(top::NODE, |out| k.write(out)),
            Self::Counters(json) => out.nest(top::NODE, |out| out.bytes(counters::JSON, json)),
        }
    }

    /// Decodes the attributes of a message with this command.
    pub(crate) fn read(command: u8, all: Nest<'_>) -> Result<Self, Errno> {
        let nest = |kind| all.nest(kind).ok_or(Errno::INVALID);
        let text = |nest: Nest<'_>, kind, most| nest.text(kind, most)?.ok_or(Errno::INVALID);
        Ok(match command {
            command::BEARER_GET if all.flag(udp::REMOTE) && !all.flag(top::BEARER) => {
                Self::Remote(all.address(udp::REMOTE)?.ok_or(Errno::INVALID)?)
            }
            command::BEARER_GET => {
                let nest = nest(top::BEARER)?;
                Self::Bearer(Bearer {
                    name: text(nest, bearer::NAME, longest::BEARER)?,
                    properties: Properties::read_within(nest, bearer::PROP)?,
                    udp: nest.nest(bearer::UDP_OPTS).map(Udp::read).transpose()?.flatten(),
                })
            }
            command::SOCK_GET => Self::Socket(Socket::read(nest(top::SOCK)?)?),
            command::PUBL_GET => Self::Binding(Publication::read(nest(top::PUBL)?)?),
            command::LINK_GET => Self::Link(Link::read(nest(top::LINK)?)?),
            command::LINK_HISTORY => Self::History(Link::read(nest(top::LINK)?)?),
            command::MEDIA_GET => {
                let nest = nest(top::MEDIA)?;
                let properties = Properties::read_within(nest, media::PROP)?;
                Self::Media(Media { name: text(nest, media::NAME, longest::MEDIA)?, properties })
            }
            command::NODE_GET => {
                let nest = nest(top::NODE)?;
                let identity = nest.value(node::ID).and_then(|id| id.try_into().ok());
                let contact = match (nest.u32(node::STATE)?, nest.u32(node::CAPABILITIES)?) {
                    (Some(state), Some(capabilities)) => Some(Contact { state, capabilities }),
                    _ => None,
                };
                let (address, up) = (required(nest, node::ADDR)?, nest.flag(node::UP));
                Self::Node(Node { address, up, identity, contact })
            }
            command::NET_GET => {
                let nest = nest(top::NET)?;
                Self::Net(Net {
                    id: required(nest, net::ID)?,
                    identity: identity::read(nest)?.unwrap_or_default(),
                    address: nest.u32(net::ADDR)?,
                })
            }
            command::ADDR_LEGACY_GET => Self::LegacyAddress(nest(top::NET)?.flag(net::ADDR_LEGACY)),
            command::NAME_TABLE_GET => {
                Self::Name(Publication::read(nest(top::NAME_TABLE)?.nest(1).ok_or(Errno::INVALID)?)?)
            }
            command::MON_GET => {
                let nest = nest(top::MON)?;
                match nest.u32(monitor::THRESHOLD)? {
                    Some(nodes) => Self::Threshold(nodes),
                    None => Self::Monitor(Monitor {
                        bearer: required(nest, monitor::REF)?,
                        name: text(nest, monitor::BEARER_NAME, longest::BEARER)?,
                        active: nest.flag(monitor::ACTIVE),
                        nodes: required(nest, monitor::PEERCNT)?,
                        generation: required(nest, monitor::LISTGEN)?,
                    }),
                }
            }
            command::QUOTA_GET => Self::Quota(Quota::read(nest(top::NODE)?)?),
            command::GROUP_GET => Self::Group(Group::read(nest(top::SOCK)?)?),
            command::GROUP_MEMBER_GET => Self::GroupMember(GroupMember::read(nest(top::SOCK)?)?),
            command::KEY_GET => Self::Key(KeyState::read(nest(top::NODE)?)?),
            command::COUNTERS_GET => {
                let json = nest(top::NODE)?.value(counters::JSON).ok_or(Errno::INVALID)?;
                Self::Counters(json.to_vec())
            }
            command::MON_PEER_GET => Self::MonitorPeer(MonitorPeer::read(nest(top::MON_PEER)?)?),
            _ => return Err(Errno::NOT_SUPPORTED),
        })
    }
}

pub(super) fn required(nest: Nest<'_>, kind: u16) -> Result<u32, Errno> {
    nest.u32(kind)?.ok_or(Errno::INVALID)
}

impl Publication {
    fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let number = |kind| nest.u32(kind).map(Option::unwrap_or_default);
        Ok(Self {
            service: required(nest, publication::TYPE)?,
            lower: required(nest, publication::LOWER)?,
            upper: required(nest, publication::UPPER)?,
            scope: number(publication::SCOPE)?,
            node: number(publication::NODE)?,
            port: number(publication::REF)?,
            key: number(publication::KEY)?,
        })
    }
}
