//! Entries: the values of which replies consist.

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{
    bearer, command, connection, counter, link, longest, media, monitor, monitor_peer, net, node, property,
    publication, socket, stats, top, udp,
};
use crate::request::{read_identity, write_identity};

/// Longest text in utipc's own attributes, in bytes.
const MAX_TEXT: usize = 256;
/// Largest number of members of a domain of the neighbour monitor.
const MAX_MEMBERS: usize = 64;

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
    /// Percentage of the nodes above which the method chosen is broadcast.
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
    /// Whether broadcasts are copied to a list of remotes.
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

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Node address.
    pub node: u32,
    /// Port number.
    pub port: u32,
    /// Service type and instance by which the connection was set up.
    pub service: Option<(u32, u32)>,
}

/// The process of a socket and the socket's traffic. A utipc extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process ID; 0 for the node's own sockets.
    pub pid: u32,
    /// User ID.
    pub uid: u32,
    /// Name of the program.
    pub program: String,
    /// Messages sent, bytes sent, messages received, bytes received, messages returned, messages refused.
    pub counters: [u64; 6],
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Port number.
    pub port: u32,
    /// Node address.
    pub node: u32,
    /// The peer, if the socket is connected.
    pub connection: Option<Connection>,
    /// Whether it is unconnected and has bindings.
    pub bound: bool,
    /// Socket type as in `socket()`: 1 stream, 2 datagram, 4 reliable datagram, 5 sequenced packets.
    pub kind: Option<u32>,
    /// The process that owns the socket.
    pub process: Option<Process>,
}

/// A binding, of a socket or in the binding table; a socket's has neither scope nor port.
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

/// The last failure of a link. A utipc extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The reason as text.
    pub reason: String,
    /// The time, in milliseconds since 1970.
    pub time: u64,
}

/// Counters of a link, numbered as in the kernel; absent ones are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats([Option<u32>; stats::COUNT as usize]);

impl Default for Stats {
    fn default() -> Self {
        Self([None; stats::COUNT as usize])
    }
}

impl Stats {
    /// The value of a counter; 0 if it is absent.
    #[must_use]
    pub fn get(&self, which: u16) -> u32 {
        self.0.get(usize::from(which).wrapping_sub(1)).copied().flatten().unwrap_or(0)
    }

    /// Sets a counter; counters are 32 bits wide and wrap.
    pub fn set(&mut self, which: u16, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(which).wrapping_sub(1)) {
            *place = Some(value as u32);
        }
    }
}

/// A link, or one side of the broadcast link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The cluster mask of the own address, which the kernel puts here.
    pub destination: u32,
    /// Packet size in bytes.
    pub mtu: u32,
    /// Whether it is the broadcast link.
    pub broadcast: bool,
    /// Whether it can carry traffic.
    pub up: bool,
    /// Whether it carries traffic.
    pub active: bool,
    /// Properties. The window is the one in use, of the broadcast link the largest.
    pub properties: Properties,
    /// Counters.
    pub stats: Stats,
    /// Packets received.
    pub received: u32,
    /// Packets sent.
    pub sent: u32,
    /// The last time it went down. A utipc extension.
    pub down: Option<Down>,
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
    /// Its identity. A utipc extension: replies of the kernel do not have it.
    pub identity: Option<[u8; 16]>,
}

/// The own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Cluster number.
    pub id: u32,
    /// Identity; zeros if there is none.
    pub identity: [u8; 16],
    /// Address. A utipc extension, sent only if the request has version [`EXTENDED`](crate::family::EXTENDED).
    pub address: Option<u32>,
}

/// The neighbour monitor of a bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Index of the bearer.
    pub bearer: u32,
    /// Name of the bearer.
    pub name: String,
    /// Whether it is active: each node supervises only some of the others.
    pub active: bool,
    /// Number of nodes, including the own one.
    pub nodes: u32,
    /// Number of changes to the list of nodes.
    pub generation: u32,
}

/// The nodes that a node in the monitor supervises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Number of changes to the domain.
    pub generation: u32,
    /// Bit i: member i is up.
    pub up: u64,
    /// The members, at most 64.
    pub members: Vec<u32>,
}

/// A node in the monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorPeer {
    /// Its address.
    pub address: u32,
    /// Number of leading members of its domain that agree with the own list.
    pub applied: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is the head of a domain.
    pub head: bool,
    /// Whether it is in the own domain.
    pub local: bool,
    /// The domain that it has announced.
    pub domain: Option<Domain>,
}

/// The value of one message of a reply.
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
        }
    }

    /// Writes its attributes, utipc's own only if `extended`.
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
            }),
            Self::Net(n) => out.nest(top::NET, |out| {
                out.u32(net::ID, n.id);
                write_identity(out, Some(&n.identity));
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
                Self::Node(Node { address: required(nest, node::ADDR)?, up: nest.flag(node::UP), identity })
            }
            command::NET_GET => {
                let nest = nest(top::NET)?;
                Self::Net(Net {
                    id: required(nest, net::ID)?,
                    identity: read_identity(nest)?.unwrap_or_default(),
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
            command::MON_PEER_GET => Self::MonitorPeer(MonitorPeer::read(nest(top::MON_PEER)?)?),
            _ => return Err(Errno::NOT_SUPPORTED),
        })
    }
}

fn required(nest: Nest<'_>, kind: u16) -> Result<u32, Errno> {
    nest.u32(kind)?.ok_or(Errno::INVALID)
}

impl Socket {
    fn write(&self, out: &mut Writer<'_>, extended: bool) {
        out.u32(socket::REF, self.port);
        out.u32(socket::ADDR, self.node);
        if let Some(c) = &self.connection {
            out.nest(socket::CON, |out| {
                out.u32(connection::NODE, c.node);
                out.u32(connection::SOCK, c.port);
                if let Some((service, instance)) = c.service {
                    out.flag(connection::FLAG, true);
                    out.u32(connection::TYPE, service);
                    out.u32(connection::INST, instance);
                }
            });
        }
        out.flag(socket::HAS_PUBL, self.bound);
        if !extended {
            return;
        }
        out.optional_u32(socket::TYPE, self.kind);
        if let Some(process) = &self.process {
            out.u32(socket::UID, process.uid);
            out.u32(socket::PID, process.pid);
            out.text(socket::PROGRAM, &process.program);
            out.nest(socket::COUNTERS, |out| {
                for (which, value) in (counter::SENT..).zip(process.counters) {
                    out.u64(which, value);
                }
            });
        }
    }

    fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let connected = |c: Nest<'_>| -> Result<Connection, Errno> {
            let named = c.flag(connection::FLAG);
            let service = (c.u32(connection::TYPE)?.unwrap_or(0), c.u32(connection::INST)?.unwrap_or(0));
            Ok(Connection {
                node: required(c, connection::NODE)?,
                port: required(c, connection::SOCK)?,
                service: named.then_some(service),
            })
        };
        let process = match nest.u32(socket::PID)? {
            None => None,
            Some(pid) => {
                let nested = nest.nest(socket::COUNTERS).unwrap_or_default();
                let mut counters = [0; 6];
                for (which, value) in (counter::SENT..).zip(&mut counters) {
                    *value = nested.u64(which)?.unwrap_or(0);
                }
                let uid = nest.u32(socket::UID)?.unwrap_or(0);
                let program = nest.text(socket::PROGRAM, MAX_TEXT)?.unwrap_or_default();
                Some(Process { pid, uid, program, counters })
            }
        };
        Ok(Self {
            port: required(nest, socket::REF)?,
            node: nest.u32(socket::ADDR)?.unwrap_or(0),
            connection: nest.nest(socket::CON).map(connected).transpose()?,
            bound: nest.flag(socket::HAS_PUBL),
            kind: nest.u32(socket::TYPE)?,
            process,
        })
    }
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

impl Link {
    fn write(&self, out: &mut Writer<'_>, extended: bool) {
        out.text(link::NAME, &self.name);
        if !self.broadcast {
            out.u32(link::DEST, self.destination);
            out.u32(link::MTU, self.mtu);
        }
        out.flag(link::BROADCAST, self.broadcast);
        out.u32(link::RX, self.received);
        out.u32(link::TX, self.sent);
        out.flag(link::UP, self.up);
        out.flag(link::ACTIVE, self.active);
        self.properties.write(out, link::PROP);
        out.nest(link::STATS, |out| {
            for (which, value) in (1..).zip(self.stats.0) {
                out.optional_u32(which, value);
            }
        });
        if let Some(down) = self.down.as_ref().filter(|_| extended) {
            out.text(link::DOWN_REASON, &down.reason);
            out.u64(link::DOWN_TIME, down.time);
        }
    }

    fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let mut counters = Stats::default();
        let nested = nest.nest(link::STATS).unwrap_or_default();
        for (which, place) in (1..).zip(&mut counters.0) {
            *place = nested.u32(which)?;
        }
        let number = |kind| nest.u32(kind).map(Option::unwrap_or_default);
        let down = match (nest.text(link::DOWN_REASON, MAX_TEXT)?, nest.u64(link::DOWN_TIME)?) {
            (Some(reason), Some(time)) => Some(Down { reason, time }),
            _ => None,
        };
        Ok(Self {
            name: nest.text(link::NAME, longest::LINK)?.ok_or(Errno::INVALID)?,
            destination: number(link::DEST)?,
            mtu: number(link::MTU)?,
            broadcast: nest.flag(link::BROADCAST),
            up: nest.flag(link::UP),
            active: nest.flag(link::ACTIVE),
            properties: Properties::read_within(nest, link::PROP)?,
            stats: counters,
            received: number(link::RX)?,
            sent: number(link::TX)?,
            down,
        })
    }
}

impl MonitorPeer {
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(monitor_peer::ADDR, self.address);
        out.u32(monitor_peer::APPLIED, self.applied);
        out.flag(monitor_peer::UP, self.up);
        out.flag(monitor_peer::LOCAL, self.local);
        out.flag(monitor_peer::HEAD, self.head);
        if let Some(domain) = &self.domain {
            out.u32(monitor_peer::DOMGEN, domain.generation);
            out.u64(monitor_peer::UPMAP, domain.up);
            let members: Vec<u8> = domain.members.iter().flat_map(|m| m.to_ne_bytes()).collect();
            out.bytes(monitor_peer::MEMBERS, &members);
        }
    }

    fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let domain = match nest.u32(monitor_peer::DOMGEN)? {
            None => None,
            Some(generation) => {
                let members = nest.value(monitor_peer::MEMBERS).unwrap_or_default();
                let (members, _) = members.as_chunks::<4>();
                if members.len() > MAX_MEMBERS {
                    return Err(Errno::INVALID);
                }
                let members = members.iter().map(|m| u32::from_ne_bytes(*m)).collect();
                Some(Domain { generation, up: nest.u64(monitor_peer::UPMAP)?.unwrap_or(0), members })
            }
        };
        Ok(Self {
            address: required(nest, monitor_peer::ADDR)?,
            applied: nest.u32(monitor_peer::APPLIED)?.unwrap_or(0),
            up: nest.flag(monitor_peer::UP),
            head: nest.flag(monitor_peer::HEAD),
            local: nest.flag(monitor_peer::LOCAL),
            domain,
        })
    }
}
