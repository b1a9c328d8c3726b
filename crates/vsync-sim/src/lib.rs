//! Deterministic simulator of virtual synchrony: members of a group ([`utipc_vsync::Member`]) on virtual time over a
//! transport whose paths end and come back, members that crash, join, leave and are slow, and a model of what each
//! member may see.
//!
//! Everything follows from a seed. [`run`] goes through rounds: a busy period with faults, then a quiet period without;
//! at its end the group must be whole. [`Broken`] lists the invariants.

mod config;
mod model;
mod network;
mod quiet;
mod world;

pub use config::{FaultKind, SimConfig};
pub use model::Broken;

use utipc_core::Time;

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all events in order.
    pub trace: u64,
    /// Number of events.
    pub events: u64,
    /// Rounds completed.
    pub rounds: u64,
    /// Messages between members.
    pub messages: u64,
    /// Messages delivered to applications.
    pub delivered: u64,
    /// Views that applications have seen.
    pub views: u64,
    /// States transferred.
    pub transfers: u64,
    /// Members that crashed or left.
    pub crashes: u64,
    /// Members whose group went on without them.
    pub excluded: u64,
    /// Times that a component was without majority.
    pub blocked: u64,
    /// Sends that met a full window.
    pub would_block: u64,
    /// Atomic messages delivered, aborted, and of unknown outcome.
    pub atomic: [u64; 3],
    /// The group lost its majority for good; the run ended there.
    pub majority_lost: bool,
}

/// A failure: its time, the broken rule, and the results so far.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Virtual time in milliseconds.
    pub at_ms: u64,
    /// The broken rule.
    pub broken: Broken,
    /// Results so far.
    pub outcome: Outcome,
}

/// Virtual milliseconds of a busy period.
const BUSY_MS: u64 = 4000;

/// Makes a run.
///
/// # Errors
/// [`Failure`] at the first broken invariant.
pub fn run(config: &SimConfig) -> Result<Outcome, Box<Failure>> {
    let mut world = world::World::new(config.clone());
    let mut go = || -> Result<(), Broken> {
        for _ in 0..config.rounds {
            world.begin_faults();
            let until = world.now.plus_millis(BUSY_MS);
            world.run_until(until)?;
            world.end_faults();
            quiet::check(&mut world)?;
            if world.outcome.majority_lost {
                break;
            }
            world.outcome.rounds += 1;
        }
        Ok(())
    };
    match go() {
        Ok(()) => Ok(world.outcome),
        Err(broken) => {
            let at_ms = Time::as_millis(world.now);
            Err(Box::new(Failure { at_ms, broken, outcome: world.outcome }))
        }
    }
}
