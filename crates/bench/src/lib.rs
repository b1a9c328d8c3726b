//! Shared parts of `utipc bench` and `mdist-bench`: child processes, daemons and network namespaces, CPU
//! accounting, statistics, tables and plots. It does not depend on the measured programs.

pub mod chart;
pub mod cpu;
pub mod daemon;
pub mod interrupt;
pub mod machine;
pub mod place;
pub mod plot;
pub mod process;
pub mod stats;
pub mod table;

use std::sync::OnceLock;
use std::time::Instant;

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
