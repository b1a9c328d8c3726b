//! Whole runs of `mdist-bench`: its programs start and end, a row is measured, and nothing is left behind.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mdist-bench"));
    // With CARGO set it would build the programs, which the tests have built.
    command.env_remove("CARGO").env_remove("UTIPC_RTSDK_BIN").args(arguments.split(' '));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until all processes that the run `of` started are gone: each has its id in the environment.
fn wait_until_nothing_is_left(of: u32) {
    let end = Instant::now() + Duration::from_secs(20);
    let mark = format!("MDIST_BENCH={of}\0");
    let is_ours = |folder: &Path| {
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    loop {
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let left: Vec<String> = all
            .filter(|folder| is_ours(folder))
            .map(|folder| text(&std::fs::read(folder.join("cmdline")).unwrap_or_default()))
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs to the end; returns the report and the JSON.
fn measure(name: &str, arguments: &str) -> (String, Value) {
    let json = std::env::temp_dir().join(format!("mdist-bench-{name}-{}.json", std::process::id()));
    let mut command = bench(arguments);
    let child =
        command.arg("--json").arg(&json).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    let seen = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(&json).unwrap();
    assert!(!std::env::temp_dir().join(format!("mdist-bench-{id}")).exists());
    wait_until_nothing_is_left(id);
    (text(&stdout), seen)
}

#[test]
fn row_is_measured_and_written_as_json() {
    let (report, seen) = measure("row", "T3 --backbone none --quick --seconds 1 --rate 2000 --items 200");
    assert!(report.contains("| T3 | none | p2ps | off | 1 |"), "{report}");
    let window = &seen["throughput"][0]["stated"][0];
    assert_eq!((window["rate"].as_u64(), window["lost"].as_i64()), (Some(2_000), Some(0)), "{seen}");
    let parts = window["cpu"]["s"].as_array().unwrap().iter().map(|part| part[1].as_f64().unwrap());
    let total = window["cpu"]["total_s"].as_f64().unwrap();
    assert!((parts.sum::<f64>() - total).abs() < 1e-6, "{window}");
    assert!(window["cpu_ns_per_output"].as_f64().unwrap() > 0.0, "{window}");
}

#[test]
fn stopped_server_loses_nothing() {
    let (report, seen) = measure("stall", "stall --backbone lanes --quick --rate 20000 --items 1000");
    assert!(report.contains("| lanes | 20,000 |"), "{report}");
    let stall = &seen["stall"][0]["each"][0];
    let faults: Vec<_> =
        stall["faults"].as_array().unwrap().iter().filter_map(|fault| fault.as_str()).collect();
    // A busy machine may keep the publisher from its rate.
    assert!(faults.iter().all(|fault| fault.starts_with("the publisher")), "{seen}");
    assert!(stall["during_us"]["points"].as_u64() > Some(0), "{seen}");
}

#[test]
fn images_are_loaded_while_updates_are_sent() {
    let (report, seen) = measure("images", "images --quick --rate 20000 --items 1000");
    assert!(report.contains("1,000 items, our own load programs."), "{report}");
    assert!(report.contains("| images: 1,000 at 20,000/s through the chain |"), "{report}");
    let paths = seen["images"]["paths"].as_array().unwrap();
    let names: Vec<_> = paths.iter().filter_map(|path| path["between"].as_str()).collect();
    assert_eq!(names, ["nothing", "p2ps", "chain"]);
    for path in paths {
        assert!(path["stated"][0]["images_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{seen}");
        assert!(path["stated"][0]["out_per_s"].as_f64() > Some(0.0), "{seen}");
    }
}

#[test]
fn killed_run_leaves_no_process() {
    let mut child = bench("T3 --backbone none --seconds 600 --rate 1000 --items 100")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("item streams loaded") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "mdist-bench has ended");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_nothing_is_left(child.id());
    std::fs::remove_dir_all(std::env::temp_dir().join(format!("mdist-bench-{}", child.id()))).unwrap();
    line.clear();
    let _ = said.read_to_string(&mut line);
}

#[test]
fn tests_that_cannot_run_are_reported() {
    let gone = bench("T1 --backbone none --quick").output().unwrap();
    assert!(!gone.status.success());
    assert!(text(&gone.stdout).contains("failed: it measures the distributor"), "{}", text(&gone.stdout));
    let sdk = bench("sdk").output().unwrap();
    assert!(sdk.status.success() && text(&sdk.stdout).contains("UTIPC_RTSDK_BIN"), "{}", text(&sdk.stdout));
    let unknown = bench("T9").output().unwrap();
    assert!(
        text(&unknown.stderr).contains("unknown test 'T9' (use direct, sdk, images, T1,"),
        "{}",
        text(&unknown.stderr)
    );
}
