//! Mutation fuzzer for every parser and state machine of utipc. See README.md.

pub mod engine;
mod mutate;
pub mod seeds;
mod source;
mod targets;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Behaviour of a target on an input; a new entry makes the input a parent.
#[derive(Debug, Default)]
pub struct Seen(BTreeSet<u64>);

impl Seen {
    /// Records a kind of behaviour. Keep the number of kinds small: kinds, states and magnitudes, not values.
    pub fn note(&mut self, behaviour: impl Hash) {
        self.0.insert(digest(behaviour));
    }

    /// True if this behaviour was recorded.
    #[must_use]
    pub fn has(&self, behaviour: impl Hash) -> bool {
        self.0.contains(&digest(behaviour))
    }

    /// Adds the entries of `other`; true if any of them is new.
    pub fn merge(&mut self, other: Seen) -> bool {
        let before = self.0.len();
        self.0.extend(other.0);
        self.0.len() > before
    }

    /// Number of kinds of behaviour.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no behaviour was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn digest(behaviour: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    behaviour.hash(&mut hasher);
    hasher.finish()
}

/// Magnitude of a number: its length in bits.
pub(crate) fn magnitude(n: usize) -> u32 {
    usize::BITS - n.leading_zeros()
}

/// A function that processes external bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name on the command line and of its corpus.
    pub name: &'static str,
    /// Runs one input; a panic is a finding.
    pub run: fn(&[u8], &mut Seen),
    /// True if inputs are captured packets; otherwise they are sequences of operations.
    pub takes_packets: bool,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: targets::wire::run, takes_packets: true },
    Target { name: "records", run: targets::records::run, takes_packets: true },
    Target { name: "discovery", run: targets::discovery::run, takes_packets: true },
    Target { name: "names", run: targets::names::run, takes_packets: false },
    Target { name: "topology", run: targets::topology::run, takes_packets: false },
    Target { name: "monitor", run: targets::monitor::run, takes_packets: false },
    Target { name: "manage", run: targets::manage::run, takes_packets: false },
    Target { name: "link", run: targets::link::run, takes_packets: false },
    Target { name: "stack", run: targets::stack::run, takes_packets: false },
    Target { name: "encrypted", run: targets::encrypted::run, takes_packets: false },
    Target { name: "groups", run: targets::groups::run, takes_packets: false },
    Target { name: "ordered", run: targets::ordered::run, takes_packets: false },
    Target { name: "rssl_channel", run: targets::rssl_channel::run, takes_packets: false },
    Target { name: "rwf_message", run: targets::rwf::message, takes_packets: false },
    Target { name: "rwf_containers", run: targets::rwf::containers, takes_packets: false },
    Target { name: "dictionary", run: targets::rwf::dictionary, takes_packets: false },
    Target { name: "backbone", run: targets::backbone::run, takes_packets: false },
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs one input on the target with this name, for another fuzzing engine.
///
/// # Panics
/// If the input is a finding, or there is no target with this name.
pub fn run(name: &str, data: &[u8]) {
    let Some(target) = target(name) else { panic!("unknown target {name}") };
    (target.run)(data, &mut Seen::default());
}

/// The directory of this crate.
#[must_use]
pub fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
