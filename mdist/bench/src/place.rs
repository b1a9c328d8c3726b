//! Where the parts of a test are, and what joins them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

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
    spaces: Vec<Namespace>,
}

/// Addresses of the two ends of the cable.
const ADDRESSES: [&str; 2] = ["198.18.77.1", "198.18.77.2"];
/// The cluster of the run.
const CLUSTER: u32 = 4799;
/// The interface at either end of it.
const CABLE: &str = "mdist0";
/// What the names of folders begin with that hold sockets and settings of a run; the process id follows.
const FOLDER: &str = "mdist-bench-";
/// How long a daemon may take until its socket is there.
const START_LIMIT: Duration = Duration::from_secs(10);

impl Place {
    pub(super) fn new(backbone: Backbone) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut place = Self { backbone, folder, daemons: Vec::new(), spaces: Vec::new() };
        if backbone.is_apart() {
            place.spaces = Namespace::joined()?;
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
            let (local, remote) = (ADDRESSES[side], ADDRESSES[1 - side]);
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
        child::command(program(name)?, self.spaces.get(side).map(Namespace::path).as_deref())
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
                ADDRESSES[at],
                ADDRESSES[1 - at]
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
        self.spaces.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A network namespace that lives as long as a process in it, which ends with us. Dropped: it goes.
struct Namespace(Process);

impl Namespace {
    fn new() -> Result<Self> {
        let mut keeper = child::command("unshare", None)?;
        keeper.args(["--net", "sh", "-c", "echo; exec cat >/dev/null"]);
        let mut keeper = Process::start("unshare", keeper).context("(install util-linux)")?;
        keeper.line().context("make a network namespace (needs root)")?;
        Ok(Self(keeper))
    }

    /// Two, joined by a virtual cable.
    fn joined() -> Result<Vec<Self>> {
        let both = vec![Self::new()?, Self::new()?];
        both[0].ip(&format!("link add {CABLE} type veth peer name {CABLE} netns {}", both[1].0.id()))?;
        for (space, address) in both.iter().zip(ADDRESSES) {
            space.ip(&format!("addr add {address}/24 dev {CABLE}"))?;
            space.ip(&format!("link set {CABLE} up"))?;
            space.ip("link set lo up")?;
        }
        Ok(both)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    fn ip(&self, arguments: &str) -> Result<()> {
        let mut command = child::command("ip", Some(&self.path()))?;
        let done = command.args(arguments.split(' ')).output().context("run ip (install iproute2)")?;
        ensure!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim());
        Ok(())
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
    Namespace::joined().err().map(|why| format!("{why:#}"))
}
