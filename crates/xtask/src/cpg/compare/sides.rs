//! The sides of a comparison: Corosync's daemons or utipc's, and the members of a group on them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::programs::Program;
use super::super::sources::link_with;
use super::site::{ADDRESSES, Debian, Namespaces};
use crate::process::output;

/// How long a daemon may take to start.
const LIMIT: Duration = Duration::from_secs(20);
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
    pub(super) namespaces: Namespaces,
    debian: Debian,
    member: PathBuf,
    lab: PathBuf,
    utipcd: PathBuf,
    library: PathBuf,
    /// Configurations and sockets.
    home: PathBuf,
}

/// The two daemons of one kind.
pub(super) struct Daemons<'a> {
    site: &'a Site,
    children: Vec<Child>,
}

/// Compiles `member.c`, linked to Corosync's library.
fn compile(root: &Path, debian: &Debian, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let program = folder.join("member");
    let mut command = Command::new("cc");
    command.args(["-O2", "-pthread", "-Wall", "-o"]).arg(&program);
    command.arg(root.join("bench/corosync/member.c")).arg("-I").arg(debian.includes());
    link_with(&mut command, &debian.folders()?);
    output(command.arg("-lcpg")).context("compile bench/corosync/member.c")?;
    Ok(program)
}

impl Site {
    /// Prepares everything; `library` and `programs` are utipc's library and the folder with its programs.
    pub(super) fn new(
        root: &Path,
        debian: Debian,
        namespaces: Namespaces,
        library: PathBuf,
        programs: &Path,
    ) -> Result<Self> {
        let member = compile(root, &debian, &root.join("target/cpg/programs"))?;
        let home = std::env::temp_dir().join(format!("utipc-compare-{}", std::process::id()));
        fs::create_dir_all(&home).with_context(|| format!("make {}", home.display()))?;
        fs::write(home.join("corosync.conf"), corosync_conf()).context("write corosync.conf")?;
        let (lab, utipcd) = (programs.join("utipc-lab"), programs.join("utipcd"));
        Ok(Self { namespaces, debian, member, lab, utipcd, library, home })
    }

    fn socket(&self, node: usize) -> PathBuf {
        self.home.join(format!("{node}.sock"))
    }

    /// The libraries of a side's programs.
    fn libraries(&self, side: Side) -> Result<OsString> {
        let mut folders = self.debian.folders()?;
        if side == Side::Library {
            folders.insert(0, self.library.parent().context("the library has a folder")?.to_path_buf());
        }
        std::env::join_paths(folders).context("join the libraries' folders")
    }

    /// Starts the daemons of a side.
    pub(super) fn start(&self, side: Side) -> Result<Daemons<'_>> {
        let mut daemons = Daemons { site: self, children: Vec::new() };
        for node in 0..ADDRESSES.len() {
            let mut command = match side {
                Side::Corosync => self.corosync(node)?,
                _ => self.utipcd(node)?,
            };
            let log = fs::File::create(self.home.join(format!("{node}-{}.log", side.name())))?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            daemons.children.push(command.spawn().with_context(|| format!("start {command:?}"))?);
            if side != Side::Corosync {
                let begin = Instant::now();
                while !self.socket(node).exists() {
                    ensure!(begin.elapsed() < LIMIT, "utipcd does not start");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        Ok(daemons)
    }

    fn corosync(&self, node: usize) -> Result<Command> {
        let mut command = self.namespaces.command(node, &self.debian.daemon());
        let config = self.home.join("corosync.conf");
        command.args(["-f", "-c"]).arg(config).env("LD_LIBRARY_PATH", self.debian.libraries()?);
        Ok(command)
    }

    fn utipcd(&self, node: usize) -> Result<Command> {
        let config = self.home.join(format!("{node}.toml"));
        let _ = fs::remove_file(self.socket(node));
        let address = ADDRESSES.get(node).context("two nodes")?;
        let text = format!(
            "[node]\nsocket = {:?}\nstate = \"\"\naddress = \"0.0.{}\"\n\n[[bearer]]\nmedia = \"udp\"\nlocal = \"{address}\"\n",
            self.socket(node),
            node + 1,
        );
        fs::write(&config, text).context("write the configuration of a daemon")?;
        let mut command = self.namespaces.command(node, &self.utipcd);
        command.arg("--config").arg(&config);
        Ok(command)
    }

    /// Starts a member of a group that is measured with so many members.
    fn member(&self, side: Side, node: usize, members: usize) -> Result<Program> {
        let mut command = match side {
            Side::Corosync | Side::Library => {
                let mut command = self.namespaces.command(node, &self.member);
                command.arg("compared").env("LD_LIBRARY_PATH", self.libraries(side)?);
                command
            }
            Side::Agreed | Side::Safe | Side::Embedded => {
                let mut command = self.namespaces.command(node, &self.lab);
                command.args(["bench", "member", SERVICE]);
                command
            }
        };
        command.arg(members.to_string());
        if side == Side::Safe {
            command.arg("--safe");
        }
        if side == Side::Embedded {
            let [local, remote] = if node == 0 { [0, 1] } else { [1, 0] }.map(|at: usize| ADDRESSES[at]);
            command.args(["--embedded", local, remote]);
        }
        Program::start(command.env("UTIPC_SOCKET", self.socket(node)).env("UTIPC_ENGINE", "daemon"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Corosync's defaults, but without encryption.
fn corosync_conf() -> String {
    let mut text = String::from(
        "totem {\n  version: 2\n  cluster_name: compare\n  transport: knet\n  crypto_cipher: none\n  \
         crypto_hash: none\n}\nsystem {\n  state_dir: /run\n}\nlogging {\n  to_stderr: yes\n  to_syslog: no\n}\n\
         nodelist {\n",
    );
    for (node, address) in ADDRESSES.iter().enumerate() {
        let id = node + 1;
        text += &format!("  node {{\n    ring0_addr: {address}\n    name: n{id}\n    nodeid: {id}\n  }}\n");
    }
    text + "}\n"
}

impl Daemons<'_> {
    /// Members of one group, the first one the most senior, on these nodes.
    pub(super) fn members(&self, side: Side, nodes: &[usize]) -> Result<Vec<Program>> {
        let mut members = Vec::new();
        for node in nodes {
            members.push(self.site.member(side, *node, nodes.len())?);
            // So that the first one is the most senior.
            std::thread::sleep(Duration::from_millis(300));
        }
        for member in &mut members {
            let about = || format!("{}: wait for all members{}", side.name(), self.log(side));
            member.words_of("ready").with_context(about)?;
        }
        Ok(members)
    }

    /// The last lines of the daemons' logs.
    fn log(&self, side: Side) -> String {
        let mut text = String::new();
        for node in 0..ADDRESSES.len() {
            let path = self.site.home.join(format!("{node}-{}.log", side.name()));
            let log = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in lines.get(lines.len().saturating_sub(8)..).unwrap_or_default() {
                text += &format!("\n  node {}: {line}", node + 1);
            }
        }
        text
    }

    /// Kills the daemon of a node.
    pub(super) fn kill(&mut self, node: usize) -> Result<()> {
        self.children.get_mut(node).context("two nodes")?.kill().context("kill a daemon")
    }
}

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}
