//! The sides of a comparison: Corosync's daemons or utipc's, and the members of a group on them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::super::programs;
use super::super::sources::link_with;
use super::site::{ADDRESSES, Debian, Namespaces};
use crate::process::output;
use crate::running::{Output, Running};
use crate::workspace::{Scratch, make_folder, root, target};

/// The service type of the group in the Rust API.
const SERVICE: &str = "19619";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// `member.c` with Corosync's library and daemons.
    Corosync,
    /// The same program with utipc's library and daemons.
    Library,
    /// `utipc::ordered` on the same daemons, in agreed order.
    Agreed,
    /// `utipc::ordered` in safe order.
    Safe,
    /// `utipc::ordered` on a node in each process, without daemons, in agreed order.
    Embedded,
}

impl Side {
    pub(super) const ALL: [Self; 5] =
        [Self::Corosync, Self::Library, Self::Agreed, Self::Safe, Self::Embedded];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Corosync => "corosync",
            Self::Library => "libcpg",
            Self::Agreed => "agreed",
            Self::Safe => "safe",
            Self::Embedded => "embedded",
        }
    }
}

/// What is needed to start daemons and members.
pub(super) struct Site {
    namespaces: Namespaces,
    debian: Debian,
    member: PathBuf,
    /// The folder of utipc's programs.
    programs: PathBuf,
    /// Configurations and sockets.
    home: Scratch,
}

/// The two daemons of one kind.
pub(super) struct Daemons<'a> {
    site: &'a Site,
    children: Vec<Running>,
}

/// Compiles `member.c`, linked to Corosync's library.
fn compile(debian: &Debian, folder: &Path) -> Result<PathBuf> {
    make_folder(folder)?;
    let program = folder.join("member");
    let mut command = Command::new("cc");
    command.args(["-O2", "-pthread", "-Wall", "-o"]).arg(&program);
    command.arg(root().join("bench/corosync/member.c")).arg("-I").arg(debian.includes());
    link_with(&mut command, &debian.folders()?);
    output(command.arg("-lcpg")).context("compile bench/corosync/member.c")?;
    Ok(program)
}

impl Site {
    /// Prepares everything but the programs of utipc.
    pub(super) fn new(debian: Debian, namespaces: Namespaces) -> Result<Self> {
        let member = compile(&debian, &target().join("cpg/programs"))?;
        let home = Scratch::new("compare")?;
        fs::write(home.join("corosync.conf"), corosync_conf()).context("write corosync.conf")?;
        Ok(Self { namespaces, debian, member, programs: target().join("release"), home })
    }

    fn socket(&self, node: usize) -> PathBuf {
        self.home.join(format!("{node}.sock"))
    }

    /// The libraries of a side's programs.
    fn libraries(&self, side: Side) -> Result<OsString> {
        let own = (side == Side::Library).then(|| target().join("cpg/lib"));
        std::env::join_paths(own.into_iter().chain(self.debian.folders()?))
            .context("join the libraries' folders")
    }

    /// Starts the daemons of a side.
    pub(super) fn start(&self, side: Side) -> Result<Daemons<'_>> {
        let start = |node| if side == Side::Corosync { self.corosync(node) } else { self.utipcd(node) };
        let children = (0..ADDRESSES.len()).map(start).collect::<Result<_>>()?;
        Ok(Daemons { site: self, children })
    }

    fn corosync(&self, node: usize) -> Result<Running> {
        let mut command = self.namespaces.command(node, &self.debian.daemon());
        command.args(["-f", "-c"]).arg(self.home.join("corosync.conf"));
        Running::start(command.env("LD_LIBRARY_PATH", self.debian.libraries()?), Output::Error)
    }

    fn utipcd(&self, node: usize) -> Result<Running> {
        let config = self.home.join(format!("{node}.toml"));
        let text = format!(
            "[node]\nsocket = {:?}\nstate = \"\"\naddress = \"0.0.{}\"\n\n[[bearer]]\nmedia = \"udp\"\nlocal = {:?}\n",
            self.socket(node),
            node + 1,
            ADDRESSES[node],
        );
        fs::write(&config, text).context("write the configuration of a daemon")?;
        Running::daemon(
            self.namespaces.command(node, &self.programs.join("utipcd")).arg("--config").arg(&config),
        )
    }

    /// Starts a member of a group that is measured with so many members.
    fn member(&self, side: Side, node: usize, members: usize) -> Result<Running> {
        let mut command = match side {
            Side::Corosync | Side::Library => {
                let mut command = self.namespaces.command(node, &self.member);
                command.arg("compared").env("LD_LIBRARY_PATH", self.libraries(side)?);
                command
            }
            Side::Agreed | Side::Safe | Side::Embedded => {
                let mut command = self.namespaces.command(node, &self.programs.join("utipc-lab"));
                command.args(["bench", "member", SERVICE]);
                command
            }
        };
        command.arg(members.to_string());
        match side {
            Side::Safe => command.arg("--safe"),
            Side::Embedded => command.args(["--embedded", ADDRESSES[node], ADDRESSES[1 - node]]),
            _ => &mut command,
        };
        programs::start(command.env("UTIPC_SOCKET", self.socket(node)).env("UTIPC_ENGINE", "daemon"))
    }
}

/// Corosync's defaults, but without encryption.
fn corosync_conf() -> String {
    let mut text = String::from(
        "totem {\n  version: 2\n  cluster_name: compare\n  transport: knet\n  crypto_cipher: none\n  \
         crypto_hash: none\n}\nsystem {\n  state_dir: /run\n}\nlogging {\n  to_stderr: yes\n  to_syslog: no\n}\n\
         nodelist {\n",
    );
    for (id, address) in (1..).zip(ADDRESSES) {
        text += &format!("  node {{\n    ring0_addr: {address}\n    name: n{id}\n    nodeid: {id}\n  }}\n");
    }
    text + "}\n"
}

impl Daemons<'_> {
    /// Members of one group, the first one the most senior, on these nodes.
    pub(super) fn members(&mut self, side: Side, nodes: &[usize]) -> Result<Vec<Running>> {
        let mut members = Vec::new();
        for node in nodes {
            members.push(self.site.member(side, *node, nodes.len())?);
            // So that the first one is the most senior.
            std::thread::sleep(Duration::from_millis(300));
        }
        for member in &mut members {
            let ready = member.words_of("ready");
            ready.with_context(|| format!("{}: wait for all members{}", side.name(), self.log()))?;
        }
        Ok(members)
    }

    /// The last lines of the daemons' logs.
    fn log(&mut self) -> String {
        let logs = (1..).zip(&mut self.children);
        logs.map(|(node, daemon)| format!("\nnode {node}:\n{}", daemon.tail())).collect()
    }

    /// Kills the daemon of a node, without waiting for its end.
    pub(super) fn kill(&self, node: usize) -> Result<()> {
        self.children.get(node).context("two nodes")?.signal(Signal::SIGKILL)
    }
}
