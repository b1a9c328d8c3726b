//! The systemd unit runs the daemon as its own user with few rights. `systemd-analyze` checks it, if installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const UNIT: &str = include_str!("../../../packaging/systemd/utipcd.service");
const SOCKET: &str = include_str!("../../../packaging/systemd/utipcd.socket");
const SYSUSERS: &str = include_str!("../../../packaging/systemd/utipc.sysusers");

/// Largest exposure, in tenths, of 100, that `systemd-analyze security` may report. The daemon needs sockets of the
/// host's network; all else is off.
const EXPOSURE: &str = "20";

fn values(key: &str) -> Vec<&'static str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn unit_has_its_own_user_a_filter_and_limits() {
    for (key, expected) in [
        // `notify-reload` is of systemd 253; Debian 12 has 252, which ignores it.
        ("Type", &["notify"][..]),
        ("ExecReload", &["/bin/sh -c 'kill -HUP $MAINPID'"]),
        ("Wants", &["network-online.target"]),
        ("After", &["network-online.target"]),
        ("User", &["utipc"]),
        ("Group", &["utipc"]),
        ("NoNewPrivileges", &["yes"]),
        ("AmbientCapabilities", &["CAP_NET_RAW"]),
        ("CapabilityBoundingSet", &["CAP_NET_RAW"]),
        ("SystemCallFilter", &["@system-service", "~@privileged"]),
        ("RuntimeDirectory", &["utipc"]),
        ("RuntimeDirectoryMode", &["0755"]),
        ("StateDirectory", &["utipc"]),
        ("ProtectSystem", &["strict"]),
        ("MemoryMax", &["50%"]),
        ("LimitNOFILE", &["1048576"]),
    ] {
        assert_eq!(values(key), expected, "{key}");
    }
    assert!(SYSUSERS.lines().any(|line| line.starts_with("u utipc ")), "{SYSUSERS}");
}

fn analyze(args: &[&str], unit: &Path) -> Option<Output> {
    let output = Command::new("systemd-analyze").args(args).arg(unit).output();
    output.map_err(|error| eprintln!("skipped: no systemd-analyze: {error}")).ok()
}

#[test]
fn socket_unit_listens_where_programs_attach() {
    for line in ["ListenSequentialPacket=/run/utipc/default.sock", "SocketGroup=utipc", "SocketMode=0660"] {
        assert!(SOCKET.lines().any(|found| found == line), "{line}");
    }
    // Else the end of the daemon would remove the directory with the socket.
    assert_eq!(values("RuntimeDirectoryPreserve"), ["yes"]);
}

#[test]
fn systemd_accepts_the_unit_and_finds_little_exposure() {
    let folder: PathBuf = std::env::temp_dir().join(format!("utipcd-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("utipcd.service");
    // The program is where this test has it.
    let here = UNIT.replace("/usr/bin/utipcd", env!("CARGO_BIN_EXE_utipcd"));
    std::fs::write(&unit, here).unwrap();
    let socket = folder.join("utipcd.socket");
    std::fs::write(&socket, SOCKET).unwrap();
    if let Some(output) = analyze(&["verify"], &unit) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("utipcd.service"), "{said}");
        let output = analyze(&["verify"], &socket).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("utipcd."), "{said}");
        let threshold = format!("--threshold={EXPOSURE}");
        let output = analyze(&["security", "--offline=true", "--no-pager", &threshold], &unit).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
