//! Where the parts of a test are, and what joins them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::child::{Process, program};

/// What lies between the distributor and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backbone {
    /// Nothing: the server dials the publisher.
    None,
    /// Shared memory: one utipcd for all.
    Lanes,
    /// TIPC over UDP between two network namespaces, a utipcd in each; root only.
    Udp,
}

impl Backbone {
    /// As in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lanes => "lanes",
            Self::Udp => "udp",
        }
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
/// How long a daemon may take until its socket is there.
const START_LIMIT: Duration = Duration::from_secs(10);

impl Place {
    pub(super) fn new(backbone: Backbone) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mdist-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut place = Self { backbone, folder, daemons: Vec::new(), spaces: Vec::new() };
        if backbone == Backbone::Udp {
            place.spaces = Namespace::joined()?;
        }
        let count = match backbone {
            Backbone::None => 0,
            Backbone::Lanes => 1,
            Backbone::Udp => 2,
        };
        for side in 0..count {
            place.daemon(side)?;
        }
        Ok(place)
    }

    fn daemon(&mut self, side: usize) -> Result<()> {
        let mut text =
            format!("[node]\naddress = \"1.1.{}\"\ncluster = 4799\n\n[log]\nlevel = \"error\"\n", side + 1);
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
            ensure!(Instant::now() < end, "utipcd is not ready after {START_LIMIT:?}");
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
        let path = program(name)?;
        Ok(match self.spaces.get(side) {
            Some(space) => space.enter(&path),
            None => Command::new(path),
        })
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

    /// Which share of a daemon's time a component at this end has to answer for: all of its own end's, or its part of
    /// the common one's, which `sharers` use.
    pub(super) fn daemon_share(&self, side: Side, sharers: usize) -> Vec<(String, f64)> {
        match self.daemons.as_slice() {
            [] => Vec::new(),
            [one] => vec![(one.name.clone(), 1.0 / sharers.max(1) as f64)],
            more => more.get(side as usize).map(|daemon| (daemon.name.clone(), 1.0)).into_iter().collect(),
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

/// A network namespace. Dropped: it goes.
struct Namespace(String);

fn ip(arguments: &str) -> Result<()> {
    let done = Command::new("ip").args(arguments.split(' ')).output().context("run ip (install iproute2)")?;
    ensure!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}

impl Namespace {
    /// Two, joined by a virtual cable.
    fn joined() -> Result<Vec<Self>> {
        let id = std::process::id();
        let mut both = Vec::new();
        for side in 0..2 {
            let name = format!("mdist-{id}-{side}");
            ip(&format!("netns add {name}")).context("namespaces need root")?;
            both.push(Self(name));
        }
        let (near, far) = (format!("md{id}a"), format!("md{id}b"));
        ip(&format!("link add {near} netns {} type veth peer name {far} netns {}", both[0].0, both[1].0))?;
        for ((space, cable), address) in both.iter().zip([near, far]).zip(ADDRESSES) {
            let name = &space.0;
            ip(&format!("-n {name} addr add {address}/24 dev {cable}"))?;
            ip(&format!("-n {name} link set {cable} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(both)
    }

    fn enter(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.0));
    }
}
