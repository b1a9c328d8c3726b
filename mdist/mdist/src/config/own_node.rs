//! A TIPC node of the program's own, for containers and hosts without utipcd.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utipc::bearers::{DEFAULT_PORT, UdpConfig, UdpMode};
use utipc::{Node, NodeAddr};

use super::Error;

/// A node in the program, with one UDP bearer. Programs of the same host that are attached to a utipcd are on another
/// node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OwnNode {
    /// `ADDRESS` or `ADDRESS:PORT` of an interface of this host, to which other nodes send; default port 6118.
    pub local: String,
    /// Nodes to reach by unicast, in the same form; empty: by the cluster's multicast group.
    #[serde(default)]
    pub remotes: Vec<String>,
    /// Node address `Z.C.N`; unset: a free one, found by the address trial in the first second.
    #[serde(default)]
    pub address: Option<String>,
    /// Cluster number, 1 to 9999.
    #[serde(default = "cluster")]
    pub cluster: u32,
}

/// The default cluster number of kernel nodes.
fn cluster() -> u32 {
    4711
}

fn value<T>(setting: &str, allowed: &str, found: Option<T>) -> Result<T, Error> {
    found.ok_or_else(|| Error::Value {
        setting: format!("backbone.tipc.node.{setting}"),
        allowed: allowed.into(),
    })
}

fn socket(text: &str) -> Option<SocketAddr> {
    let plain = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    text.parse().ok().or_else(plain)
}

fn node_address(text: &str) -> Option<NodeAddr> {
    let parts = text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()?;
    match parts[..] {
        [zone @ 0..256, cluster @ 0..4096, node @ 1..4096] => Some(NodeAddr::legacy(zone, cluster, node)),
        _ => None,
    }
}

impl OwnNode {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Value`] for the first setting that is not allowed.
    pub fn check(&self) -> Result<(), Error> {
        self.address()?;
        value("cluster", "1 to 9999", (1..=9999).contains(&self.cluster).then_some(()))?;
        self.bearer().map(drop)
    }

    fn address(&self) -> Result<Option<NodeAddr>, Error> {
        let parse = |text: &String| value("address", "a node address such as 1.1.10", node_address(text));
        self.address.as_ref().map(parse).transpose()
    }

    fn bearer(&self) -> Result<UdpConfig, Error> {
        const ALLOWED: &str = "ADDRESS or ADDRESS:PORT, such as 192.0.2.1 or [2001:db8::1]:6118";
        let local = value("local", ALLOWED, socket(&self.local))?;
        let of = |text: &String| value("remotes", ALLOWED, socket(text));
        let remotes = self.remotes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let config = if remotes.is_empty() {
            let none = "an IPv4 address, or an IPv6 address with remotes";
            value("local", none, UdpConfig::multicast("mdist", local.ip(), self.cluster).ok())?
        } else {
            let mode = UdpMode::Replicast { remotes };
            UdpConfig { mode, ..UdpConfig::replicast("mdist", local.ip(), Vec::new()) }
        };
        Ok(UdpConfig { local, ..config })
    }

    /// Starts the node, and waits until it has its address.
    ///
    /// # Errors
    /// A setting is not allowed, or the system refuses the socket.
    pub fn start(&self) -> anyhow::Result<Node> {
        let node = Node::builder().label("mdist").cluster(self.cluster).udp_with(self.bearer()?);
        let node = match self.address()? {
            Some(address) => node.address(address),
            None => node,
        };
        Ok(node.start()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> OwnNode {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn addresses_parse_with_and_without_ports() {
        let both =
            node("local = \"127.0.0.1\"\nremotes = [\"127.0.0.2\", \"127.0.0.3:7000\"]\naddress = \"1.1.7\"");
        both.check().unwrap();
        let bearer = both.bearer().unwrap();
        assert_eq!(bearer.local, "127.0.0.1:6118".parse().unwrap());
        let remotes = ["127.0.0.2:6118", "127.0.0.3:7000"].map(|text| text.parse().unwrap());
        assert_eq!(bearer.mode, UdpMode::Replicast { remotes: remotes.into() });
        assert_eq!(both.address().unwrap(), Some(NodeAddr::legacy(1, 1, 7)));
        let multicast = node("local = \"127.0.0.1:7000\"");
        assert_eq!(multicast.bearer().unwrap().local.port(), 7000);
        assert!(matches!(multicast.bearer().unwrap().mode, UdpMode::Multicast { .. }));
        assert_eq!((multicast.cluster, multicast.address().unwrap()), (4711, None));
    }

    #[test]
    fn error_names_the_setting_that_is_not_allowed() {
        for (text, named) in [
            ("local = \"nowhere\"", "backbone.tipc.node.local"),
            ("local = \"127.0.0.1\"\nremotes = [\"x\"]", "backbone.tipc.node.remotes"),
            ("local = \"127.0.0.1\"\naddress = \"1.1\"", "backbone.tipc.node.address"),
            ("local = \"127.0.0.1\"\naddress = \"1.1.0\"", "backbone.tipc.node.address"),
            ("local = \"127.0.0.1\"\ncluster = 0", "backbone.tipc.node.cluster"),
        ] {
            let why = node(text).check().unwrap_err().to_string();
            assert!(why.contains(named), "{text}: {why}");
        }
        assert!(toml::from_str::<OwnNode>("remotes = []").is_err());
    }
}
