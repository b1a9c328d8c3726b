//! Two network namespaces of one machine as hosts: for `utipc bench --scope inter` and the demo on the kernel's engine.
//! `utipc` is the path of the program whose management commands configure the kernel's nodes.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use utipc_netns::{Cable, Namespace};

/// The cable between them.
pub const CABLE: Cable =
    Cable { interface: "utipc0", addresses: [Ipv4Addr::new(10, 96, 17, 1), Ipv4Addr::new(10, 96, 17, 2)] };

/// Runs a management command on the kernel's node in `namespace`.
fn manage_kernel_node(utipc: &Path, namespace: &Namespace, words: &[&str]) -> Result<()> {
    namespace.run(utipc, &[&["--engine", "kernel"], words].concat())
}

/// Gives the kernel's node in `namespace` the address 1.1.`number` and a bearer on the cable.
///
/// # Errors
/// A command fails.
pub fn enable_kernel_node(utipc: &Path, namespace: &Namespace, number: u32) -> Result<()> {
    manage_kernel_node(utipc, namespace, &["node", "set", "address", &format!("1.1.{number}")])?;
    let bearer = ["bearer", "enable", "media", "eth", "device", CABLE.interface];
    manage_kernel_node(utipc, namespace, &bearer)
}

/// Removes the bearer on the cable from the kernel's node in `namespace`.
///
/// # Errors
/// The command fails.
pub fn disable_kernel_bearer(utipc: &Path, namespace: &Namespace) -> Result<()> {
    manage_kernel_node(utipc, namespace, &["bearer", "disable", "media", "eth", "device", CABLE.interface])
}
