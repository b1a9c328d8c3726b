//! Which backbone a program is on.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use utipc::{Node, Spin};

use crate::backbone::memory::Memory;
use crate::backbone::tipc::{self, TipcSink, TipcSource};
use crate::backbone::{SinkEnd, SourceEnd};
use crate::config::{Config, OwnNode};

/// Between source distributors and point-to-point servers.
#[derive(Clone, Debug, Default)]
pub enum Bus {
    /// TIPC, by the host's daemon if there is one, else by a node of this process.
    #[default]
    Tipc,
    /// TIPC, by this node.
    Node(Node),
    /// TIPC, by a node of this process with the bearer that the settings name; started by the first end.
    Own(Arc<Own>),
    /// Nothing but this process.
    Memory(Memory),
}

/// Settings of a node, and the node once it has been asked for.
#[derive(Debug)]
pub struct Own {
    settings: OwnNode,
    node: Mutex<Option<Node>>,
}

impl Own {
    fn node(&self) -> Result<Node> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = &*node {
            return Ok(node.clone());
        }
        let started = self.settings.start().context("start the program's own node ([backbone.node])")?;
        Ok(node.insert(started).clone())
    }
}

impl Bus {
    /// As the settings say: the host's daemon, or a node of the program's own.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let own = |settings: &OwnNode| Own { settings: settings.clone(), node: Mutex::default() };
        config.backbone.node.as_ref().map_or(Self::Tipc, |settings| Self::Own(Arc::new(own(settings))))
    }

    /// The node; `None`: a daemon is wanted, and is not there.
    fn node(&self) -> Result<Option<Node>> {
        match self {
            Self::Node(node) => return Ok(Some(node.clone())),
            Self::Own(own) => return own.node().map(Some),
            Self::Tipc | Self::Memory(_) => {}
        }
        match Node::start() {
            Ok(node) => Ok(Some(node)),
            Err(utipc::Error::Daemon(why)) if why.is_absent() => Ok(None),
            Err(why) => Err(why).context("start, or find, the node of the backbone"),
        }
    }

    /// A source distributor's end; `None`: there is no daemon.
    ///
    /// # Errors
    /// No node, or no socket of it.
    pub(super) fn source(&self, options: tipc::Options) -> Result<Option<Box<dyn SourceEnd>>> {
        if let Self::Memory(memory) = self {
            return Ok(Some(Box::new(memory.source()?)));
        }
        let Some(node) = self.node()? else { return Ok(None) };
        Ok(Some(Box::new(TipcSource::open(&node, options)?)))
    }

    /// A point-to-point server's end; `None`: there is no daemon.
    ///
    /// # Errors
    /// No node, or no socket of it.
    pub(super) fn sink(&self, options: tipc::Options) -> Result<Option<Box<dyn SinkEnd>>> {
        if let Self::Memory(memory) = self {
            return Ok(Some(Box::new(memory.sink()?)));
        }
        let Some(node) = self.node()? else { return Ok(None) };
        Ok(Some(Box::new(TipcSink::open(&node, options)?)))
    }
}

/// What the settings say of TIPC.
pub(super) fn tipc_options(config: &Config) -> tipc::Options {
    tipc::Options {
        source_type: config.backbone.source_type,
        feed_type: config.backbone.feed_type,
        receive_buffer: config.backbone.receive_buffer_kib.map(|kib| kib.saturating_mul(1024)),
        spin: config.threads.feed.busy_poll.then_some(Spin::Busy),
    }
}
