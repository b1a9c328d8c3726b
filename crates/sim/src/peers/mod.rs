//! Hostile peers against one node with honest neighbours: checks their cost, and that honest traffic survives.

mod attack;
mod campaign;
mod honest;
mod hostile;

use std::time::Duration;

pub use attack::Attack;
pub use campaign::{Campaign, run};
pub use hostile::{Frame, Hostile, Victim};
use serde::Serialize;

/// Ceilings for the cost of hostile peers to a node. A campaign fails beyond these.
///
/// The values and their reasons are also in `docs/operating/campaigns.md`.
pub mod ceilings {
    use std::time::Duration;

    use super::Attack;

    /// Memory of the node beyond what it needed before, bytes, however many peers attack it. The sum of its limits:
    /// 384 MiB of early packets, unfinished messages and waiting updates (64 MiB, and 80 KiB of each of 4096
    /// established peers), 600 MiB of bindings (2^20, and 128 of each peer, of 400 bytes), 80 MiB of subscriptions and
    /// their events, and 50 KiB for each of 4096 peers: its links, and what it does not acknowledge.
    pub const MEMORY: usize = 1280 << 20;
    /// Memory that is left when the hostile peers have been forgotten, bytes, besides [`PER_BINDING`]: buffers and
    /// tables that shrink late.
    pub const MEMORY_LEFT: usize = 24 << 20;
    /// Memory that the binding table keeps for each binding that it has had at the same time, bytes: programs map a
    /// part of it, so it never shrinks, but is reused.
    pub const PER_BINDING: usize = 400;
    /// Processor time for one frame on average over an attack: a node handles 50,000 frames a second of the worst
    /// attack on one processor, a hundred times more than links need to stay up. Checked in release builds only.
    pub const CPU_PER_FRAME: Duration = Duration::from_micros(20);
    /// The same for a frame of 65 bindings: 4 µs for each, half of it when it is withdrawn.
    pub const CPU_PER_BINDINGS: Duration = Duration::from_micros(260);
    /// Bytes that the node sends for each byte from hostile peers: a peer that reports everything as missing gets its
    /// window again, but not every millisecond.
    pub const AMPLIFICATION: f64 = 16.0;
    /// The same for discovery messages, which can name any host: a response, five setup messages, and what keeps the
    /// sending peer's link up.
    pub const AMPLIFICATION_OF_DISCOVERY: f64 = 5.5;

    /// The same for a request to the topology server: a subscription begins with an event for each binding that exists.
    pub const CPU_PER_SUBSCRIPTION: Duration = Duration::from_micros(200);

    /// The ceiling of bytes sent for each byte of an attack.
    #[must_use]
    pub fn amplification(attack: Attack) -> f64 {
        match attack {
            Attack::Discovery | Attack::Identities => AMPLIFICATION_OF_DISCOVERY,
            _ => AMPLIFICATION,
        }
    }

    /// The ceiling of processor time for a frame of an attack.
    #[must_use]
    pub fn cpu_per_frame(attack: Attack) -> Duration {
        match attack {
            Attack::Bindings => CPU_PER_BINDINGS,
            Attack::Subscriptions => CPU_PER_SUBSCRIPTION,
            _ => CPU_PER_FRAME,
        }
    }

    /// The ceiling for the memory left after an attack that made this many bindings.
    #[must_use]
    pub fn memory_left(bindings: u64) -> usize {
        MEMORY_LEFT + usize::try_from(bindings).unwrap_or(usize::MAX).min(MOST_BINDINGS) * PER_BINDING
    }

    /// Maximum number of bindings of a node: its limit, and those that each peer may have in any case.
    const MOST_BINDINGS: usize =
        utipc_core::names::MAX_BINDINGS + utipc_core::limits::MAX_PEERS * utipc_core::names::ASSURED_BINDINGS;
}

/// Measures of the process that runs the campaign.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Memory in use, bytes.
    pub memory: fn() -> usize,
    /// Processor time of this thread.
    pub cpu: fn() -> Duration,
}

/// The cost of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Frames that the hostile peers sent.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Processor time of the node for these frames.
    pub cpu: Duration,
    /// Processor time of the most expensive turn of a peer, with all its frames.
    pub longest: Duration,
    /// Bytes that the node sent to these peers.
    pub answered: u64,
}

impl Cost {
    /// Processor time of one frame.
    #[must_use]
    pub fn cpu_per_frame(&self) -> Duration {
        self.cpu / u32::try_from(self.frames.max(1)).unwrap_or(u32::MAX)
    }

    /// Bytes sent for each byte received.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        self.answered as f64 / self.bytes.max(1) as f64
    }
}

/// Results of a campaign.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Number of hostile peers, and the maximum in contact at the same time.
    pub peers: usize,
    /// See [`Self::peers`].
    pub most_linked: usize,
    /// Virtual time, milliseconds.
    pub virtual_ms: u64,
    /// Memory beyond that at the beginning, bytes: the most, and after the hostile peers were forgotten.
    pub memory: usize,
    /// See [`Self::memory`].
    pub memory_left: usize,
    /// Maximum number of bytes in the node's own count of early packets and other things that wait.
    pub deferred: usize,
    /// Bindings that hostile peers made or withdrew.
    #[serde(skip)]
    pub bindings: u64,
    /// Cost of each attack.
    #[serde(skip)]
    pub costs: Vec<(Attack, Cost)>,
    /// Processor time of the node's timers, and of the longest call for them.
    #[serde(skip)]
    pub timers: Duration,
    /// See [`Self::timers`].
    #[serde(skip)]
    pub longest_timer: Duration,
    /// Honest messages that arrived.
    pub messages: u64,
    /// Links of hostile peers that the node took down.
    pub resets: u64,
    /// Time until a neighbour that started in the middle had contact, milliseconds.
    pub newcomer_ms: u64,
    /// Longest time for which the honest nodes did not agree on their bindings, milliseconds.
    pub names_late_ms: u64,
}
