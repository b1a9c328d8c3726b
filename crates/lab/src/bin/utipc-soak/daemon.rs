//! The daemon under test: the real program, observed from outside and by its counters.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Time limit of the daemon for any action.
const LIMIT: Duration = Duration::from_secs(60);

/// Marks the line of the log with the counters.
const COUNTERS: &str = "counters: ";

/// A running daemon in its own folder.
pub(crate) struct Watched {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
    /// Counters from its log, as JSON.
    counters: Receiver<String>,
}

/// Memory and descriptors of the daemon, as the system counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    /// Without the mappings of threads.
    pub(crate) mappings: usize,
    pub(crate) resident_kib: u64,
    /// Its shared part.
    pub(crate) shared_kib: u64,
}

impl Watched {
    /// Starts the program and waits until processes may attach.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        // The explicit address makes the node usable at once.
        Self::start_with(program, "", "[node]\naddress = \"1.1.1\"\n")
    }

    /// Starts one of several daemons with this configuration.
    pub(crate) fn start_with(program: &Path, name: &str, configuration: &str) -> Result<Self> {
        Self::start_by(Command::new(program), name, configuration)
    }

    /// [`Self::start_with`] for a command that becomes the program.
    pub(crate) fn start_by(mut command: Command, name: &str, configuration: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("utipc-soak-{}{name}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let (config, socket) = (folder.join("utipcd.toml"), folder.join("sock"));
        std::fs::write(&config, configuration).context("write the configuration")?;
        command
            .arg("--config")
            .arg(&config)
            .arg("--socket")
            .arg(&socket)
            .env("UTIPC_LOG", "warn,utipc_tools=info");
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("start {command:?}"))?;
        let log = child.stderr.take().context("the daemon has no log")?;
        let (sender, counters) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(std::result::Result::ok) {
                match line.split_once(COUNTERS) {
                    Some((_, counters)) => drop(sender.send(counters.to_owned())),
                    None => eprintln!("utipcd: {line}"),
                }
            }
        });
        let mut daemon = Self { child, folder, socket, counters };
        let begun = Instant::now();
        while !daemon.socket.exists() {
            daemon.check_alive()?;
            ensure!(begun.elapsed() < LIMIT, "the daemon is not ready after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Fails if the daemon has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("check the daemon")? {
            None => Ok(()),
            Some(status) => bail!("the daemon has ended ({status}); its log is above"),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), signal).context("signal the daemon")
    }

    /// Its counters, by name.
    pub(crate) fn counters(&mut self) -> Result<BTreeMap<String, Value>> {
        self.check_alive()?;
        self.signal(Signal::SIGUSR1)?;
        let text = self.counters.recv_timeout(LIMIT).context("the daemon does not log its counters")?;
        serde_json::from_str(&text).context("read the daemon's counters")
    }

    pub(crate) fn held(&self) -> Result<Held> {
        let proc = Path::new("/proc").join(self.child.id().to_string());
        let read = |name: &str| std::fs::read_to_string(proc.join(name)).context("check the daemon");
        let status = read("status")?;
        let kib = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let threads = kib("Threads:").and_then(|threads| usize::try_from(threads).ok()).unwrap_or(1);
        Ok(Held {
            descriptors: descriptors(&proc.join("fd"))?,
            mappings: mappings(&read("maps")?).saturating_sub(MAPPINGS_OF_THREAD * threads),
            resident_kib: kib("VmRSS:").unwrap_or(0),
            shared_kib: kib("RssShmem:").unwrap_or(0),
        })
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processor time that it has used, to 10 ms.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.context("check the daemon")?;
        // The name of the program, in parentheses, may have spaces.
        let fields = stat.rsplit_once(')').context("read the daemon's times")?.1.split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>();
        let ticks = ticks.context("read the daemon's times")?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Ends the daemon with SIGTERM; returns whether it succeeded.
    pub(crate) fn end(mut self) -> Result<bool> {
        self.check_alive()?;
        self.signal(Signal::SIGTERM)?;
        Ok(self.child.wait().context("wait for the daemon")?.success())
    }
}

/// Resident memory of a process, KiB; 0 if it has ended.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Mappings of a thread: its stack, its stack for signals and the allocator's arena, each with the pages behind it.
const MAPPINGS_OF_THREAD: usize = 6;

/// Bytes of adjacent mappings without a file from which they are the memory of messages.
const WINDOW: u64 = 1 << 30;

/// Number of mappings in `/proc/PID/maps`. The memory of messages counts as one: it is one reservation, in which each
/// chunk in use has access rights, and resident memory shows chunks that are lost.
fn mappings(maps: &str) -> usize {
    let parsed = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        // Rights, offset, device and inode; then the file, if there is one.
        Some((address(start)?..address(end)?, fields.nth(4).is_none()))
    };
    let all: Vec<(Range<u64>, bool)> = maps.lines().filter_map(parsed).collect();
    let runs = all
        .chunk_by(|(one, no_file), (next, next_no_file)| *no_file && *next_no_file && one.end == next.start);
    let counted = |run: &[(Range<u64>, bool)]| {
        let bytes: u64 = run.iter().map(|(range, _)| range.end - range.start).sum();
        if bytes < WINDOW { run.len() } else { 1 }
    };
    runs.map(counted).sum()
}

/// The number of descriptors in this folder of a process, without the load of the system, which the daemon opens when
/// it spins for the first time.
fn descriptors(folder: &Path) -> Result<usize> {
    let all = std::fs::read_dir(folder).context("check the daemon")?.map_while(std::result::Result::ok);
    let is_load = |path: PathBuf| std::fs::read_link(path).is_ok_and(|to| to == Path::new("/proc/loadavg"));
    Ok(all.filter(|entry| !is_load(entry.path())).count())
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Only after a failure: otherwise it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_messages_is_one_mapping() {
        let maps = "7fa8e8000000-7fa8e8100000 rw-p 00000000 00:00 0 \n\
                    7fa8e8100000-7fa8e8900000 ---p 00000000 00:00 0 \n\
                    7fa8e8900000-7fa8e8a00000 rw-p 00000000 00:00 0 \n\
                    7fa8e8a00000-7fb8e8000000 ---p 00000000 00:00 0 \n\
                    7fb8f4000000-7fb8f4021000 rw-p 00000000 00:00 0 \n\
                    7fb8f4021000-7fb8f8000000 ---p 00000000 00:00 0 \n\
                    7fb8f859f000-7fb8f9580000 rw-s 00000000 00:01 1045 /memfd:utipc (deleted)\n\
                    7ffd5a1e0000-7ffd5a201000 rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(mappings(maps), 1 + 2 + 1 + 1);
    }
}
