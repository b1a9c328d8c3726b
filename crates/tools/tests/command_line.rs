//! Behaviour that scripts rely on: the last line of the demo, the form of errors.

#[path = "command_line/laboratory.rs"]
mod laboratory;
#[path = "command_line/manual.rs"]
mod manual;
#[path = "command_line/mistakes.rs"]
mod mistakes;
#[path = "command_line/output.rs"]
mod output;
#[path = "command_line/page.rs"]
mod page;

use std::process::{Command, Output};

fn utipc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_utipc")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn demo_prints_all_its_parts_and_succeeds() {
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
        "server: the client has closed the connection",
        "(blue's server) a link to node",
        "the link to node",
        "I am alone",
    ] {
        assert!(story.contains(part), "the demo does not say {part:?}: {story}");
    }
}

#[test]
fn errors_are_one_line_and_differ_from_usage_errors() {
    // A process that may open almost no files.
    let program = env!("CARGO_BIN_EXE_utipc");
    let starved =
        Command::new("sh").args(["-c", &format!("ulimit -n 7; exec {program} demo")]).output().unwrap();
    let error = text(&starved.stderr);
    assert_eq!(starved.status.code(), Some(1), "{error}");
    assert!(error.starts_with("utipc: start node "), "{error}");
    assert_eq!((error.lines().count(), error.matches("Too many open files").count()), (1, 1), "{error}");
    let usage = utipc(&["demo", "--cluster", "many"]);
    assert_eq!(usage.status.code(), Some(2));
    assert_eq!(utipc(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn closed_output_ends_the_program_quietly() {
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

#[test]
fn shell_completion_has_the_management_tool() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&utipc(&["completion", shell]).stdout);
        // The completion of fish has no words from the third position on.
        let words = ["nametable", "demo", "statistics", "localip", "AUTOSELECT"];
        for word in words.iter().take(if shell == "fish" { 3 } else { words.len() }) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
}

#[test]
fn link_named_tipc_has_only_the_grammar_of_tipc() {
    let folder = std::env::temp_dir().join(format!("utipc-as-tipc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let installed = utipc(&["install-tipc", folder.to_str().unwrap()]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let tipc = |arguments: &[&str]| Command::new(folder.join("tipc")).args(arguments).output().unwrap();
    let demo = tipc(&["demo"]);
    assert_eq!(demo.status.code(), Some(255));
    assert!(text(&demo.stderr).starts_with("tipc: unknown command \"demo\" (use one of bearer, "));
    assert_eq!(tipc(&["link", "list", "--why"]).status.code(), Some(1));
    let help = tipc(&["l", "stat", "sh", "-h"]);
    assert!(
        help.status.success() && text(&help.stdout).starts_with("Usage: tipc link statistics show [link"),
        "{}",
        text(&help.stdout)
    );
    let absent = Command::new(folder.join("tipc"))
        .args(["node", "list"])
        .env("UTIPC_SOCKET", "/nonexistent/utipc.sock")
        .env("UTIPC_ENGINE", "daemon")
        .output()
        .unwrap();
    assert_eq!(absent.status.code(), Some(255));
    let error = text(&absent.stderr);
    assert!(error.starts_with("tipc: node list: no daemon answers at /nonexistent/utipc.sock ("), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
