//! Counts of passed and failed tests from the output of a command.

use std::ops::AddAssign;
use std::time::Duration;

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Counts {
    /// One test.
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: usize::from(passed), failed: usize::from(!passed) }
    }
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

/// The form of a command's output, from which its tests are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// `test result: …` lines of `cargo test`.
    CargoTest,
    /// Lines `--- PASS: …` and `--- FAIL: …` of `go test -v`, without those of subtests.
    GoTest,
    /// The last summary of Maven.
    Maven,
    /// pytest's last line: `1 failed, 2 passed, 1 error in 0.1s`.
    Pytest,
    /// Lines `ok …` and `failed …` of a script.
    Lines,
    /// Lines `seed S: …` of the simulator. Each run has one; a run that broke an invariant has a second one.
    Seeds,
    /// The last line of an xtask command with this name: `NAME: P passed, F failed`.
    Total(&'static str),
    /// One test, which passes if the command succeeds.
    Success,
    /// One test, which passes if the command succeeds and prints nothing.
    Silence,
    /// One test, which passes if the last line is this one.
    LastLine(&'static str),
    /// One test, which passes if the last line contains this text.
    LastLineHas(&'static str),
}

impl Judge {
    /// The counts in `output`, given whether the command succeeded. A command that ran nothing, or that failed without
    /// a failed test, counts as a failure.
    pub(crate) fn counts(self, output: &str, success: bool) -> Counts {
        let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let count = |is: &dyn Fn(&str) -> bool| output.lines().filter(|line| is(line)).count();
        let starts = |start: &str| count(&|line| line.starts_with(start));
        let mut counts = match self {
            Self::CargoTest => cargo_test(output),
            Self::GoTest => Counts { passed: starts("--- PASS: "), failed: starts("--- FAIL: ") },
            Self::Maven => maven(output),
            Self::Pytest => pytest(output),
            Self::Lines => Counts { passed: starts("ok "), failed: starts("failed ") },
            Self::Seeds => {
                let of_seed = |mark: &str| count(&|line| line.starts_with("seed ") && line.contains(mark));
                let failed = of_seed(": BROKEN ");
                Counts { passed: of_seed(": trace ").saturating_sub(failed), failed }
            }
            Self::Total(name) => output.lines().rev().find_map(|line| total(line, name)).unwrap_or_default(),
            Self::Success => Counts::one(success),
            Self::Silence => Counts::one(success && output.is_empty()),
            Self::LastLine(line) => Counts::one(success && last.trim_end() == line),
            Self::LastLineHas(text) => Counts::one(success && last.contains(text)),
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
        let number = |word| before(line, &[word]).unwrap_or(0);
        total += Counts { passed: number("passed"), failed: number("failed") };
    }
    total
}

fn maven(output: &str) -> Counts {
    let Some(line) = output.lines().rfind(|line| line.contains("Tests run:")) else {
        return Counts::default();
    };
    let number = |name: &str| -> usize {
        let rest = line.split(name).nth(1).unwrap_or_default();
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let failed = number("Failures: ") + number("Errors: ");
    Counts { passed: number("Tests run: ").saturating_sub(failed), failed }
}

fn pytest(output: &str) -> Counts {
    let line = output.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let number = |words: &[&str]| before(line, words).unwrap_or(0);
    Counts { passed: number(&["passed"]), failed: number(&["failed"]) + number(&["error", "errors"]) }
}

/// `NAME: P passed, F failed`
fn total(line: &str, name: &str) -> Option<Counts> {
    let line = line.strip_prefix(name)?.strip_prefix(": ")?;
    Some(Counts { passed: before(line, &["passed"])?, failed: before(line, &["failed"])? })
}

/// The number before one of these words.
pub(crate) fn before(line: &str, wanted: &[&str]) -> Option<usize> {
    let words: Vec<&str> = line.split([' ', ',', ';']).filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair.get(1).is_some_and(|word| wanted.contains(word)))?;
    pair.first()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(judge: Judge, output: &str, success: bool, passed: usize, failed: usize) {
        assert_eq!(judge.counts(output, success), Counts { passed, failed }, "{judge:?} of {output:?}");
    }

    #[test]
    fn tests_are_counted_in_each_form() {
        let cargo = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n\
                     test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        check(Judge::CargoTest, cargo, false, 4, 2);
        let go = "=== RUN   TestA\n--- PASS: TestA (0.01s)\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestB (0.00s)\n";
        check(Judge::GoTest, go, false, 1, 1);
        let maven = "[INFO] Tests run: 9, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s -- in A\n\
                     [INFO] Tests run: 18, Failures: 0, Errors: 0, Skipped: 0\n";
        check(Judge::Maven, maven, true, 18, 0);
        check(Judge::Maven, "[ERROR] Tests run: 18, Failures: 1, Errors: 2, Skipped: 0", false, 15, 3);
        check(Judge::Maven, "[ERROR] COMPILATION ERROR", false, 0, 1);
        check(Judge::Pytest, "112 passed in 9.87s", true, 112, 0);
        check(Judge::Pytest, "1 failed, 2 passed, 3 skipped, 1 error in 0.12s", false, 2, 2);
        check(Judge::Lines, "ok one\nfailed two\nmeasured three", true, 1, 1);
        check(Judge::Total("interop"), "ok row\ninterop: 7 passed, 3 failed\n", false, 7, 3);
        check(Judge::Silence, "", true, 1, 0);
        check(Judge::Silence, "a.go\n", true, 0, 1);
    }

    #[test]
    fn a_command_that_runs_nothing_or_fails_without_a_failed_test_has_failed() {
        for judge in [Judge::CargoTest, Judge::Pytest, Judge::Seeds, Judge::Total("python")] {
            check(judge, "nothing", true, 0, 1);
        }
        check(Judge::CargoTest, "test result: ok. 3 passed; 0 failed", false, 3, 1);
        check(Judge::Lines, "ok one", false, 1, 1);
        check(Judge::Total("python"), "interop: 7 passed, 3 failed\n", true, 0, 1);
        check(Judge::Success, "", false, 0, 1);
    }

    #[test]
    fn last_line_gives_the_result() {
        let judge = Judge::LastLine("demo: ok");
        check(judge, "hello\ndemo: ok\n\n", true, 1, 0);
        check(judge, "demo: ok\nthen something else\n", true, 0, 1);
        check(judge, "demo: ok\n", false, 0, 1);
        check(Judge::LastLineHas("\"test\""), "x\n{\"test\": 1}\n", true, 1, 0);
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
        check(Judge::Seeds, good, true, 2, 0);
        check(Judge::Seeds, &format!("{good}seed 2: BROKEN at 5 ms, node 1: lost\n"), false, 1, 1);
    }
}
