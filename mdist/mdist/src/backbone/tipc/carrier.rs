//! Opens endpoints on a TIPC node: that of the host's daemon, or one of the program's own.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use utipc::{Node, Spin};

use super::{Options, TipcSink, TipcSource};
use crate::backbone::{Carrier, Opening, SinkEnd, SourceEnd};
use crate::config::{Config, OwnNode};

/// TIPC as the carrier of the backbone.
#[derive(Debug)]
pub struct Tipc {
    node: NodeChoice,
    options: Options,
}

/// The node to use.
#[derive(Debug)]
enum NodeChoice {
    /// The host's daemon if there is one, else a node of this process.
    Host,
    /// This one.
    Given(Node),
    /// A node of this process with the configured bearer; started when the first endpoint is opened.
    Own(OwnNode, Mutex<Option<Node>>),
}

impl Tipc {
    /// The configured node and options (`[backbone.tipc]`).
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let own = |node: &OwnNode| NodeChoice::Own(node.clone(), Mutex::default());
        let node = config.backbone.tipc.node.as_ref().map_or(NodeChoice::Host, own);
        Self { node, options: Options::from_config(config) }
    }

    /// This node, with the configured options.
    #[must_use]
    pub fn on_node(node: Node, config: &Config) -> Self {
        Self { node: NodeChoice::Given(node), options: Options::from_config(config) }
    }

    /// The node; `None` if it is the daemon's and the daemon is absent.
    fn node(&self) -> Result<Option<Node>> {
        match &self.node {
            NodeChoice::Host => match Node::start() {
                Ok(node) => Ok(Some(node)),
                Err(utipc::Error::Daemon(why)) if why.is_absent() => Ok(None),
                Err(why) => Err(why).context("start, or attach to, the node of the backbone"),
            },
            NodeChoice::Given(node) => Ok(Some(node.clone())),
            NodeChoice::Own(settings, started) => {
                let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
                if started.is_none() {
                    let node =
                        settings.start().context("start the program's own node ([backbone.tipc.node])")?;
                    *started = Some(node);
                }
                Ok(started.clone())
            }
        }
    }
}

/// The outcome if no daemon runs.
const ABSENT: &str = "nothing answers at its socket";

impl Carrier for Tipc {
    fn open_source(&self) -> Result<Opening<dyn SourceEnd>> {
        let Some(node) = self.node()? else { return Ok(Opening::Absent(ABSENT)) };
        Ok(Opening::Opened(Box::new(TipcSource::open(&node, self.options)?)))
    }

    fn open_sink(&self) -> Result<Opening<dyn SinkEnd>> {
        let Some(node) = self.node()? else { return Ok(Opening::Absent(ABSENT)) };
        Ok(Opening::Opened(Box::new(TipcSink::open(&node, self.options)?)))
    }

    fn remedy(&self) -> &'static str {
        "start utipcd on this host or set UTIPC_SOCKET to its socket"
    }
}

impl Options {
    /// The configured options.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let settings = &config.backbone.tipc;
        Self {
            source_type: settings.source_type,
            feed_type: settings.feed_type,
            receive_buffer: settings.receive_buffer_kib.map(|kib| kib.saturating_mul(1024)),
            spin: config.threads.feed.busy_poll.then_some(Spin::Busy),
        }
    }
}
