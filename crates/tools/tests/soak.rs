//! A few seconds of the soak: a short form of the half-hour run, which is not part of the suites.

use std::process::Command;

use serde_json::Value;

#[test]
fn twelve_processes_leave_nothing_behind() {
    let output = Command::new(env!("CARGO_BIN_EXE_utipc-soak"))
        .args(["--minutes", "0.15", "--processes", "12", "--life", "1.5", "--rests", "2", "--json"])
        .arg("--daemon")
        .arg(env!("CARGO_BIN_EXE_utipcd"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    assert!(output.status.success() && verdict["ok"] == true, "{verdict:#}\n{error}");
    assert!(verdict["deaths"]["killed"].as_u64() > Some(0), "{verdict:#}");
    assert!(verdict["sums"]["received"].as_u64() > Some(0), "{verdict:#}");
    assert_eq!(verdict["rests"].as_array().map(Vec::len), Some(2));
}

fn connect(shim: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_utipc-soak"))
        .args(["--json", "--daemon", env!("CARGO_BIN_EXE_utipcd")])
        .args(["connections", "--seconds", "2", "--processes", "2"])
        .args(shim)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    assert!(output.status.success() && verdict["ok"] == true, "{verdict:#}\n{error}");
    assert!(verdict["connections"].as_u64() > Some(0), "{verdict:#}");
}

#[test]
fn daemon_holds_only_the_connections_that_are_open() {
    connect(&[]);
}

#[test]
#[cfg(feature = "stock-tipc")]
fn daemon_holds_only_the_connections_that_are_open_under_the_shim() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "-p", "utipc-preload"]).status().unwrap();
    assert!(built.success());
    connect(&["--shim"]);
}
