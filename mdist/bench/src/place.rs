//! The environment of a test: the namespaces of its programs, and the path between them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use utipc_bench_kit::daemon::Daemon;
use utipc_bench_kit::{place, process};
use utipc_cli::build_options;
use utipc_netns::{Cable, Namespace};

/// The path between the distributor and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backbone {
    /// Nothing: the server connects to the publisher
    None,
    /// Shared memory: one utipcd for all
    Lanes,
    /// TIPC over UDP between two network namespaces, a utipcd in each; root only
    Udp,
    /// The same without utipcd: distributor and server have nodes of their own
    Own,
}

impl Backbone {
    /// Whether its two ends are in different network namespaces.
    pub(super) fn is_apart(self) -> bool {
        matches!(self, Self::Udp | Self::Own)
    }
}

/// An end of the backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Publisher and distributor.
    Source = 0,
    /// Servers and clients.
    Sink = 1,
}

/// The namespaces, daemons and files of a test. Dropped: they are removed.
pub(super) struct Place {
    pub(super) backbone: Backbone,
    inner: place::Place,
}

/// The cable between the two ends.
const CABLE: Cable =
    Cable { interface: "mdist0", addresses: [Ipv4Addr::new(198, 18, 77, 1), Ipv4Addr::new(198, 18, 77, 2)] };
/// The cluster of the nodes.
const CLUSTER: u32 = 4799;
/// Beginning of the names of folders with the sockets and settings of a run; the process id follows.
pub(super) const FOLDER: &str = "mdist-bench-";
/// The environment variable that marks the processes of a run: the process id of the benchmark.
const OWNER: &str = "MDIST_BENCH";

impl Place {
    pub(super) fn new(backbone: Backbone) -> Result<Self> {
        let mut inner = place::Place::new(FOLDER, backbone.is_apart().then_some(CABLE))?;
        if matches!(backbone, Backbone::Lanes | Backbone::Udp) {
            inner.start_daemons(&[program("utipcd")?.as_os_str()], CLUSTER)?;
        }
        Ok(Self { backbone, inner })
    }

    /// A command for one of our programs at one end.
    pub(super) fn command(&self, side: Side, name: &str) -> Result<Command> {
        let namespace = self.inner.namespaces().map(|pair| pair[side as usize].path());
        let mut command = marked(program(name)?, namespace.as_deref())?;
        if let Some(daemon) = self.inner.daemon_of(side as usize) {
            daemon.serve(&mut command);
        }
        Ok(command)
    }

    /// Does some work in the namespace of one end.
    pub(super) fn inside<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.inner.namespaces() {
            Some(pair) => pair[side as usize].inside(work),
            None => Ok(work()),
        }
    }

    /// The settings of a program's own node; empty where it uses a daemon or no backbone.
    pub(super) fn node_settings(&self, side: Side) -> String {
        if self.backbone != Backbone::Own {
            return String::new();
        }
        let end = side as usize;
        let (local, remote) = (CABLE.addresses[end], CABLE.addresses[1 - end]);
        format!(
            "[backbone.tipc.node]\naddress = \"1.1.{}\"\ncluster = {CLUSTER}\nlocal = \"{local}\"\n\
             remotes = [\"{remote}\"]\n",
            1 + end
        )
    }

    /// Writes the settings of a program; returns the file's path.
    pub(super) fn settings(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.inner.folder()?.join(format!("{name}.toml"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// The daemons: (name, process id). Between namespaces the first one is the source's.
    pub(super) fn daemons(&self) -> impl Iterator<Item = (String, u32)> + '_ {
        self.inner.daemons().iter().map(|daemon| (daemon.name.clone(), daemon.id()))
    }

    /// Fails if a daemon has ended.
    pub(super) fn check_alive(&self) -> Result<()> {
        self.inner.check_alive()
    }

    /// The daemon whose CPU time is charged to a component at this end, and the share that is charged: all of
    /// an end's own daemon, and half of a common one, which distributor and server use.
    pub(super) fn daemon_share(&self, side: Side) -> Option<(String, f64)> {
        match self.inner.daemons() {
            [] => None,
            [one] => Some((one.name.clone(), 0.5)),
            several => several.get(side as usize).map(|daemon: &Daemon| (daemon.name.clone(), 1.0)),
        }
    }
}

/// A command for a program that ends with this process and is marked as part of this run.
pub(super) fn marked(program: PathBuf, namespace: Option<&Path>) -> Result<Command> {
    let mut command = process::dying_with_us(program, namespace)?;
    command.env(OWNER, std::process::id().to_string());
    Ok(command)
}

/// Reason why two network namespaces cannot be made here; `None` if they can.
pub(super) fn no_namespaces() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("two network namespaces need root".into());
    }
    CABLE.join().map(|_: [Namespace; 2]| ()).err().map(|why| format!("{why:#}"))
}

/// Arguments of `cargo build` for the other programs. One command for each: a common one would unify their features,
/// and so build other programs.
const PACKAGES: [&str; 2] = ["-p mdist -p mdist-load --bins", "-p utipc-tools --bin utipcd"];

/// The path of a program of this build.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program's own path")?;
    let path = own.with_file_name(name);
    let build = format!("cargo build{}", build_options(&own));
    let [first, second] = PACKAGES;
    ensure!(path.exists(), "{} is not built: {build} {first} && {build} {second}", path.display());
    Ok(path)
}

/// The programs that tests start.
const PROGRAMS: [&str; 5] = ["p2ps", "src_dist", "sink_driven_src", "rmdstestclient", "utipcd"];

/// Builds the other programs if cargo runs this one, because it has built only this one, and if one is missing.
pub(super) fn build_programs() -> Result<()> {
    let Ok(own) = std::env::current_exe() else { return Ok(()) };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cargo = match std::env::var_os("CARGO") {
        Some(cargo) => cargo,
        None if is_incomplete(&own) && sources.exists() => "cargo".into(),
        None => return Ok(()),
    };
    for packages in PACKAGES {
        eprintln!("building: cargo build {packages}");
        let mut command = Command::new(&cargo);
        command.args(["build", "--quiet"]).args(packages.split(' ')).stdout(std::process::Stdio::null());
        command.args(build_options(&own).split_whitespace()).current_dir(sources);
        if let Some(target) = own.parent().and_then(Path::parent) {
            command.arg("--target-dir").arg(target);
        }
        let status = command.status().context("run cargo to build the other programs")?;
        ensure!(status.success(), "the other programs cannot be built");
    }
    Ok(())
}

/// Whether a program is missing beside this one.
fn is_incomplete(own: &Path) -> bool {
    PROGRAMS.iter().any(|name| !own.with_file_name(name).exists())
}
