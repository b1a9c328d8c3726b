//! `cargo xtask soak`: builds `utipc-soak` and `utipcd`, and runs the former; or runs a campaign of another package.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::step::Site;
use crate::workspace::{build, cargo, target};

/// A campaign of another package: its first word after `soak`, what to run, and where options go.
struct Campaign {
    name: &'static str,
    command: &'static str,
    /// Options that are numbers, the variables that they set, and their defaults.
    numbers: &'static [(&'static str, &'static str, &'static str)],
    /// Whether the program gets the options itself, and with these defaults.
    passes: Option<&'static [(&'static str, &'static str)]>,
}

static CAMPAIGNS: [Campaign; 5] = [
    // Daemon and clients are interrupted at all system calls instead of a sample.
    Campaign {
        name: "steps",
        command: "cargo test --quiet --package utipc-node --test daemon -- --nocapture --test-threads=1 \
                  stops:: own_death:: steps::",
        numbers: &[("", "UTIPC_TEST_ALL_STEPS", "1")],
        passes: None,
    },
    // Hostile peers against a node in the simulator.
    Campaign {
        name: "peers",
        command: "cargo run --quiet --release --package utipc-sim --",
        numbers: &[],
        passes: Some(&[("--peers", "4000"), ("--seconds", "60")]),
    },
    // Lanes in perturbed schedules.
    Campaign {
        name: "schedules",
        command: "cargo test --quiet --release --package utipc-lanes --features schedule --test lane_threads \
                  perturbed -- --nocapture",
        numbers: &[("--runs", "UTIPC_SCHEDULE_RUNS", "10000"), ("--seed", "UTIPC_SCHEDULE_SEED", "")],
        passes: None,
    },
    // All abuses of the market-data programs at once; `--rate` is in updates per second.
    Campaign {
        name: "mdist",
        command: "cargo test --quiet --release --package mdist --test abuse campaign:: -- --nocapture",
        numbers: &[("--seconds", "MDIST_ABUSE_SECONDS", "1800"), ("--rate", "MDIST_ABUSE_RATE", "100000")],
        passes: None,
    },
    // Ordinary events of the market-data chain, alone and in pairs.
    Campaign {
        name: "events",
        command: "cargo run --quiet --release --package mdist-bench -- events",
        numbers: &[],
        passes: Some(&[]),
    },
];

/// Of `soak peers`: in network namespaces against a daemon, instead of in the simulator.
const REAL: &str = "--real";

/// The platform of AddressSanitizer.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Runs a campaign, or `utipc-soak` with `args`, built for release, beside the `utipcd` of the same build. Returns
/// whether it succeeded.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let first = args.first().map(String::as_str).unwrap_or_default();
    if first == "hostile" {
        return finish(hostile()?.args(asan(has("--asan"))?).args(args));
    }
    if let Some(campaign) = CAMPAIGNS.iter().find(|campaign| campaign.name == first && !has(REAL)) {
        let good = finish(&mut campaign.command(args.get(1..).unwrap_or_default())?)?;
        if first == "steps" {
            println!("steps: {}", if good { "ok" } else { "FAILED" });
        }
        return Ok(good);
    }
    let shim = if has("--shim") || has("calls") { "--bin utipc --package utipc-preload --lib" } else { "" };
    build(&format!("--release --package utipc-tools --bin utipcd {shim}"))?;
    let mut soak = cargo("run --quiet --release --package utipc-lab --bin utipc-soak --");
    finish(soak.args(args.iter().filter(|arg| *arg != REAL)))
}

fn finish(command: &mut Command) -> Result<bool> {
    Ok(command.status().context("run cargo")?.success())
}

impl Campaign {
    fn command(&self, args: &[String]) -> Result<Command> {
        let mut command = Site::new()?.command(self.command);
        for (_, variable, default) in self.numbers.iter().filter(|(.., default)| !default.is_empty()) {
            command.env(variable, default);
        }
        if let Some(defaults) = self.passes {
            for (option, value) in defaults {
                if !args.iter().any(|arg| arg.split('=').next() == Some(option)) {
                    command.args([option, value]);
                }
            }
            command.args(args);
            return Ok(command);
        }
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            let name = self.name;
            let Some((_, variable, _)) = self.numbers.iter().find(|(known, ..)| known == option) else {
                let known: Vec<_> = self.numbers.iter().map(|(known, ..)| format!("{known} N")).collect();
                bail!("soak {name}: unknown option {option} (use {})", known.join(" and "));
            };
            let value = rest.next().with_context(|| format!("soak {name}: {option} needs a number"))?;
            value.parse::<u64>().with_context(|| format!("soak {name}: {option} {value}: not a number"))?;
            command.env(variable, value);
        }
        Ok(command)
    }
}

/// The campaign of hostile processes against a `utipcd` with overflow checks.
fn hostile() -> Result<Command> {
    // Without `--release`: a development build checks overflows and its own assertions.
    build("--package utipc-tools --bin utipcd --package utipc-lab --bin utipc-soak")?;
    let mut soak = Command::new(target().join("debug/utipc-soak"));
    // Memory that AddressSanitizer keeps to find later uses is not a leak.
    soak.env("ASAN_OPTIONS", "quarantine_size_mb=32");
    Ok(soak)
}

/// Options for a daemon with AddressSanitizer, which is built first.
fn asan(is_wanted: bool) -> Result<Vec<String>> {
    if !is_wanted {
        return Ok(Vec::new());
    }
    let place = target().join("asan");
    let words =
        format!("env cargo +nightly build --quiet --package utipc-tools --bin utipcd --target {PLATFORM}");
    let mut build = Site::new()?.command(&words);
    build.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    build.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", &place);
    let good = build.status().context("run cargo +nightly")?.success();
    ensure!(good, "utipcd cannot be built with AddressSanitizer (rustup toolchain install nightly)");
    Ok(vec!["--daemon".to_owned(), place.join(PLATFORM).join("debug/utipcd").display().to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(name: &str) -> &'static Campaign {
        CAMPAIGNS.iter().find(|campaign| campaign.name == name).expect("a campaign")
    }

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn options_override_defaults_of_a_program() {
        let command = campaign("peers").command(&["--peers=300".to_owned()]).expect("this program");
        assert!(words(&command).ends_with(&[
            "--".to_owned(),
            "--seconds".into(),
            "60".into(),
            "--peers=300".into()
        ]));
    }

    #[test]
    fn numbers_become_variables_and_other_options_are_refused() {
        let run = |args: &[&str]| {
            campaign("schedules").command(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        let command = run(&["--seed", "7"]).expect("an option");
        let mut all = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
        assert!(all.any(|(name, value)| name == "UTIPC_SCHEDULE_SEED" && value.is_some_and(|v| v == "7")));
        let error = |args| run(args).expect_err("an error").to_string();
        assert_eq!(error(&["--x"]), "soak schedules: unknown option --x (use --runs N and --seed N)");
        assert_eq!(error(&["--runs"]), "soak schedules: --runs needs a number");
        assert!(run(&["--runs", "many"]).is_err());
    }
}
