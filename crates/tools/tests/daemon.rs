//! The program `utipcd`: it starts without a configuration, refuses a wrong one, reloads, and ends in order.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("utipcd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon of a test; the test has the service manager's socket.
struct Running {
    child: Child,
    manager: UnixDatagram,
    log: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(scratch: &Scratch, config: Option<&Path>) -> Self {
        let at = scratch.0.join("notify");
        let manager = UnixDatagram::bind(&at).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--socket").arg(scratch.0.join("sock")).env("NOTIFY_SOCKET", &at).env_remove("UTIPC_LOG");
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, manager, log }
    }

    fn told(&self) -> String {
        let mut buffer = [0; 256];
        let n = self.manager.recv(&mut buffer).expect("the daemon tells the service manager");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn logged(&mut self, what: &str) -> String {
        self.log.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect(what)
    }

    fn end(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn daemon_starts_without_configuration_and_ends_on_sigterm() {
    let scratch = Scratch::new("plain");
    let daemon = Running::start(&scratch, None);
    assert!(daemon.told().contains("READY=1"));
    assert!(scratch.0.join("sock").exists(), "ready means that programs can attach");
    let status = {
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.told().contains("STOPPING=1"));
        let mut daemon = daemon;
        daemon.child.wait().unwrap()
    };
    assert!(status.success(), "{status}");
    assert!(!scratch.0.join("sock").exists(), "the socket goes with the daemon");
}

#[test]
fn second_daemon_of_the_same_name_is_refused_and_the_first_continues() {
    let scratch = Scratch::new("twice");
    let daemon = Running::start(&scratch, None);
    daemon.told();
    let second = Command::new(env!("CARGO_BIN_EXE_utipcd"))
        .arg("--socket")
        .arg(scratch.0.join("sock"))
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(error.lines().any(|line| line.starts_with("utipcd: ")), "{error}");
    assert!(scratch.0.join("sock").exists());
    assert!(daemon.end().success());
}

#[test]
fn error_names_the_unknown_key_and_the_file() {
    let scratch = Scratch::new("wrong");
    let config = scratch.file("utipcd.toml", "[node]\nclutser = 3\n");
    let output = Command::new(env!("CARGO_BIN_EXE_utipcd")).arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("clutser") && error.contains("utipcd.toml"), "{error}");
}

#[test]
fn reload_applies_changes_and_an_invalid_file_applies_none() {
    let scratch = Scratch::new("reload");
    let config = scratch.file("utipcd.toml", "[limits]\nprocesses = 10\n");
    let mut daemon = Running::start(&scratch, Some(&config));
    daemon.told();
    scratch.file("utipcd.toml", "[limits]\nprocesses = 20\n");
    daemon.signal(Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    scratch.file("utipcd.toml", "[node]\ncluster = 7\n");
    daemon.signal(Signal::SIGHUP);
    let line = daemon.logged("not reloaded");
    assert!(line.contains("node.cluster") && line.contains("restart"), "{line}");
    scratch.file("utipcd.toml", "nonsense");
    daemon.signal(Signal::SIGHUP);
    daemon.logged("not reloaded");
    assert!(daemon.end().success());
}
