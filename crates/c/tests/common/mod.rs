//! The installed library, programs built against it with the system's compiler, and places to run them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use utipc::NodeAddr;
use utipc::daemon::{Daemon, DaemonConfig, NodeConfig, StackConfig};

/// Far longer than anything takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The project's root directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The prefix where the library is installed, as by a user; once for all tests of a binary.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-prefix-{}", env!("CARGO_CRATE_NAME")));
        run(Command::new(env!("CARGO"))
            .args(["xtask", "install-c", "--debug", "--prefix"])
            .arg(&prefix)
            .current_dir(root()));
        prefix
    })
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{stdout}{stderr}", out.status);
    stdout.into_owned()
}

/// The words that pkg-config prints for the installed library.
pub(crate) fn pkg_config(what: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(what).arg("utipc").env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles a C program against the installed library; warnings are errors.
pub(crate) fn compile(source: &Path) -> PathBuf {
    let program = folder().join(source.file_stem().unwrap());
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    command.arg(source).args(pkg_config(&["--cflags", "--libs"]));
    command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    run(&mut command);
    program
}

/// A new directory for programs of this test binary.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = format!("c-{}-{}", env!("CARGO_CRATE_NAME"), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The engine that the library uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Embedded,
    Daemon,
}

/// A private runtime directory, which separates the test from other nodes of this user; with a daemon for that engine.
pub(crate) struct Place {
    pub(crate) home: PathBuf,
    daemon: Option<Daemon>,
}

impl Place {
    pub(crate) fn new(engine: Engine) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("utipc-c-{}-{number}", std::process::id()));
        let folder = || {
            let mut folder = fs::DirBuilder::new();
            folder.mode(0o700);
            folder
        };
        folder().create(&home).unwrap();
        let daemon = (engine == Engine::Daemon).then(|| {
            let stack = StackConfig { address: Some(NodeAddr(0x77)), ..StackConfig::default() };
            let mut node = NodeConfig { stack, ..NodeConfig::default() };
            node.complete(None).unwrap();
            // The default path, at which programs expect it.
            let own = home.join("utipc");
            folder().create(&own).unwrap();
            let socket = own.join("default.sock");
            Daemon::start(DaemonConfig { node, socket, ..DaemonConfig::default() }).unwrap()
        });
        Self { home, daemon }
    }

    /// A command whose program finds this place by default.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", &self.home).env_remove("UTIPC_SOCKET").env_remove("UTIPC_ENGINE");
        command
    }

    pub(crate) fn start(&self, program: &Path, arguments: &[&str]) -> Running {
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().unwrap(), name: program.display().to_string() }
    }

    /// If a daemon runs, checks that the programs used it.
    pub(crate) fn check(&self) {
        if let Some(daemon) = &self.daemon {
            assert!(daemon.counters().requests > 0, "no program used the daemon");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A program started by a test; killed if the test ends first.
pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
}

impl Running {
    /// Waits until it exits successfully; returns its output.
    pub(crate) fn output(mut self) -> String {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "{} does not exit", self.name);
            std::thread::sleep(Duration::from_millis(10));
        };
        let (mut text, mut errors) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{}: {status}\n{text}{errors}", self.name);
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
