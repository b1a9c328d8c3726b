//! The two nodes of the demo, and where they are.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use utipc::{Engine, Node, NodeAddr};
use utipc_netns::Namespace;
use utipc_tools::namespaces;

use super::narrator::Narrator;

/// A node: embedded, or the kernel's in a separate network namespace.
pub(super) struct Host {
    node: Node,
    namespace: Option<Namespace>,
}

impl Host {
    /// Calls `ask` with the node, on a thread in its namespace.
    pub(super) fn at<T: Send>(&self, ask: impl FnOnce(&Node) -> T + Send) -> Result<T> {
        match &self.namespace {
            None => Ok(ask(&self.node)),
            Some(namespace) => namespace.inside(|| ask(&self.node)),
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Whether the node is in a separate network namespace, which the loopback addresses of this one do not reach.
    pub(super) fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    pub(super) fn address(&self) -> NodeAddr {
        self.node.address()
    }

    /// Makes the node leave the cluster. Its namespace lives until the returned value is dropped.
    pub(super) fn leave(self) -> Result<Option<Namespace>> {
        if let Some(namespace) = &self.namespace {
            let own = own_program()?;
            namespaces::disable_kernel_bearer(&own, namespace)
                .context("take the kernel's node off the cable")?;
        }
        Ok(self.namespace)
    }
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program's own path")
}

/// Starts two embedded nodes in this process, as separate as two machines.
pub(super) fn embedded(out: &Narrator, cluster: u32) -> Result<(Host, Host)> {
    out.line(
        "Each uses an address of 127.0.0.0/8, checks for a second that no other node has its node address,",
    );
    out.line("and looks for neighbours.");
    let begin = |name: &'static str| {
        std::thread::spawn(move || {
            let identity = format!("{name}-{:x}", std::process::id());
            let node = Node::builder().engine(Engine::Embedded).identity(&identity).label(name);
            node.cluster(cluster).start()
        })
    };
    let (red, blue) = (begin("red"), begin("blue"));
    let end = |name: &str, thread: std::thread::JoinHandle<utipc::Result<Node>>| match thread.join() {
        Ok(node) => {
            node.map(|node| Host { node, namespace: None }).with_context(|| format!("start node {name}"))
        }
        Err(_) => bail!("start node {name}: its thread panicked (please report this)"),
    };
    let (red, blue) = (end("red", red)?, end("blue", blue)?);
    out.say("red", format_args!("I am node {} of cluster {cluster}", red.address()));
    out.say("blue", format_args!("I am node {} of cluster {cluster}", blue.address()));
    Ok((red, blue))
}

/// Starts two nodes of the kernel, in two network namespaces joined by a cable.
pub(super) fn kernel(out: &Narrator) -> Result<(Host, Host)> {
    out.line(
        "Each is a node of the kernel, in a network namespace with one end of a virtual cable, and gets a",
    );
    out.line("bearer on it, as `tipc bearer enable media eth device DEVICE` does.");
    let start = |name: &str, number: u32, namespace: Namespace| -> Result<Host> {
        let probe = namespace.inside(|| Node::builder().engine(Engine::Kernel).start())?;
        let node = probe.with_context(|| format!("start node {name}"))?;
        namespaces::enable_kernel_node(&own_program()?, &namespace, number)
            .with_context(|| format!("configure node {name}"))?;
        Ok(Host { node, namespace: Some(namespace) })
    };
    let [red, blue] = namespaces::CABLE.join()?;
    let (red, blue) = (start("red", 1, red)?, start("blue", 2, blue)?);
    out.say("red", format_args!("I am the kernel's node {} in one namespace", red.address()));
    out.say("blue", format_args!("I am the kernel's node {} in the other", blue.address()));
    Ok((red, blue))
}
