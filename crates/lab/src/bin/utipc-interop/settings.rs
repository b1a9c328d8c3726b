//! Settings of the node under test, and the start of a node in this process.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::unistd::mkdtemp;
use serde_json::Value;
use utipc::bearers::EthernetBearer;
use utipc::daemon::{BearerConfig, Daemon, DaemonConfig, NodeConfig, Plan};
use utipc::{Builder, Node, NodeAddr};

use crate::args::{Args, Refusal};

/// Settings of the node until its bearer is known: utipc starts a node with its bearers.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) address: Option<String>,
    pub(crate) identity: Option<String>,
    pub(crate) cluster: Option<u32>,
    /// A daemon in this process has the node, which can then be managed.
    pub(crate) has_daemon: bool,
    /// In hexadecimal.
    keys: Vec<(KeyUse, String)>,
    rekeying_minutes: Option<u32>,
}

/// The purpose of a key.
#[derive(Clone)]
enum KeyUse {
    Cluster,
    Master,
    Node(String),
}

impl Settings {
    pub(crate) fn read(args: &Args) -> Result<Self, Refusal> {
        Ok(Self {
            address: args.maybe_text("address").map(str::to_owned),
            identity: args.maybe_text("identity").map(str::to_owned),
            cluster: args.get("cluster").is_some().then(|| args.u32("cluster")).transpose()?,
            has_daemon: args.flag("daemon"),
            keys: keys(args),
            rekeying_minutes: args.get("rekeying").is_some().then(|| args.u32("rekeying")).transpose()?,
        })
    }

    /// Starts a node with the bearer that the arguments name.
    pub(crate) fn start(&self, args: &Args) -> Result<Node, Refusal> {
        let files = Files::new().map_err(|error| Refusal::Request(error.to_string()))?;
        let mut builder = with_bearer(self.builder()?, args)?;
        for (number, (key_use, key)) in self.keys.iter().enumerate() {
            let path = files.write(number, key).map_err(|error| Refusal::Request(error.to_string()))?;
            builder = match key_use {
                KeyUse::Cluster => builder.key_file(path),
                KeyUse::Master => builder.master_key_file(path),
                KeyUse::Node(identity) => builder.node_key_file(identity, path),
            };
        }
        if let Some(minutes) = self.rekeying_minutes {
            builder = builder.rekeying_minutes(minutes);
        }
        Ok(builder.start()?)
    }

    /// Starts a daemon whose node has the Ethernet bearer that the arguments name, and attaches to it.
    pub(crate) fn start_daemon(&self, args: &Args) -> Result<(Daemon, Node), Refusal> {
        if args.text("media")? != "eth" {
            return Err(Refusal::Request("a node with a daemon has an Ethernet bearer".into()));
        }
        let mut node = NodeConfig::default();
        node.stack.address = self.address()?;
        let bearer = Box::new(EthernetBearer::open(args.text("device")?).map_err(failed)?);
        node.bearers.push(Plan { bearer, tune: Box::new(|_: &mut BearerConfig| {}) });
        node.complete(None).map_err(failed)?;
        let socket = std::env::temp_dir().join(format!("utipc-interop-{}.sock", std::process::id()));
        let config = DaemonConfig { node, socket, ..DaemonConfig::default() };
        let daemon = Daemon::start(config).map_err(failed)?;
        let node = Node::builder().daemon_at(daemon.socket()).start()?;
        Ok((daemon, node))
    }

    fn address(&self) -> Result<Option<NodeAddr>, Refusal> {
        let Some(address) = &self.address else { return Ok(None) };
        let parts: Vec<u32> = address.split('.').filter_map(|p| p.parse().ok()).collect();
        let &[zone, cluster, node] = parts.as_slice() else {
            return Err(Refusal::Request(format!("not an address <Z.C.N>: {address}")));
        };
        Ok(Some(NodeAddr::legacy(zone, cluster, node)))
    }

    fn builder(&self) -> Result<Builder, Refusal> {
        let mut builder = Node::builder();
        if let Some(id) = self.cluster {
            builder = builder.cluster(id);
        }
        if let Some(address) = self.address()? {
            builder = builder.address(address);
        }
        let Some(identity) = &self.identity else { return Ok(builder) };
        match u128::from_str_radix(identity, 16) {
            // 32 hexadecimal digits are the 16 bytes themselves, as for iproute2's `tipc`.
            Ok(bytes) if identity.len() == 32 => Ok(builder.identity_bytes(bytes.to_be_bytes())),
            _ => Ok(builder.identity(identity)),
        }
    }
}

/// `key`, `master`, and `node_keys` by identity.
fn keys(args: &Args) -> Vec<(KeyUse, String)> {
    let one = |name, key_use| args.maybe_text(name).map(|key| (key_use, key.to_owned()));
    let nodes = args.get("node_keys").and_then(Value::as_object).into_iter().flatten();
    let nodes = nodes.filter_map(|(id, key)| Some((KeyUse::Node(id.clone()), key.as_str()?.to_owned())));
    one("key", KeyUse::Cluster).into_iter().chain(one("master", KeyUse::Master)).chain(nodes).collect()
}

/// A folder of key files, until the node has read them.
struct Files(PathBuf);

impl Files {
    fn new() -> std::io::Result<Self> {
        Ok(Self(mkdtemp(&std::env::temp_dir().join("utipc-interop-XXXXXX"))?))
    }

    /// Writes a file that only its owner may read.
    fn write(&self, number: usize, text: &str) -> std::io::Result<PathBuf> {
        let path = self.0.join(number.to_string());
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with_bearer(builder: Builder, args: &Args) -> Result<Builder, Refusal> {
    let media = args.text("media")?;
    if media == "eth" {
        return Ok(builder.ethernet(args.text("device")?));
    }
    let builder = if media == "two" { builder.ethernet(args.text("device")?) } else { builder };
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

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Request(error.to_string())
}
