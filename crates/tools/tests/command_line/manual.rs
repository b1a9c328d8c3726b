//! The manual pages have the options that `--help` prints, and no others; the page of the configuration has every key.

use std::collections::BTreeSet;

use super::page::{commands, documented, help, options, page};

/// Commands of `utipc` whose options the page utipc(1) has. `daemon` has the options of utipcd(8); `bench` is a
/// separate program with its own page.
const OWN: [&str; 9] =
    ["demo", "run", "status", "doctor", "top", "capture", "proxy", "completion", "install-tipc"];

#[test]
fn page_of_utipcd_has_every_option_and_no_other() {
    let in_page = options(&page("man8/utipcd.8"));
    assert_eq!(in_page, documented(env!("CARGO_BIN_EXE_utipcd"), &[]));
    assert!(in_page.len() > 8, "{in_page:?}");
}

#[test]
fn page_of_utipc_pipe_has_every_option_and_no_other() {
    let text = page("man1/utipc-pipe.1");
    // In this page's language an option lacks its first dash, and those after the first follow commas.
    let lines = text.lines().filter(|line| line.contains("Fl "));
    let in_page: BTreeSet<String> =
        lines.flat_map(str::split_whitespace).flat_map(|word| options(&format!("-{word}"))).collect();
    let mut known = documented(env!("CARGO_BIN_EXE_utipc-pipe"), &[]);
    for usual in ["--help", "--version"] {
        assert!(known.remove(usual));
    }
    assert_eq!(in_page, known);
    assert!(in_page.len() > 20, "{in_page:?}");
}

#[test]
fn page_of_utipc_has_every_option_of_its_commands_and_no_other() {
    let utipc = env!("CARGO_BIN_EXE_utipc");
    let mut known: BTreeSet<String> = OWN.iter().flat_map(|name| documented(utipc, &[name])).collect();
    for command in managed(utipc) {
        let words: Vec<&str> = command.split(' ').collect();
        known.extend(options(&help(utipc, &words)));
    }
    // The options of the management tool itself, which its help has in their short form.
    known.extend(["--json", "--pretty", "--engine"].map(str::to_owned));
    let mut in_page = options(&page("utipc.1"));
    in_page.insert("--version".to_owned());
    known.insert("--version".to_owned());
    assert_eq!(in_page, known);
}

/// Every command of the management tool, with its words: the help of a command contains no list of commands.
fn managed(utipc: &str) -> Vec<String> {
    let others = OWN.iter().chain(&["bench", "daemon", "help"]);
    let others: BTreeSet<&str> = others.copied().collect();
    let mut open = commands(&help(utipc, &[]));
    open.retain(|name| !others.contains(name.as_str()));
    let mut all = Vec::new();
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.split(' ').collect();
        let more = commands(&help(utipc, &words));
        if more.is_empty() {
            all.push(path);
        } else {
            open.extend(more.iter().map(|word| format!("{path} {word}")));
        }
    }
    all
}

/// Whether a line of the page, in which `|` stands between alternatives, begins with these words.
fn covers(line: &str, words: &[&str]) -> bool {
    let mut parts = line.split_whitespace();
    words.iter().all(|word| parts.next().is_some_and(|part| part.split('|').any(|one| one == *word)))
}

#[test]
fn page_of_utipc_has_every_command() {
    let utipc = env!("CARGO_BIN_EXE_utipc");
    let text = page("utipc.1");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(".B ")).collect();
    let managed = managed(utipc);
    assert!(managed.len() > 40, "{managed:?}");
    let own = OWN.iter().chain(&["bench", "daemon"]).map(|name| (*name).to_owned());
    let is_there = |command: &String| {
        let words: Vec<&str> = command.split(' ').collect();
        lines.iter().any(|line| covers(line, &words))
    };
    let missing: Vec<String> = managed.into_iter().chain(own).filter(|command| !is_there(command)).collect();
    assert!(missing.is_empty(), "not in utipc(1): {missing:?}");
    assert!(!covers("link list", &["link", "get"]) && covers("link get|set x|y", &["link", "set", "y"]));
}

#[test]
fn page_of_the_configuration_has_every_key() {
    let page = page("man5/utipcd.toml.5");
    let sample = include_str!("../../../../docs/operating/utipcd.toml");
    let keys = sample.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
    let names =
        keys.map(|(key, _)| key.trim()).filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let mut checked = 0;
    for name in names {
        // The page describes limits of one user and of one process by their suffix.
        let base = name.trim_end_matches("_per_user").trim_end_matches("_per_process");
        let base = if base.starts_with("memory") { "memory_mib" } else { base };
        assert!(page.contains(base), "{name} is not in utipcd.toml(5)");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}
