//! The examples run, and two programs that were started with no arguments find each other.

use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Where cargo puts the examples of this package.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.parent().and_then(Path::parent).unwrap();
    target.join("examples").join(name)
}

/// A runtime directory of the test's own, so that it meets no other node of this user.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("utipc-test-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let child = Command::new(example(name))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running(Child);

impl Running {
    /// What it has printed, once it has ended well.
    fn output(mut self) -> String {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "the program does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_programs_started_with_no_arguments_find_each_other() {
    let home = Home::new("meet");
    // The client first: it waits for the server.
    let client = home.start("hello_client", &[]);
    let server = home.start("hello_server", &[]);
    let (client, server) = (client.output(), server.output());
    assert!(client.contains("client: \"Uh ?\" from "), "{client}");
    assert!(server.contains("server: \"Hello World!!!\" from "), "{server}");
}

#[test]
fn the_other_examples_run() {
    let home = Home::new("alone");
    let connections = home.start("connections", &[]).output();
    assert_eq!(connections.matches(r#""first""#).count(), 1, "{connections}");
    assert!(connections.contains(r#"set up by data: "second""#), "{connections}");
    assert!(connections.contains(r#"connected later: "third""#), "{connections}");
    let multicast = home.start("multicast", &[]).output();
    assert_eq!(multicast.matches("sun everywhere").count(), 4, "{multicast}");
    assert_eq!(multicast.matches("rain in the south").count(), 3, "{multicast}");
    let watch = home.start("topology_watch", &["1"]).output();
    assert!(watch.contains("the view of node"), "{watch}");
    assert!(watch.contains("is up"), "{watch}");
}
