//! Settings of the node under test, and the start of a node in this process.

use std::net::{IpAddr, SocketAddr};

use utipc::{Builder, Node, NodeAddr};

use crate::args::{Args, Refusal};

/// Settings of the node until its bearer is known: utipc starts a node with its bearers.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) address: Option<String>,
    pub(crate) identity: Option<String>,
    pub(crate) cluster: Option<u32>,
}

impl Settings {
    pub(crate) fn read(args: &Args) -> Result<Self, Refusal> {
        Ok(Self {
            address: args.maybe_text("address").map(str::to_owned),
            identity: args.maybe_text("identity").map(str::to_owned),
            cluster: args.get("cluster").is_some().then(|| args.u32("cluster")).transpose()?,
        })
    }

    /// Starts a node with the bearer that the arguments name.
    pub(crate) fn start(&self, args: &Args) -> Result<Node, Refusal> {
        Ok(with_bearer(self.builder()?, args)?.start()?)
    }

    fn builder(&self) -> Result<Builder, Refusal> {
        let mut builder = Node::builder();
        if let Some(id) = self.cluster {
            builder = builder.cluster(id);
        }
        if let Some(address) = &self.address {
            let parts: Vec<u32> = address.split('.').filter_map(|p| p.parse().ok()).collect();
            let &[zone, cluster, node] = parts.as_slice() else {
                return Err(Refusal::Request(format!("not an address <Z.C.N>: {address}")));
            };
            builder = builder.address(NodeAddr::legacy(zone, cluster, node));
        }
        let Some(identity) = &self.identity else { return Ok(builder) };
        match u128::from_str_radix(identity, 16) {
            // 32 hexadecimal digits are the 16 bytes themselves, as for iproute2's `tipc`.
            Ok(bytes) if identity.len() == 32 => Ok(builder.identity_bytes(bytes.to_be_bytes())),
            _ => Ok(builder.identity(identity)),
        }
    }
}

fn with_bearer(builder: Builder, args: &Args) -> Result<Builder, Refusal> {
    if args.text("media")? == "eth" {
        return Ok(builder.ethernet(args.text("device")?));
    }
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
