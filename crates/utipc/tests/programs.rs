//! The examples run, and two programs started without arguments find each other.

mod common;

use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Engine, Home, on_each_engine};
use utipc::NodeAddr;
use utipc_core::config::StackConfig;
use utipc_node::NodeConfig;
use utipc_node::daemon::{Daemon, DaemonConfig};

on_each_engine!(programs_without_arguments_find_each_other, other_examples_run);

const LIMIT: Duration = Duration::from_secs(60);

/// The path of an example of this package.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.parent().and_then(Path::parent).unwrap();
    target.join("examples").join(name)
}

/// A runtime directory of the test's own, which separates it from other nodes of this user; with a daemon for that
/// engine.
struct Place {
    engine: Engine,
    home: Home,
    daemon: Option<Daemon>,
}

impl Place {
    fn new(engine: Engine) -> Self {
        let home = Home::new();
        let daemon = (engine == Engine::Daemon).then(|| {
            let stack = StackConfig { address: Some(NodeAddr(0x77)), ..StackConfig::default() };
            let node = NodeConfig { stack, ..NodeConfig::default() };
            // The default path, where programs look for it.
            let directory = home.0.join("utipc");
            std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
            let socket = directory.join("default.sock");
            Daemon::start(DaemonConfig { node, socket, ..DaemonConfig::default() }).unwrap()
        });
        Self { engine, home, daemon }
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(example(name));
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.home.0);
        // Without a setting, a program uses the daemon if there is one.
        command.env_remove("UTIPC_SOCKET").env_remove("UTIPC_ENGINE");
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// If there is a daemon, checks that the programs used it.
    fn check(&self) {
        if let Some(daemon) = &self.daemon {
            assert_eq!(self.engine, Engine::Daemon);
            assert!(daemon.counters().requests > 0, "no program used the daemon");
        }
    }
}

struct Running(Child);

impl Running {
    /// Waits until it exits successfully; returns its output.
    fn output(mut self) -> String {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "the program does not exit");
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

fn programs_without_arguments_find_each_other(engine: Engine) {
    let place = Place::new(engine);
    // Start the client first: it waits for the server.
    let client = place.start("hello_client", &[]);
    let server = place.start("hello_server", &[]);
    let (client, server) = (client.output(), server.output());
    assert!(client.contains("client: \"Uh ?\" from "), "{client}");
    assert!(server.contains("server: \"Hello World!!!\" from "), "{server}");
    place.check();
}

fn other_examples_run(engine: Engine) {
    let place = Place::new(engine);
    let connections = place.start("connections", &[]).output();
    assert!(connections.contains(r#"answer "first""#), "{connections}");
    assert!(connections.contains(r#"2. by data: answer "second""#), "{connections}");
    assert!(connections.contains(r#"answer "third""#), "{connections}");
    let multicast = place.start("multicast", &[]).output();
    assert_eq!(multicast.matches("sun everywhere").count(), 4, "{multicast}");
    assert_eq!(multicast.matches("rain in the south").count(), 3, "{multicast}");
    let group = place.start("group", &[]).output();
    assert!(group.contains("coordinator: done from instance 2"), "{group}");
    let services = place.start("service_watch", &[]).output();
    assert!(services.contains("service {2222,5} is down at"), "{services}");
    let watch = place.start("topology_watch", &["1"]).output();
    assert!(watch.contains("the view of node"), "{watch}");
    assert!(watch.contains("is up"), "{watch}");
    if cfg!(feature = "tokio") {
        let echo = place.start("async_echo", &[]).output();
        assert!(echo.contains("client 2") && echo.contains("the service is gone"), "{echo}");
    }
    place.check();
}
