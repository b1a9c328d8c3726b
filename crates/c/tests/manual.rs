//! Each function has a manual page with the parameters of the header, and the formatter accepts every page without a
//! warning.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{prefix, root};

fn folder(section: &str) -> PathBuf {
    root().join("packaging/man").join(section)
}

/// Collapses white space: `char *tipc_a(int b)`.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("* ", "*")
}

/// Functions with their prototypes, as the header declares them.
fn declared() -> BTreeMap<String, String> {
    let header = fs::read_to_string(prefix().join("include/utipc.h")).unwrap();
    let code: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let code: String =
        code.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut all = BTreeMap::new();
    for statement in
        code.split(';').filter(|statement| statement.contains("ipc_") && statement.ends_with(')'))
    {
        let statement = plain(statement.rsplit(['{', '}']).next().unwrap());
        let name = statement.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap().to_owned();
        all.insert(name, statement);
    }
    all
}

/// Functions with their prototypes, as a page's synopsis lists them.
fn described(page: &str) -> Vec<(String, String)> {
    let mut result = String::new();
    let mut all = Vec::new();
    let synopsis = page.split(".Sh SYNOPSIS").nth(1).unwrap().split(".Sh DESCRIPTION").next().unwrap();
    for line in synopsis.lines() {
        if let Some(kind) = line.strip_prefix(".Ft ") {
            kind.clone_into(&mut result);
        } else if let Some(call) = line.strip_prefix(".Fn ") {
            let (name, parameters) = call.split_once(' ').unwrap();
            let parameters = parameters.trim_matches('"').replace("\" \"", ", ");
            all.push((name.to_owned(), plain(&format!("{result} {name}({parameters})"))));
        }
    }
    all
}

#[test]
fn every_function_has_a_page_with_its_parameters() {
    let declared = declared();
    assert!(declared.len() > 40, "{declared:?}");
    let mut described_all = BTreeMap::new();
    for entry in fs::read_dir(folder("man3")).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        if let Some(other) = text.strip_prefix(".so man3/") {
            let other = fs::read_to_string(folder("man3").join(other.trim())).unwrap();
            let name = entry.path().file_stem().unwrap().to_string_lossy().into_owned();
            assert!(other.contains(&format!(".Fn {name} ")), "the page of {name} does not describe it");
        } else {
            described_all.extend(described(&text));
        }
    }
    assert_eq!(described_all, declared);
    for name in declared.keys() {
        assert!(folder("man3").join(format!("{name}.3")).exists(), "no page {name}.3");
    }
}

#[test]
fn pages_format_without_warnings() {
    if Command::new("man").arg("--version").output().is_err() {
        eprintln!("not checked: no man (apt install man-db groff)");
        return;
    }
    let mut pages = 0;
    for section in ["man1", "man3", "man7"] {
        for page in fs::read_dir(folder(section)).unwrap() {
            let mut command = Command::new("man");
            command.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(page.unwrap().path());
            command.env("MANROFFOPT", "").current_dir(root().join("packaging/man"));
            let out = command.output().unwrap();
            let warnings = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && warnings.trim().is_empty(), "{command:?}: {warnings}");
            pages += 1;
        }
    }
    assert!(pages > 40);
}
