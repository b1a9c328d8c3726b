//! The node under test and its view of the network.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use utipc::{Builder, Node, NodeAddr, Scope, Socket, Topology};

use crate::Answer;
use crate::args::{Args, Refusal};
use crate::kernel;
use crate::watch::Watch;

/// Service types below this are the node's own: nodes, topology server, links.
const FIRST_USER_TYPE: u32 = 3;

/// The values that requests work on.
#[derive(Default)]
pub(crate) struct Peer {
    state: Mutex<State>,
    pub(crate) watched: Arc<Watch>,
}

#[derive(Default)]
struct State {
    settings: Settings,
    node: Option<Node>,
    things: BTreeMap<u64, Thing>,
    last: u64,
}

/// Settings of the node until its bearer is known: utipc starts a node with its bearers.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) address: Option<String>,
    pub(crate) identity: Option<String>,
    pub(crate) cluster: Option<u32>,
}

/// The value that a number in a request stands for.
#[derive(Clone)]
pub(crate) enum Thing {
    Socket(Arc<Socket>),
    Subscriber(Arc<Mutex<Topology>>),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is used: the test notices a request that panicked by its missing answer, and others continue.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    pub(crate) fn start(&self, args: &Args) -> Answer {
        lock(&self.state).settings = Settings {
            address: args.maybe_text("address").map(str::to_owned),
            identity: args.maybe_text("identity").map(str::to_owned),
            cluster: args.get("cluster").is_some().then(|| args.u32("cluster")).transpose()?,
        };
        Ok(json!({}))
    }

    pub(crate) fn enable(&self, args: &Args) -> Answer {
        let settings = lock(&self.state).settings.clone();
        let node = if kernel::is_wanted() {
            kernel::start(&settings, args)?
        } else {
            with_bearer(with_settings(Node::builder(), &settings)?, args)?.start()?
        };
        self.watched.follow(&node)?;
        lock(&self.state).node = Some(node);
        Ok(json!({}))
    }

    /// Answers at once: watching begins when the node starts.
    pub(crate) fn watch(&self) -> Answer {
        Ok(json!({}))
    }

    pub(crate) fn node(&self) -> Result<Node, Refusal> {
        lock(&self.state).node.clone().ok_or_else(|| Refusal::Request("enable a bearer first".into()))
    }

    pub(crate) fn address(&self) -> Answer {
        Ok(json!({"address": self.node()?.address().0}))
    }

    /// Bindings of users that other nodes see, as `[type, lower, upper, port]`.
    pub(crate) fn names(&self) -> Answer {
        let mut names: Vec<_> = self
            .node()?
            .bindings()
            .into_iter()
            .filter(|b| b.range.service >= FIRST_USER_TYPE && b.scope == Scope::Cluster)
            .map(|b| [b.range.service, b.range.lower, b.range.upper, b.port.port])
            .collect();
        names.sort_unstable();
        Ok(json!({"names": names}))
    }

    /// Stores a value for later requests, and returns its number.
    pub(crate) fn keep(&self, thing: Thing) -> u64 {
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        state.things.insert(number, thing);
        number
    }

    pub(crate) fn sock(&self, args: &Args) -> Result<Arc<Socket>, Refusal> {
        match lock(&self.state).things.get(&args.number("s")?) {
            Some(Thing::Socket(socket)) => Ok(Arc::clone(socket)),
            _ => Err(Refusal::Request("no such socket".into())),
        }
    }

    pub(crate) fn subscriber(&self, args: &Args) -> Result<Arc<Mutex<Topology>>, Refusal> {
        match lock(&self.state).things.get(&args.number("s")?) {
            Some(Thing::Subscriber(topology)) => Ok(Arc::clone(topology)),
            _ => Err(Refusal::Request("no such subscriber".into())),
        }
    }

    pub(crate) fn close(&self, args: &Args) -> Answer {
        let closed = lock(&self.state).things.remove(&args.number("s")?);
        drop(closed); // outside the lock: closing drives the node
        Ok(json!({}))
    }
}

fn with_settings(mut builder: Builder, settings: &Settings) -> Result<Builder, Refusal> {
    if let Some(id) = settings.cluster {
        builder = builder.cluster(id);
    }
    if let Some(address) = &settings.address {
        let parts: Vec<u32> = address.split('.').filter_map(|p| p.parse().ok()).collect();
        let &[zone, cluster, node] = parts.as_slice() else {
            return Err(Refusal::Request(format!("not an address <Z.C.N>: {address}")));
        };
        builder = builder.address(NodeAddr::legacy(zone, cluster, node));
    }
    let Some(identity) = &settings.identity else { return Ok(builder) };
    match u128::from_str_radix(identity, 16) {
        // 32 hexadecimal digits are the 16 bytes themselves, as for iproute2's `tipc`.
        Ok(bytes) if identity.len() == 32 => Ok(builder.identity_bytes(bytes.to_be_bytes())),
        _ => Ok(builder.identity(identity)),
    }
}

fn with_bearer(builder: Builder, args: &Args) -> Result<Builder, Refusal> {
    if args.text("media")? == "eth" {
        return Ok(builder.ethernet(args.text("device")?));
    }
    let ip = |name| {
        args.text(name)?
            .parse::<IpAddr>()
            .map_err(|e| Refusal::Request(format!("{name} is not an IP address: {e}")))
    };
    let local = ip("local")?;
    if args.get("remote").is_none() {
        return Ok(builder.udp(local));
    }
    Ok(builder.udp_peers(local, [SocketAddr::new(ip("remote")?, 0)]))
}

/// A socket address in the form that tests write.
pub(crate) fn port(id: utipc::PortId) -> Value {
    json!([id.port, id.node.0])
}
