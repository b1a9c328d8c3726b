//! The only place where the measurements use utipc, besides `bench node`: nodes, sockets, how they are told to wait.

mod probes;
mod ways;

use std::net::SocketAddr;

use anyhow::Result;
use utipc::{Node, NodeAddr, ServiceAddress, Socket};

use super::channel::{Packets, Spinner};
use super::job::{Job, LIMIT, Role};
use super::party::{Engine, Mode, Transport};

pub(super) use probes::{bind_many, binder, crowd, hall, look_up, survivor, victim, watcher};
pub(super) use ways::{drive, serve};

/// Why the library cannot use the kernel's TIPC here, if so.
pub(super) fn kernel_obstacle() -> Option<String> {
    Node::builder().engine(utipc::Engine::Kernel).start().err().map(|why| why.to_string())
}

/// Cluster of the measured nodes.
pub(super) const CLUSTER: u32 = 9617;
/// UDP ports of the measured nodes, on addresses of our own: servers from the first, drivers from the second.
const PORTS: [u16; 2] = [16_100, 16_600];
/// Service type that measured servers are bound to; the instance says which server and which of its sockets.
const SERVICE: u32 = 19_617;
/// Sockets that one server may have.
const SOCKETS: u32 = 64;

/// The node of one end.
pub(super) fn node(job: &Job) -> utipc::Result<Node> {
    if job.party.transport == Transport::KernelTipc {
        return Node::builder().engine(utipc::Engine::Kernel).start();
    }
    if job.engine == Engine::Daemon {
        // The environment says where it is.
        return Node::builder().engine(utipc::Engine::Daemon).start();
    }
    let several = job.servers > 1;
    // An explicit address, so that the node is up at once; explicit peers, so that nothing is needed of the system.
    let number = match job.role {
        Role::Serve => 1 + job.index,
        Role::Drive => 1001 + job.index,
    };
    let port = |role: Role, index: u32| {
        let base = PORTS[usize::from(role == Role::Drive)];
        base + u16::try_from(index).unwrap_or(0)
    };
    let remotes = match job.role {
        Role::Serve if several => vec![port(Role::Drive, 0)],
        Role::Serve => vec![port(Role::Drive, job.index)],
        Role::Drive if several => (0..job.servers).map(|index| port(Role::Serve, index)).collect(),
        Role::Drive => vec![port(Role::Serve, job.index)],
    };
    let remotes = remotes.into_iter().map(|port| SocketAddr::new(job.site.remote, port)).collect();
    let mut config = utipc::bearers::UdpConfig::replicast("UDP", job.site.local, remotes);
    config.local.set_port(port(job.role, job.index));
    let mut builder = Node::builder().cluster(CLUSTER).address(NodeAddr::legacy(1, 1, number));
    if spins(job) {
        builder = builder.busy_poll(LIMIT);
    }
    builder.udp_with(config).start()
}

fn service(server: u32, socket: u32) -> ServiceAddress {
    ServiceAddress::new(SERVICE, server * SOCKETS + socket)
}

/// Packets of any kind that have left by this node's links.
fn packets(node: &Node) -> Packets {
    let node = node.clone();
    Box::new(move || {
        let out = |s: &utipc::LinkInfo| s.stats.tx_packets + s.stats.retransmitted + s.stats.tx_states;
        Some(node.links().iter().map(out).sum())
    })
}

/// The packet size of the first link that works, bytes with headers.
pub(super) fn link_mtu(node: &Node) -> Option<u16> {
    node.links().iter().find(|link| link.up).map(|link| link.mtu)
}

/// Whether a node in this process asks the wire by itself: where nobody else needs its processor.
fn spins(job: &Job) -> bool {
    let own = job.party.transport == Transport::Utipc && job.engine == Engine::Embedded;
    job.party.mode == Mode::Busy && own && !job.crowded
}

/// Tells a socket how to wait. An attached one spins by itself, and so does a node of one's own unless it is crowded: then
/// a busy caller asks by the answer, and lets others run.
fn prepare(socket: &Socket, job: &Job) -> Option<Spinner> {
    socket.set_receive_timeout(Some(LIMIT));
    socket.set_send_timeout(Some(LIMIT));
    let asks = job.party.mode == Mode::Busy && job.engine == Engine::Embedded && !spins(job);
    socket.set_nonblocking(asks);
    asks.then(|| Spinner::new(job, LIMIT))
}

/// The environment of a process whose waits are to be of this mode.
pub(super) fn environment(job: &Job) -> [(&'static str, String); 1] {
    // What others call blocking is utipc's default.
    let mode = if job.party.mode == Mode::Blocking { Mode::Adaptive } else { job.party.mode };
    [("UTIPC_SPIN", mode.name())]
}

/// Repeats a call that a busy socket refuses for now.
fn again<T>(busy: Option<Spinner>, mut attempt: impl FnMut() -> utipc::Result<T>) -> Result<T> {
    let Some(spinner) = busy else { return Ok(attempt()?) };
    let answer = spinner.ask(|| match attempt() {
        Err(utipc::Error::WouldBlock { .. }) => Ok(None),
        done => Ok(Some(done?)),
    })?;
    answer.ok_or_else(|| anyhow::anyhow!("nothing has moved for {LIMIT:?}"))
}
