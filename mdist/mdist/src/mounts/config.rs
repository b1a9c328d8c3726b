//! Settings of mounts, and the state that the workers of a server share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::pool::Pool;
use super::reason::Reason;
use super::slow_consumer::Limits;
use crate::net::{LoginLimits, LoginRefusal, Logins, PendingLimits};

rssl::with_defaults! {
    /// Settings of a server's mounts.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Name of the server in login replies and in refused handshakes.
        pub application: String = "p2ps".into(),
        /// The transport: versions, ping time-outs, compression, frame size.
        pub transport: ServerOptions = ServerOptions::default(),
        /// Output buffers of one mount (`guaranteedOutputBuffers`, `maxOutputBuffers`).
        pub output: Limits = Limits { guaranteed: 800, max: 16_000 },
        /// Streams that one mount may have open; also the OpenLimit that the directory shows. Spec: rssl.md §6.5
        pub open_limit: u32 = 1_000_000,
        /// Maximum number of requests that a consumer should have outstanding: the OpenWindow that the directory shows.
        /// Not enforced.
        pub open_window: u32 = 100_000,
        /// Maximum number of bytes of keys and views of one mount's open items.
        pub open_bytes: usize = 64 << 20,
        /// Maximum number of such bytes of all mounts.
        pub open_bytes_total: usize = 1 << 30,
        /// Whether posts are accepted.
        pub posts: bool = false,
        /// Maximum number of mounts of the server, counted from their login; further connections are refused in the
        /// handshake.
        pub max_mounts: u32 = 5_000,
        /// Maximum number of mounts of one user on the server; `None`: no limit.
        pub mounts_per_user: Option<u32> = None,
        /// Maximum number of mounts from one address on the server; `None`: no limit.
        pub mounts_per_address: Option<u32> = None,
        /// Maximum number of mounts of one user from one address; `None`: no limit.
        pub mounts_per_user_and_address: Option<u32> = None,
        /// Maximum number of connections of one worker that have not logged in.
        pub pending: PendingLimits = PendingLimits::default(),
        /// Longest time from accepting a connection to its login.
        pub login_timeout: Duration = Duration::from_secs(10),
        /// Latency measurement: `None`: off, `Some(false)`: over all mounts, `Some(true)`: for each mount as well.
        pub latency: Option<bool> = None,
    }
}

impl Config {
    /// The limits of mounts with a login.
    pub(crate) fn login_limits(&self) -> LoginLimits {
        LoginLimits {
            total: self.max_mounts,
            per_user: self.mounts_per_user,
            per_address: self.mounts_per_address,
            per_user_and_address: self.mounts_per_user_and_address,
        }
    }
}

/// The state that the workers of one server share.
#[derive(Debug)]
pub struct Shared {
    /// Output buffers beyond the guarantees (`poolSize`).
    pub pool: Pool,
    /// Mounts with a login.
    pub(crate) logins: Logins,
    /// Bytes of keys and views of open items.
    open_bytes: AtomicUsize,
}

impl Shared {
    /// Creates the state with a pool of `buffers` output buffers.
    pub fn new(buffers: usize) -> Self {
        Self { pool: Pool::new(buffers), logins: Logins::default(), open_bytes: AtomicUsize::new(0) }
    }

    /// Counts bytes of keys and views; `false`: they would be more than `most`.
    pub(crate) fn take_bytes(&self, bytes: usize, most: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        self.open_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes back [`Shared::take_bytes`].
    pub(crate) fn give_back_bytes(&self, bytes: usize) {
        self.open_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of keys and views of open items, over all mounts.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes.load(Ordering::Relaxed)
    }
}

/// The text for the consumer that a limit keeps out, with the setting.
pub(crate) fn refusal_text(refusal: LoginRefusal, application: &str) -> String {
    match refusal {
        LoginRefusal::Total(most) => {
            format!("{application} has {most} connections, the most it takes (max-mounts); try again later")
        }
        LoginRefusal::Address(most) => {
            format!("this address has {most} connections already, the most allowed (mounts-per-address)")
        }
        LoginRefusal::User(most) => {
            format!("this user has {most} connections already, the most allowed (mounts-per-user)")
        }
        LoginRefusal::UserAndAddress(most) => {
            format!(
                "this user has {most} connections from this address already, the most allowed (mounts-per-user)"
            )
        }
    }
}

/// The reason to disconnect the mount of a consumer that a limit keeps out.
pub(crate) fn refusal_reason(refusal: LoginRefusal, application: &str) -> Reason {
    match refusal {
        LoginRefusal::Total(most) => Reason::TooManyMounts { most },
        _ => Reason::LoginRefused(refusal_text(refusal, application)),
    }
}
