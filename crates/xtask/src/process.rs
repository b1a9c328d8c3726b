//! Child processes with a time limit, ended by their ids.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Interval between two checks of a running child.
const LOOK: Duration = Duration::from_millis(50);

/// The end of a child that has a time limit.
#[derive(Debug)]
pub(crate) enum End {
    /// It ended by itself.
    Exit(ExitStatus),
    /// It was killed, with its descendants, at the limit.
    TimedOut,
}

/// Whether this process may do what only root may.
pub(crate) fn user_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
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
            return Ok(End::TimedOut);
        }
        std::thread::sleep(LOOK);
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
    let mut victims = vec![root];
    let mut next = 0;
    while let Some(pid) = victims.get(next) {
        victims.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    let ids = victims.iter().map(u32::to_string);
    // Fails if the process has ended meanwhile.
    let _ = Command::new("kill").arg("-KILL").args(ids).stderr(Stdio::null()).status();
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

/// Runs a script of checks and repeats what it prints; returns the numbers of its lines `ok …` and `failed …`. A script
/// that ends badly, or not within `limit`, counts as one more failure of `what`.
pub(crate) fn checks(command: &mut Command, limit: Duration, what: &str) -> Result<(usize, usize)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("run the checks")?;
    let printed = child.stdout.take().context("the checks have no output")?;
    let reader = std::thread::spawn(move || {
        let (mut passed, mut failed) = (0, 0);
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            passed += usize::from(line.starts_with("ok "));
            failed += usize::from(line.starts_with("failed "));
            println!("{line}");
        }
        (passed, failed)
    });
    let end = wait(&mut child, limit)?;
    let (passed, mut failed) = reader.join().ok().context("read what the checks print")?;
    if !matches!(&end, End::Exit(status) if status.success()) {
        println!("the checks of {what} did not come to their end: {end:?}");
        failed += 1;
    }
    Ok((passed, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_id_is_read_after_any_command_name() {
        assert_eq!(parent_of("12 (a) b) c) S 34 12 12 0"), Some(34));
        assert_eq!(parent_of("nonsense"), None);
    }

    #[test]
    fn a_child_past_its_limit_is_killed_with_its_children() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("start sh");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("the grandchild's id");
        assert!(matches!(wait(&mut child, Duration::from_millis(100)), Ok(End::TimedOut)));
        // The grandchild had the other end of the pipe, so its end is an end of file here.
        assert_eq!(std::io::Read::read(&mut out, &mut [0; 8]).expect("end of file"), 0, "{line}");
    }

    #[test]
    fn checks_are_counted_and_an_early_end_is_a_failure() {
        let run = |script: &str| {
            checks(Command::new("sh").args(["-c", script]), Duration::from_secs(60), "a test")
                .expect("run sh")
        };
        assert_eq!(run("echo ok one; echo failed two; echo measured three"), (1, 1));
        assert_eq!(run("echo ok one; exit 3"), (1, 1));
    }

    #[test]
    fn status_of_an_ended_child_is_returned() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("start sh");
        match wait(&mut child, Duration::from_secs(60)) {
            Ok(End::Exit(status)) => assert_eq!(status.code(), Some(7)),
            other => panic!("{other:?}"),
        }
    }
}
