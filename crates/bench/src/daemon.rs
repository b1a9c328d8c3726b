//! The daemons (`utipcd`) of a measurement: one for this host, or one in each of two joined namespaces.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use utipc_netns::{Cable, Namespace};

use crate::interrupt;
use crate::process::Process;

/// Time limit for a daemon to open its socket.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Shell script that runs a daemon and prints its process id. When standard input ends, it ends the daemon and
/// removes its files. That happens at the latest when the benchmark ends, for any reason. Arguments:
/// configuration, socket, folder, then the daemon's command.
const KEEPER: &str = r#"files="$1 $2 $2.lock"; folder=$3; shift 3; "$@" </dev/null >/dev/null & echo $!
cat >/dev/null; kill $!; wait $!; rm -f $files; rmdir "$folder" 2>/dev/null"#;

/// A running daemon. Dropped: it ends.
pub struct Daemon {
    /// Its name in tables.
    pub name: String,
    keeper: Process,
    id: u32,
    socket: PathBuf,
}

/// A configuration with an explicit address, so that the node is up at once; with a cable, a bearer over it.
fn configuration(side: usize, cluster: u32, cable: Option<Cable>) -> String {
    let number = 1 + side;
    let node =
        format!("[node]\naddress = \"1.1.{number}\"\ncluster = {cluster}\n\n[log]\nlevel = \"error\"\n");
    let Some(Cable { addresses, .. }) = cable else { return node };
    let (local, remote) = (addresses[side], addresses[1 - side]);
    format!("{node}\n[[bearer]]\nmedia = \"udp\"\nlocal = \"{local}\"\nremotes = [\"{remote}\"]\n")
}

impl Daemon {
    /// Starts the daemon of a side: the only one of this host, or one in its namespace of a pair. `program`: the
    /// program, then arguments that go before `--config` and `--socket`.
    pub(crate) fn start(
        program: &[&OsStr],
        cluster: u32,
        folder: &Path,
        side: usize,
        namespaces: Option<&([Namespace; 2], Cable)>,
    ) -> Result<Self> {
        let (file, socket) = (folder.join(format!("{side}.toml")), folder.join(format!("{side}.sock")));
        std::fs::write(&file, configuration(side, cluster, namespaces.map(|(_, cable)| *cable)))
            .with_context(|| format!("write {}", file.display()))?;
        let mut command = namespaces.map_or_else(|| Command::new("sh"), |(pair, _)| pair[side].command("sh"));
        command.args(["-c", KEEPER, "sh"]).args([file.as_path(), &socket, folder]);
        command.args(program).arg("--config").arg(&file).arg("--socket").arg(&socket);
        let name = match (namespaces.is_some(), side) {
            (false, _) => "utipcd",
            (true, 0) => "utipcd (source side)",
            (true, _) => "utipcd (sink side)",
        };
        let mut keeper = Process::start(name, command)?;
        let id = keeper.line()?.trim().parse().context("read the process id of a daemon")?;
        Ok(Self { name: name.to_owned(), keeper, id, socket })
    }

    pub(crate) fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        while !self.socket.exists() {
            self.check_alive()?;
            let (name, is_late) = (&self.name, Instant::now() >= end);
            ensure!(!is_late, "{name} is not ready after {START_LIMIT:?}{}", self.keeper.last_lines());
            interrupt::sleep(Duration::from_millis(5), || Ok(()))?;
        }
        Ok(())
    }

    /// The process id of the daemon.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Fails if the daemon has ended; the error has its last lines.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn check_alive(&self) -> Result<()> {
        let is_there = Path::new("/proc").join(self.id.to_string()).exists();
        ensure!(is_there, "{} ended by itself{}", self.name, self.keeper.last_lines());
        Ok(())
    }

    /// Makes a program use this daemon.
    pub fn serve(&self, command: &mut Command) {
        command.env("UTIPC_ENGINE", "daemon").env("UTIPC_SOCKET", &self.socket);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its keeper ends the daemon, waits for it and removes its files.
        let _ = self.keeper.close_and_wait();
    }
}
