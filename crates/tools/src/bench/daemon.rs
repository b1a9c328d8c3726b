//! The daemons of a measurement whose nodes do not live in the measured processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use utipc_netns::Namespace;

use super::library;
use crate::namespaces::CABLE;

/// How long a daemon may take until its socket is there.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One daemon on this host, or one in each of two namespaces; they end with this value.
pub(super) struct Daemons {
    folder: PathBuf,
    running: Vec<Daemon>,
}

struct Daemon {
    keeper: Child,
    id: u32,
    socket: PathBuf,
}

/// Runs a daemon, says its number, and ends it and what it leaves when standard input ends, that is when we do, however
/// we end. First its files, then the command.
const KEEPER: &str = r#"trap "" INT; files="$1 $2 $2.lock"; folder=$3; shift 3; "$@" </dev/null >/dev/null & echo $!
cat >/dev/null; kill $!; wait $!; rm -f $files; rmdir "$folder" 2>/dev/null"#;

/// Whether this build has a daemon.
pub(super) fn is_there() -> bool {
    let check = || {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.args(["daemon", "--check"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().ok()
    };
    check().is_some_and(|status| status.success())
}

/// Whether the environment names a daemon that runs already: then measurements on this host are of it. Its processor
/// time is not counted, for it may serve others too.
pub(super) fn is_named() -> bool {
    std::env::var_os("UTIPC_SOCKET").is_some_and(|socket| !socket.is_empty())
}

impl Daemons {
    /// Starts them; in `namespaces`, joined by UDP over the cable.
    pub(super) fn start(namespaces: Option<&[Namespace; 2]>) -> Result<Self> {
        ensure!(is_there(), "this build has no daemon (use --engine embedded)");
        let program = std::env::current_exe().context("find the own program")?;
        let folder = std::env::temp_dir().join(format!("utipc-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut daemons = Self { folder, running: Vec::new() };
        for side in 0..if namespaces.is_some() { 2 } else { 1 } {
            let file = daemons.folder.join(format!("{side}.toml"));
            let text = configuration(side, namespaces.is_some());
            std::fs::write(&file, text).context("write a configuration")?;
            let socket = daemons.folder.join(format!("{side}.sock"));
            let mut command = namespaces.map_or_else(|| Command::new("sh"), |pair| pair[side].command("sh"));
            command.args(["-c", KEEPER, "sh"]).args([&file, &socket, &daemons.folder]);
            command.arg(&program).args(["daemon", "--config"]).arg(&file).arg("--socket").arg(&socket);
            daemons.running.push(Daemon::start(command, socket)?);
        }
        for daemon in &mut daemons.running {
            daemon.wait_ready()?;
        }
        Ok(daemons)
    }

    /// Leads a process at this end to its daemon.
    pub(super) fn lead(&self, side: usize, command: &mut Command) {
        if let Some(daemon) = self.running.get(side).or(self.running.first()) {
            command.env("UTIPC_ENGINE", "daemon").env("UTIPC_SOCKET", &daemon.socket);
        }
    }

    /// Processor time of all of them so far, seconds.
    pub(super) fn cpu_s(&self) -> f64 {
        self.running.iter().map(|daemon| cpu_s(daemon.id)).sum()
    }

    /// Their process numbers.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.running.iter().map(|daemon| daemon.id).collect()
    }
}

/// A daemon's configuration: an explicit address, so that it is up at once, and between namespaces the other one.
fn configuration(side: usize, apart: bool) -> String {
    let mut text = format!(
        "[node]\naddress = \"1.1.{}\"\ncluster = {}\n\n[log]\nlevel = \"error\"\n",
        1 + side,
        library::CLUSTER
    );
    if apart {
        let (local, remote) = (CABLE.addresses[side], CABLE.addresses[1 - side]);
        text += &format!("\n[[bearer]]\nmedia = \"udp\"\nlocal = \"{local}\"\nremotes = [\"{remote}\"]\n");
    }
    text
}

impl Daemon {
    fn start(mut command: Command, socket: PathBuf) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().context("start a daemon")?;
        let mut line = String::new();
        let out = keeper.stdout.take().context("start a daemon: its shell has no output")?;
        BufReader::new(out).read_line(&mut line).context("read the number of a daemon")?;
        let mut daemon = Self { keeper, id: 0, socket };
        daemon.id = line.trim().parse().context("read the number of a daemon")?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.socket.exists() {
            ensure!(Path::new("/proc").join(self.id.to_string()).exists(), "the daemon has ended at once");
            ensure!(Instant::now() < deadline, "the daemon is not ready after {START_LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Processor time of a process, user and system, all threads that live, seconds.
pub(super) fn cpu_s(process: u32) -> f64 {
    let Ok(tasks) = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task")) else {
        return 0.0;
    };
    let nanos = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().filter_map(nanos).sum::<f64>() / 1e9
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
