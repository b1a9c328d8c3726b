//! Two daemons of a cluster, and the programs that run on them.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::sources::Sources;
use crate::process::{End, output, wait};

/// How long a program may take to print a line.
const LIMIT: Duration = Duration::from_secs(30);
/// Node addresses of the daemons. cpghum accepts node ids up to 65536 only.
const NODES: [u32; 2] = [7, 8];

/// Daemons, and the programs' folder.
pub(crate) struct Cluster {
    home: PathBuf,
    programs: PathBuf,
    libraries: OsString,
    daemons: Vec<Child>,
}

impl Cluster {
    pub(crate) fn start(daemon: &Path, library: &Path, sources: &Sources, programs: &Path) -> Result<Self> {
        let home = std::env::temp_dir().join(format!("utipc-cpg-{}", std::process::id()));
        let folder = |path: &Path| {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.with_context(|| format!("make {}", path.display()))
        };
        folder(&home.join("nodes"))?;
        let mut libraries = vec![library.parent().context("the library has a folder")?.to_path_buf()];
        libraries.extend(sources.libraries()?);
        let libraries = std::env::join_paths(libraries).context("join the libraries' folders")?;
        let mut cluster = Self { home, programs: programs.to_path_buf(), libraries, daemons: Vec::new() };
        for node in NODES {
            let config = cluster.home.join(format!("{node}.toml"));
            let text = format!(
                "[node]\nsocket = {:?}\naddress = \"0.0.{node}\"\n\n[[bearer]]\nmedia = \"host\"\ndirectory = {:?}\n",
                cluster.socket(node),
                cluster.home.join("nodes")
            );
            fs::write(&config, text).context("write the configuration of a daemon")?;
            let mut command = Command::new(daemon);
            command.arg("--config").arg(&config).env("XDG_RUNTIME_DIR", &cluster.home);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            cluster.daemons.push(child.context("start utipcd")?);
            let begin = Instant::now();
            while !cluster.socket(node).exists() {
                ensure!(begin.elapsed() < LIMIT, "utipcd does not start");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(cluster)
    }

    fn socket(&self, node: u32) -> PathBuf {
        self.home.join(format!("{node}.sock"))
    }

    /// The file of a program.
    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.programs.join(program)
    }

    /// A command that runs a program on the daemon of a node.
    pub(crate) fn command(&self, program: &str, node: u32, words: &[&str]) -> Command {
        let mut command = Command::new(self.path(program));
        command
            .args(words)
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("UTIPC_SOCKET", self.socket(node))
            .env_remove("UTIPC_ENGINE");
        command
    }

    /// The output of another program that sees the same libraries.
    pub(crate) fn output_of(&self, program: &str, words: &[&str]) -> Result<String> {
        output(Command::new(program).args(words).env("LD_LIBRARY_PATH", &self.libraries))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A running program; killed if the check ends first.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: String,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        // Lines come when they are written, not at the end.
        let mut unbuffered = Command::new("stdbuf");
        unbuffered.arg("-oL").arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => unbuffered.env(key, value),
                None => unbuffered.env_remove(key),
            };
        }
        unbuffered.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = unbuffered.spawn().with_context(|| format!("start {command:?}"))?;
        let output = child.stdout.take().context("a pipe")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // Messages are not always text.
            while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let input = child.stdin.take();
        Ok(Self { child, input, lines, seen: String::new() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to it.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the input is closed")?;
        writeln!(input, "{line}").context("write to the program")
    }

    fn note(&mut self, line: &str) {
        self.seen.push_str(line);
        self.seen.push('\n');
    }

    /// Waits until it prints a line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.note(&line);
                    if line.contains(text) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no {text:?} in\n{}", self.seen),
                Err(RecvTimeoutError::Disconnected) => bail!("it ended without {text:?}:\n{}", self.seen),
            }
        }
    }

    /// The words of the next line that begins with this one.
    pub(crate) fn words_of(&mut self, word: &str) -> Result<Vec<String>> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.note(&line);
                    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                    if words.first().is_some_and(|first| first == word) {
                        return Ok(words);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no line {word:?} in\n{}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended without a line {word:?}:\n{}", self.seen)
                }
            }
        }
    }

    /// Sends the signal of Ctrl-C.
    pub(crate) fn interrupt(&mut self) -> Result<()> {
        output(Command::new("kill").arg("-INT").arg(self.id().to_string())).map(drop)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill the program")?;
        self.child.wait().context("reap the program").map(drop)
    }

    /// Waits until it exits successfully; returns its output.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<String> {
        match wait(&mut self.child, limit)? {
            End::TimedOut => bail!("it does not end within {limit:?}"),
            End::Exit(status) => {
                while let Ok(line) = self.lines.recv_timeout(LIMIT) {
                    self.note(&line);
                }
                ensure!(status.success(), "{status}\n{}", self.seen);
                Ok(std::mem::take(&mut self.seen))
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
