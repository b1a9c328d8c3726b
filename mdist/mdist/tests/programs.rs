//! `p2ps`, `src_dist` and `rmdsview` as their users meet them: completions, manual pages, messages about mistakes.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const P2PS: &str = env!("CARGO_BIN_EXE_p2ps");
const SRC_DIST: &str = env!("CARGO_BIN_EXE_src_dist");
const RMDSVIEW: &str = env!("CARGO_BIN_EXE_rmdsview");
const PROGRAMS: [&str; 3] = [P2PS, SRC_DIST, RMDSVIEW];

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

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

/// Mistakes: program, exit code and words, and after the bar the line, without the program's name. `*` stands for any
/// text in the line, and DIR for a folder with the files of [`FILES`].
const MISTAKES: &[&str] = &[
    "p2ps 2 --bogus | unexpected argument '--bogus' found (see `p2ps --help`)",
    "p2ps 2 --cache maybe | invalid value 'maybe' for '--cache <true|false>' [*true, false] (see *)",
    "p2ps 2 --demo-rate 5 | the following required arguments were not provided: --demo (see *)",
    "p2ps 2 --completion tcsh | invalid value 'tcsh' for '--completion <SHELL>' [*bash, *] (*see *)",
    "p2ps 1 --listen 10.0.0.300:1 | '10.0.0.300:1' is not a valid address: * (write HOST:PORT, *)",
    "p2ps 1 --listen 99999 | '127.0.0.1:99999' is not a valid address: the port must be * (write *)",
    "p2ps 1 --listen 203.0.113.9:1 | cannot listen on 203.0.113.9:1: * (give an address of this host: *)",
    "p2ps 1 --listen USED | cannot listen on USED: Address already in use * (another program *)",
    "src_dist 1 --listen USED | cannot listen on USED: Address already in use * (another program *)",
    "p2ps 1 --provider feed1 | --provider must be HOST:PORT with a port *; 'feed1' has no port",
    "src_dist 1 --provider feed1:0 | --provider must be HOST:PORT with a port *; 'feed1:0' has port 0",
    "p2ps 1 --config DIR/absent.toml | cannot read the settings DIR/absent.toml: * (check the path)",
    "p2ps 1 --config DIR/key.toml | DIR/key.toml, line 2: there is no setting `workrs`; did you mean `workers`?",
    "src_dist 1 --config DIR/table.toml | DIR/table.toml, line 1: unclosed table, expected `]`",
    "p2ps 1 --config DIR/value.cnf | DIR/value.cnf, line 1: poolSize cannot be `lots`: it must be a whole number, *",
    "p2ps 1 --config DIR/net.toml | p2ps.admission.allow must be *; '10.1.0.0/99' needs a prefix from 0 to 32",
    "p2ps 1 --config DIR/words.toml | cannot read the dictionary /none (check dictionary.fields *): *",
    "rmdsview 2 | the following required arguments were not provided: <ITEM>... (see `rmdsview --help`)",
    "rmdsview 2 --domain Nope X | invalid value 'Nope' for '--domain <DOMAIN>': unknown domain (use MarketPrice, *)",
    "rmdsview 1 --server nohost.invalid X | --server: 'nohost.invalid' is not a valid address: * (write *)",
    "rmdsview 1 --server FREE X | FREE: cannot connect: Connection refused * (does a server run there? *)",
];

const FILES: &[(&str, &str)] = &[
    ("key.toml", "[p2ps]\nworkrs = 2\n"),
    ("table.toml", "[p2ps\n"),
    ("value.cnf", "*p2ps*poolSize lots\n"),
    ("net.toml", "[p2ps.admission]\nallow = [\"10.1.0.0/99\"]\n"),
    ("words.toml", "[dictionary]\nfields = \"/none\"\n"),
];

/// The output of a command, which is killed if it does not end: then it accepted the mistake.
fn ended(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Whether a text has the form of a pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let Some(at) = (if part.is_empty() { Some(rest.len()) } else { rest.find(part) }) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn each_mistake_ends_with_one_line_that_names_cause_and_remedy() {
    let folder = std::env::temp_dir().join(format!("mdist-mistakes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in FILES {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = taken.local_addr().unwrap().to_string();
    // A port that is free when it is used is as good as certain to refuse.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let fill = |text: &str| {
        text.replace("DIR", folder.to_str().unwrap()).replace("USED", &used).replace("FREE", &free)
    };
    let mut wrong = Vec::new();
    let mut check = |what: &str, command: Command, code: i32, pattern: &str| {
        let output = ended(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Lines of the log are no message about the mistake.
        let lines: Vec<&str> = said.lines().filter(|line| !line.contains(" INFO ")).collect();
        let is_line = matches!(lines[..], [line] if fits(pattern, line));
        if !is_line || output.status.code() != Some(code) {
            wrong.push(format!(
                "{what}\n  expected {code}: {pattern}\n  got {:?}: {said}",
                output.status.code()
            ));
        }
    };
    for mistake in MISTAKES {
        let (line, said) = mistake.split_once(" | ").unwrap();
        let mut words = line.split_whitespace();
        let (name, code) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        let program = match name {
            "p2ps" => P2PS,
            "src_dist" => SRC_DIST,
            _ => RMDSVIEW,
        };
        let mut command = Command::new(program);
        command.args(words.map(fill)).env_remove("RUST_LOG").env("UTIPC_ENGINE", "embedded");
        check(line, command, code, &fill(&format!("{name}: {said}")));
    }
    for (program, name) in [(P2PS, "p2ps"), (SRC_DIST, "src_dist")] {
        let mut command = Command::new(program);
        command.args(["--listen", "0"]).env("RUST_LOG", "loud").env("UTIPC_ENGINE", "embedded");
        let pattern = format!("{name}: RUST_LOG=loud: not a log level (write one of off, *)");
        check("an unknown level", command, 1, &pattern);
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{} mistakes:\n{}", wrong.len(), wrong.join("\n"));
}
