//! The node that a command inspects: the connection, and requests to it.

use anyhow::{Result, bail};
use utipc::Engine;
use utipc::manage::Management;
use utipc_manage::{Entry, Errno, Refusal, Request};

/// The option that selects a node; commands flatten it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Engine to query: daemon or kernel; by default the daemon, or the kernel's TIPC if no daemon runs
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<String>,
}

impl Target {
    /// Connects.
    pub(crate) fn open(&self) -> utipc::Result<Node> {
        let engine = self.engine.as_deref().map(str::parse::<Engine>).transpose()?;
        Ok(Node(Management::open(engine)?))
    }
}

/// A connection to a node.
#[derive(Debug)]
pub(crate) struct Node(pub(crate) Management);

impl Node {
    /// Sends a request and returns the entries of the answer; none if the node does not know the request.
    pub(crate) fn ask(&self, request: &Request) -> Result<Vec<Entry>> {
        entries(&self.0.ask(request)?)
    }
}

/// The entries of an answer; none if the node does not know the request.
pub(crate) fn entries(answer: &[u8]) -> Result<Vec<Entry>> {
    match utipc_manage::entries(answer) {
        Err(Refusal { errno: Errno::NOT_SUPPORTED, .. }) => Ok(Vec::new()),
        Err(refusal) => bail!("{refusal}"),
        Ok(entries) => Ok(entries),
    }
}
