//! Configuration of a daemon.

use std::path::PathBuf;

use utipc_attach::Greeting;
use utipc_os::fdpass::Doorway;

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
    /// That socket, if the service manager has passed it: the daemon then neither creates nor removes it.
    pub passed: Option<Doorway>,
    /// Permissions of that socket if the daemon creates it; 0666 if 0: the policy and the directory decide.
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

/// Limits of what processes may use: each process, each user, and all together. A process at a limit gets an error,
/// without effect on others. By default one user can use half of the total. The limits of one user do not
/// apply to root and to the daemon's own user, for whom a part of all other limits is reserved (see
/// [`utipc_core::quota::Quotas::RESERVE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attached processes.
    pub attachments: usize,
    /// Attached processes of one user.
    pub attachments_per_user: usize,
    /// Sockets of one process.
    pub sockets_per_attachment: usize,
    /// Bindings of one process.
    pub bindings_per_attachment: usize,
    /// Bindings of all processes together, [`Limits::MAX_BINDINGS`] at most.
    pub bindings: usize,
    /// Bindings of one user.
    pub bindings_per_user: usize,
    /// Sockets of one process with a descriptor to poll; each costs the daemon a descriptor too.
    pub descriptors_per_attachment: usize,
    /// Descriptors of the daemon for sockets that programs poll, and for forked processes.
    pub descriptors: usize,
    /// The same for one user.
    pub descriptors_per_user: usize,
    /// Sockets.
    pub sockets: usize,
    /// Sockets of one user.
    pub sockets_per_user: usize,
    /// Subscriptions at the topology server by one user. All together may have
    /// [`utipc_core::topology::MAX_SUBSCRIPTIONS`].
    pub subscriptions_per_user: usize,
    /// Lanes.
    pub lanes: usize,
    /// Lanes that the sockets of one user write.
    pub lanes_per_user: usize,
    /// Bytes of messages in queues of sockets, of the shared memory of lanes, and of the daemon's tables.
    pub memory: u64,
    /// The same for one user.
    pub memory_per_user: u64,
}

impl Limits {
    /// The largest table that peers of the same release accept.
    pub const MAX_BINDINGS: usize = utipc_core::names::MAX_USER_BINDINGS;
    /// Least memory by default, bytes.
    const LEAST_MEMORY: u64 = 256 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        let memory = (utipc_os::machine::physical_memory() / 2).max(Self::LEAST_MEMORY);
        Self {
            attachments: 4096,
            attachments_per_user: 4096 / 2,
            sockets_per_attachment: 16_384,
            bindings_per_attachment: 65_536,
            bindings: utipc_core::names::USER_BINDINGS,
            bindings_per_user: utipc_core::names::USER_BINDINGS / 2,
            descriptors_per_attachment: 1024,
            descriptors: 65_536,
            descriptors_per_user: 65_536 / 2,
            sockets: 262_144,
            sockets_per_user: 262_144 / 2,
            subscriptions_per_user: utipc_core::topology::MAX_SUBSCRIPTIONS / 2,
            lanes: 262_144,
            lanes_per_user: 262_144 / 2,
            memory,
            memory_per_user: memory / 2,
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
