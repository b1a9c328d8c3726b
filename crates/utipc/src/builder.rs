//! How a node is configured.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use utipc_client::Place;
use utipc_core::config::StackConfig;
use utipc_node::bearers::{Bearer, EthernetBearer, LocalBearer, LocalConfig, UdpBearer, UdpConfig};
use utipc_node::{NodeConfig, Plan, StartError};

use crate::engine::{self, Choice};
use crate::{ClusterId, Engine, Error, Node, NodeAddr, NodeId, Result, Spin};

/// The longest that the choice of an address takes: a trial of one second, and as many again as there are clashes.
const ADDRESS_LIMIT: Duration = Duration::from_secs(15);

/// What a node is started with; every part has a default.
///
/// Without a bearer the node uses the *same-host* one: it finds the other nodes of this user on this host and asks
/// for nothing.
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
    spin: Duration,
    choice: Choice,
}

/// Opens a bearer when the node starts.
type Open = Box<dyn FnOnce(ClusterId) -> std::result::Result<Box<dyn Bearer>, StartError> + Send>;
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
    /// What stands behind the node; without it `UTIPC_ENGINE` decides, else [`Engine::Auto`] holds.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.choice.engine = Some(engine);
        self
    }

    /// The daemon whose socket has this path, instead of the one at the usual place (`$UTIPC_SOCKET`, the user's own,
    /// the system's). Chooses [`Engine::Daemon`] if nothing else is said.
    #[must_use]
    pub fn daemon_at(mut self, socket: impl Into<PathBuf>) -> Self {
        self.choice.place = Some(Place::at(socket));
        self
    }

    /// The daemon of this instance name, where several run side by side; else `$UTIPC_INSTANCE`, else `default`.
    /// Chooses [`Engine::Daemon`] if nothing else is said.
    #[must_use]
    pub fn instance(mut self, name: &str) -> Self {
        self.choice.place = Some(Place::instance(name));
        self
    }

    /// What a thread does with its core while a call waits on a daemon's socket; without it `UTIPC_SPIN` (`busy`,
    /// `adaptive` or `parked`) decides, else [`Spin::Adaptive`] holds. See [`Socket::set_spin`](crate::Socket::set_spin).
    #[must_use]
    pub fn spin(mut self, spin: Spin) -> Self {
        self.choice.spin = Some(spin);
        self
    }

    /// How long a call that has to wait on a node in this process asks the wire again and again before it sleeps; zero if
    /// not given. It saves the time to fall asleep and to wake up, some microseconds at each end, and costs a processor
    /// meanwhile: for those who have one to spare.
    #[must_use]
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// The 128-bit identity as text of at most 16 characters; random if neither it nor an address is given.
    #[must_use]
    pub fn identity(mut self, text: &str) -> Self {
        self.identity = Some(NodeId::from_text(text));
        self
    }

    /// The 128-bit identity as bytes.
    #[must_use]
    pub fn identity_bytes(mut self, id: [u8; 16]) -> Self {
        self.identity = Some(NodeId(id));
        self
    }

    /// An explicit ("legacy") address instead of one that follows from the identity: the node is up at once instead of
    /// after a trial period of a second, and it is up to you that no other node has it.
    #[must_use]
    pub fn address(mut self, address: NodeAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// The number of the cluster, 1 to 9999, 4711 if not given: nodes of other clusters are not seen.
    #[must_use]
    pub fn cluster(mut self, id: u32) -> Self {
        self.cluster = ClusterId(id);
        self
    }

    /// Seed of all that is random in the node, for runs that have to be repeated.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// A name for logs and thread names.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Link tolerance on all bearers, 50 to 30000 ms: a silent peer is given up after this time. 1500 if not given.
    #[must_use]
    pub fn tolerance_ms(mut self, ms: u32) -> Self {
        self.tolerance_ms = Some(ms);
        self
    }

    /// Largest send window of links on all bearers, 50 to 8191 packets.
    #[must_use]
    pub fn window(mut self, packets: u16) -> Self {
        self.window = Some(packets);
        self
    }

    /// UDP on the interface that has the address `local`, with the multicast group that kernel nodes use by default.
    #[must_use]
    pub fn udp(self, local: IpAddr) -> Self {
        self.open(move |cluster| Ok(UdpBearer::open(&UdpConfig::multicast("UDP", local, cluster.0)?)?))
    }

    /// UDP from `local` to a list of peers, where there is no multicast; port 0 stands for the usual 6118.
    #[must_use]
    pub fn udp_peers(self, local: IpAddr, peers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let peers = peers.into_iter().collect();
        self.open(move |_| Ok(UdpBearer::open(&UdpConfig::replicast("UDP", local, peers))?))
    }

    /// UDP with every property chosen.
    #[must_use]
    pub fn udp_with(self, config: UdpConfig) -> Self {
        self.open(move |_| Ok(UdpBearer::open(&config)?))
    }

    /// The Ethernet interface of this name. Needs root or `CAP_NET_RAW`.
    #[must_use]
    pub fn ethernet(self, interface: &str) -> Self {
        let interface = interface.to_owned();
        self.open(move |_| Ok(EthernetBearer::open(&interface)?))
    }

    /// The same-host bearer: what a node without any bearer gets.
    #[must_use]
    pub fn same_host(self) -> Self {
        self.open(|_| Ok(LocalBearer::open(&LocalConfig::default())?))
    }

    /// A bearer of your own.
    #[must_use]
    pub fn bearer(mut self, bearer: Box<dyn Bearer>) -> Self {
        self.bearers.push(Box::new(move |_| Ok(bearer)));
        self
    }

    /// No bearer at all: a node that only its own process can use.
    #[must_use]
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// Puts something between the node and each of its bearers, such as a
    /// [`Middleware`](crate::bearers::Middleware) that loses, delays or records frames.
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
        open: impl FnOnce(ClusterId) -> std::result::Result<B, StartError> + Send + 'static,
    ) -> Self {
        self.bearers.push(Box::new(move |cluster| Ok(Box::new(open(cluster)?))));
        self
    }

    /// Starts the node, or attaches to the daemon's, and waits until it has its address: about a second after the start,
    /// unless [`Builder::address`] gave one.
    ///
    /// # Errors
    /// [`Error::Start`] if a bearer cannot be opened, [`Error::OutOfRange`] for a cluster number that is not one,
    /// [`Error::Daemon`] and [`Error::Engine`] if an engine was chosen that cannot be had.
    pub fn start(mut self) -> Result<Node> {
        let own = self.own();
        if let Some(node) = std::mem::take(&mut self.choice).attach(own)? {
            node.wait_for_address(ADDRESS_LIMIT)?;
            return Ok(Node::from_engine(node));
        }
        if !(1..=9999).contains(&self.cluster.0) {
            return Err(Error::OutOfRange { what: "the cluster number", remedy: "1 to 9999" });
        }
        if self.bearers.is_empty() && !self.isolated {
            self = self.same_host();
        }
        let config = self.into_config()?;
        let node = engine::Node::embedded(utipc_node::Node::start(config)?);
        node.wait_for_address(ADDRESS_LIMIT)?;
        Ok(Node::from_engine(node))
    }

    /// What was asked for that only a node of the program's own can have.
    fn own(&self) -> Option<&'static str> {
        let asked = [
            (!self.bearers.is_empty(), "a bearer"),
            (self.isolated, "no bearer"),
            (self.identity.is_some(), "an identity"),
            (self.address.is_some(), "an address"),
            (self.cluster != ClusterId::default(), "a cluster number"),
            (self.seed.is_some(), "a seed"),
            (self.tolerance_ms.is_some() || self.window.is_some(), "link properties"),
            (self.wrap.is_some(), "a middleware"),
        ];
        asked.into_iter().find_map(|(asked, what)| asked.then_some(what))
    }

    fn into_config(mut self) -> Result<NodeConfig> {
        let stack = StackConfig {
            identity: self.identity,
            address: self.address,
            cluster: self.cluster,
            ..StackConfig::default()
        };
        let mut bearers = Vec::new();
        for open in std::mem::take(&mut self.bearers) {
            let mut bearer = open(self.cluster)?;
            if let Some(wrap) = &mut self.wrap {
                bearer = wrap(bearer);
            }
            let (tolerance, window) = (self.tolerance_ms, self.window);
            let tune = Box::new(move |config: &mut utipc_core::config::BearerConfig| {
                config.tolerance_ms = tolerance.unwrap_or(config.tolerance_ms);
                config.max_window = window.unwrap_or(config.max_window);
            });
            bearers.push(Plan { bearer, tune });
        }
        let mut config = NodeConfig { stack, bearers, label: self.label, spin: self.spin };
        config.complete(self.seed)?;
        Ok(config)
    }
}
