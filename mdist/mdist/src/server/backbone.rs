//! The backbone that a program is on.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use utipc::{Node, Spin};

use crate::backbone::memory::Memory;
use crate::backbone::tipc::{self, TipcSink, TipcSource};
use crate::backbone::{SinkEnd, SourceEnd};
use crate::config::{Config, OwnNode};

/// The carrier of the backbone between source distributors and point-to-point servers.
#[derive(Clone, Debug, Default)]
pub enum Backbone {
    /// TIPC: the host's daemon if there is one, else a node of this process.
    #[default]
    Tipc,
    /// TIPC: this node.
    Node(Node),
    /// TIPC: a node of this process with the configured bearer; started when the first endpoint is opened.
    Own(Arc<LazyNode>),
    /// Memory of this process.
    Memory(Memory),
}

/// The settings of a node, and the node once it is started.
#[derive(Debug)]
pub struct LazyNode {
    settings: OwnNode,
    node: Mutex<Option<Node>>,
}

impl LazyNode {
    fn node(&self) -> Result<Node> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = &*node {
            return Ok(node.clone());
        }
        let started = self.settings.start().context("start the program's own node ([backbone.node])")?;
        Ok(node.insert(started).clone())
    }
}

impl Backbone {
    /// The configured backbone: the host's daemon, or a node of the program's own (`[backbone.node]`).
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let own = |settings: &OwnNode| LazyNode { settings: settings.clone(), node: Mutex::default() };
        config.backbone.node.as_ref().map_or(Self::Tipc, |settings| Self::Own(Arc::new(own(settings))))
    }

    /// The node; `None` if it is the daemon's and the daemon is absent.
    fn node(&self) -> Result<Option<Node>> {
        match self {
            Self::Node(node) => return Ok(Some(node.clone())),
            Self::Own(own) => return own.node().map(Some),
            Self::Tipc | Self::Memory(_) => {}
        }
        match Node::start() {
            Ok(node) => Ok(Some(node)),
            Err(utipc::Error::Daemon(why)) if why.is_absent() => Ok(None),
            Err(why) => Err(why).context("start, or attach to, the node of the backbone"),
        }
    }

    /// Opens a source distributor's endpoint; `None` if the daemon is absent.
    ///
    /// # Errors
    /// The node does not start or refuses a socket.
    pub(super) fn open_source(&self, options: tipc::Options) -> Result<Option<Box<dyn SourceEnd>>> {
        if let Self::Memory(memory) = self {
            return Ok(Some(Box::new(memory.source()?)));
        }
        let Some(node) = self.node()? else { return Ok(None) };
        Ok(Some(Box::new(TipcSource::open(&node, options)?)))
    }

    /// Opens a point-to-point server's endpoint; `None` if the daemon is absent.
    ///
    /// # Errors
    /// The node does not start or refuses a socket.
    pub(super) fn open_sink(&self, options: tipc::Options) -> Result<Option<Box<dyn SinkEnd>>> {
        if let Self::Memory(memory) = self {
            return Ok(Some(Box::new(memory.sink()?)));
        }
        let Some(node) = self.node()? else { return Ok(None) };
        Ok(Some(Box::new(TipcSink::open(&node, options)?)))
    }
}

/// The configured options of endpoints on TIPC.
pub(super) fn tipc_options(config: &Config) -> tipc::Options {
    tipc::Options {
        source_type: config.backbone.source_type,
        feed_type: config.backbone.feed_type,
        receive_buffer: config.backbone.receive_buffer_kib.map(|kib| kib.saturating_mul(1024)),
        spin: config.threads.feed.busy_poll.then_some(Spin::Busy),
    }
}
