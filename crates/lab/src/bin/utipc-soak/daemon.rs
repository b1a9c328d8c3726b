//! The daemon under test: the real program, observed from outside and by its counters.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use serde_json::Value;
use utipc::{Engine, Node};
use utipc_bench_kit::counts;

/// Time limit of the daemon for any action.
const LIMIT: Duration = Duration::from_secs(60);

/// Pause between two checks of a daemon.
const INTERVAL: Duration = Duration::from_millis(50);

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) descriptors: u64,
    /// Without the mappings of threads.
    pub(crate) mappings: u64,
    pub(crate) resident_kib: u64,
    /// Its shared part.
    pub(crate) shared_kib: u64,
}

counts! {
    /// What a node has carried since its start.
    pub(crate) struct Traffic {
        /// Links that came up, and those that went down.
        links_up,
        links_down,
        /// Frames and bytes received, bytes sent.
        frames,
        bytes,
        sent_bytes,
    }
}

impl Traffic {
    /// What is wrong if all of `expected` links came up, and none may have gone down.
    pub(crate) fn wrong_links(&self, expected: u64) -> Option<String> {
        let Self { links_up, links_down, .. } = self;
        let wrong =
            format!("links: {links_up} came up and {links_down} went down, expected {expected} and 0");
        ((*links_up, *links_down) != (expected, 0)).then_some(wrong)
    }
}

/// The configuration of a daemon: the node number `at` + 1, with a bearer over UDP if it has one of `addresses`, to the
/// others. `is_open`: it takes processes of all users.
pub(crate) fn configuration(at: usize, addresses: &[Ipv4Addr], is_open: bool) -> String {
    // The explicit address makes the node usable at once.
    let mut text = format!("[node]\naddress = \"1.1.{}\"\n", at + 1);
    if let Some(own) = addresses.get(at) {
        let others = addresses.iter().filter(|other| *other != own).map(|other| format!("\"{other}\""));
        let others = others.collect::<Vec<_>>().join(", ");
        text += "[[bearer]]\nmedia = \"udp\"\nname = \"lan\"\n";
        text += &format!("local = \"{own}\"\nremotes = [{others}]\n");
    }
    if is_open {
        text += "[policy]\nattach = [\"*\"]\nsocket_mode = \"0666\"\n";
    }
    text
}

/// Attaches to the daemon with this socket.
pub(crate) fn attach(socket: &Path) -> Result<Node> {
    Node::builder().engine(Engine::Daemon).daemon_at(socket).start().context("attach to the daemon")
}

impl Watched {
    /// Starts the only daemon of a run, and waits until processes may attach.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        Self::start_by(Command::new(program), "", &configuration(0, &[], false))
    }

    /// Starts one of several daemons by a command that becomes the program.
    pub(crate) fn start_by(mut command: Command, name: &str, configuration: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("utipc-soak-{}{name}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let (config, socket) = (folder.join("utipcd.toml"), folder.join("sock"));
        std::fs::write(&config, configuration).context("write the configuration")?;
        command.arg("--config").arg(&config).arg("--socket").arg(&socket);
        command.env("UTIPC_LOG", "warn,utipc_tools=info").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
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

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
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

    /// Its longest turn, and how many were long.
    pub(crate) fn turns(&mut self) -> Result<Value> {
        self.counters()?.remove("turns").context("no counters of turns")
    }

    pub(crate) fn traffic(&mut self) -> Result<Traffic> {
        let counters = self.counters()?;
        let node = counters.get("node").context("no counters of the node")?;
        let link = |name: &str| node.get(name).and_then(Value::as_u64).context("no counter of links");
        let bearers = node.get("bearers").and_then(Value::as_array).context("no counters of bearers")?;
        let sum = |name: &str| -> u64 {
            bearers.iter().filter_map(|bearer| bearer.get(1)?.get(name)?.as_u64()).sum()
        };
        Ok(Traffic {
            links_up: link("links_up")?,
            links_down: link("links_down")?,
            frames: sum("rx_frames"),
            bytes: sum("rx_bytes"),
            sent_bytes: sum("tx_bytes"),
        })
    }

    /// Waits until its node has a link.
    pub(crate) fn wait_for_link(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.traffic()?.links_up == 0 {
            ensure!(begun.elapsed() < LIMIT, "an honest node has no link after {LIMIT:?}");
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn process(&self) -> Result<Process> {
        Process::new(self.child.id() as i32).context("check the daemon")
    }

    /// Processor time that it has used.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        let stat = self.process()?.stat().context("check the daemon")?;
        Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    pub(crate) fn held(&self) -> Result<Held> {
        let status = self.process()?.status().context("check the daemon")?;
        let folder = Path::new("/proc").join(self.child.id().to_string());
        let maps = std::fs::read_to_string(folder.join("maps")).context("check the daemon")?;
        Ok(Held {
            descriptors: descriptors(&folder.join("fd"))?,
            mappings: mappings(&maps).saturating_sub(MAPPINGS_OF_THREAD * status.threads),
            resident_kib: status.vmrss.unwrap_or(0),
            shared_kib: status.rssshmem.unwrap_or(0),
        })
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the daemon with SIGTERM; notes in `wrong` if it fails.
    pub(crate) fn end(mut self, wrong: &mut Vec<String>) -> Result<()> {
        self.check_alive()?;
        self.signal(Signal::SIGTERM)?;
        if !self.child.wait().context("wait for the daemon")?.success() {
            wrong.push("a daemon has failed".to_owned());
        }
        Ok(())
    }
}

/// Mappings of a thread: its stack, its stack for signals and the allocator's arena, each with the pages behind it.
const MAPPINGS_OF_THREAD: u64 = 6;

/// Bytes of adjacent mappings without a file from which they are the memory of messages.
const WINDOW: u64 = 1 << 30;

/// Number of mappings in `/proc/PID/maps`. The memory of messages counts as one: it is one reservation, in which each
/// chunk in use has access rights, and resident memory shows chunks that are lost.
fn mappings(maps: &str) -> u64 {
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
        if bytes < WINDOW { run.len() as u64 } else { 1 }
    };
    runs.map(counted).sum()
}

/// The number of descriptors in this folder of a process, without the load of the system, which the daemon opens when
/// it spins for the first time.
fn descriptors(folder: &Path) -> Result<u64> {
    let all = std::fs::read_dir(folder).context("check the daemon")?.map_while(std::result::Result::ok);
    let is_load = |path: PathBuf| std::fs::read_link(path).is_ok_and(|to| to == Path::new("/proc/loadavg"));
    Ok(all.filter(|entry| !is_load(entry.path())).count() as u64)
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

    #[test]
    fn node_has_the_other_addresses_as_its_remotes() {
        let addresses = [1, 2, 3].map(|host| Ipv4Addr::new(10, 0, 0, host));
        let text = configuration(1, &addresses, false);
        assert!(text.contains("address = \"1.1.2\"\n[[bearer]]") && text.contains("local = \"10.0.0.2\""));
        assert!(text.ends_with("remotes = [\"10.0.0.1\", \"10.0.0.3\"]\n"), "{text}");
        assert!(!configuration(0, &[], true).contains("bearer"));
    }
}
