//! Manual pages and the help of programs, whose options the tests of this package and of `utipc-lab` compare.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The text of a page, without marks of fonts.
pub(crate) fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/man").join(name);
    let text = std::fs::read_to_string(&path).unwrap().replace("\\-", "-");
    ["\\fB", "\\fR", "\\fI"].iter().fold(text, |text, font| text.replace(font, ""))
}

/// The long options in a text.
pub(crate) fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
    let starts = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with(is_part));
    let names = starts.map(|(at, _)| text[at..].split(|c| !is_part(c)).next().unwrap_or_default());
    names.filter(|name| name.len() > 2).map(str::to_owned).collect()
}

/// The output of a program with `--help` after these words.
pub(crate) fn help(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The options that the program documents: those that begin a line of its help.
pub(crate) fn documented(program: &str, words: &[&str]) -> BTreeSet<String> {
    let help = help(program, words);
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    lines.flat_map(|line| options(line.split("  ").next().unwrap_or_default())).collect()
}

/// The names below `Commands:` of a help.
pub(crate) fn commands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = list.take_while(|line| line.starts_with(' '));
    // Deeper indentation continues a line.
    let names =
        lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}
