//! The example `greeter` as a user runs it: one of two servers is killed, and the client continues with the other.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory in which only the programs of this test find each other.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("utipc-tonic-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&path).unwrap();
        Self(path)
    }

    fn start(&self, words: &[&str]) -> Running {
        // Cargo puts examples next to the folder of tests.
        let program = std::env::current_exe().unwrap().parent().unwrap().join("../examples/greeter");
        let mut command = Command::new(program);
        command.args(words).env("XDG_RUNTIME_DIR", &self.0).env("UTIPC_ENGINE", "embedded");
        Running(command.env_remove("UTIPC_SOCKET").stdout(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn client_goes_on_with_the_other_server() {
    let home = Home::new();
    let mut servers = ["red", "blue"].map(|name| (name, home.start(&["server", name])));
    for (_, server) in &mut servers {
        let mut line = String::new();
        BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("serves"), "{line:?}");
    }
    let mut client = home.start(&["client", "60"]);
    let lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
    let (mut first, mut second) = (None, None);
    for line in lines.map(Result::unwrap) {
        let Some(name) = servers.iter().map(|(name, _)| *name).find(|name| line.ends_with(name)) else {
            continue;
        };
        if first.is_none() {
            first = Some(name);
            let (_, server) = servers.iter_mut().find(|(other, _)| *other == name).unwrap();
            server.0.kill().unwrap();
            server.0.wait().unwrap();
        } else if first != Some(name) {
            second = Some(name);
        }
    }
    assert!(first.is_some() && second.is_some(), "{first:?}, then {second:?}");
    let start = Instant::now();
    while client.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < LIMIT, "the client does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(client.0.wait().unwrap().success());
}
