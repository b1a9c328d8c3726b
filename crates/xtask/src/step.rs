//! Chores as values: a plan says what to build and which steps to run; a step says what to run, where, with which
//! environment and limit, and how to count its tests. A tally adds the tests up.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::judge::{Counts, Judge};
use crate::process::{Followed, follow};
use crate::workspace::{build, built, cargo, root, target};

/// One command. Names in braces are replaced: see [`Site`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Program and arguments. `cargo` and `xtask` stand for the programs that run now.
    pub(crate) command: &'static str,
    /// Working directory below the project's folder.
    folder: &'static str,
    /// Variables; an empty value removes one.
    env: &'static [(&'static str, &'static str)],
    /// Time after which it is killed and counts as failed.
    pub(crate) limit: Duration,
    pub(crate) judge: Judge,
}

impl Step {
    pub(crate) const fn new(name: &'static str, minutes: u64, judge: Judge, command: &'static str) -> Self {
        Self { name, command, folder: "", env: &[], limit: Duration::from_secs(minutes * 60), judge }
    }

    pub(crate) const fn at(self, folder: &'static str) -> Self {
        Self { folder, ..self }
    }

    pub(crate) const fn with(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }
}

/// Values of names in braces: `{root}`, `{target}`, `{xtask}`, `{built}` for the folder of the development build's
/// programs, and more that a chore adds.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    names: Vec<(&'static str, String)>,
    /// This program, found before a suite rebuilds it.
    xtask: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Result<Self> {
        let xtask = std::env::current_exe().context("find this program")?;
        let site = Self { names: Vec::new(), xtask: xtask.clone() };
        let site = site.with("{root}", root()).with("{target}", target()).with("{built}", built(""));
        Ok(site.with("{xtask}", xtask))
    }

    /// Adds a name, which is written with its braces.
    pub(crate) fn with(mut self, name: &'static str, value: impl AsRef<Path>) -> Self {
        self.names.push((name, value.as_ref().display().to_string()));
        self
    }

    fn fill(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// The command of these words, in the project's folder.
    pub(crate) fn command(&self, words: &str) -> Command {
        let (program, words) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = match program {
            "cargo" => cargo(""),
            "xtask" => Command::new(&self.xtask),
            other => Command::new(self.fill(other)),
        };
        command.args(words.split_whitespace().map(|word| self.fill(word))).current_dir(root());
        command
    }

    /// The command of a step.
    pub(crate) fn command_of(&self, step: &Step) -> Command {
        let mut command = self.command(step.command);
        command.current_dir(root().join(step.folder));
        for (name, value) in step.env {
            match *value {
                "" => command.env_remove(name),
                value => command.env(name, self.fill(value)),
            };
        }
        command
    }
}

/// What to build, and the steps to run then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Arguments of `cargo build`; one build each.
    pub(crate) builds: &'static [&'static str],
    pub(crate) steps: &'static [Step],
}

impl Plan {
    /// Builds and runs; returns the counts of all steps.
    pub(crate) fn run(&self, site: &Site) -> Result<Tally> {
        self.build()?;
        self.run_steps(site)
    }

    pub(crate) fn build(&self) -> Result<()> {
        self.builds.iter().try_for_each(|words| build(words))
    }

    /// Runs the steps of what is built.
    pub(crate) fn run_steps(&self, site: &Site) -> Result<Tally> {
        let mut tally = Tally::new(self.name);
        for step in self.steps {
            tally.step(site, step)?;
        }
        Ok(tally)
    }
}

/// Passed and failed tests of a chore.
#[derive(Debug)]
pub(crate) struct Tally {
    name: &'static str,
    pub(crate) counts: Counts,
}

impl Tally {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, counts: Counts::default() }
    }

    /// Reports one test, with what there is to say about it.
    pub(crate) fn note(&mut self, test: &str, result: Result<String>) {
        self.counts += Counts::one(result.is_ok());
        match result {
            Ok(about) if about.is_empty() => println!("ok {test}"),
            Ok(about) => println!("ok {test}: {about}"),
            Err(error) => println!("FAILED {test}: {error:#}"),
        }
    }

    /// Runs a step and shows what it prints; returns that.
    pub(crate) fn step(&mut self, site: &Site, step: &Step) -> Result<String> {
        self.run(step.name, &mut site.command_of(step), step.limit, step.judge)
    }

    /// Runs a command as a step.
    pub(crate) fn run(
        &mut self,
        name: &str,
        command: &mut Command,
        limit: Duration,
        judge: Judge,
    ) -> Result<String> {
        println!("== {name}");
        let Followed { end, output, .. } =
            follow(command, limit, &mut |line| println!("{line}")).with_context(|| name.to_owned())?;
        let counts = judge.counts(&output, end.is_good());
        self.counts += counts;
        match counts.failed {
            0 => println!("ok {name}: {} passed", counts.passed),
            failed => println!("FAILED {name}: {} passed, {failed} failed, {end}", counts.passed),
        }
        Ok(output)
    }

    /// Prints the totals; returns whether all passed.
    pub(crate) fn end(self) -> bool {
        let Counts { passed, failed } = self.counts;
        println!("{}: {passed} passed, {failed} failed", self.name);
        failed == 0 && passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        name: "a test",
        builds: &[],
        steps: &[
            Step::new("one", 1, Judge::Lines, "sh -c {script}").with(&[("NUMBER", "{number}"), ("HOME", "")]),
            Step::new("two", 1, Judge::Silence, "pwd").at("docs"),
        ],
    };

    #[test]
    fn plan_fills_names_in_and_adds_tests_up() {
        let site = Site::new().expect("this program").with("{script}", "echo ok $NUMBER; test -z \"$HOME\"");
        let tally = PLAN.run(&site.with("{number}", "7")).expect("sh and pwd");
        assert_eq!(tally.counts, Counts { passed: 1, failed: 1 });
        assert!(!tally.end());
    }

    #[test]
    fn folder_of_a_step_is_below_the_projects() {
        let site = Site::new().expect("this program");
        let mut tally = Tally::new("folders");
        let printed = tally.step(&site, &PLAN.steps[1]).expect("pwd");
        assert_eq!(Path::new(printed.trim()), root().join("docs").canonicalize().expect("a folder"));
    }
}
