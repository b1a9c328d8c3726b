//! The installed library, programs built against it with the system's compiler, and places to run them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use utipc::NodeAddr;
use utipc::bearers::{HostBearer, HostConfig};
use utipc::daemon::{Daemon, DaemonConfig, NodeConfig, Plan, StackConfig};

/// Far longer than anything takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The prefix where the library is installed, as by a user; once for all tests of a binary.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let name = format!("cpg-prefix-{}", env!("CARGO_CRATE_NAME"));
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        run(Command::new(env!("CARGO"))
            .args(["xtask", "install-cpg", "--debug", "--prefix"])
            .arg(&prefix)
            .current_dir(root));
        prefix
    })
}

/// The folder of the installed library.
pub(crate) fn library() -> PathBuf {
    prefix().join("lib/utipc")
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{stdout}{stderr}", out.status);
    stdout.into_owned()
}

/// Compiles a C program of `programs/` against the installed library; warnings are errors.
pub(crate) fn compile(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let own = format!("cpg-{}-{name}-{number}", env!("CARGO_CRATE_NAME"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .arg(format!("-I{}", prefix().join("include").display()))
        .arg(library().join("libcpg.so.4")));
    program
}

/// A private runtime directory, which separates the test from other nodes of this user.
pub(crate) struct Place {
    home: PathBuf,
    daemons: Vec<Daemon>,
}

fn private(folder: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).unwrap();
}

impl Place {
    /// A place without daemons: each program is a node.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("utipc-cpg-{}-{number}", std::process::id()));
        private(&home);
        Self { home, daemons: Vec::new() }
    }

    /// A place with daemons of these addresses, which are nodes of one cluster.
    pub(crate) fn with_daemons(addresses: &[u32]) -> Self {
        let mut place = Self::new();
        for address in addresses {
            let stack = StackConfig { address: Some(NodeAddr(*address)), ..StackConfig::default() };
            let mut node = NodeConfig { stack, ..NodeConfig::default() };
            let directory = place.home.join("bearer");
            private(&directory);
            let own = node.stack.first_address();
            let config = HostConfig { directory: Some(directory), address: own, ..HostConfig::default() };
            node.bearers.push(Plan::new(Box::new(HostBearer::open(&config).unwrap())));
            node.complete(None).unwrap();
            let socket = place.socket(*address);
            place
                .daemons
                .push(Daemon::start(DaemonConfig { node, socket, ..DaemonConfig::default() }).unwrap());
        }
        place
    }

    fn socket(&self, address: u32) -> PathBuf {
        self.home.join(format!("{address}.sock"))
    }

    /// Ends the daemon that was started as number `at`.
    pub(crate) fn stop(&mut self, at: usize) {
        drop(self.daemons.remove(at));
    }

    /// A command whose program uses this place, and the daemon with the given address, if any.
    pub(crate) fn command(&self, program: &Path, daemon: Option<u32>) -> Command {
        let mut command = Command::new(program);
        command
            .env("XDG_RUNTIME_DIR", &self.home)
            .env("LD_LIBRARY_PATH", library())
            .env_remove("UTIPC_SOCKET")
            .env_remove("UTIPC_ENGINE");
        match daemon {
            Some(address) => command.env("UTIPC_SOCKET", self.socket(address)),
            None => command.env("UTIPC_ENGINE", "embedded"),
        };
        command
    }

    /// Starts `member.c`.
    pub(crate) fn member(&self, daemon: Option<u32>) -> Program {
        static MEMBER: OnceLock<PathBuf> = OnceLock::new();
        let mut command = self.command(MEMBER.get_or_init(|| compile("member")), daemon);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let mut program = Program { child, input, lines, address: String::new(), seen: Vec::new() };
        let own = program.line_with("self ");
        program.address = own.trim_start_matches("self ").to_owned();
        program
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A running `member.c`; killed if the test ends first.
pub(crate) struct Program {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Its node and process id, as it prints them.
    pub(crate) address: String,
    /// All lines so far.
    pub(crate) seen: Vec<String>,
}

impl Program {
    /// Gives it a command.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
    }

    /// The next line that contains `part`; others before it are skipped.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line =
                line.unwrap_or_else(|_| panic!("{}: no line with {part:?}: {:#?}", self.address, self.seen));
            self.seen.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Joins a group.
    pub(crate) fn join(&mut self, group: &str) {
        self.tell(&format!("join {group}"));
        assert_eq!(self.line_with("result"), "result 1");
    }

    /// Ends it by a signal.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its input, so that it exits.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {:#?}", self.seen);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
