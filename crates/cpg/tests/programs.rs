//! A C program that tests single calls, on each engine, and the properties of the installed library.

mod common;

use std::process::Command;

use common::{Place, compile, library, run};

fn calls(daemon: Option<u32>) {
    let place = match daemon {
        Some(address) => Place::with_daemons(&[address]),
        None => Place::new(),
    };
    let text = run(&mut place.command(&compile("calls"), daemon));
    assert!(text.ends_with("ok\n"), "{text}");
}

#[test]
fn calls_follow_their_rules_on_an_embedded_node() {
    calls(None);
}

#[test]
fn calls_follow_their_rules_on_a_daemon() {
    calls(Some(7));
}

#[test]
fn library_has_the_name_and_symbol_version_of_corosync() {
    let file = library().join("libcpg.so.4");
    let about = run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&file));
    assert!(about.contains("soname: [libcpg.so.4]"), "{about}");
    let symbols =
        run(Command::new("nm").args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(&file));
    let functions: Vec<&str> = symbols.lines().filter(|line| line.contains(" T ")).collect();
    assert_eq!(functions.len(), 20, "{symbols}");
    let versioned = |line: &&str| line.contains(" T cpg_") && line.ends_with("@@COROSYNC_CPG_1.0");
    assert!(functions.iter().all(versioned), "{symbols}");
}
