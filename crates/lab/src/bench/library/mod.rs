//! utipc in the measurements (besides `bench node`): nodes, sockets, and how they wait.

mod anycasts;
mod bursts;
mod channels;
mod links;
mod members;
mod ordered;
mod probes;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use utipc::bearers::UdpConfig;
use utipc::{Node, NodeAddr, ServiceAddress, Socket};
use utipc_bench_kit::Named as _;

use super::channel::{Packets, Spinner};
use super::job::{Job, LIMIT, Role};
use super::variant::{Engine, Mode, Transport};

pub(super) use anycasts::{anycast_receiver, anycast_sender};
pub(super) use bursts::{burst_reader, burst_sender};
pub(super) use channels::{drive, serve};
pub(super) use links::{idle_memory, link, spin};
pub(super) use probes::{
    bind_many, binder, crowd_clients, crowd_server, look_up, look_up_all, starter, survivor, victim, watcher,
    welcomer,
};

/// Reason why the kernel's TIPC cannot be used here, if so.
pub(super) fn kernel_obstacle() -> Option<String> {
    Node::builder().engine(utipc::Engine::Kernel).start().err().map(|why| why.to_string())
}

/// Cluster of the measured nodes.
pub(super) const CLUSTER: u32 = 9617;
/// First UDP ports of the nodes of servers and of drivers.
const PORTS: [u16; 2] = [16_100, 16_600];
/// Service type of measured servers; the instance is server number × [`SOCKETS`] + socket number.
const SERVICE: u32 = 19_617;
/// Maximum number of sockets of a server.
const SOCKETS: u32 = 64;

/// The node of one end.
pub(super) fn node(job: &Job) -> utipc::Result<Node> {
    if job.variant.transport == Transport::KernelTipc {
        return Node::builder().engine(utipc::Engine::Kernel).start();
    }
    if job.engine == Engine::Daemon {
        // The environment names its socket.
        return Node::builder().engine(utipc::Engine::Daemon).start();
    }
    // The explicit address makes the node usable at once.
    let number = match job.role {
        Role::Serve => 1 + job.index,
        Role::Drive => 1001 + job.index,
    };
    let mut builder = Node::builder().engine(utipc::Engine::Embedded).cluster(CLUSTER);
    builder = builder.address(NodeAddr::legacy(1, 1, number));
    if spins(job) {
        builder = builder.busy_poll(LIMIT);
    }
    if let Some(key) = &job.site.key {
        builder = builder.key_file(key);
    }
    match &job.site.directory {
        Some(directory) => builder.same_host_in(directory).start(),
        None => builder.udp_with(udp(job)).start(),
    }
}

/// A socket that sends datagrams to services of this type, once all servers have bound theirs.
fn datagram_sender(job: &Job, service_type: u32) -> Result<(Node, Socket)> {
    let node = node(job).context("start a node")?;
    for server in 0..job.servers {
        node.wait_for_service(ServiceAddress::new(service_type, server), LIMIT)
            .context("wait for a server")?;
    }
    let socket = node.rdm().context("open a socket")?;
    socket.set_send_timeout(Some(LIMIT));
    socket.set_receive_timeout(Some(LIMIT));
    Ok((node, socket))
}

/// The UDP bearer of one end; explicit peers need no multicast on this system.
fn udp(job: &Job) -> UdpConfig {
    let port =
        |role: Role, index: u32| PORTS[usize::from(role == Role::Drive)] + u16::try_from(index).unwrap_or(0);
    let (other, others) = match job.role {
        Role::Serve if job.servers > 1 => (Role::Drive, 0..1),
        Role::Serve => (Role::Drive, job.index..job.index + 1),
        Role::Drive if job.servers > 1 => (Role::Serve, 0..job.servers),
        Role::Drive => (Role::Serve, job.index..job.index + 1),
    };
    let mut remotes: Vec<_> =
        others.map(|index| SocketAddr::new(job.site.remote, port(other, index))).collect();
    if job.role == Role::Serve && job.variant.kind.is_ordered() {
        // All members of a view see one another.
        let servers = (0..job.servers).filter(|index| *index != job.index);
        remotes.extend(servers.map(|index| SocketAddr::new(job.site.local, port(Role::Serve, index))));
    }
    let mut config = UdpConfig::replicast("UDP", job.site.local, remotes);
    config.local.set_port(port(job.role, job.index));
    config
}

fn service(server: u32, socket: u32) -> ServiceAddress {
    ServiceAddress::new(SERVICE, server * SOCKETS + socket)
}

/// A counter of all packets that this node has sent on its links.
fn packets(node: &Node) -> Packets {
    let node = node.clone();
    Box::new(move || {
        let out = |s: &utipc::LinkInfo| s.stats.tx_packets + s.stats.retransmitted + s.stats.tx_states;
        Some(node.links().iter().map(out).sum())
    })
}

/// Whether a node in this process polls its bearers: only if no other thread needs the core.
fn spins(job: &Job) -> bool {
    let own = job.variant.transport.is_own() && job.engine == Engine::Embedded;
    job.variant.mode == Mode::Busy && own && !job.crowded
}

/// Configures how a socket waits. In busy mode, attached sockets and polling nodes spin by themselves; the returned
/// spinner is for an embedded node with more threads than cores, whose callers must yield.
fn prepare(socket: &Socket, job: &Job) -> Option<Spinner> {
    socket.set_receive_timeout(Some(LIMIT));
    socket.set_send_timeout(Some(LIMIT));
    let repeats = job.variant.mode == Mode::Busy && job.engine == Engine::Embedded && !spins(job);
    socket.set_nonblocking(repeats);
    repeats.then(|| Spinner::new(job, LIMIT))
}

/// The environment variable that selects the mode of waiting in a process.
pub(super) fn environment(job: &Job) -> [(&'static str, String); 1] {
    // Blocking, for utipc, is its default.
    let mode = if job.variant.mode == Mode::Blocking { Mode::Adaptive } else { job.variant.mode };
    [("UTIPC_SPIN", mode.name())]
}

/// Calls `attempt`, with a spinner until it would no longer block.
fn retry<T>(busy: Option<Spinner>, mut attempt: impl FnMut() -> utipc::Result<T>) -> Result<T> {
    let Some(spinner) = busy else { return Ok(attempt()?) };
    let result = spinner.wait_for(|| match attempt() {
        Err(utipc::Error::WouldBlock { .. }) => Ok(None),
        done => Ok(Some(done?)),
    })?;
    result.ok_or_else(|| anyhow::anyhow!("no progress for {LIMIT:?}"))
}
