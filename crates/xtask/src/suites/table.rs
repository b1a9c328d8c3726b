//! The suites of `cargo xtask test`. To add one, add an entry.

use std::path::Path;
use std::time::Duration;

use super::judge::Judge;
use crate::lab;

/// Why a suite cannot run here, and the one command that enables it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// A set of tests that one command runs.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Program and arguments. `cargo` is the cargo that runs us, `xtask` is this program.
    pub(crate) command: &'static [&'static str],
    pub(crate) judge: Judge,
    /// Then the suite is killed, which is a failure.
    pub(crate) limit: Duration,
    /// Whether its lines are worth showing as they come.
    pub(crate) live: bool,
    /// Why it cannot run on this machine.
    pub(crate) obstacle: fn(&Path) -> Option<Skip>,
    /// Whether continuous integration must run it.
    pub(crate) required_in_ci: bool,
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

const fn suite(name: &'static str, limit: Duration, judge: Judge, command: &'static [&'static str]) -> Suite {
    Suite { name, command, judge, limit, live: false, obstacle: |_| None, required_in_ci: true }
}

/// All suites in the order in which they run: the quick and the telling first.
pub(crate) const SUITES: &[Suite] = &[
    // Unit tests, vectors, replay of the fuzz corpora, scenarios, documentation examples.
    suite("tests", minutes(18), Judge::CargoTest, &["cargo", "test", "--workspace", "--no-fail-fast"]),
    Suite {
        obstacle: bearers_without_root,
        ..suite(
            "bearers",
            minutes(5),
            Judge::CargoTest,
            &[
                "unshare",
                "--map-root-user",
                "--net",
                "cargo",
                "test",
                "-p",
                "utipc-node",
                "--test",
                "bearers",
            ],
        )
    },
    suite(
        "demo",
        minutes(8),
        Judge::LastLine("demo: ok"),
        &["cargo", "run", "--quiet", "--release", "--", "demo"],
    ),
    // Every measurement of `utipc bench` on every transport, also the one that an ordinary build leaves out.
    suite(
        "bench-smoke",
        minutes(10),
        Judge::CargoTest,
        &["cargo", "test", "-p", "utipc-tools", "--features", "iceoryx2", "--test", "bench"],
    ),
    // Each fault planted in the protocol must be caught by the simulator's invariants.
    suite(
        "planted",
        minutes(6),
        Judge::CargoTest,
        &["cargo", "test", "--release", "-p", "utipc-sim", "--features", "planted-faults"],
    ),
    suite(
        "sim",
        minutes(10),
        Judge::Seeds,
        &[
            "cargo",
            "run",
            "--quiet",
            "--release",
            "-p",
            "utipc-sim",
            "--",
            "--nodes",
            "8",
            "--seeds",
            "500",
            "--faults",
            "loss,reorder,duplicate,partition,crash",
        ],
    ),
    // Two networks and two bearers a node: synchronisation and failover.
    suite(
        "sim-links",
        minutes(8),
        Judge::Seeds,
        &[
            "cargo",
            "run",
            "--quiet",
            "--release",
            "-p",
            "utipc-sim",
            "--",
            "--nodes",
            "8",
            "--bearers",
            "2",
            "--seeds",
            "60",
        ],
    ),
    Suite {
        live: true,
        obstacle: no_lab,
        ..suite("interop", minutes(22), Judge::Interop, &["xtask", "interop", "--wireshark"])
    },
];

/// The suite `tests` runs the bearers' conformance too, but a user who is not root needs a namespace of their own.
fn bearers_without_root(_: &Path) -> Option<Skip> {
    if user_is_root() {
        return Some(Skip { reason: "run by root in the suite tests".into(), remedy: String::new() });
    }
    let probe = std::process::Command::new("unshare").args(["--map-root-user", "--net", "true"]).output();
    if probe.is_ok_and(|out| out.status.success()) {
        return None;
    }
    let reason = "this user may not make network namespaces".into();
    Some(Skip { reason, remedy: "sudo -E cargo test -p utipc-node --test bearers".into() })
}

fn user_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn no_lab(root: &Path) -> Option<Skip> {
    let error = match lab::obstacle() {
        Some(why) => why,
        None => format!("{:#}", lab::build(root).err()?),
    };
    Some(Skip { reason: error, remedy: "cargo xtask lab build".into() })
}
