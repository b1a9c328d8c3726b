//! Configuration of a node, and errors of its start.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use utipc_core::addr::NodeId;
use utipc_core::config::{BearerConfig, StackConfig};
use utipc_core::crypto::{Key, KeyUse, MAX_KEY, SetKeyError};
use utipc_os::spin::Mode;
use utipc_os::{OsError, random};
use zeroize::Zeroizing;

use super::now;
use crate::bearers::{self, Bearer};
use crate::key_file::KeyFileError;

/// Configuration of a node.
#[derive(Default)]
pub struct NodeConfig {
    /// Identity, cluster and seed.
    pub stack: StackConfig,
    /// Keys that are set before the bearers are enabled.
    pub keys: Vec<(KeyUse, Key)>,
    /// Interval of new session keys, minutes; 0 for none. By default a day.
    pub rekeying_minutes: Option<u32>,
    /// Its bearers, opened. A node without bearers serves its own process alone.
    pub bearers: Vec<Plan>,
    /// Name in logs and of the background thread; empty for none.
    pub label: String,
    /// Time for which a waiting call spins on the bearers before it sleeps; zero by default.
    pub spin: Duration,
    /// How a waiting call checks the memory of bearers, if they have any, before it sleeps.
    pub wait: Mode,
}

impl NodeConfig {
    /// Chooses a random identity unless there is one or an address. Call it before the bearers are opened: some assign
    /// the node's address.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn choose_identity(&mut self) -> Result<(), OsError> {
        let stack = &mut self.stack;
        if stack.identity.is_none() && stack.address.is_none() {
            stack.identity = Some(NodeId(random::identity()?));
        }
        Ok(())
    }

    /// Gives encryption the wall clock and the system's randomness, unless it has them.
    pub(crate) fn complete_encryption(&mut self) -> Result<(), OsError> {
        let encryption = &mut self.stack.encryption;
        if encryption.clock_at_zero == 0 {
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let clock = u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX);
            encryption.clock_at_zero = clock.saturating_sub(now().as_nanos());
        }
        if encryption.secret.is_none() {
            let mut secret = Zeroizing::new([0; MAX_KEY]);
            random::fill(&mut *secret)?;
            encryption.secret = Some(secret);
        }
        Ok(())
    }

    /// Chooses what was left open: the seed, random if none is given; the identity; and the address, at once if no
    /// other node can have it, because the node has no bearer or all bearers have assigned it. Call it with the bearers
    /// in place.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn complete(&mut self, seed: Option<u64>) -> Result<(), OsError> {
        self.choose_identity()?;
        let stack = &mut self.stack;
        stack.seed = match seed {
            Some(seed) => seed,
            None => random::seed()?,
        };
        stack.address_is_assigned =
            !self.bearers.is_empty() && self.bearers.iter().all(|plan| plan.bearer.owns_address());
        if self.bearers.is_empty() && stack.address.is_none() {
            stack.address = stack.identity.map(|id| id.trial_address());
        }
        Ok(())
    }
}

/// A bearer and the properties of its links.
pub struct Plan {
    /// The opened bearer.
    pub bearer: Box<dyn Bearer>,
    /// Changes the properties with which the core enables it.
    pub tune: Box<dyn Fn(&mut BearerConfig) + Send>,
}

impl Plan {
    /// A bearer with the default properties.
    #[must_use]
    pub fn new(bearer: Box<dyn Bearer>) -> Self {
        Self { bearer, tune: Box::new(|_| {}) }
    }
}

/// Reason why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system refused something. The text has the remedy.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A bearer cannot be opened.
    #[error(transparent)]
    Bearer(#[from] bearers::BearerError),
    /// A bearer's properties are out of range.
    #[error(transparent)]
    Property(#[from] utipc_core::config::BearerError),
    /// A key file is not usable.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A key cannot be set.
    #[error("cannot set a key: {0}")]
    Key(#[from] SetKeyError),
    /// The system refuses a thread for the supervisor.
    #[error("cannot start the node's background thread: {0} (raise the limit of threads, `ulimit -u`)")]
    Thread(std::io::Error),
}
