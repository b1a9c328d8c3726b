//! Counts of passed and failed tests from a suite's output.

use std::ops::AddAssign;
use std::time::Duration;

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Prefix of lines in which a suite reports a test that took long, for the summary.
const SLOW: &str = "slow: ";

/// The line that reports how long a test took.
pub(crate) fn slow_line(name: &str, took: Duration) -> String {
    format!("{SLOW}{:.1} s {name}", took.as_secs_f64())
}

/// The seconds and the name in a line of [`slow_line`].
pub(crate) fn slow_test(line: &str) -> Option<(f64, &str)> {
    let (seconds, name) = line.strip_prefix(SLOW)?.split_once(" s ")?;
    Some((seconds.parse().ok()?, name))
}

/// Whether a line names a test that failed, in the forms of all suites.
pub(crate) fn names_failure(line: &str) -> bool {
    let line = line.trim();
    let begins = ["FAILED", "failed ", "--- FAIL: ", "[ERROR] "].iter().any(|word| line.starts_with(word));
    begins || line.ends_with(" ... FAILED") || line.contains(": BROKEN ")
}

/// A line without the sequences that colour a terminal: Maven writes one at its end, also where there is none.
pub(crate) fn plain(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut text, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text.push_str(part.get(end..).unwrap_or_default());
        text
    })
}

/// The form of a suite's output, from which its tests are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// `test result: …` lines of `cargo test`.
    CargoTest,
    /// One test, which passes if its last line is this one.
    LastLine(&'static str),
    /// The last line of the interop matrix.
    Interop,
    /// The last line of an xtask command with this name: `NAME: P passed, F failed`.
    Total(&'static str),
    /// Lines `seed S: …` of the simulator. Each run has one; a run that broke an invariant has a second one.
    Seeds,
}

impl Judge {
    /// The counts in `output`, given whether the suite ended well. A suite that ran nothing, or that ended badly
    /// without a failed test, has failed.
    pub(crate) fn counts(self, output: &str, success: bool) -> Counts {
        let mut counts = match self {
            Self::CargoTest => cargo_test(output),
            Self::LastLine(line) => {
                let last = output.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
                let passed = usize::from(success && last.trim_end() == line);
                Counts { passed, failed: 1 - passed }
            }
            Self::Seeds => seeds(output),
            Self::Interop => output.lines().rev().find_map(|line| total(line, "interop")).unwrap_or_default(),
            Self::Total(name) => output.lines().rev().find_map(|line| total(line, name)).unwrap_or_default(),
        };
        if counts.failed == 0 && (!success || counts.passed == 0) {
            counts.failed = 1;
        }
        counts
    }
}

fn cargo_test(output: &str) -> Counts {
    let mut total = Counts::default();
    for line in output.lines().filter_map(|l| l.trim_start().strip_prefix("test result: ")) {
        let number = |word| before(line, word).unwrap_or(0);
        total += Counts { passed: number("passed"), failed: number("failed") };
    }
    total
}

fn seeds(output: &str) -> Counts {
    let of_seed = |l: &&str| l.starts_with("seed ") && l.contains(": ");
    let failed = output.lines().filter(of_seed).filter(|l| l.contains(": BROKEN ")).count();
    let runs = output.lines().filter(of_seed).filter(|l| l.contains(": trace ")).count();
    Counts { passed: runs.saturating_sub(failed), failed }
}

/// `NAME: P passed, F failed`
fn total(line: &str, name: &str) -> Option<Counts> {
    let line = line.strip_prefix(name)?.strip_prefix(": ")?;
    Some(Counts { passed: before(line, "passed")?, failed: before(line, "failed")? })
}

/// The number before a word.
fn before(line: &str, word: &str) -> Option<usize> {
    let words: Vec<&str> = line.split([' ', ',', ';']).filter(|w| !w.is_empty()).collect();
    words.windows(2).find(|w| w.get(1) == Some(&word)).and_then(|w| w.first()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_results_add_up() {
        let text = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(Judge::CargoTest.counts(text, false), Counts { passed: 4, failed: 2 });
    }

    #[test]
    fn colours_of_a_terminal_do_not_hide_a_result() {
        let line = plain("\u{1b}[0mjava: 72 passed, \u{1b}[1;31m0 failed\u{1b}[0m");
        assert_eq!(line, "java: 72 passed, 0 failed");
        assert_eq!(Judge::Total("java").counts(&line, true), Counts { passed: 72, failed: 0 });
        assert_eq!(plain("no colour"), "no colour");
    }

    #[test]
    fn a_suite_that_runs_nothing_or_ends_badly_has_failed() {
        assert_eq!(Judge::CargoTest.counts("", true).failed, 1);
        assert_eq!(Judge::CargoTest.counts("test result: ok. 3 passed; 0 failed", false).failed, 1);
        assert_eq!(Judge::Interop.counts("nothing", true).failed, 1);
    }

    #[test]
    fn last_line_gives_the_result() {
        let judge = Judge::LastLine("demo: ok");
        assert_eq!(judge.counts("hello\ndemo: ok\n\n", true), Counts { passed: 1, failed: 0 });
        assert_eq!(judge.counts("demo: ok\nthen something else\n", true).failed, 1);
        assert_eq!(judge.counts("demo: ok\n", false).failed, 1);
    }

    #[test]
    fn interop_rows_are_counted() {
        let text = "ok row\ninterop: 7 passed, 3 failed\n";
        assert_eq!(Judge::Interop.counts(text, false), Counts { passed: 7, failed: 3 });
        assert_eq!(Judge::Total("interop").counts(text, false), Counts { passed: 7, failed: 3 });
        assert_eq!(Judge::Total("python").counts(text, true).failed, 1);
    }

    #[test]
    fn lines_of_slow_tests_are_parsed() {
        let line = slow_line("utipc::killed a b", Duration::from_millis(1250));
        assert_eq!(slow_test(&line), Some((1.2, "utipc::killed a b")));
        assert_eq!(slow_test("slow tests"), None);
    }

    #[test]
    fn lines_that_name_a_failed_test_are_found() {
        let failed = [
            "FAILED remote/stream: read: Connection reset by peer",
            "FAILED udp/loss-20-percent 3.1 s",
            "test killed_server_is_noticed ... FAILED",
            "    --- FAIL: TestGroup (0.10s)",
            "seed 2: BROKEN at 5 ms, node 1: lost",
            "failed install on bookworm",
        ];
        assert!(failed.into_iter().all(names_failure));
        let good =
            ["ok remote/stream", "test a ... ok", "c-library: 45 passed, 0 failed", "seed 1: trace 0a"];
        assert!(!good.into_iter().any(names_failure));
    }

    #[test]
    fn seeds_are_counted_and_a_broken_one_fails() {
        let good = "seed 1 (2 runs of 8 nodes)\nseed 1: trace 0a, 3 rounds\nseed 2: trace 0b, 3 rounds\n";
        assert_eq!(Judge::Seeds.counts(good, true), Counts { passed: 2, failed: 0 });
        let bad = format!("{good}seed 2: BROKEN at 5 ms, node 1: lost\n");
        assert_eq!(Judge::Seeds.counts(&bad, false), Counts { passed: 1, failed: 1 });
        assert_eq!(Judge::Seeds.counts("", true), Counts { passed: 0, failed: 1 });
    }
}
