//! Settings of who may connect.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::net::{Network, PendingLimits};

/// Maximum number of connections without a login that a program may be set to keep.
const MOST: u32 = 10_000;

/// Who may connect, and how many connections may wait for their login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Admission {
    /// Networks whose hosts may connect, as in `10.1.0.0/16`; empty: every host that reaches a listener.
    pub allow: Vec<String>,
    /// Longest time from accepting a connection to its login, seconds.
    pub login_timeout_s: u8,
    /// Maximum number of connections that have not logged in; for a further one the oldest is closed.
    pub max_pending: u32,
    /// Maximum number of them from one address, or from one /64 network of IPv6.
    pub max_pending_per_address: u32,
}

impl Default for Admission {
    fn default() -> Self {
        let PendingLimits { total, per_address } = PendingLimits::default();
        Self {
            allow: Vec::new(),
            login_timeout_s: 10,
            max_pending: total as u32,
            max_pending_per_address: per_address as u32,
        }
    }
}

impl Admission {
    /// The networks whose hosts may connect; empty: every host.
    #[must_use]
    pub fn networks(&self) -> Vec<Network> {
        self.allow.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The limits of connections that have not logged in.
    #[must_use]
    pub fn pending(&self) -> PendingLimits {
        PendingLimits { total: self.max_pending as usize, per_address: self.max_pending_per_address as usize }
    }

    /// Longest time to a login.
    #[must_use]
    pub fn login_timeout(&self) -> Duration {
        Duration::from_secs(self.login_timeout_s.into())
    }

    pub(super) fn check(&self, program: &str) -> Result<(), Error> {
        let no = |what: &str, allowed: &str| {
            Err(Error::Value { setting: format!("{program}.admission.{what}"), allowed: allowed.into() })
        };
        if let Some(why) = self.allow.iter().find_map(|text| text.parse::<Network>().err()) {
            return no("allow", &format!("addresses and networks as in 10.1.0.0/16; {why}"));
        }
        if self.login_timeout_s == 0 {
            return no("login-timeout-s", "1 to 255 seconds");
        }
        if ![self.max_pending, self.max_pending_per_address].iter().all(|most| (1..=MOST).contains(most)) {
            return no("max-pending and max-pending-per-address", &format!("1 to {MOST} connections"));
        }
        Ok(())
    }
}
