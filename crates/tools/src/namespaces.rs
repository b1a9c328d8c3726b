//! Two network namespaces of one machine as hosts: for `utipc bench --scope inter` and the demo on the kernel's engine.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use utipc_netns::{Cable, Namespace};

/// The cable between them.
pub(crate) const CABLE: Cable =
    Cable { interface: "utipc0", addresses: [Ipv4Addr::new(10, 96, 17, 1), Ipv4Addr::new(10, 96, 17, 2)] };

/// Runs a management command on the kernel's node in `namespace`.
fn manage_kernel_node(namespace: &Namespace, words: &[&str]) -> Result<()> {
    let program = std::env::current_exe().context("find this program's own path")?;
    namespace.run(program, &[&["--engine", "kernel"], words].concat())
}

/// Gives the kernel's node in `namespace` the address 1.1.`number` and a bearer on the cable.
pub(crate) fn enable_kernel_node(namespace: &Namespace, number: u32) -> Result<()> {
    manage_kernel_node(namespace, &["node", "set", "address", &format!("1.1.{number}")])?;
    let bearer = ["bearer", "enable", "media", "eth", "device", CABLE.interface];
    manage_kernel_node(namespace, &bearer)
}

/// Removes the bearer on the cable from the kernel's node in `namespace`.
pub(crate) fn disable_kernel_bearer(namespace: &Namespace) -> Result<()> {
    manage_kernel_node(namespace, &["bearer", "disable", "media", "eth", "device", CABLE.interface])
}
