//! Child processes with a time limit, ended by their ids.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Interval between two checks of a running child.
const INTERVAL: Duration = Duration::from_millis(50);
/// Time for the rest of a child's output, once it has ended.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);

/// The end of a child that has a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended by itself.
    Exit(ExitStatus),
    /// It ended, but a process that it has started holds its output.
    LeftBehind,
    /// It was killed, with its descendants, at the limit.
    TimedOut(Duration),
}

impl End {
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Exit(status) if status.success())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => status.fmt(f),
            Self::LeftBehind => f.write_str("a process that it has started still runs"),
            Self::TimedOut(limit) => write!(f, "killed at its limit of {} s", limit.as_secs()),
        }
    }
}

/// A child that ran to its end, and what it printed on both outputs.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) end: End,
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Whether this process may do what only root may.
pub(crate) fn user_is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The folders of PATH, and the two folders of system programs that a user's PATH often lacks.
pub(crate) fn path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect()
}

/// The file of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    path().into_iter().map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether a program starts with these arguments and succeeds.
pub(crate) fn succeeds(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let out = words.next().map(|program| Command::new(program).args(words).stdin(Stdio::null()).output());
    out.is_some_and(|out| out.is_ok_and(|out| out.status.success()))
}

/// The first of these programs that does not exist.
pub(crate) fn missing<'a>(programs: &[&'a str]) -> Option<&'a str> {
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    programs.iter().find(is_missing).copied()
}

/// Waits for `child`. After `limit`, kills it and all its descendants.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<End> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().context("wait for a child")? {
            return Ok(End::Exit(status));
        }
        if Instant::now() >= deadline {
            kill_tree(child.id());
            child.wait().context("reap a killed child")?;
            return Ok(End::TimedOut(limit));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Kills process `root` and all its descendants by id. Parents go first, so that none starts another child meanwhile.
fn kill_tree(root: u32) {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut open = vec![root];
    let mut next = 0;
    while let Some(pid) = open.get(next) {
        open.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    for pid in open.into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
        // Fails if the process has ended meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The parent's id in the text of `/proc/PID/stat`; the command name before it may hold spaces and brackets.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a command to its end and returns its standard output. The error contains the command's error output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let what = format!("{command:?}");
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("run {what}"))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        anyhow::bail!("{what} failed ({}): {}", out.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The same command as the last words of another one, as `nice -n 10`.
pub(crate) fn within(words: &str, command: &Command) -> Command {
    let mut words = words.split_whitespace();
    let mut outer = Command::new(words.next().unwrap_or_default());
    outer.args(words).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    outer
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, count: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().to_vec()
}

/// The lines of a stream as they come. The channel ends with the stream.
pub(crate) fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        // What is printed is not always text.
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if send.send(plain(&String::from_utf8_lossy(&line))).is_err() {
                return;
            }
        }
    });
    lines
}

/// A line without the sequences that colour a terminal: Maven writes one at its end, also where there is none.
pub(crate) fn plain(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut text, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text.push_str(part.get(end..).unwrap_or_default());
        text
    })
}

/// Runs a command to its end, or kills it at `limit`. `each` gets every line of both of its outputs.
pub(crate) fn follow(command: &mut Command, limit: Duration, each: &mut dyn FnMut(&str)) -> Result<Followed> {
    let (read, write) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null()).stdout(write.try_clone().context("copy a pipe")?).stderr(write);
    let mut child = command.spawn().with_context(|| format!("run {}", command.get_program().display()))?;
    // So that the pipe ends with the child.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let finish = |child: &mut Child| -> Result<(End, Duration)> {
        match wait(child, limit.saturating_sub(began.elapsed()))? {
            End::TimedOut(_) => Ok((End::TimedOut(limit), began.elapsed())),
            end => Ok((end, began.elapsed())),
        }
    };
    let lines = lines(read);
    let mut output = String::new();
    let mut ended: Option<(End, Duration)> = None;
    loop {
        match lines.recv_timeout(INTERVAL) {
            Ok(line) => {
                each(&line);
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => {
                let (end, took) = ended.map_or_else(|| finish(&mut child), Ok)?;
                return Ok(Followed { end, output, took });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match ended {
            None if began.elapsed() >= limit || child.try_wait().context("wait for a child")?.is_some() => {
                ended = Some(finish(&mut child)?);
            }
            Some((_, took)) if began.elapsed() > took + OUTPUT_LIMIT => {
                return Ok(Followed { end: End::LeftBehind, output, took });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit_ms: u64) -> Followed {
        let mut command = Command::new("sh");
        follow(command.args(["-c", script]), Duration::from_millis(limit_ms), &mut |_| {}).expect("run sh")
    }

    #[test]
    fn parent_id_is_read_after_any_command_name() {
        assert_eq!(parent_of("12 (a) b) c) S 34 12 12 0"), Some(34));
        assert_eq!(parent_of("nonsense"), None);
    }

    #[test]
    fn a_child_past_its_limit_is_killed_with_its_children() {
        // The grandchild has the pipe too: only its end lets the output end.
        let killed = sh("sleep 600 & echo one; wait", 300);
        assert_eq!(killed.end, End::TimedOut(Duration::from_millis(300)));
        assert_eq!(killed.output, "one\n");
        assert!(killed.took < Duration::from_secs(60));
    }

    #[test]
    fn status_and_both_outputs_of_an_ended_child_are_returned() {
        let ended = sh("echo out; echo error >&2; exit 7", 60_000);
        let End::Exit(status) = ended.end else { panic!("{ended:?}") };
        assert_eq!((status.code(), ended.output.as_str()), (Some(7), "out\nerror\n"));
    }

    #[test]
    fn colours_of_a_terminal_do_not_hide_a_result() {
        let line = plain("\u{1b}[0mjava: 72 passed, \u{1b}[1;31m0 failed\u{1b}[0m");
        assert_eq!(line, "java: 72 passed, 0 failed");
        assert_eq!(plain("no colour"), "no colour");
    }
}
