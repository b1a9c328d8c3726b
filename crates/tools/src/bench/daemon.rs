//! The daemons of a measurement whose nodes do not live in the measured processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::place::Room;

/// How long a daemon may take until its socket is there.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One daemon on this host, or one in each of two namespaces; they end with this value.
pub(super) struct Daemons {
    folder: PathBuf,
    running: Vec<Daemon>,
}

struct Daemon {
    child: Child,
    socket: PathBuf,
}

/// The program, which is installed beside this one.
pub(super) fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the own program")?;
    let program = own.with_file_name("utipcd");
    ensure!(
        program.is_file(),
        "there is no daemon at {} (build it, or use --engine embedded)",
        program.display()
    );
    Ok(program)
}

impl Daemons {
    /// Starts them; with `rooms`, joined by UDP between `addresses`.
    pub(super) fn start(rooms: Option<&[Room; 2]>, addresses: [[u8; 4]; 2]) -> Result<Self> {
        let program = program()?;
        let folder = std::env::temp_dir().join(format!("utipc-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut daemons = Self { folder, running: Vec::new() };
        for side in 0..if rooms.is_some() { 2 } else { 1 } {
            let mut command =
                rooms.map_or_else(|| Command::new(&program), |rooms| rooms[side].enter(&program));
            if rooms.is_some() {
                let file = daemons.folder.join(format!("{side}.toml"));
                std::fs::write(&file, configuration(side, addresses)).context("write a configuration")?;
                command.arg("--config").arg(file);
            }
            let socket = daemons.folder.join(format!("{side}.sock"));
            command.env("UTIPC_SOCKET", &socket).stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
            daemons.running.push(Daemon { child, socket });
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
        self.running.iter().map(|daemon| cpu_s(daemon.child.id())).sum()
    }
}

/// What a daemon needs to know to meet the other one.
fn configuration(side: usize, addresses: [[u8; 4]; 2]) -> String {
    let text = |side: usize| std::net::IpAddr::from(addresses[side]).to_string();
    format!("[[bearer]]\nmedia = \"udp\"\nlocal = \"{}\"\npeers = [\"{}\"]\n", text(side), text(1 - side))
}

impl Daemon {
    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !self.socket.exists() {
            if let Some(status) = self.child.try_wait().context("watch the daemon")? {
                bail!("the daemon has ended at once ({status})");
            }
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

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.running {
            let _ = daemon.child.kill();
            let _ = daemon.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
