//! Configuration of a run.

use clap::ValueEnum;
use utipc_vsync::Components;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FaultKind {
    /// Messages take up to 200 ms.
    Delay,
    /// Parts of the group cannot reach one another for a while.
    Partition,
    /// The path between two members is lost, and comes back.
    Flap,
    /// Members crash; a new member takes their place.
    Crash,
    /// Members leave; a new member takes their place.
    Leave,
    /// Members do not run, or do not take their messages, for a while.
    Slow,
}

/// Configuration of a run. Equal values give equal runs, byte for byte.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Number of slots for members; each has one member at a time.
    pub members: usize,
    /// Seed of all randomness.
    pub seed: u64,
    /// Rounds of a busy period with faults and a quiet one without.
    pub rounds: u32,
    /// Kinds of faults that may occur.
    pub faults: Vec<FaultKind>,
    /// Which components go on.
    pub components: Components,
    /// Log every event to standard error.
    pub log: bool,
}

impl SimConfig {
    /// A run with all faults; odd seeds let all components go on.
    #[must_use]
    pub fn new(members: usize, seed: u64) -> Self {
        Self {
            members,
            seed,
            rounds: 3,
            faults: FaultKind::value_variants().to_vec(),
            components: if seed % 2 == 1 { Components::All } else { Components::Primary },
            log: false,
        }
    }
}
