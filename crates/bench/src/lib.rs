//! Shared parts of `utipc bench` and `mdist-bench`: child processes, daemons and network namespaces, CPU
//! accounting, statistics, tables, plots and numbered messages. It does not depend on the measured programs.

pub mod chart;
pub mod compiler;
mod counts;
pub mod cpu;
pub mod daemon;
pub mod interrupt;
pub mod machine;
pub mod numbered;
pub mod place;
pub mod plot;
pub mod process;
pub mod stats;
pub mod table;

use std::sync::OnceLock;
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

/// A value of an option.
pub trait Named {
    /// Its name on the command line, which tables and JSON also use.
    fn name(&self) -> String;
}

impl<T: ValueEnum> Named for T {
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What was measured for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The figures.
    pub got: String,
    /// Whether the target is met; `None`: the measurement does not count, for the reason in `got`.
    pub met: Option<bool>,
}

impl Verdict {
    /// A measurement that counts.
    pub fn new(got: impl Into<String>, met: bool) -> Self {
        Self { got: got.into(), met: Some(met) }
    }

    /// A measurement that does not count.
    pub fn uncounted(got: impl Into<String>) -> Self {
        Self { got: got.into(), met: None }
    }

    /// [`Self::met`] for a table.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.met.map_or("-", |met| if met { "yes" } else { "**no**" })
    }
}

/// Groups values by a key; keys and the values of each keep their order.
pub fn group_by<T, K: PartialEq>(
    values: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for value in values {
        let own = key(&value);
        match groups.iter_mut().find(|(key, _)| *key == own) {
            Some((_, values)) => values.push(value),
            None => groups.push((own, vec![value])),
        }
    }
    groups
}

/// Prints a line of progress to standard error, with the time since the first one.
pub fn progress(text: &str) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let seconds = BEGAN.get_or_init(Instant::now).elapsed().as_secs();
    eprintln!("[{:2}:{:02}] {text}", seconds / 60, seconds % 60);
}

/// Runs `measure` on each of `parties` in every round. The order is reversed in every second round, so that no
/// party always follows the same other one.
///
/// # Errors
/// The first error of `measure`.
pub fn in_turn<P>(
    rounds: u32,
    parties: &mut [P],
    mut measure: impl FnMut(u32, &mut P) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for round in 0..rounds {
        let reversed = round % 2 == 1;
        for position in 0..parties.len() {
            let index = if reversed { parties.len() - 1 - position } else { position };
            if let Some(party) = parties.get_mut(index) {
                measure(round, party)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_second_round_is_reversed() {
        let mut seen = String::new();
        super::in_turn(3, &mut ['a', 'b'], |_, party| {
            seen.push(*party);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, "abbaab");
    }
}
