//! `cargo xtask howto`: runs the commands of the pages in `docs/howto` and `docs/guide`, and compares what they print
//! with the pages.
//!
//! The blocks of the kind `sh` of a page run in order in one shell, with the workspace's programs in the path, in new
//! network, mount and process namespaces: nothing of the host is changed, and no program outlives its page. A block of
//! the kind `text` that follows one is its output; `…` stands for any characters of a line, a space for any number of
//! them. A block of the kind `console` is only shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::blocks::{Block, blocks};
use crate::needs::Skip;
use crate::process::{follow, user_is_root};
use crate::step::Tally;
use crate::workspace::{build, built, empty_folder, files, root, target};

/// Folders of pages with commands.
const FOLDERS: [&str; 2] = ["docs/howto", "docs/guide"];

/// Time limit of one page.
const LIMIT: Duration = Duration::from_secs(120);

/// What each page may rely on: empty folders for sockets and state, and a loopback device.
const PRELUDE: &str = "set -eu\n\
    mount -t tmpfs none /run\n\
    ip link set lo up\n\
    mkdir /run/utipc home; cd home\n\
    export HOME=$PWD STATE_DIRECTORY=$PWD; unset XDG_RUNTIME_DIR\n";

/// A block of commands, and its output if the page has it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    line: usize,
    commands: String,
    output: Option<String>,
}

/// Runs every page; returns whether all passed.
pub(crate) fn run() -> Result<bool> {
    build("-p utipc-tools -p utipc-preload -p mdist -p mdist-load")?;
    let mut tally = Tally::new("howto");
    for folder in FOLDERS {
        for page in files(&root().join(folder), ".md")? {
            let name = format!("{folder}/{}", page.file_name().unwrap_or_default().display());
            let text = fs::read_to_string(&page).with_context(|| format!("read {name}"))?;
            let steps = steps(&text);
            if !steps.is_empty() {
                tally.note(&name, run_page(&steps).map(|()| format!("{} blocks", steps.len())));
            }
        }
    }
    Ok(tally.end())
}

/// Reason why the pages cannot run here, and what would help.
pub(crate) fn obstacle() -> Option<Skip> {
    let probe = isolated().args(["sh", "-c", "mount -t tmpfs none /run && ip link set lo up"]).output();
    let reason = "this user may not make namespaces, or ip is missing";
    Skip::unless(probe.is_ok_and(|out| out.status.success()), reason, "sudo -E cargo xtask howto")
}

/// A command in namespaces of its own, which end with it.
fn isolated() -> Command {
    let mut command = Command::new("unshare");
    if !user_is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command
}

/// The steps of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for Block { kind, line, text, .. } in blocks(page) {
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { line, commands: text, output: None }),
            ("text", Some(step)) => step.output = Some(text),
            _ => {}
        }
    }
    steps
}

/// Runs the steps of a page in one shell; the error names the line of the page.
fn run_page(steps: &[Step]) -> Result<()> {
    let place = target().join("howto");
    empty_folder(&place)?;
    let mut script = PRELUDE.to_owned();
    for (number, step) in steps.iter().enumerate() {
        let output = output_of(&place, number);
        script += &format!("{{\n{}\n}} >'{}' 2>&1\n", step.commands, output.display());
    }
    let file = place.join("script");
    fs::write(&file, script).context("write the script of a page")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = isolated();
    shell.arg("bash").arg(&file).env("PATH", format!("{}:{path}", built("").display()));
    shell.env_remove("UTIPC_ENGINE").current_dir(&place);
    let end = follow(&mut shell, LIMIT, &mut |line| println!("{line}"))?.end;
    for (number, step) in steps.iter().enumerate() {
        let Ok(output) = fs::read_to_string(output_of(&place, number)) else { break };
        let is_last = !output_of(&place, number + 1).exists();
        if is_last && !end.is_good() {
            bail!("line {}: the commands failed or took longer than {LIMIT:?}:\n{output}", step.line);
        }
        if let Some(page) = &step.output {
            compare(page, &output).with_context(|| format!("line {}", step.line))?;
        }
    }
    if !end.is_good() {
        bail!("{end}");
    }
    Ok(())
}

fn output_of(place: &Path, number: usize) -> PathBuf {
    place.join(format!("output-{number}"))
}

/// Compares each line; the error shows both texts.
fn compare(page: &str, output: &str) -> Result<()> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = |text: &str| text.lines().map(words).collect::<Vec<_>>();
    let (wanted, got) = (lines(page), lines(output));
    let fits = wanted.len() == got.len() && wanted.iter().zip(&got).all(|(page, line)| fits(page, line));
    if !fits {
        bail!("the page says\n{page}the commands print\n{output}");
    }
    Ok(())
}

/// Whether a line matches a line of a page, in which `…` stands for any characters.
fn fits(page: &str, line: &str) -> bool {
    let Some((first, rest)) = page.split_once('…') else { return page == line };
    let Some(mut line) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match line.find(part) {
            Some(at) => line = &line[at + part.len()..],
            None => return false,
        }
    }
    line.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_consists_of_commands_with_their_output() {
        let text =
            "# A\n```sh\none\ntwo\n```\nwords\n```text\nout\n```\n```console\n$ no\n```\n```sh\nthree\n```\n";
        let [first, second] = &steps(text)[..] else { panic!("{:?}", steps(text)) };
        let expected = Step { line: 2, commands: "one\ntwo\n".into(), output: Some("out\n".into()) };
        assert_eq!(*first, expected);
        assert_eq!((second.line, second.commands.as_str(), &second.output), (13, "three\n", &None));
    }

    #[test]
    fn dots_stand_for_any_characters() {
        assert!(fits("a … c …", "a b c d") && fits("…", "") && fits("same", "same"));
        assert!(!fits("a … c", "a b d") && !fits("same", "other") && !fits("a…b", "a"));
        assert!(compare("one  …  2\n…\n", "one of 2 \ntwo\n").is_ok());
        assert!(compare("one\n", "one\ntwo\n").is_err() && compare("one\ntwo\n", "one\n").is_err());
    }
}
