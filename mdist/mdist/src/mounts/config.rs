//! Settings of mounts, and the state that the workers of a server share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::pool::Pool;
use super::slow_consumer::Limits;
use crate::dictionaries;

/// Settings of a server's mounts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the server in login replies and in refused handshakes.
    pub application: String,
    /// The transport: versions, ping time-outs, compression, frame size.
    pub transport: ServerOptions,
    /// Output buffers of one mount (`guaranteedOutputBuffers`, `maxOutputBuffers`).
    pub output: Limits,
    /// Streams that one mount may have open; also the OpenLimit that the directory shows. Spec: rssl.md §6.5
    pub open_limit: u32,
    /// Most requests that a consumer should have outstanding: the OpenWindow that the directory shows. Not enforced.
    pub open_window: u32,
    /// Most mounts of the server; further connections are refused in the handshake.
    pub max_mounts: u32,
    /// Most mounts of one user on the server; `None`: no limit.
    pub mounts_per_user: Option<u32>,
    /// Longest time from accepting a connection to its login.
    pub login_timeout: Duration,
    /// Longest part of a dictionary, in bytes.
    pub dictionary_part: usize,
    /// Latency measurement: `None`: off, `Some(false)`: over all mounts, `Some(true)`: for each mount as well.
    pub latency: Option<bool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            application: "p2ps".into(),
            transport: ServerOptions::default(),
            output: Limits { guaranteed: 800, max: 16_000 },
            open_limit: 1_000_000,
            open_window: 100_000,
            max_mounts: 5_000,
            mounts_per_user: None,
            login_timeout: Duration::from_secs(45),
            dictionary_part: dictionaries::PART,
            latency: None,
        }
    }
}

/// The state that the workers of one server share.
#[derive(Debug)]
pub struct Shared {
    /// Output buffers beyond the guarantees (`poolSize`).
    pub pool: Pool,
    mounts: AtomicU32,
    /// Number of mounts by user.
    users: Mutex<HashMap<Vec<u8>, u32>>,
}

impl Shared {
    /// Creates the state with a pool of `buffers` output buffers.
    pub fn new(buffers: usize) -> Self {
        Self { pool: Pool::new(buffers), mounts: AtomicU32::new(0), users: Mutex::default() }
    }

    /// Counts one more mount; `false`: there are `most` already.
    pub(crate) fn admit(&self, most: u32) -> bool {
        let more = |count: u32| (count < most).then_some(count + 1);
        self.mounts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn dismiss(&self) {
        self.mounts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one more mount of `user`; `false`: the user has `most` already.
    pub(crate) fn admit_user(&self, user: &[u8], most: Option<u32>) -> bool {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let count = users.entry(user.to_vec()).or_default();
        if most.is_some_and(|most| *count >= most) {
            return false;
        }
        *count += 1;
        true
    }

    pub(crate) fn dismiss_user(&self, user: &[u8]) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                users.remove(user);
            }
        }
    }
}
