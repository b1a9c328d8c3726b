//! The library on the kernel's own TIPC (`UTIPC_ENGINE=kernel`): the system's tool configures the node.

use std::process::Command;

use utipc::{Engine, Node};

use crate::args::{Args, Refusal};
use crate::settings::Settings;

/// Whether the node under test is the kernel's.
pub(crate) fn is_wanted() -> bool {
    std::env::var("UTIPC_ENGINE").is_ok_and(|engine| engine == Engine::Kernel.to_string())
}

/// Configures the kernel's node of this network namespace and attaches to it.
pub(crate) fn start(settings: &Settings, args: &Args) -> Result<Node, Refusal> {
    if let Some(cluster) = settings.cluster {
        tipc(&["node", "set", "clusterid", &cluster.to_string()])?;
    }
    match (&settings.address, &settings.identity) {
        (Some(address), _) => tipc(&["node", "set", "address", address])?,
        (None, Some(identity)) => tipc(&["node", "set", "identity", identity])?,
        (None, None) => {}
    }
    let media = args.text("media")?;
    if media == "eth" || media == "two" {
        tipc(&["bearer", "enable", "media", "eth", "device", args.text("device")?])?;
    }
    if media != "eth" {
        let mut command =
            vec!["bearer", "enable", "media", "udp", "name", "U", "localip", args.text("local")?];
        if let Some(remote) = args.maybe_text("remote") {
            command.extend(["remoteip", remote]);
        }
        tipc(&command)?;
    }
    Ok(Node::builder().engine(Engine::Kernel).start()?)
}

fn tipc(args: &[&str]) -> Result<(), Refusal> {
    let failed = |why: String| Refusal::Request(format!("tipc {}: {why}", args.join(" ")));
    let output = Command::new("tipc").args(args).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}
