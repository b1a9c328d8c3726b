//! The manual pages have the options that `--help` prints, and no others; that of the configuration has every key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/man").join(name);
    std::fs::read_to_string(&path).unwrap().replace("\\-", "-")
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let starts = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with(is_part));
    let names = starts.map(|(at, _)| text[at..].split(|c| !is_part(c)).next().unwrap_or_default());
    names.filter(|name| name.len() > 2).map(str::to_owned).collect()
}

/// The options that the program documents: those that begin a line of its help.
fn documented(program: &Path) -> BTreeSet<String> {
    let output = Command::new(program).arg("--help").output().unwrap();
    assert!(output.status.success(), "{}", program.display());
    let help = String::from_utf8(output.stdout).unwrap();
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    lines.flat_map(|line| options(line.split("  ").next().unwrap_or_default())).collect()
}

#[test]
fn page_of_utipcd_has_every_option_and_no_other() {
    let in_page = options(&page("man8/utipcd.8"));
    assert_eq!(in_page, documented(&PathBuf::from(env!("CARGO_BIN_EXE_utipcd"))));
    assert!(in_page.len() > 8, "{in_page:?}");
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
