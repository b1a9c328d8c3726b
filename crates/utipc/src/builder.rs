//! Configuration of a node.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use utipc_client::Place;
use utipc_core::config::StackConfig;
use utipc_core::crypto::{EncryptionConfig, KeyUse};
use utipc_node::bearers::{Bearer, EthernetBearer, HostBearer, HostConfig, UdpBearer, UdpConfig};
use utipc_node::{NodeConfig, Plan, StartError, key_file};

use crate::engine::{self, Choice};
use crate::{ClusterId, Engine, Error, Node, NodeAddr, NodeId, Result, Spin};

/// Upper bound for the choice of an address: a trial of one second, repeated on each clash.
const ADDRESS_LIMIT: Duration = Duration::from_secs(15);

/// Longest wait for the bindings of the nodes that are on this host already. They take a millisecond; a node that is
/// stopped, or belongs to another cluster, never sends them.
const NEIGHBOUR_LIMIT: Duration = Duration::from_millis(20);

/// Configures and starts a [`Node`]; every setting has a default.
///
/// Without a bearer the node uses the *same-host* one: it finds the other nodes of this user on this host and needs no
/// privileges.
///
/// ```no_run
/// # fn main() -> utipc::Result<()> {
/// // A member of the cluster on this network, over UDP multicast, like
/// // `tipc bearer enable media udp name U localip 10.0.0.1` on a kernel node.
/// let node = utipc::Node::builder().udp("10.0.0.1".parse().unwrap()).start()?;
/// println!("I am node {}", node.address());
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Builder {
    identity: Option<NodeId>,
    address: Option<NodeAddr>,
    cluster: ClusterId,
    seed: Option<u64>,
    label: String,
    bearers: Vec<Open>,
    isolated: bool,
    tolerance_ms: Option<u32>,
    window: Option<u16>,
    wrap: Option<Wrap>,
    keys: Vec<(KeyUse, PathBuf)>,
    strict: Option<bool>,
    rekeying: Option<u32>,
    spin: Duration,
    exact_hang_up: Option<bool>,
    choice: Choice,
}

/// Opens a bearer when the node starts.
type Open = Box<dyn FnOnce(&StackConfig) -> std::result::Result<Box<dyn Bearer>, StartError> + Send>;
/// Puts a middleware around a bearer.
type Wrap = Box<dyn FnMut(Box<dyn Bearer>) -> Box<dyn Bearer> + Send>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("identity", &self.identity)
            .field("address", &self.address)
            .field("cluster", &self.cluster)
            .field("bearers", &self.bearers.len())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// The engine of the node. Default: `UTIPC_ENGINE`, else [`Engine::Auto`].
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.choice.engine = Some(engine);
        self
    }

    /// Whether RDM and DGRAM sockets resume when the daemon ends: they wait for the next one, attach to it with their
    /// bindings, options and descriptor, and report that once, by an error for which
    /// [`is_resumed`](crate::Error::is_resumed) is true. Listeners resume without a report: accepts wait for the next
    /// daemon, and requests that waited to be accepted are lost.
    /// Connections break. The default is false, or true if `UTIPC_RESUME` is `1`. Sockets that other processes hold
    /// too do not resume, and nor do embedded nodes: they have no daemon.
    #[must_use]
    pub fn resume(mut self, resume: bool) -> Self {
        self.choice.resume = Some(resume);
        self
    }

    /// Attaches to the daemon at this socket path instead of the default one (`$UTIPC_SOCKET`, the user's own, the
    /// system's). Implies [`Engine::Daemon`] unless an engine is chosen.
    #[must_use]
    pub fn daemon_at(mut self, socket: impl Into<PathBuf>) -> Self {
        self.choice.place = Some(Place::at(socket));
        self
    }

    /// Attaches to the daemon with this instance name, where several run side by side. Default: `$UTIPC_INSTANCE`, else
    /// `default`. Implies [`Engine::Daemon`] unless an engine is chosen.
    #[must_use]
    pub fn instance(mut self, name: &str) -> Self {
        self.choice.place = Some(Place::instance(name));
        self
    }

    /// Whether a thread spins or sleeps while a call waits on a daemon's socket, or on an embedded node with the
    /// same-host bearer. Default: `UTIPC_SPIN` (`busy`, `adaptive` or `parked`), else [`Spin::Adaptive`]. See
    /// [`Socket::set_spin`](crate::Socket::set_spin).
    #[must_use]
    pub fn spin(mut self, spin: Spin) -> Self {
        self.choice.spin = Some(spin);
        self
    }

    /// Whether a polled connection hangs up at once when the peer ends it, as on Linux, although messages are unread.
    /// Otherwise POLLHUP shows after the last message was received, so that an event loop which closes on POLLHUP loses
    /// nothing. Default: `UTIPC_EXACT_HUP` is `1`. No effect on the kernel engine.
    #[must_use]
    pub fn exact_hang_up(mut self, exact: bool) -> Self {
        self.exact_hang_up = Some(exact);
        self
    }

    /// How long a waiting call on an embedded node polls its bearers before it sleeps; zero by default. Polling saves
    /// some microseconds for falling asleep and again for waking up, and occupies a processor meanwhile.
    #[must_use]
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// The node's 128-bit identity, as text of at most 16 characters. Random if neither an identity nor an address is
    /// given.
    #[must_use]
    pub fn identity(mut self, text: &str) -> Self {
        self.identity = Some(NodeId::from_text(text));
        self
    }

    /// The node's 128-bit identity, as bytes.
    #[must_use]
    pub fn identity_bytes(mut self, id: [u8; 16]) -> Self {
        self.identity = Some(NodeId(id));
        self
    }

    /// An explicit ("legacy") address instead of one derived from the identity. The node is up at once instead of after
    /// a trial period of one second; the caller guarantees that the address is unique in the cluster.
    #[must_use]
    pub fn address(mut self, address: NodeAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// The cluster number, 1 to 9999, 4711 by default. Nodes of other clusters are ignored.
    #[must_use]
    pub fn cluster(mut self, id: u32) -> Self {
        self.cluster = ClusterId(id);
        self
    }

    /// Seed of the node's random numbers, for reproducible runs.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// A label for logs and thread names.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Encrypts everything with the key in this file, which all nodes of the cluster have. The file holds one line of
    /// hexadecimal digits: 16, 24 or 32 bytes of AES key and 4 of salt. Only its owner may read it.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.keys.push((KeyUse::Cluster, path.into()));
        self
    }

    /// Like [`Self::key_file`], with a master key: nodes use it only until they have handed each other session keys,
    /// which they replace every day or as [`Self::rekeying_minutes`] says.
    #[must_use]
    pub fn master_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.keys.push((KeyUse::Master, path.into()));
        self
    }

    /// Like [`Self::key_file`], with the key of one node: it sends with it, the others receive from it with it. A node
    /// needs its own key and those of all its peers.
    #[must_use]
    pub fn node_key_file(mut self, identity: &str, path: impl Into<PathBuf>) -> Self {
        self.keys.push((KeyUse::Node(NodeId::from_text(identity)), path.into()));
        self
    }

    /// Whether a node with a key refuses everything that is not encrypted. Default: true with a key file. Linux nodes
    /// accept clear text.
    #[must_use]
    pub fn strict_encryption(mut self, strict: bool) -> Self {
        self.strict = Some(strict);
        self
    }

    /// Interval of new session keys, minutes, 1440 by default; 0 for none.
    #[must_use]
    pub fn rekeying_minutes(mut self, minutes: u32) -> Self {
        self.rekeying = Some(minutes);
        self
    }

    /// Link tolerance on all bearers, 50 to 30000 ms: a peer that is silent for longer is lost. 1500 by default.
    #[must_use]
    pub fn tolerance_ms(mut self, ms: u32) -> Self {
        self.tolerance_ms = Some(ms);
        self
    }

    /// Largest send window of the links on all bearers, 50 to 8191 packets.
    #[must_use]
    pub fn window(mut self, packets: u16) -> Self {
        self.window = Some(packets);
        self
    }

    /// Adds UDP on the interface with the address `local`, with the multicast group that kernel nodes use by default.
    #[must_use]
    pub fn udp(self, local: IpAddr) -> Self {
        self.open(move |node| Ok(UdpBearer::open(&UdpConfig::multicast("UDP", local, node.cluster.0)?)?))
    }

    /// Adds UDP from `local` to a list of peers, for networks without multicast. Port 0 stands for the usual 6118.
    #[must_use]
    pub fn udp_peers(self, local: IpAddr, peers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let peers = peers.into_iter().collect();
        self.open(move |_| Ok(UdpBearer::open(&UdpConfig::replicast("UDP", local, peers))?))
    }

    /// Adds UDP with every property chosen.
    #[must_use]
    pub fn udp_with(self, config: UdpConfig) -> Self {
        self.open(move |_| Ok(UdpBearer::open(&config)?))
    }

    /// Adds the Ethernet interface of this name. Needs root or `CAP_NET_RAW`.
    #[must_use]
    pub fn ethernet(self, interface: &str) -> Self {
        let interface = interface.to_owned();
        self.open(move |_| Ok(EthernetBearer::open(&interface)?))
    }

    /// Adds the same-host bearer, which a node without any bearer gets by default.
    #[must_use]
    pub fn same_host(self) -> Self {
        self.open(|node| {
            Ok(HostBearer::open(&HostConfig { address: node.first_address(), ..HostConfig::default() })?)
        })
    }

    /// Adds the same-host bearer with another directory than that of this user and network namespace: nodes in
    /// containers share one that is mounted in each of them.
    #[must_use]
    pub fn same_host_in(self, directory: impl Into<PathBuf>) -> Self {
        let directory = Some(directory.into());
        self.open(|node| {
            let address = node.first_address();
            Ok(HostBearer::open(&HostConfig { directory, address, ..HostConfig::default() })?)
        })
    }

    /// Adds a bearer that the program implements.
    #[must_use]
    pub fn bearer(mut self, bearer: Box<dyn Bearer>) -> Self {
        self.bearers.push(Box::new(move |_| Ok(bearer)));
        self
    }

    /// Starts the node without any bearer: only its own process can use it.
    #[must_use]
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// Wraps each of the node's bearers, for example in a [`Middleware`](crate::bearers::Middleware) that loses, delays
    /// or records frames.
    #[must_use]
    pub fn middleware(
        mut self,
        wrap: impl FnMut(Box<dyn Bearer>) -> Box<dyn Bearer> + Send + 'static,
    ) -> Self {
        self.wrap = Some(Box::new(wrap));
        self
    }

    fn open<B: Bearer + 'static>(
        mut self,
        open: impl FnOnce(&StackConfig) -> std::result::Result<B, StartError> + Send + 'static,
    ) -> Self {
        self.bearers.push(Box::new(move |node| Ok(Box::new(open(node)?))));
        self
    }

    /// Starts the node, or attaches to a daemon, and waits until it has its address: about one second with a bearer to
    /// other hosts, unless [`Builder::address`] gives one. If other nodes are on this host, it also waits, at most 20
    /// ms, until it knows their services.
    ///
    /// If no daemon answers and the embedded node finds no other node, this is reported once, with the cause and a
    /// remedy: as a warning of `tracing` if the program has installed a subscriber, else on standard error unless
    /// `UTIPC_LOG` is `off`. [`Node::describe`] has the same text.
    ///
    /// # Errors
    /// [`Error::Start`] if a bearer cannot be opened, [`Error::OutOfRange`] for an invalid cluster number,
    /// [`Error::Daemon`] and [`Error::Engine`] if the chosen engine is not available, or no daemon answers that
    /// `UTIPC_SOCKET` or `UTIPC_INSTANCE` names.
    pub fn start(mut self) -> Result<Node> {
        let embedded_only = self.embedded_only();
        let wait = self.choice.spin()?;
        let exact_hang_up =
            self.exact_hang_up.unwrap_or_else(|| std::env::var("UTIPC_EXACT_HUP").as_deref() == Ok("1"));
        let (attached, origin) = std::mem::take(&mut self.choice).attach(embedded_only)?;
        if let Some(node) = attached {
            node.wait_for_address(ADDRESS_LIMIT)?;
            return Ok(Node::from_engine(node, origin, exact_hang_up));
        }
        if !(1..=9999).contains(&self.cluster.0) {
            return Err(Error::OutOfRange { what: "the cluster number", remedy: "1 to 9999" });
        }
        if self.bearers.is_empty() && !self.isolated {
            self = self.same_host();
        }
        let config = self.into_config(wait)?;
        let bearers = config.bearers.iter().map(|plan| &plan.bearer);
        let neighbours =
            bearers.filter(|bearer| bearer.owns_address()).map(|bearer| bearer.broadcast_targets().len());
        let neighbours = neighbours.sum();
        let node = engine::Node::Embedded(utipc_node::Node::start(config)?);
        node.wait_for_address(ADDRESS_LIMIT)?;
        node.wait_for_peers(neighbours, NEIGHBOUR_LIMIT);
        let node = Node::from_engine(node, origin, exact_hang_up);
        node.warn_if_alone();
        Ok(node)
    }

    /// The first setting that only an embedded node can have, if any is set.
    fn embedded_only(&self) -> Option<&'static str> {
        let settings = [
            (!self.bearers.is_empty(), "a bearer"),
            (self.isolated, "no bearer"),
            (self.identity.is_some(), "an identity"),
            (self.address.is_some(), "an address"),
            (self.cluster != ClusterId::default(), "a cluster number"),
            (self.seed.is_some(), "a seed"),
            (self.tolerance_ms.is_some() || self.window.is_some(), "link properties"),
            (self.wrap.is_some(), "a middleware"),
            (!self.keys.is_empty() || self.strict.is_some() || self.rekeying.is_some(), "encryption"),
        ];
        settings.into_iter().find_map(|(is_set, what)| is_set.then_some(what))
    }

    fn into_config(mut self, wait: Spin) -> Result<NodeConfig> {
        let stack = StackConfig {
            identity: self.identity,
            address: self.address,
            cluster: self.cluster,
            encryption: EncryptionConfig {
                strict: self.strict.unwrap_or(!self.keys.is_empty()),
                ..EncryptionConfig::default()
            },
            ..StackConfig::default()
        };
        let mut config =
            NodeConfig { stack, label: self.label, spin: self.spin, wait, ..NodeConfig::default() };
        config.choose_identity()?;
        config.rekeying_minutes = self.rekeying;
        for (key_use, path) in &self.keys {
            config.keys.push((*key_use, key_file::read(path).map_err(StartError::from)?));
        }
        for open in std::mem::take(&mut self.bearers) {
            let mut bearer = open(&config.stack)?;
            if let Some(wrap) = &mut self.wrap {
                bearer = wrap(bearer);
            }
            let (tolerance, window) = (self.tolerance_ms, self.window);
            let tune = Box::new(move |config: &mut utipc_core::config::BearerConfig| {
                config.tolerance_ms = tolerance.unwrap_or(config.tolerance_ms);
                config.max_window = window.unwrap_or(config.max_window);
            });
            config.bearers.push(Plan { bearer, tune });
        }
        config.complete(self.seed)?;
        Ok(config)
    }
}
