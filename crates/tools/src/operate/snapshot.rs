//! The state of a node at one moment, as `status`, `top` and `doctor` use it, and as `--json` prints it.
//!
//! The names of the members are an interface: `docs/operating/operate.md` lists them. Members are added, never renamed.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use utipc::manage::Management;
use utipc_manage::family::stats;
use utipc_manage::{Entry, Request};

use super::node::Node;
use crate::manage::identity;

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    /// `daemon` or `kernel`.
    pub(crate) engine: &'static str,
    /// When it was taken, milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) node: OwnNode,
    /// Absent for the kernel.
    pub(crate) daemon: Option<Daemon>,
    pub(crate) bearers: Vec<Bearer>,
    pub(crate) links: Vec<Link>,
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) users: Vec<User>,
    /// Frames that show a problem.
    pub(crate) problems: Vec<Problem>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sockets: Vec<Socket>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<Service>,
}

/// The own node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct OwnNode {
    /// Hexadecimal; 0 while it has none.
    pub(crate) address: String,
    pub(crate) identity: String,
    pub(crate) cluster: u32,
}

/// The daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Daemon {
    pub(crate) release: String,
    pub(crate) pid: u32,
    pub(crate) user: u32,
    /// Milliseconds since 1970.
    pub(crate) started: u64,
    pub(crate) processes: u64,
    pub(crate) sockets: u64,
    pub(crate) lanes: u64,
    pub(crate) damaged_lanes: u64,
    pub(crate) requests: u64,
    pub(crate) turns: u64,
    pub(crate) long_turns: u64,
    pub(crate) longest_turn_us: u64,
    /// The handler that took most of it.
    pub(crate) longest_turn_handler: String,
    pub(crate) captures: u64,
}

/// A bearer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Bearer {
    pub(crate) name: String,
    pub(crate) mtu: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) tolerance_ms: Option<u32>,
    pub(crate) window: Option<u32>,
    pub(crate) local: Option<String>,
    /// The multicast group.
    pub(crate) group: Option<String>,
    /// The peers that broadcasts are copied to.
    pub(crate) remotes: Vec<String>,
    pub(crate) rx_frames: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_frames: u64,
    pub(crate) tx_bytes: u64,
    /// Frames that were not sent.
    pub(crate) tx_dropped: u64,
    pub(crate) rx_errors: u64,
    /// Reports that a frame did not reach its node.
    pub(crate) rx_unreachable: u64,
}

/// A link to another node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// Address of the peer, hexadecimal; empty if the node does not report it.
    pub(crate) peer: String,
    pub(crate) peer_media: String,
    pub(crate) bearer: String,
    pub(crate) up: bool,
    pub(crate) active: bool,
    pub(crate) mtu: u32,
    pub(crate) priority: Option<u32>,
    pub(crate) tolerance_ms: Option<u32>,
    pub(crate) window: Option<u32>,
    /// Milliseconds since 1970.
    pub(crate) up_since: Option<u64>,
    pub(crate) last_down: Option<u64>,
    pub(crate) last_down_reason: Option<String>,
    pub(crate) tx_packets: u32,
    pub(crate) rx_packets: u32,
    pub(crate) retransmitted: u32,
    pub(crate) congestions: u32,
    pub(crate) max_queue: u32,
}

/// Another node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Neighbour {
    /// Hexadecimal.
    pub(crate) address: String,
    pub(crate) identity: String,
    pub(crate) up: bool,
}

/// A user's use of the resources that have quotas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct User {
    /// Absent for all together.
    pub(crate) uid: Option<u32>,
    pub(crate) resources: Vec<Resource>,
}

/// Use of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) used: u64,
    /// Absent without a limit.
    pub(crate) limit: Option<u64>,
    pub(crate) refused: u64,
}

/// Frames that show a problem.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Problem {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// Milliseconds since 1970.
    pub(crate) last: u64,
    pub(crate) bearer: String,
    /// Address of the sender, hexadecimal.
    pub(crate) peer: String,
    pub(crate) detail: String,
}

/// A socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Socket {
    pub(crate) port: u32,
    /// `STREAM`, `DGRAM`, `RDM` or `SEQPACKET`.
    pub(crate) kind: &'static str,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) program: String,
    /// `address:port` of a connection, hexadecimal address.
    pub(crate) peer: Option<String>,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) returned: u64,
    pub(crate) refused: u64,
    pub(crate) unread_bytes: u64,
    /// Bytes of memory that its lanes have carried.
    pub(crate) lane_sent_bytes: u64,
    pub(crate) lane_received_bytes: u64,
    /// The condition that its sender waits for.
    pub(crate) waits_for: Option<String>,
}

/// A binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Service {
    pub(crate) service: u32,
    pub(crate) lower: u32,
    pub(crate) upper: u32,
    /// Hexadecimal.
    pub(crate) node: String,
    pub(crate) port: u32,
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An address as it is shown.
pub(crate) fn hex(address: u32) -> String {
    format!("{address:x}")
}

impl Snapshot {
    /// Takes a snapshot, with sockets and services if `details`.
    pub(crate) fn take(node: &Node, details: bool) -> Result<Self> {
        let mut shot = Self { time: now_ms(), ..Self::default() };
        shot.engine = if node.0.is_kernel() { "kernel" } else { "daemon" };
        shot.read_node(node)?;
        shot.read_bearers(node)?;
        for entry in node.ask(&Request::Links { broadcast: false })? {
            if let Entry::Link(link) = entry
                && !link.broadcast
            {
                shot.links.push(read_link(link));
            }
        }
        for entry in node.ask(&Request::Quotas)? {
            if let Entry::Quota(quota) = entry {
                shot.users.push(read_user(quota));
            }
        }
        if let Some(text) = node.0.counters()? {
            let counters: Value = serde_json::from_slice(&text)
                .context("the daemon's counters are malformed (use the same release for both)")?;
            shot.read_counters(&counters);
        }
        if details {
            shot.read_details(node)?;
        }
        Ok(shot)
    }

    fn read_node(&mut self, node: &Node) -> Result<()> {
        for entry in node.ask(&Request::Net)? {
            if let Entry::Net(net) = entry {
                let address = net.address.unwrap_or_else(|| Management::kernel_address().0);
                self.node = OwnNode {
                    address: hex(address),
                    identity: identity::show(&net.identity),
                    cluster: net.id,
                };
            }
        }
        for entry in node.ask(&Request::Nodes)? {
            if let Entry::Node(found) = entry
                && hex(found.address) != self.node.address
            {
                let identity = match found.identity {
                    Some(identity) => identity::show(&identity),
                    None => Management::kernel_identity(utipc::NodeAddr(found.address))
                        .map(|id| identity::show(&id.0))
                        .unwrap_or_default(),
                };
                self.neighbours.push(Neighbour { address: hex(found.address), identity, up: found.up });
            }
        }
        Ok(())
    }

    fn read_bearers(&mut self, node: &Node) -> Result<()> {
        for entry in node.ask(&Request::Bearers)? {
            let Entry::Bearer(found) = entry else { continue };
            let mut bearer = Bearer {
                mtu: found.properties.mtu,
                priority: found.properties.priority,
                tolerance_ms: found.properties.tolerance,
                window: found.properties.window,
                ..Bearer::default()
            };
            if let Some(udp) = found.udp {
                bearer.local = Some(udp.local.to_string());
                if udp.replicast || !udp.remote.ip().is_multicast() {
                    for entry in node.ask(&Request::Remotes { name: found.name.clone() })? {
                        if let Entry::Remote(remote) = entry {
                            bearer.remotes.push(remote.to_string());
                        }
                    }
                } else {
                    bearer.group = Some(udp.remote.to_string());
                }
            }
            bearer.name = found.name;
            self.bearers.push(bearer);
        }
        Ok(())
    }

    fn read_counters(&mut self, counters: &Value) {
        let of = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let text = |value: &Value, path: &str| {
            value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let daemon = &counters["daemon"];
        self.daemon = Some(Daemon {
            release: text(daemon, "/release"),
            pid: short(of(daemon, "/pid")),
            user: short(of(daemon, "/user")),
            started: of(daemon, "/started"),
            processes: of(daemon, "/attached"),
            sockets: of(daemon, "/sockets"),
            lanes: of(daemon, "/lanes"),
            damaged_lanes: of(daemon, "/lanes_corrupt"),
            requests: of(daemon, "/requests"),
            turns: of(daemon, "/turns/turns"),
            long_turns: of(daemon, "/turns/long"),
            longest_turn_us: of(daemon, "/turns/longest/micros"),
            longest_turn_handler: text(daemon, "/turns/longest/handler"),
            captures: of(daemon, "/captures/captures"),
        });
        for (name, problem) in counters["problems"].as_object().into_iter().flatten() {
            self.problems.push(Problem {
                name: name.clone(),
                count: of(problem, "/count"),
                last: of(problem, "/last"),
                bearer: text(problem, "/bearer"),
                peer: hex(short(of(problem, "/peer"))),
                detail: text(problem, "/detail"),
            });
        }
        for pair in counters["bearers"].as_array().into_iter().flatten() {
            let bearer = self.bearers.iter_mut().find(|bearer| pair[0].as_str() == Some(&bearer.name));
            if let Some(bearer) = bearer {
                bearer.rx_frames = of(pair, "/1/rx_frames");
                bearer.rx_bytes = of(pair, "/1/rx_bytes");
                bearer.tx_frames = of(pair, "/1/tx_frames");
                bearer.tx_bytes = of(pair, "/1/tx_bytes");
                bearer.tx_dropped = of(pair, "/1/tx_dropped") + of(pair, "/1/tx_refused");
                bearer.rx_errors = of(pair, "/1/rx_errors");
                bearer.rx_unreachable = of(pair, "/1/rx_unreachable");
            }
        }
    }

    fn read_details(&mut self, node: &Node) -> Result<()> {
        for entry in node.ask(&Request::Sockets)? {
            if let Entry::Socket(socket) = entry {
                self.sockets.push(read_socket(socket));
            }
        }
        for entry in node.ask(&Request::Names)? {
            if let Entry::Name(name) = entry {
                self.services.push(Service {
                    service: name.service,
                    lower: name.lower,
                    upper: name.upper,
                    node: hex(name.node),
                    port: name.port,
                });
            }
        }
        Ok(())
    }
}

fn read_link(link: utipc_manage::Link) -> Link {
    let path = link.path.unwrap_or_default();
    Link {
        peer: if path.peer == 0 { String::new() } else { hex(path.peer) },
        peer_media: path.media,
        bearer: path.bearer,
        up: link.up,
        active: link.up && link.active,
        mtu: link.mtu,
        priority: link.properties.priority,
        tolerance_ms: link.properties.tolerance,
        window: link.properties.window,
        up_since: link.up_since,
        last_down: link.down.as_ref().map(|down| down.time),
        last_down_reason: link.down.map(|down| down.reason),
        tx_packets: link.sent,
        rx_packets: link.received,
        retransmitted: link.stats.get(stats::RETRANSMITTED),
        congestions: link.stats.get(stats::LINK_CONGS),
        max_queue: link.stats.get(stats::MAX_QUEUE),
        name: link.name,
    }
}

fn read_user(quota: utipc_manage::Quota) -> User {
    let resource = |r: utipc_manage::ResourceUse| Resource {
        name: r.name,
        used: r.used,
        limit: (r.limit < u64::MAX).then_some(r.limit),
        refused: r.refused,
    };
    User { uid: quota.user, resources: quota.resources.into_iter().map(resource).collect() }
}

fn read_socket(socket: utipc_manage::Socket) -> Socket {
    let process = socket.process.unwrap_or_default();
    let [sent, sent_bytes, received, received_bytes, returned, refused] = process.counters;
    Socket {
        port: socket.port,
        kind: match socket.kind {
            Some(1) => "STREAM",
            Some(2) => "DGRAM",
            Some(4) => "RDM",
            Some(5) => "SEQPACKET",
            _ => "?",
        },
        pid: process.pid,
        uid: process.uid,
        program: process.program,
        peer: socket.connection.map(|peer| format!("{:x}:{}", peer.node, peer.port)),
        sent,
        sent_bytes,
        received,
        received_bytes,
        returned,
        refused,
        unread_bytes: process.unread,
        lane_sent_bytes: process.lanes[0],
        lane_received_bytes: process.lanes[1],
        waits_for: process.wait,
    }
}
