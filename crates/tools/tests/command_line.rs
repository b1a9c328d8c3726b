//! What outsiders rely on: the demo's last line, the manners of errors.

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

#[test]
fn output_that_nobody_reads_ends_the_program_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_utipc"))
        .arg("demo")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 13), "as after SIGPIPE");
    assert_eq!(text(&output.stderr), "");
}
