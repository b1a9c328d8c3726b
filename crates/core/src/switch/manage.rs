//! Management of links: properties that can be changed while the node runs, and their ranges. Spec: tipc.md
//! §13 (ranges).

use thiserror::Error;

use super::Switch;
use crate::addr::NodeAddr;
use crate::broadcast::{MulticastPolicy, SMALLEST_WINDOW};
use crate::limits::{MAX_TOLERANCE_MS, MAX_WINDOW, MIN_TOLERANCE_MS, MIN_WINDOW};
use crate::link::Link;
use crate::outbox::BearerId;
use crate::time::Time;

/// Highest threshold of the neighbour monitor, nodes. Spec: tipc.md §13.
const MAX_MONITOR_THRESHOLD: usize = 4095;

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

fn check(ok: bool, what: &'static str, range: &'static str) -> Result<(), PropertyError> {
    if ok { Ok(()) } else { Err(PropertyError::Range { what, range }) }
}

impl Switch {
    pub(crate) fn set_link(
        &mut self,
        now: Time,
        name: &str,
        property: LinkProperty,
    ) -> Result<(), PropertyError> {
        property.check()?;
        let (addr, bearer) = self.find_link(name).ok_or_else(|| PropertyError::NoLink(name.to_owned()))?;
        self.with_peer(now, addr, |peer, ctx| {
            peer.with_link(bearer, ctx, |link, io| match property {
                LinkProperty::ToleranceMs(ms) => link.set_tolerance(ms, io),
                LinkProperty::Priority(priority) => link.set_priority(priority, io),
                LinkProperty::Window(window) => link.set_window(MIN_WINDOW, window),
            });
            peer.arm(ctx);
        });
        Ok(())
    }

    pub(crate) fn find_link(&self, name: &str) -> Option<(NodeAddr, BearerId)> {
        let peers = self.peers.values().map(|m| &m.peer);
        let mut links = peers.flat_map(|p| p.links().map(|(bearer, slot)| (p.addr, bearer, slot)));
        // Formatting the names of all links would cost more than the comparison.
        let is_named = |link: &Link| name.starts_with(&*link.config().name) && link.name() == name;
        links.find(|(_, _, slot)| is_named(&slot.link)).map(|(addr, bearer, _)| (addr, bearer))
    }

    pub(crate) fn set_multicast_policy(&mut self, policy: MulticastPolicy) -> Result<(), PropertyError> {
        if let MulticastPolicy::Auto { ratio } = policy {
            check((1..=100).contains(&ratio), "ratio", "1 to 100 percent")?;
        }
        self.methods.set_policy(policy);
        Ok(())
    }

    pub(crate) fn set_broadcast_window(&mut self, window: u16) -> Result<(), PropertyError> {
        let fits = (SMALLEST_WINDOW..=MAX_WINDOW).contains(&window);
        check(fits, "broadcast window", "32 to 8191 packets")?;
        self.bcast.set_window(window);
        Ok(())
    }

    pub(crate) fn set_monitor_threshold(&mut self, nodes: usize) -> Result<(), PropertyError> {
        check(nodes <= MAX_MONITOR_THRESHOLD, "monitor threshold", "0 to 4095 nodes")?;
        self.bearers.set_monitor_threshold(nodes);
        Ok(())
    }
}
