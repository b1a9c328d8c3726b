//! Configuration of a daemon.

use std::path::PathBuf;

use utipc_attach::Greeting;

use crate::daemon::attachments::Policy;
use crate::driver::{NodeConfig, StartError};

/// The parts of the node's name that are fixed before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FixedName {
    /// Its identity and address stay as they are.
    #[default]
    All,
    /// Its identity; the number of its cluster may change.
    Identity,
    /// No part.
    Nothing,
}

/// Configuration of a daemon.
#[derive(Default)]
pub struct DaemonConfig {
    /// The node that it hosts.
    pub node: NodeConfig,
    /// Path of the socket on which processes attach; the daemon creates it.
    pub socket: PathBuf,
    /// Permissions of that socket; 0666 if 0: the policy and the directory decide.
    pub socket_mode: u32,
    /// Permissions of users.
    pub policy: Policy,
    /// Limits of what processes may use.
    pub limits: Limits,
    /// The parts of the node's name that are fixed. An administrator may set the others until the first bearer.
    pub fixed_name: FixedName,
    /// Versions of the protocol; those of this code if absent.
    pub versions: Option<Greeting>,
}

impl DaemonConfig {
    pub(super) fn socket_mode(&self) -> u32 {
        if self.socket_mode == 0 { 0o666 } else { self.socket_mode }
    }
}

/// Limits of what processes may use, each and together. A process at a limit gets an error, without effect on
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attached processes.
    pub attachments: usize,
    /// Attached processes of one user; root has no such limit.
    pub attachments_per_user: usize,
    /// Sockets of one process.
    pub sockets_per_attachment: usize,
    /// Bindings of one process.
    pub bindings_per_attachment: usize,
    /// Bindings of all processes together, [`Limits::MAX_BINDINGS`] at most.
    pub bindings: usize,
    /// Sockets of one process with a descriptor to poll; each costs the daemon a descriptor too.
    pub descriptors_per_attachment: usize,
}

impl Limits {
    /// The largest table that peers of the same release accept.
    pub const MAX_BINDINGS: usize = utipc_core::names::MAX_USER_BINDINGS;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attachments: 4096,
            attachments_per_user: 3072,
            sockets_per_attachment: 16_384,
            bindings_per_attachment: 65_536,
            bindings: utipc_core::names::USER_BINDINGS,
            descriptors_per_attachment: 1024,
        }
    }
}

/// Reason why a daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The node did not start.
    #[error(transparent)]
    Node(#[from] StartError),
    /// The system refused something. The text has the remedy.
    #[error(transparent)]
    Os(#[from] utipc_os::OsError),
}
