//! `p2ps`, `src_dist` and `rmdsview` as their users meet them: completions, manual pages, messages about mistakes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const P2PS: &str = env!("CARGO_BIN_EXE_p2ps");
const SRC_DIST: &str = env!("CARGO_BIN_EXE_src_dist");
const RMDSVIEW: &str = env!("CARGO_BIN_EXE_rmdsview");
const PROGRAMS: [&str; 3] = [P2PS, SRC_DIST, RMDSVIEW];

fn manual(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/man").join(name);
    std::fs::read_to_string(path).unwrap().replace("\\-", "-")
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completion_scripts_have_the_options() {
    for program in PROGRAMS {
        for shell in ["bash", "zsh", "fish"] {
            let script = printed(program, &["--completion", shell]);
            let option = if program == RMDSVIEW { "snapshot" } else { "listen" };
            assert!(script.contains(option), "{program} {shell}: {script}");
        }
    }
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let starts = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with(is_part));
    let names = starts.map(|(at, _)| text[at..].split(|c| !is_part(c)).next().unwrap_or_default());
    names.filter(|name| name.len() > 2).map(str::to_owned).collect()
}

#[test]
fn manual_pages_have_every_option_and_no_other() {
    for program in PROGRAMS {
        let name = program.rsplit('/').next().unwrap();
        let help = printed(program, &["--help"]);
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let known: BTreeSet<String> = lines.flat_map(options).collect();
        assert!(known.len() > 5, "{help}");
        assert_eq!(options(&manual(&format!("man1/{name}.1"))), known, "{name}(1)");
    }
}

#[test]
fn manual_pages_of_the_settings_have_every_key() {
    let page = manual("man5/mdist.toml.5");
    let all: toml::Table = printed(P2PS, &["--print-config"]).parse().unwrap();
    let mut keys = BTreeSet::new();
    collect(&toml::Value::Table(all), &mut keys);
    // Keys without a default are not printed; the page for operators has them in the first column of its tables.
    let guide = include_str!("../../../docs/operating/mdist-config.md");
    let (toml_part, cnf_part) = guide.split_once("## `rmds.cnf` style").unwrap();
    keys.extend(documented(toml_part).iter().flat_map(|name| name.split('.').map(str::to_owned)));
    // Parameters of the vendor's protocol are in the other page.
    let rrcp: BTreeSet<String> = [
        "packet-ttl",
        "ndata",
        "nrreq",
        "tdata",
        "trreq",
        "twait",
        "tbchold",
        "tpphold",
        "user-q-limit",
        "nmissing",
        "max-pkt-pool-size",
        "pkt-pool-limit-high",
        "pkt-pool-limit-low",
        "disconnect-on-gaps",
        "port-roam-range",
        "hsm-interval",
        "hash-filtering",
    ]
    .map(str::to_owned)
    .into();
    assert!(rrcp.is_subset(&keys), "{keys:?}");
    let missing: Vec<_> = keys.difference(&rrcp).filter(|key| !page.contains(key.as_str())).collect();
    assert!(missing.is_empty() && keys.len() > 80, "{missing:?} of {} keys", keys.len());

    let page = manual("man5/rmds.cnf.5");
    let names = documented(cnf_part);
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(name.as_str())).collect();
    assert!(missing.is_empty() && names.len() > 30, "{missing:?} of {} parameters", names.len());
}

/// The keys of all tables in a value.
fn collect(value: &toml::Value, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                keys.insert(key.clone());
                collect(value, keys);
            }
        }
        toml::Value::Array(all) => all.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}

/// The names in the first column of the tables of a page.
fn documented(text: &str) -> BTreeSet<String> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split(['`', ',', ' ']));
    let names = names.map(|name| name.trim_matches(['.', '*', '[', ']']).replace("[]", ""));
    names.filter(|name| !name.is_empty() && !name.contains(['(', ')', ':'])).collect()
}
