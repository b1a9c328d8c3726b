//! Configuration of a run.

use clap::ValueEnum;

/// A kind of fault of the network or the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FaultKind {
    /// Frames are lost.
    Loss,
    /// Frames overtake one another.
    Reorder,
    /// Frames are duplicated.
    Duplicate,
    /// Frames are delayed by less than the tolerance.
    Delay,
    /// Nodes cannot reach one another for a while, in one or both directions.
    Partition,
    /// Nodes crash and restart.
    Crash,
    /// One of two networks fails between two nodes, in both directions; requires two bearers.
    Link,
}

/// Configuration of a run. Equal values give equal runs, byte for byte.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Nodes, 2 to 64.
    pub nodes: usize,
    /// Networks between the nodes, and bearers of each node: 1 or 2.
    pub bearers: u8,
    /// Seed of all randomness.
    pub seed: u64,
    /// Virtual time after which no new round starts, milliseconds.
    pub duration_ms: u64,
    /// Kinds of faults that may occur.
    pub faults: Vec<FaultKind>,
    /// Start all protocol counters just before they wrap.
    pub near_wrap: bool,
    /// Mean interval of actions of a node's applications, microseconds.
    pub pace_us: u64,
    /// Encrypt everything: the nodes have a master key and make new session keys every virtual minute.
    pub keys: bool,
    /// Log every event to standard error.
    pub log: bool,
}

impl SimConfig {
    /// A run of `nodes` nodes for `minutes` virtual minutes with all faults.
    #[must_use]
    pub fn new(nodes: usize, seed: u64, minutes: f64) -> Self {
        Self {
            nodes: nodes.clamp(2, 64),
            bearers: 1,
            seed,
            duration_ms: (minutes * 60_000.0) as u64,
            faults: FaultKind::value_variants().to_vec(),
            near_wrap: seed % 4 == 3,
            pace_us: 40_000,
            keys: false,
            log: false,
        }
    }

    /// Whether this kind of fault may occur.
    #[must_use]
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.contains(&kind)
    }

    /// Whether no fault can end a contact.
    #[must_use]
    pub fn contacts_must_hold(&self) -> bool {
        !self.has(FaultKind::Partition) && !self.has(FaultKind::Crash)
    }
}
