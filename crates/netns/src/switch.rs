//! Many namespaces joined by one Ethernet switch.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};

use crate::{MTU, Namespace};

/// Name of the interface of each host.
const INTERFACE: &str = "eth0";

/// A virtual Ethernet switch, in a namespace of its own. The namespaces joined to it stand for hosts of one network.
#[derive(Debug)]
pub struct Switch {
    namespace: Namespace,
    ports: u32,
}

impl Switch {
    /// Makes a switch without hosts. Needs what [`Cable::join`](crate::Cable::join) needs.
    ///
    /// # Errors
    /// A namespace cannot be made, or `ip` failed.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::new(None)?;
        // All frames to groups reach all ports at once, as on a switch that does not watch who has joined.
        namespace.ip(&["link", "add", "switch", "type", "bridge", "mcast_snooping", "0"])?;
        namespace.ip(&["link", "set", "switch", "up"])?;
        Ok(Self { namespace, ports: 0 })
    }

    /// Makes a host with this address in a network of `prefix` bits, on a port of its own.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn join(&mut self, address: Ipv4Addr, prefix: u8) -> Result<Namespace> {
        ensure!(prefix <= 32, "a network of {prefix} bits");
        let host = Namespace::new(Some(&self.namespace))?;
        self.ports += 1;
        let (port, netns) = (format!("port{}", self.ports), host.keeper.id());
        // One process each instead of one for each command: there may be many hosts.
        let connect = format!(
            "ip link add {port} mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {netns} && \
             ip link set {port} master switch up"
        );
        self.namespace.run("sh", &["-ec", &connect]).with_context(|| format!("connect host {address}"))?;
        let set_up = format!(
            "ip addr add {address}/{prefix} dev {INTERFACE} && ip link set {INTERFACE} up && ip link set lo up"
        );
        host.run("sh", &["-ec", &set_up]).with_context(|| format!("set up host {address}"))?;
        Ok(host)
    }
}
