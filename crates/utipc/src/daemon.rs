//! A daemon in this process: a node that serves other processes. `utipcd` is little more than this module and a
//! configuration file.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use utipc::daemon::{Daemon, DaemonConfig};
//! let socket = std::env::temp_dir().join(format!("utipc-doc-{}.sock", std::process::id()));
//! let mut config = DaemonConfig { socket, ..DaemonConfig::default() };
//! config.node.complete(None)?;
//! let daemon = Daemon::start(config)?;
//! assert_eq!(daemon.counters().attached, 0);
//! # Ok(())
//! # }
//! ```

pub use utipc_core::config::{BearerConfig, StackConfig};
pub use utipc_core::crypto::{Key, KeyUse};
pub use utipc_node::daemon::*;
pub use utipc_node::{NodeConfig, Plan, key_file};
pub use utipc_os::fdpass::Doorway;
pub use utipc_os::runtime_dir::usual_socket;

/// Whether the environment names a daemon (`UTIPC_SOCKET` or `UTIPC_INSTANCE`), so that its absence is an error.
#[must_use]
pub fn is_named_by_environment() -> bool {
    ["UTIPC_SOCKET", "UTIPC_INSTANCE"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}
