//! `utipcd --metrics`: what the port serves, and that its clients cannot harm the daemon.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, chown};

use super::{Running, Scratch};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const CONFIG: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

/// A daemon and the address of its port.
fn start(scratch: &Scratch, config: &str) -> (Running, String) {
    let config = scratch.file("utipcd.toml", config);
    let mut daemon = Running::start(scratch, Some(&config));
    let line = daemon.logged("web page at http://");
    let address = line.split("web page at http://").nth(1).unwrap().trim_end_matches(['/', '\n']).to_owned();
    (daemon, address)
}

fn request(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // It fails if the server has refused the connection already.
    let _ = stream.write_all(text.as_bytes());
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

fn get(address: &str, path: &str) -> String {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// The metrics, once the port has asked the daemon.
fn metrics(address: &str, has: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + LONG;
    loop {
        let text = get(address, "/metrics");
        if has(&text) {
            return text;
        }
        assert!(Instant::now() < end, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn utipc(scratch: &Scratch, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(words).env("UTIPC_SOCKET", scratch.0.join("sock")).env("UTIPC_ENGINE", "daemon");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names that begin with `prefix` in the files of packaging/monitoring.
fn names_in_use(prefix: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for (at, _) in text.match_indices(prefix) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !text[..at].ends_with(is_part) {
                names.insert(text[at..].chars().take_while(|c| is_part(*c)).collect());
            }
        }
    }
    names
}

#[test]
fn dashboard_and_alerts_use_metrics_that_a_daemon_serves() {
    let scratch = Scratch::new("metrics-names");
    let (daemon, address) = start(&scratch, CONFIG);
    let text = metrics(&address, |text| text.lines().any(|line| line == "utipc_up 1"));
    let served: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| format!("{name}{}", if kind == "counter" { "_total" } else { "" }))
        .collect();
    assert!(served.len() > 40, "{text}");
    let used = names_in_use("utipc_");
    assert!(used.len() > 15, "{used:?}");
    assert_eq!(used.difference(&served).collect::<Vec<_>>(), Vec::<&String>::new());
    let manual = include_str!("../../../../docs/operating/mdist-metrics.md");
    let unknown: Vec<_> = names_in_use("mdist_")
        .into_iter()
        .filter(|name| !manual.contains(name.trim_end_matches("_bucket")))
        .collect();
    assert_eq!(unknown, Vec::<String>::new());
    assert!(daemon.end().success());
}

#[test]
fn page_and_state_are_served_and_other_sites_refused() {
    let scratch = Scratch::new("metrics-page");
    let (daemon, address) = start(&scratch, CONFIG);
    metrics(&address, |text| text.lines().any(|line| line == "utipc_up 1"));
    let page = get(&address, "/");
    assert!(page.contains("text/html") && page.contains("/page/main.js"), "{page}");
    let state = get(&address, "/api/state");
    let body = state.split("\r\n\r\n").nth(1).unwrap();
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(json["is_current"] == true && json["daemon"]["attached"] == 0, "{json}");
    assert!(get(&address, "/api/events?after=0").ends_with("[]"));
    for path in ["/", "/api/state", "/api/events", "/page/main.js"] {
        let foreign = format!("GET {path} HTTP/1.1\r\nHost: attacker.example\r\n\r\n");
        assert!(request(&address, &foreign).starts_with("HTTP/1.1 421"), "{path}");
    }
    assert!(daemon.end().success());
}

/// Connections that the port keeps; as in `utipc_web`.
const KEPT: usize = 128;

#[test]
fn hostile_clients_of_the_port_do_not_delay_programs() {
    let scratch = Scratch::new("metrics-hostile");
    let (daemon, address) = start(&scratch, CONFIG);
    metrics(&address, |text| text.lines().any(|line| line == "utipc_up 1"));
    let count =
        |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", daemon.child.id())).unwrap().count();
    let (threads, descriptors) = (count("task"), count("fd"));
    // Silent, endless and half-closed clients, more than the port keeps.
    let mut clients = Vec::new();
    for n in 0..500 {
        let mut client = TcpStream::connect(&address).unwrap();
        client.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = match n % 3 {
            0 => Ok(()),
            1 => client.write_all(format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(4000)).as_bytes()),
            _ => client
                .write_all(b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1")
                .and_then(|()| client.shutdown(std::net::Shutdown::Write)),
        };
        clients.push(client);
    }
    // The daemon serves programs, and its event loop has no long turns because of HTTP clients.
    for _ in 0..5 {
        assert!(utipc(&scratch, &["node", "counters"]).contains("daemon.attached"));
    }
    assert_eq!(count("task"), threads);
    let now = count("fd");
    assert!(now <= descriptors + KEPT + 16, "{descriptors} descriptors before, {now} now");
    drop(clients);
    metrics(&address, |text| text.lines().any(|line| line == "utipc_up 1"));
    assert!(daemon.end().success());
}

#[test]
fn port_works_in_the_sandbox() {
    let scratch = Scratch::new("metrics-sandbox");
    let mut config = CONFIG.to_owned();
    if Uid::effective().is_root() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        chown(&scratch.0, Some(nobody.uid), None).unwrap();
        config += "[node]\nuser = \"nobody\"\n";
    }
    let config = scratch.file("utipcd.toml", &config);
    let mut daemon = Running::start_with(&scratch, Some(&config), &["--sandbox"]);
    let line = daemon.logged("web page at http://");
    let address = line.split("web page at http://").nth(1).unwrap().trim_end_matches('/').to_owned();
    metrics(&address, |text| text.lines().any(|line| line == "utipc_up 1"));
    assert!(get(&address, "/api/state").contains("\"is_current\":true"));
    assert!(daemon.end().success());
}

#[test]
fn address_that_is_taken_or_invalid_is_an_error_of_the_start() {
    let scratch = Scratch::new("metrics-taken");
    let (daemon, address) = start(&scratch, CONFIG);
    for (given, word) in [(&*address, &*address), ("nowhere", "nowhere"), ("10.0.0.1", "9618")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--socket").arg(scratch.0.join("other")).args(["--metrics", given]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{given}");
        let text = String::from_utf8_lossy(&output.stderr);
        let error = text.lines().find(|line| line.starts_with("utipcd: ")).expect("an error in one line");
        assert!(error.contains(word) && error.contains('('), "{error}");
    }
    assert!(daemon.end().success());
}
