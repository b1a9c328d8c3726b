//! Every measurement of `utipc bench` on every transport of this machine, with few messages: it succeeds and its JSON
//! has the documented shape. The figures are not valid.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_utipc-lab")).arg("bench").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `bench` with `--json`, few messages and one round, and checks what all objects have in common.
fn measure(arguments: &[&str]) -> Vec<Value> {
    let few = ["--json", "--rounds", "1", "--messages", "60"];
    let output = bench(&[arguments, &few].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{arguments:?}: {}", text(&output.stderr));
    for line in &lines {
        let is_text = |key: &str| line[key].is_string();
        assert!(["test", "scope", "transport", "mode", "kind"].into_iter().all(is_text), "{line}");
        let is_positive = |key: &str| line[key].as_f64().is_some_and(|value| value > 0.0);
        assert!(["size", "messages", "elapsed_s", "connections"].into_iter().all(is_positive), "{line}");
        assert!(line["cpu_s"]["tx"].is_number() && line["cpu_s"]["rx"].is_number(), "{line}");
        let mode = line["mode"].as_str().unwrap();
        let own = line["transport"] == "utipc";
        assert!(mode == "busy" || own == ["adaptive", "parked"].contains(&mode), "{line}");
        if line["test"] == "latency" {
            let rtt = |key: &str| line["rtt_us"][key].as_f64().unwrap();
            assert!(rtt("p50") > 0.0 && rtt("mean") > 0.0, "{line}");
            assert!(
                rtt("p50") <= rtt("p99") && rtt("p99") <= rtt("p999") && rtt("p999") <= rtt("max"),
                "{line}"
            );
        } else {
            assert!(line["msgs_per_s"].as_f64().unwrap() > 0.0, "{line}");
            assert!(line["mbit_per_s"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    lines
}

fn words<'a>(lines: &'a [Value], key: &str) -> BTreeSet<&'a str> {
    lines.iter().map(|line| line[key].as_str().unwrap()).collect()
}

/// Whether this user may make network namespaces; prints a line if not.
fn may_make_namespaces() -> bool {
    let probe = Command::new("unshare").args(["--map-root-user", "--net", "true"]).output();
    let as_root = Command::new("unshare").args(["--net", "true"]).output();
    let may = [probe, as_root].into_iter().any(|run| run.is_ok_and(|run| run.status.success()));
    if !may {
        eprintln!("skipped: bench between namespaces: this user may not make network namespaces");
    }
    may
}

#[test]
fn latency_is_measured_on_all_transports_kinds_and_modes() {
    let lines = measure(&["latency", "--mode", "busy,adaptive,parked", "--kind", "rdm,seqpacket,stream"]);
    let always = ["tcp", "udp", "uds", "uds-stream", "utipc"];
    assert!(words(&lines, "transport").is_superset(&always.into()));
    assert!(words(&lines, "kind").is_superset(&["rdm", "seqpacket", "stream"].into()));
    // By default both engines are measured.
    assert!(words(&lines, "transport").contains("utipc"));
    for engine in ["embedded", "daemon"] {
        assert_eq!(lines.iter().filter(|line| line["engine"] == engine).count(), 9, "{engine}");
    }
    assert!(lines.iter().all(|line| line["scope"] == "intra" && line["test"] == "latency"));
}

#[test]
fn throughput_is_measured_on_all_transports_kinds_and_sizes() {
    let lines = measure(&["throughput", "--size", "64,65536", "--kind", "rdm,seqpacket,stream"]);
    let always = ["tcp", "tcp-nagle", "udp", "uds", "uds-stream", "utipc"];
    assert!(words(&lines, "transport").is_superset(&always.into()));
    // A UDP datagram cannot be that large.
    assert!(!lines.iter().any(|line| line["transport"] == "udp" && line["size"] == 65_536));
    assert_eq!(lines.iter().filter(|line| line["transport"] == "utipc").count(), 12);
}

#[test]
fn throughput_is_measured_with_several_connections_and_busy_ends() {
    let arguments = ["throughput", "--size", "64", "--connections", "1,4", "--mode", "busy,parked"];
    let lines = measure(&[&arguments[..], &["--transport", "utipc,tcp,uds"]].concat());
    assert!(lines.iter().any(|line| line["connections"] == 4 && line["mode"] == "busy"));
}

#[test]
fn multicast_pairs_and_constant_load_are_measured() {
    let lines = measure(&["multicast", "--receivers", "3"]);
    assert!(lines.iter().all(|line| line["receivers"] == 3));
    let utipc = lines.iter().find(|line| line["transport"] == "utipc").unwrap();
    assert_eq!((utipc["kind"].as_str(), utipc["messages"].as_u64()), (Some("rdm"), Some(180)));
    let lines = measure(&["pairs", "--pairs", "3", "--size", "64"]);
    assert!(lines.iter().all(|line| line["pairs"] == 3));
    let lines = measure(&["cpu"]);
    assert!(
        lines.iter().all(|line| line["rate"].as_f64().is_some_and(|rate| (rate - 3051.758).abs() < 0.01))
    );
}

#[test]
fn faster_engine_is_named() {
    let output = bench(&["latency", "--transport", "utipc,tcp", "--rounds", "1", "--messages", "60"]);
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.starts_with("faster engine for latency, utipc"));
    assert!(line.is_some_and(|line| line.contains("embedded") && line.contains("daemon")), "{said}");
    let alone = ["--engine", "embedded", "--transport", "utipc,tcp", "--rounds", "1", "--messages", "60"];
    assert!(!text(&bench(&[&["latency"], &alone[..]].concat()).stdout).contains("faster engine"));
}

#[test]
fn scheduled_requests_are_not_sent_early() {
    let lines = measure(&["latency", "--rate", "1000", "--transport", "utipc,tcp"]);
    // 60 requests, one per millisecond, the first at once.
    assert!(lines.iter().all(|line| line["elapsed_s"].as_f64().unwrap() >= 0.059), "{lines:?}");
}

#[test]
fn sizes_are_on_both_sides_of_packet_borders() {
    let lines = measure(&["sizes", "--transport", "utipc,tcp", "--fragment", "9000"]);
    assert!(words(&lines, "kind").contains("stream"));
    let has = |size: u32| lines.iter().any(|line| line["size"] == size);
    assert!(has(9_016) && has(9_017) && has(62_977) && has(40_000));
}

#[test]
fn everything_is_measured_between_namespaces() {
    if !may_make_namespaces() {
        return;
    }
    let lines = measure(&["latency", "--scope", "inter", "--mode", "busy,parked"]);
    assert!(words(&lines, "transport").is_superset(&["tcp", "udp", "utipc"].into()));
    assert!(!words(&lines, "transport").contains("uds"));
    let lines = measure(&["throughput", "--scope", "inter", "--size", "1000", "--no-offloads"]);
    assert!(lines.iter().all(|line| line["scope"] == "inter"));
    let utipc = lines.iter().find(|line| line["transport"] == "utipc").unwrap();
    assert!(utipc["packets_per_message"]["tx"].as_f64().unwrap() > 0.0, "{utipc}");
    measure(&["multicast", "--scope", "inter", "--receivers", "2"]);
    measure(&["pairs", "--scope", "inter", "--pairs", "2", "--size", "64"]);
    let lines = measure(&["sizes", "--scope", "inter", "--transport", "utipc"]);
    assert!(lines.len() > 20);
}

#[test]
fn bench_needs_no_privileges_and_no_writable_folder() {
    let program = env!("CARGO_BIN_EXE_utipc-lab");
    // A read-only root, then a user that owns nothing.
    let sandbox = |command: &str| {
        let inside = format!("mount --make-rprivate / && mount -o remount,bind,ro / && {command}");
        Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", &inside])
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .unwrap()
    };
    if !sandbox("exec unshare --user true").status.success() {
        eprintln!("skipped: bench in a sandbox: this user may not make user namespaces");
        return;
    }
    for test in ["latency --mode busy,parked", "throughput", "multicast --receivers 2"] {
        let few = "--rounds 1 --messages 50 --size 100 --transport utipc,tcp,uds,udp --json";
        let output = sandbox(&format!("exec unshare --user {program} bench {test} {few}"));
        assert!(output.status.success(), "{test}: {}", text(&output.stderr));
        assert!(text(&output.stdout).lines().count() >= 4);
    }
}

#[test]
fn tables_histograms_and_plot_are_written() {
    let plot = std::env::temp_dir().join(format!("utipc-bench-test-{}.svg", std::process::id()));
    let few =
        ["--rounds", "2", "--messages", "50", "--transport", "utipc,tcp", "--size", "64,1000", "--histogram"];
    let output = bench(&[&["all", "--plot", plot.to_str().unwrap()], &few[..]].concat());
    let (table, picture) = (text(&output.stdout), std::fs::read_to_string(&plot));
    let _ = std::fs::remove_file(&plot);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in
        ["Latency:", "Throughput:", "x TCP", "[Msg/s]", "99.9%", "utipc seqpacket", "medians of 2 rounds"]
    {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
    let picture = picture.unwrap();
    assert!(picture.contains("Round trip") && picture.contains("Mbit/s") && picture.contains("<polyline"));
}

#[test]
fn nodes_of_a_daemon_are_measured() {
    let hosted = |arguments: &[&str]| {
        let lines = measure(&[arguments, &["--engine", "daemon", "--transport", "utipc,tcp"]].concat());
        let own = |line: &&Value| line["transport"] == "utipc";
        assert!(lines.iter().filter(own).all(|line| line["engine"] == "daemon"), "{lines:?}");
        assert!(lines.iter().all(|line| line["cpu_s"]["daemon"].is_number()), "{lines:?}");
    };
    hosted(&["latency", "--mode", "busy,adaptive,parked", "--kind", "rdm,seqpacket,stream"]);
    hosted(&["throughput", "--size", "64,65536", "--kind", "rdm,seqpacket,stream"]);
    hosted(&["throughput", "--size", "64", "--connections", "4"]);
    hosted(&["multicast", "--receivers", "3"]);
    hosted(&["pairs", "--pairs", "3", "--size", "64"]);
    hosted(&["cpu"]);
    if may_make_namespaces() {
        hosted(&["latency", "--scope", "inter"]);
        hosted(&["throughput", "--scope", "inter", "--size", "1000"]);
    }
}

#[test]
fn every_target_is_measured() {
    let list = bench(&["targets", "--list"]);
    let names: Vec<String> =
        text(&list.stdout).lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert!(names.len() >= 26);
    let namespaces = may_make_namespaces();
    let between = |name: &str| name.contains("inter") || ["stream-sizes", "bind-remote"].contains(&name);
    let wanted: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| namespaces || !between(name)).collect();
    let output = bench(&["targets", "--rounds", "1", "--messages", "5", "--row", &wanted.join(",")]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in wanted {
        let row = table.lines().find(|line| line.starts_with(&format!("| {name} |")));
        assert!(
            row.is_some_and(|row| !row.contains("failed:") && row.matches('|').count() == 6),
            "{name}: {table}"
        );
    }
    let unknown = bench(&["targets", "--row", "no-such-row"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn unavailable_transport_is_reported_in_one_line() {
    if bench(&["latency", "--transport", "sctp", "--messages", "10", "--rounds", "1"]).status.success() {
        return;
    }
    let output =
        bench(&["latency", "--transport", "sctp,tcp", "--messages", "10", "--rounds", "1", "--json"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).starts_with("sctp: unavailable: "), "{}", text(&output.stderr));
    let alone = bench(&["latency", "--transport", "sctp"]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(text(&alone.stderr).lines().last().unwrap().starts_with("utipc-lab: "));
}

#[test]
fn killed_benchmark_leaves_nothing_behind() {
    let program = env!("CARGO_BIN_EXE_utipc-lab");
    let slow = ["--transport", "tcp", "--rate", "10", "--messages", "1000", "--engine", "daemon"];
    let mut child = Command::new(program).args(["bench", "latency"]).args(slow).spawn().unwrap();
    let children = format!("/proc/{}/task/{}/children", child.id(), child.id());
    let wait_until = |condition: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !condition() {
            assert!(std::time::Instant::now() < deadline, "waited too long");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    let peers = || -> Vec<String> {
        std::fs::read_to_string(&children).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    // The two ends and the shell that keeps the daemon, then the daemon.
    wait_until(&|| peers().len() == 3);
    let mut ours = peers();
    let folder = std::env::temp_dir().join(format!("utipc-bench-{}", child.id()));
    for id in ours.clone() {
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        ours.extend(children.split_whitespace().map(str::to_owned));
    }
    assert!(ours.len() >= 4 && folder.exists(), "{ours:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = |id: &String| {
        let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    wait_until(&|| ours.iter().all(gone) && !folder.exists());
}
