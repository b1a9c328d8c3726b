//! What outsiders rely on: the demo's last line, the shape of the measurements, the manners of errors.

use std::process::{Command, Output};

fn utipc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_utipc")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_tells_the_whole_story_and_ends_well() {
    let output = utipc(&["demo"]);
    let story = text(&output.stdout);
    assert!(output.status.success(), "{story}{}", text(&output.stderr));
    assert_eq!(story.lines().last(), Some("demo: ok"));
    for part in [
        "is up, at socket",
        "is down, it was at socket",
        "client: \"Hello World!!!\" to {18888,17}",
        "client: \"Uh ?\" from socket",
        "server: \"Hello World\" on a connection from",
        "server: the client has hung up",
        "(blue's server) a link to node",
        "the link to node",
        "I am alone",
    ] {
        assert!(story.contains(part), "the demo does not say {part:?}: {story}");
    }
}

#[test]
fn measurements_have_the_promised_shape() {
    for test in ["latency", "throughput"] {
        let arguments = [
            "bench",
            test,
            "--scope",
            "intra",
            "--runs",
            "1",
            "--messages",
            "200",
            "--size",
            "100",
            "--json",
        ];
        let output = utipc(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines: Vec<serde_json::Value> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let transports: Vec<_> = lines.iter().map(|line| line["transport"].as_str().unwrap()).collect();
        assert_eq!(transports, ["utipc", "tcp"]);
        for line in lines {
            assert_eq!((line["test"].as_str(), line["scope"].as_str()), (Some(test), Some("intra")));
            assert_eq!((line["size"].as_u64(), line["messages"].as_u64()), (Some(100), Some(200)));
            assert!(line["elapsed_s"].as_f64().unwrap() > 0.0);
            assert!(line["cpu_s"]["tx"].is_number() && line["cpu_s"]["rx"].is_number());
            if test == "latency" {
                assert!(line["rtt_us"]["p50"].as_f64().unwrap() > 0.0);
            } else {
                assert!(line["msgs_per_s"].as_f64().unwrap() > 0.0);
            }
        }
    }
}

#[test]
fn errors_are_one_line_and_usage_is_told_apart() {
    // A process that may open hardly any file.
    let program = env!("CARGO_BIN_EXE_utipc");
    let starved =
        Command::new("sh").args(["-c", &format!("ulimit -n 7; exec {program} demo")]).output().unwrap();
    let error = text(&starved.stderr);
    assert_eq!(starved.status.code(), Some(1), "{error}");
    assert!(error.starts_with("utipc: start node "), "{error}");
    assert_eq!((error.lines().count(), error.matches("Too many open files").count()), (1, 1), "{error}");
    let usage = utipc(&["bench", "latency", "--size", "0"]);
    assert_eq!(usage.status.code(), Some(2));
    assert_eq!(utipc(&["no-such-command"]).status.code(), Some(2));
}
