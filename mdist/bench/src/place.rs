//! Where the parts of a test are, and what joins them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use utipc_netns::{Cable, Namespace};

use super::child::{self, Process, program};
use super::interrupt;

/// What lies between the distributor and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backbone {
    /// Nothing: the server dials the publisher
    None,
    /// Shared memory: one utipcd for all
    Lanes,
    /// TIPC over UDP between two network namespaces, a utipcd in each; root only
    Udp,
    /// The same without utipcd: distributor and server have nodes of their own
    Own,
}

impl Backbone {
    /// As in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lanes => "lanes",
            Self::Udp => "udp",
            Self::Own => "own",
        }
    }

    /// Whether its ends are in network namespaces of their own.
    pub(super) fn is_apart(self) -> bool {
        matches!(self, Self::Udp | Self::Own)
    }
}

/// Which end something is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Publisher and distributor.
    Source = 0,
    /// Servers and clients.
    Sink = 1,
}

/// A place. Dropped: its daemons end and its namespaces go.
pub(super) struct Place {
    pub(super) backbone: Backbone,
    folder: PathBuf,
    // Before the namespaces, in which they live.
    daemons: Vec<Process>,
    namespaces: Vec<Namespace>,
}

/// The cable between the two ends.
const CABLE: Cable =
    Cable { interface: "mdist0", addresses: [Ipv4Addr::new(198, 18, 77, 1), Ipv4Addr::new(198, 18, 77, 2)] };
/// The cluster of the run.
const CLUSTER: u32 = 4799;
/// What the names of folders begin with that hold sockets and settings of a run; the process id follows.
const FOLDER: &str = "mdist-bench-";
/// How long a daemon may take until its socket is there.
const START_LIMIT: Duration = Duration::from_secs(10);

impl Place {
    pub(super) fn new(backbone: Backbone) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut place = Self { backbone, folder, daemons: Vec::new(), namespaces: Vec::new() };
        if backbone.is_apart() {
            place.namespaces = CABLE.join()?.into();
        }
        let count = match backbone {
            Backbone::None | Backbone::Own => 0,
            Backbone::Lanes => 1,
            Backbone::Udp => 2,
        };
        for side in 0..count {
            place.daemon(side)?;
        }
        Ok(place)
    }

    fn daemon(&mut self, side: usize) -> Result<()> {
        let mut text = format!(
            "[node]\naddress = \"1.1.{}\"\ncluster = {CLUSTER}\n\n[log]\nlevel = \"error\"\n",
            side + 1
        );
        if self.backbone == Backbone::Udp {
            let (local, remote) = (CABLE.addresses[side], CABLE.addresses[1 - side]);
            text +=
                &format!("\n[[bearer]]\nmedia = \"udp\"\nlocal = \"{local}\"\nremotes = [\"{remote}\"]\n");
        }
        let (file, socket) = (self.folder.join(format!("{side}.toml")), self.socket(side));
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        let mut command = self.enter(side, "utipcd")?;
        command.arg("--config").arg(&file).arg("--socket").arg(&socket);
        let mut daemon = Process::start(if side == 0 { "utipcd" } else { "utipcd (sink side)" }, command)?;
        let end = Instant::now() + START_LIMIT;
        while !socket.exists() {
            daemon.alive()?;
            interrupt::check()?;
            ensure!(Instant::now() < end, "utipcd is not ready after {START_LIMIT:?}{}", daemon.last_words());
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon.name = if self.backbone == Backbone::Udp && side == 0 {
            "utipcd (source side)".into()
        } else {
            daemon.name.clone()
        };
        self.daemons.push(daemon);
        Ok(())
    }

    fn socket(&self, side: usize) -> PathBuf {
        self.folder.join(format!("{side}.sock"))
    }

    fn enter(&self, side: usize, name: &str) -> Result<Command> {
        child::command(program(name)?, self.namespaces.get(side).map(Namespace::path).as_deref())
    }

    /// A command that runs a program of ours at one end.
    pub(super) fn command(&self, side: Side, name: &str) -> Result<Command> {
        let mut command = self.enter(side as usize, name)?;
        if !self.daemons.is_empty() {
            let number = (side as usize).min(self.daemons.len() - 1);
            command.env("UTIPC_ENGINE", "daemon").env("UTIPC_SOCKET", self.socket(number));
        }
        Ok(command)
    }

    /// What a program at this end has to be told of its node.
    pub(super) fn node(&self, side: Side) -> String {
        let at = side as usize;
        match self.backbone {
            Backbone::Own => format!(
                "[backbone.node]\naddress = \"1.1.{}\"\ncluster = {CLUSTER}\nlocal = \"{}\"\nremotes = [\"{}\"]\n",
                at + 1,
                CABLE.addresses[at],
                CABLE.addresses[1 - at]
            ),
            _ => String::new(),
        }
    }

    /// Writes settings for a program; returns the file's path.
    pub(super) fn settings(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.toml"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// The daemons: (name, process id). Between namespaces the first is the source's.
    pub(super) fn daemons(&self) -> impl Iterator<Item = (String, u32)> + '_ {
        self.daemons.iter().map(|daemon| (daemon.name.clone(), daemon.id()))
    }

    /// An error if a daemon has ended.
    pub(super) fn alive(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(Process::alive)
    }

    /// Which share of a daemon's time a component at this end has to answer for: all of its own end's; half of the common
    /// one's, which distributor and server use.
    pub(super) fn daemon_share(&self, side: Side) -> Option<(String, f64)> {
        match self.daemons.as_slice() {
            [] => None,
            [one] => Some((one.name.clone(), 0.5)),
            more => more.get(side as usize).map(|daemon| (daemon.name.clone(), 1.0)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.daemons.clear();
        self.namespaces.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes what runs that were killed have left behind.
pub(super) fn sweep() {
    let left = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in left {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse::<u32>().ok());
        if id.is_some_and(|id| !PathBuf::from(format!("/proc/{id}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Why there can be no two namespaces here; `None`: there can.
pub(super) fn no_namespaces() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("two network namespaces need root".into());
    }
    CABLE.join().err().map(|why| format!("{why:#}"))
}
