//! Management of a running node: what can be changed, its ranges, and why it is refused. Spec: tipc.md §13.

use thiserror::Error;

use crate::config::BearerConfig;
use crate::limits::{MAX_TOLERANCE_MS, MAX_WINDOW, MIN_TOLERANCE_MS, MIN_WINDOW};
use crate::link::{Link, LinkIo};

/// A property of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LinkProperty {
    /// Silence after which the peer is taken for lost, 50 to 30000 ms; the peer adopts it.
    ToleranceMs(u32),
    /// Priority, 0 to 31: links of higher priority carry the traffic; the link restarts.
    Priority(u8),
    /// Largest send window, 50 to 8191 packets.
    Window(u16),
}

impl LinkProperty {
    /// Checks that the value is in its range.
    ///
    /// # Errors
    /// [`PropertyError::Range`].
    pub fn check(self) -> Result<(), PropertyError> {
        match self {
            Self::ToleranceMs(ms) => {
                check((MIN_TOLERANCE_MS..=MAX_TOLERANCE_MS).contains(&ms), "tolerance", "50 to 30000 ms")
            }
            Self::Priority(priority) => check(priority <= 31, "priority", "0 to 31"),
            Self::Window(window) => {
                check((MIN_WINDOW..=MAX_WINDOW).contains(&window), "window", "50 to 8191 packets")
            }
        }
    }
}

impl LinkProperty {
    pub(super) fn apply(self, link: &mut Link, io: &mut LinkIo<'_>) {
        match self {
            Self::ToleranceMs(ms) => link.set_tolerance(ms, io),
            Self::Priority(priority) => link.set_priority(priority, io),
            Self::Window(window) => link.set_window(MIN_WINDOW, window),
        }
    }
}

/// A property of a bearer. Tolerance and MTU apply to existing links at once; the others apply to links created later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerProperty {
    /// Priority of its links, 0 to 31.
    Priority(u8),
    /// Tolerance of its links, 50 to 30000 ms.
    ToleranceMs(u32),
    /// Largest window of its links, 50 to 8191 packets.
    Window(u16),
    /// Largest packet, bytes; a link that is up uses it after its next restart.
    Mtu(u32),
}

impl BearerProperty {
    pub(super) fn change(self, bearer: &mut BearerConfig) -> Result<(), PropertyError> {
        let mut config = bearer.clone();
        let (what, range) = match self {
            Self::Priority(priority) => {
                config.priority = priority;
                ("priority", "0 to 31")
            }
            Self::ToleranceMs(ms) => {
                config.tolerance_ms = ms;
                ("tolerance", "50 to 30000 ms")
            }
            Self::Window(packets) => {
                config.max_window = packets;
                ("window", "50 to 8191 packets")
            }
            Self::Mtu(bytes) => {
                config.mtu = bytes;
                config.max_receive = config.max_receive.max(bytes);
                ("MTU", "the medium's minimum to 65535 bytes")
            }
        };
        check(config.check().is_ok(), what, range)?;
        *bearer = config;
        Ok(())
    }

    pub(super) fn apply(self, link: &mut Link, io: &mut LinkIo<'_>) {
        match self {
            Self::ToleranceMs(ms) => link.set_tolerance(ms, io),
            Self::Mtu(bytes) => link.set_bearer_mtu(bytes as u16),
            Self::Priority(_) | Self::Window(_) => {}
        }
    }
}

/// Reason why a property was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PropertyError {
    /// There is no such link.
    #[error("no link named {0} (see the list of links)")]
    NoLink(String),
    /// The value is out of its range.
    #[error("{what} must be {range}")]
    Range {
        /// The property.
        what: &'static str,
        /// Its range.
        range: &'static str,
    },
}

/// Reason why a peer was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// The address is that of the node itself.
    #[error("this is the node itself")]
    Own,
    /// There is no such peer.
    #[error("no peer has this address or identity (see the list of nodes)")]
    Unknown,
    /// The peer is up.
    #[error("there is contact with the peer (a peer can be removed when it is down)")]
    Up,
}

/// The identity cannot be changed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the node has joined its cluster, or has connections (set this before its first bearer)")]
pub struct Joined;

pub(super) fn check(ok: bool, what: &'static str, range: &'static str) -> Result<(), PropertyError> {
    if ok { Ok(()) } else { Err(PropertyError::Range { what, range }) }
}
