//! What one message of an answer says.

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{
    bearer, command, connection, counter, link, longest, media, monitor, monitor_peer, net, node, property,
    publication, socket, stats, top, udp,
};
use crate::request::{read_identity, write_identity};

/// Longest text of ours that is read, bytes.
const MAX_TEXT: usize = 256;
/// Members of a domain of the neighbour monitor, at most.
const MAX_MEMBERS: usize = 64;

/// Properties of a bearer, a link or a medium; in a request those to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Priority, 0 to 31.
    pub priority: Option<u32>,
    /// Tolerance, milliseconds.
    pub tolerance: Option<u32>,
    /// Window, packets.
    pub window: Option<u32>,
    /// Largest packet, bytes; of UDP alone.
    pub mtu: Option<u32>,
    /// Method of the broadcast link: 1 broadcast, 2 replicast, 4 chosen each time.
    pub broadcast: Option<u32>,
    /// Percent of the nodes above which the choice is broadcast.
    pub ratio: Option<u32>,
}

impl Properties {
    pub(crate) fn write(&self, out: &mut Writer<'_>, kind: u16) {
        out.nest(kind, |out| {
            out.maybe(property::PRIO, self.priority);
            out.maybe(property::TOL, self.tolerance);
            out.maybe(property::WIN, self.window);
            out.maybe(property::MTU, self.mtu);
            out.maybe(property::BROADCAST, self.broadcast);
            out.maybe(property::BROADCAST_RATIO, self.ratio);
        });
    }

    /// None at all if the nest is not there.
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
    /// Its own.
    pub local: SocketAddr,
    /// The multicast group, or the first remote.
    pub remote: SocketAddr,
    /// It copies broadcasts to a list of remotes.
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
    /// Priority, tolerance, window; MTU of UDP.
    pub properties: Properties,
    /// Addresses, of UDP.
    pub udp: Option<Udp>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Node.
    pub node: u32,
    /// Port.
    pub port: u32,
    /// Service type and instance by which it was set up.
    pub service: Option<(u32, u32)>,
}

/// Whose a socket is, and what it has done. Ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Number; 0 for the node's own sockets.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Name of the program.
    pub program: String,
    /// Messages and bytes sent, messages and bytes received, messages returned and refused.
    pub counters: [u64; 6],
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its port.
    pub port: u32,
    /// Its node.
    pub node: u32,
    /// The other end, if it is connected.
    pub connection: Option<Connection>,
    /// It is not connected, and has bindings.
    pub bound: bool,
    /// As `socket()` numbers types: 1 stream, 2 datagram, 4 reliable datagram, 5 sequenced packets.
    pub kind: Option<u32>,
    /// Whose it is.
    pub process: Option<Process>,
}

/// A binding, as one of a socket or as an entry of the table; a socket's has neither scope nor port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Service type.
    pub service: u32,
    /// Lowest instance.
    pub lower: u32,
    /// Highest instance.
    pub upper: u32,
    /// 1 zone, 2 cluster, 3 node.
    pub scope: u32,
    /// Node of the socket.
    pub node: u32,
    /// Port of the socket.
    pub port: u32,
    /// Tells the bindings of a socket apart.
    pub key: u32,
}

/// Why a link went down, and when. Ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// Why, in words.
    pub reason: String,
    /// Milliseconds since 1970.
    pub time: u64,
}

/// Counters of a link, by the kernel's numbers; absent ones are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats([Option<u32>; stats::COUNT as usize]);

impl Default for Stats {
    fn default() -> Self {
        Self([None; stats::COUNT as usize])
    }
}

impl Stats {
    /// One counter; 0 if it is not told.
    #[must_use]
    pub fn get(&self, which: u16) -> u32 {
        self.0.get(usize::from(which).wrapping_sub(1)).copied().flatten().unwrap_or(0)
    }

    /// Sets one; the counters are 32 bits wide and wrap.
    pub fn set(&mut self, which: u16, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(which).wrapping_sub(1)) {
            *place = Some(value as u32);
        }
    }
}

/// A link, or a side of the broadcast link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The kernel puts its own address's cluster mask here.
    pub destination: u32,
    /// Packet size, bytes.
    pub mtu: u32,
    /// It is the broadcast link.
    pub broadcast: bool,
    /// It can carry traffic.
    pub up: bool,
    /// It carries traffic.
    pub active: bool,
    /// Properties; of the window the one in use, of the broadcast link the largest.
    pub properties: Properties,
    /// Counters.
    pub stats: Stats,
    /// Packets received.
    pub received: u32,
    /// Packets sent.
    pub sent: u32,
    /// When it went down last. Ours.
    pub down: Option<Down>,
}

/// A medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Its name.
    pub name: String,
    /// What new bearers begin with.
    pub properties: Properties,
}

/// Another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its address.
    pub address: u32,
    /// There is contact.
    pub up: bool,
    /// Its identity; the kernel does not tell it.
    pub identity: Option<[u8; 16]>,
}

/// The own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Number of the cluster.
    pub id: u32,
    /// Identity; zeros without one.
    pub identity: [u8; 16],
    /// Address. Ours, told to who understands it.
    pub address: Option<u32>,
}

/// The neighbour monitor of a bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Index of the bearer.
    pub bearer: u32,
    /// Its name.
    pub name: String,
    /// It is active: not everybody supervises everybody.
    pub active: bool,
    /// Nodes, the own one included.
    pub nodes: u32,
    /// Changes of the list of nodes.
    pub generation: u32,
}

/// What a node in the monitor supervises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Counts the changes.
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
    /// Leading members of its domain that agree with the own list.
    pub applied: u32,
    /// It is up.
    pub up: bool,
    /// It is the head of a domain.
    pub head: bool,
    /// It is in the own domain.
    pub local: bool,
    /// What it has told of its domain.
    pub domain: Option<Domain>,
}

/// What one message of an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at its type")]
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

    /// Its attributes; what the kernel does not tell with `extended` alone.
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
                out.maybe(net::ADDR, n.address.filter(|_| extended));
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

    /// What a message with this command says.
    pub(crate) fn read(of: u8, all: Nest<'_>) -> Result<Self, Errno> {
        let nest = |kind| all.nest(kind).ok_or(Errno::INVALID);
        let text = |nest: Nest<'_>, kind, most| nest.text(kind, most)?.ok_or(Errno::INVALID);
        Ok(match of {
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
                Self::Node(Node { address: needed(nest, node::ADDR)?, up: nest.flag(node::UP), identity })
            }
            command::NET_GET => {
                let nest = nest(top::NET)?;
                Self::Net(Net {
                    id: needed(nest, net::ID)?,
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
                        bearer: needed(nest, monitor::REF)?,
                        name: text(nest, monitor::BEARER_NAME, longest::BEARER)?,
                        active: nest.flag(monitor::ACTIVE),
                        nodes: needed(nest, monitor::PEERCNT)?,
                        generation: needed(nest, monitor::LISTGEN)?,
                    }),
                }
            }
            command::MON_PEER_GET => Self::MonitorPeer(MonitorPeer::read(nest(top::MON_PEER)?)?),
            _ => return Err(Errno::NOT_SUPPORTED),
        })
    }
}

fn needed(nest: Nest<'_>, kind: u16) -> Result<u32, Errno> {
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
        out.maybe(socket::TYPE, self.kind);
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
                node: needed(c, connection::NODE)?,
                port: needed(c, connection::SOCK)?,
                service: named.then_some(service),
            })
        };
        let process = match nest.u32(socket::PID)? {
            None => None,
            Some(pid) => {
                let told = nest.nest(socket::COUNTERS).unwrap_or_default();
                let mut counters = [0; 6];
                for (which, value) in (counter::SENT..).zip(&mut counters) {
                    *value = told.u64(which)?.unwrap_or(0);
                }
                let uid = nest.u32(socket::UID)?.unwrap_or(0);
                let program = nest.text(socket::PROGRAM, MAX_TEXT)?.unwrap_or_default();
                Some(Process { pid, uid, program, counters })
            }
        };
        Ok(Self {
            port: needed(nest, socket::REF)?,
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
            service: needed(nest, publication::TYPE)?,
            lower: needed(nest, publication::LOWER)?,
            upper: needed(nest, publication::UPPER)?,
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
                out.maybe(which, value);
            }
        });
        if let Some(down) = self.down.as_ref().filter(|_| extended) {
            out.text(link::DOWN_REASON, &down.reason);
            out.u64(link::DOWN_TIME, down.time);
        }
    }

    fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let mut counters = Stats::default();
        let told = nest.nest(link::STATS).unwrap_or_default();
        for (which, place) in (1..).zip(&mut counters.0) {
            *place = told.u32(which)?;
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
            address: needed(nest, monitor_peer::ADDR)?,
            applied: nest.u32(monitor_peer::APPLIED)?.unwrap_or(0),
            up: nest.flag(monitor_peer::UP),
            head: nest.flag(monitor_peer::HEAD),
            local: nest.flag(monitor_peer::LOCAL),
            domain,
        })
    }
}
