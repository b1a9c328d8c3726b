//! The programs that the page shows: three daemons on one host, and services on them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A program that is killed when dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    /// Address of its metrics port.
    pub(crate) port: String,
    /// Address at which it serves consumers.
    pub(crate) listener: String,
}

impl Program {
    /// A program without ports.
    pub(crate) fn of(child: Child) -> Self {
        Self { child, port: String::new(), listener: String::new() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `command`; returns when it prints where its page is, on `is_error` standard error or else standard output.
pub(crate) fn start(command: &mut Command, on_error: bool) -> Result<Program> {
    let what = format!("{command:?}");
    command.stdin(Stdio::null());
    if on_error {
        command.stderr(Stdio::piped())
    } else {
        command.stdout(Stdio::piped()).stderr(Stdio::null())
    };
    let mut child = command.spawn().with_context(|| format!("run {what}"))?;
    let output: Box<dyn std::io::Read + Send> = match (child.stderr.take(), child.stdout.take()) {
        (Some(output), _) => Box::new(output),
        (None, Some(output)) => Box::new(output),
        (None, None) => anyhow::bail!("{what} has no output"),
    };
    // From here on an error ends the child.
    let mut program = Program::of(child);
    let mut lines = BufReader::new(output).lines();
    let mark = "web page at http://";
    let listening = "listening at ";
    let line = lines.by_ref().map_while(Result::ok).find(|line| {
        if let Some((_, listener)) = line.split_once(listening) {
            listener.clone_into(&mut program.listener);
        }
        line.contains(mark)
    });
    let line = line.with_context(|| format!("{what} names no page"))?;
    let port = line.split(mark).nth(1).and_then(|rest| rest.split('/').next());
    program.port = port.context("no address")?.to_owned();
    // It must never wait for a reader of its log.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(program)
}

/// Address of a daemon's bearer; the process id keeps two runs apart.
fn address(number: u8) -> String {
    let run = std::process::id();
    format!("127.{}.{}.{number}", 64 + run / 256 % 64, run % 256)
}

/// Starts daemon `number` of three, and its page.
pub(crate) fn daemon(programs: &Path, scratch: &Path, number: u8) -> Result<Program> {
    let others = (1..=3).filter(|other| *other != number).map(|other| format!("{:?}", address(other)));
    let config = format!(
        "[node]\nidentity = \"host-{number}\"\n[[bearer]]\nmedia = \"udp\"\nlocal = {:?}\nremotes = [{}]\n\
         tolerance_ms = 800\n[metrics]\nlisten = \"127.0.0.1:0\"\n",
        address(number),
        others.collect::<Vec<_>>().join(", ")
    );
    let file = scratch.join(format!("{number}.toml"));
    std::fs::write(&file, config).context("write a configuration")?;
    let mut command = Command::new(programs.join("utipcd"));
    command.arg("--config").arg(file).arg("--socket").arg(socket(scratch, number)).env_remove("UTIPC_LOG");
    start(&mut command, true)
}

pub(crate) fn socket(scratch: &Path, number: u8) -> PathBuf {
    scratch.join(format!("{number}.sock"))
}

/// Serves {18888, instance} at a daemon, by a program of this name.
pub(crate) fn service(
    programs: &Path,
    scratch: &Path,
    (number, instance): (u8, u32),
    name: &str,
) -> Result<Program> {
    let program = scratch.join(name);
    if !program.exists() {
        std::fs::copy(programs.join("utipc-pipe"), &program).context("copy utipc-pipe")?;
    }
    let mut command = Command::new(program);
    command.args(["--rdm", "-l", "-d", "-t", "18888", &instance.to_string()]);
    command.env("UTIPC_SOCKET", socket(scratch, number)).env("UTIPC_ENGINE", "daemon");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Ok(Program::of(child.context("run utipc-pipe")?))
}
