//! Which backbone a program is on.

use anyhow::{Context as _, Result};
use utipc::{Node, Spin};

use crate::backbone::memory::Memory;
use crate::backbone::tipc::{self, TipcSink, TipcSource};
use crate::backbone::{SinkEnd, SourceEnd};
use crate::config::Config;

/// Between source distributors and point-to-point servers.
#[derive(Clone, Debug, Default)]
pub enum Bus {
    /// TIPC, by the host's daemon if there is one, else by a node of this process.
    #[default]
    Tipc,
    /// TIPC, by this node.
    Node(Node),
    /// Nothing but this process.
    Memory(Memory),
}

impl Bus {
    fn node(&self) -> Result<Node> {
        match self {
            Self::Node(node) => Ok(node.clone()),
            _ => Node::start().context("start, or find, the node of the backbone"),
        }
    }

    /// A source distributor's end.
    ///
    /// # Errors
    /// No node, or no socket of it.
    pub(super) fn source(&self, config: &Config) -> Result<Box<dyn SourceEnd>> {
        if let Self::Memory(memory) = self {
            return Ok(Box::new(memory.source()?));
        }
        Ok(Box::new(TipcSource::open(&self.node()?, options(config))?))
    }

    /// A point-to-point server's end.
    ///
    /// # Errors
    /// No node, or no socket of it.
    pub(super) fn sink(&self, config: &Config) -> Result<Box<dyn SinkEnd>> {
        if let Self::Memory(memory) = self {
            return Ok(Box::new(memory.sink()?));
        }
        Ok(Box::new(TipcSink::open(&self.node()?, options(config))?))
    }
}

fn options(config: &Config) -> tipc::Options {
    tipc::Options {
        source_type: config.backbone.source_type,
        feed_type: config.backbone.feed_type,
        spin: config.threads.feed.busy_poll.then_some(Spin::Busy),
    }
}
