//! The configuration file of the daemon: every key, its meaning and its default.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A configuration file. Every section and key may be missing; an unknown key is an error that names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) node: Node,
    pub(crate) bearer: Vec<Bearer>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
}

/// `[node]`: identity and address of the node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Node {
    /// Path of the socket that programs attach to; by default `<instance>.sock` in the user's runtime directory, or in
    /// `/run/utipc` for root.
    pub(crate) socket: Option<PathBuf>,
    /// Identity, up to 16 characters of text; by default random at each start.
    pub(crate) identity: Option<String>,
    /// Explicit address `Z.C.N`; by default derived from the identity.
    pub(crate) address: Option<String>,
    /// Number of the cluster, 1 to 9999; default 4711.
    pub(crate) cluster: Option<u32>,
    /// User to become after raw sockets are open (root only); by default none.
    pub(crate) user: Option<String>,
}

/// `[[bearer]]`: a network that carries the node's links; by default none, which serves only programs of this host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bearer {
    pub(crate) media: Media,
    /// Name after `udp:` or `host:`, up to 15 characters; for Ethernet the interface.
    pub(crate) name: Option<String>,
    /// UDP: local address; port 6118 if it has none.
    pub(crate) local: Option<Local>,
    /// UDP: multicast group; by default that of the cluster number, as on kernel nodes.
    pub(crate) group: Option<SocketAddr>,
    /// UDP: peers for unicast instead of multicast.
    #[serde(default)]
    pub(crate) remotes: Vec<Local>,
    /// Host: the directory of the nodes; by default one for each user and network namespace.
    pub(crate) directory: Option<PathBuf>,
    /// UDP: largest frame, bytes; by default what fits the path.
    pub(crate) mtu: Option<usize>,
    /// Tolerance: milliseconds after which a silent peer counts as down, 50 to 30000; default 1500.
    pub(crate) tolerance_ms: Option<u32>,
    /// Link priority, 0 to 31; default 10.
    pub(crate) priority: Option<u8>,
    /// Largest send window, packets, 50 to 8191; default 8191.
    pub(crate) window: Option<u16>,
}

/// Kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Media {
    Udp,
    #[serde(alias = "eth")]
    Ethernet,
    /// Shared memory among the nodes of this user on this host.
    Host,
}

/// An address with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Local {
    WithPort(SocketAddr),
    Plain(IpAddr),
}

impl Local {
    /// The address, with the usual port of TIPC over UDP if it has none.
    pub(crate) fn socket(self) -> SocketAddr {
        match self {
            Self::WithPort(at) => at,
            Self::Plain(ip) => SocketAddr::new(ip, utipc::bearers::DEFAULT_PORT),
        }
    }
}

/// `[policy]`: permissions. Users are names, numbers or `*`; `@name` means the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Policy {
    /// Users that may attach; by default all that can open the socket's file.
    pub(crate) attach: Option<Vec<String>>,
    /// Users that may bind a service type, `"1000"` or `"1000-1999"`; all users may bind types that are not
    /// listed.
    pub(crate) bind: BTreeMap<String, Vec<String>>,
    /// Users that may manage the node; by default root and the daemon's own user.
    pub(crate) manage: Option<Vec<String>>,
    /// Mode of the socket's file, octal text; default 0600, only the daemon's user.
    pub(crate) socket_mode: Option<String>,
}

/// `[limits]`: quotas and limits of programs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Processes attached at a time; default 4096.
    pub(crate) processes: Option<usize>,
    /// Sockets of one process; default 16384.
    pub(crate) sockets_per_process: Option<usize>,
    /// Bindings of one process; default 65536.
    pub(crate) bindings_per_process: Option<usize>,
    /// Bindings of all processes together, 1 to 262143; default 131072.
    pub(crate) bindings: Option<usize>,
}

/// `[log]`: the log on standard error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `utipc_node=debug,info`; default `info`.
    pub(crate) level: Option<String>,
}

impl File {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot use the configuration {}", path.display()))
    }

    /// Parses the text of a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let file: Self = toml::from_str(text).map_err(|e| anyhow::anyhow!("{}", brief(text, &e)))?;
        for bearer in &file.bearer {
            bearer.check()?;
        }
        file.limits.check()?;
        Ok(file)
    }
}

impl File {
    /// The keys that differ from `new` and are read only at the start.
    pub(crate) fn fixed_difference(&self, new: &Self) -> Vec<&'static str> {
        let (a, b) = (&self.node, &new.node);
        let mut keys = Vec::new();
        let mut fixed = |key, same: bool| {
            if !same {
                keys.push(key);
            }
        };
        fixed("node.socket", a.socket == b.socket);
        fixed("node.identity", a.identity == b.identity);
        fixed("node.address", a.address == b.address);
        fixed("node.cluster", a.cluster == b.cluster);
        fixed("node.user", a.user == b.user);
        fixed("bearer", self.bearer == new.bearer);
        fixed("policy.socket_mode", self.policy.socket_mode == new.policy.socket_mode);
        keys
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let most = utipc::daemon::Limits::MAX_BINDINGS;
        match self.bindings {
            Some(bindings) if !(1..=most).contains(&bindings) => {
                bail!("limits.bindings = {bindings} is out of range (give 1 to {most})")
            }
            _ => Ok(()),
        }
    }
}

impl Bearer {
    fn check(&self) -> Result<()> {
        match self.media {
            Media::Udp if self.local.is_none() => {
                bail!("a UDP bearer has no `local` address (give the one of the interface to use)")
            }
            Media::Udp if self.group.is_some() && !self.remotes.is_empty() => {
                bail!("a UDP bearer has both `group` and `remotes` (keep one: multicast or unicast)")
            }
            Media::Ethernet if self.name.is_none() => {
                bail!("an Ethernet bearer has no `name` (give its interface)")
            }
            Media::Ethernet | Media::Host
                if self.local.is_some() || self.group.is_some() || !self.remotes.is_empty() =>
            {
                bail!(
                    "only UDP bearers have `local`, `group` and `remotes` (remove them, or set media = \"udp\")"
                )
            }
            Media::Ethernet | Media::Host if self.mtu.is_some() => {
                bail!("only UDP bearers have an `mtu` (remove it; the interface or the host determines it)")
            }
            Media::Udp | Media::Ethernet if self.directory.is_some() => {
                bail!("only host bearers have a `directory` (remove it, or set media = \"host\")")
            }
            _ => Ok(()),
        }
    }
}

/// The error in one line, with the line number of the file.
fn brief(text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map_or(1, |span| text.as_bytes()[..span.start.min(text.len())].split(|c| *c == b'\n').count());
    format!("line {line}: {}", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_is_valid() {
        assert_eq!(File::parse("").unwrap(), File::default());
    }

    #[test]
    fn unknown_key_is_named() {
        let error = File::parse("[node]\nclutser = 5\n").unwrap_err().to_string();
        assert!(error.contains("clutser") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn fixed_keys_that_differ_are_named() {
        let old = File::parse("[node]\ncluster = 5\n").unwrap();
        let new = File::parse("[log]\nlevel = \"debug\"\n[limits]\nprocesses = 5\n").unwrap();
        assert_eq!(old.fixed_difference(&new), ["node.cluster"]);
        assert!(old.fixed_difference(&old).is_empty());
    }

    #[test]
    fn documented_example_is_valid() {
        let file = File::parse(include_str!("../../../../docs/operating/utipcd.toml")).unwrap();
        assert_eq!(file.bearer.len(), 2);
        assert_eq!(file.bearer[0].local.unwrap().socket().port(), 6118);
    }

    #[test]
    fn invalid_bearers_and_limits_are_refused() {
        for (text, word) in [
            ("[[bearer]]\nmedia = \"udp\"\n", "local"),
            ("[[bearer]]\nmedia = \"ethernet\"\n", "name"),
            ("[[bearer]]\nmedia = \"eth\"\nname = \"eth0\"\nlocal = \"10.0.0.1\"\n", "udp"),
            ("[[bearer]]\nmedia = \"pigeon\"\n", "pigeon"),
            ("[[bearer]]\nmedia = \"host\"\nmtu = 1500\n", "mtu"),
            ("[[bearer]]\nmedia = \"eth\"\nname = \"eth0\"\ndirectory = \"/x\"\n", "directory"),
            ("[limits]\nbindings = 300000\n", "262143"),
            (
                "[[bearer]]\nmedia = \"udp\"\nlocal = \"10.0.0.1\"\ngroup = \"228.0.18.103:6118\"\nremotes = [\"10.0.0.2\"]\n",
                "unicast",
            ),
        ] {
            let error = format!("{:#}", File::parse(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
