//! A few seconds of the soak: a short form of the half-hour run, which is not part of the suites.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// A program that becomes the daemon of this build. `utipcd` is in another package, and may be an earlier build.
static DAEMON: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("daemon");
    let text = format!("#!/bin/sh\nexec '{}' daemon \"$@\"\n", env!("CARGO_BIN_EXE_utipc-lab"));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
});

#[test]
fn twelve_processes_leave_nothing_behind() {
    let output = Command::new(env!("CARGO_BIN_EXE_utipc-soak"))
        .args(["--minutes", "0.15", "--processes", "12", "--life", "1.5", "--rests", "2", "--json"])
        .arg("--daemon")
        .arg(&*DAEMON)
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
        .args(["--json", "--daemon"])
        .arg(&*DAEMON)
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
    // Separate builds, because a common build joins the features of their dependencies.
    for what in [&["-p", "utipc-preload"][..], &["-p", "utipc-tools", "--bin", "utipc"]] {
        assert!(Command::new(&cargo).args(["build", "--quiet"]).args(what).status().unwrap().success());
    }
    connect(&["--shim"]);
}
