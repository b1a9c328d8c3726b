//! The node under test and its view of the network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use utipc::daemon::Daemon;
use utipc::manage::Management;
use utipc::{Node, Scope, Socket, Topology};

use crate::args::{Args, Refusal};
use crate::settings::Settings;
use crate::watch::Watch;
use crate::{Answer, kernel, lock};

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
    daemon: Option<Daemon>,
    things: BTreeMap<u64, Thing>,
    last: u64,
}

/// The value that a number in a request stands for.
#[derive(Clone)]
pub(crate) enum Thing {
    Socket(Arc<Socket>),
    Subscriber(Arc<Mutex<Topology>>),
}

impl Peer {
    pub(crate) fn start(&self, args: &Args) -> Answer {
        lock(&self.state).settings = Settings::read(args)?;
        Ok(json!({}))
    }

    pub(crate) fn enable(&self, args: &Args) -> Answer {
        let settings = lock(&self.state).settings.clone();
        let (daemon, node) = if kernel::is_wanted() {
            (None, kernel::start(&settings, args)?)
        } else if settings.has_daemon {
            let (daemon, node) = settings.start_daemon(args)?;
            (Some(daemon), node)
        } else {
            (None, settings.start(args)?)
        };
        self.watched.follow(&node)?;
        let mut state = lock(&self.state);
        (state.daemon, state.node) = (daemon, Some(node));
        Ok(json!({}))
    }

    /// Answers at once: watching begins when the node starts.
    pub(crate) fn watch(&self) -> Answer {
        Ok(json!({}))
    }

    pub(crate) fn node(&self) -> Result<Node, Refusal> {
        lock(&self.state).node.clone().ok_or_else(|| Refusal::Request("enable a bearer first".into()))
    }

    /// A connection for management of the node, which a daemon must have.
    pub(crate) fn management(&self) -> Result<Management, Refusal> {
        let socket = lock(&self.state).daemon.as_ref().map(|daemon| daemon.socket().to_owned());
        let socket = socket.ok_or_else(|| Refusal::Request("start the node with a daemon".into()))?;
        Ok(Management::of_daemon(&socket)?)
    }

    /// Frames that show a problem, by its name.
    pub(crate) fn problems(&self) -> Answer {
        let problems = self.node()?.counters().problems;
        let counts: Value =
            problems.iter().map(|(name, problem)| (name.to_string(), json!(problem.count))).collect();
        Ok(json!({"problems": counts}))
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

/// A socket address in the form that tests write.
pub(crate) fn port(id: utipc::PortId) -> Value {
    json!([id.port, id.node.0])
}
