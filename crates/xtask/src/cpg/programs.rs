//! Two daemons of a cluster, and the programs that run on them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::sources::Sources;
use crate::process::{output, within};
use crate::running::Running;
use crate::workspace::Scratch;

/// Node addresses of the daemons. cpghum accepts node ids up to 65536 only.
const NODES: [u32; 2] = [7, 8];

/// Starts a program to which lines can be written, and whose lines come when it prints them, not at its end.
pub(super) fn start(command: &Command) -> Result<Running> {
    Running::start_with_input(&mut within("stdbuf -oL", command))
}

/// Daemons, and the programs' folder.
pub(super) struct Cluster {
    home: Scratch,
    programs: PathBuf,
    libraries: OsString,
    daemons: Vec<Running>,
}

impl Cluster {
    pub(super) fn start(daemon: &Path, library: &Path, sources: &Sources, programs: &Path) -> Result<Self> {
        let home = Scratch::new("cpg")?;
        home.folder("nodes")?;
        let mut libraries = vec![library.parent().context("the library has a folder")?.to_path_buf()];
        libraries.extend(sources.libraries()?);
        let libraries = std::env::join_paths(libraries).context("join the libraries' folders")?;
        let mut cluster = Self { home, programs: programs.to_path_buf(), libraries, daemons: Vec::new() };
        for node in NODES {
            let config = cluster.home.join(format!("{node}.toml"));
            let text = format!(
                "[node]\nsocket = {:?}\naddress = \"0.0.{node}\"\n\n[[bearer]]\nmedia = \"host\"\ndirectory = {:?}\n",
                cluster.socket(node),
                cluster.home.join("nodes")
            );
            fs::write(&config, text).context("write the configuration of a daemon")?;
            let mut command = Command::new(daemon);
            command.arg("--config").arg(&config).env("XDG_RUNTIME_DIR", &cluster.home.0);
            cluster.daemons.push(Running::daemon(&mut command)?);
        }
        Ok(cluster)
    }

    fn socket(&self, node: u32) -> PathBuf {
        self.home.join(format!("{node}.sock"))
    }

    /// The file of a program.
    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.programs.join(program)
    }

    /// Starts a program on the daemon of a node.
    pub(super) fn program(&self, program: &str, node: u32, words: &[&str]) -> Result<Running> {
        let mut command = Command::new(self.path(program));
        command.args(words).env("LD_LIBRARY_PATH", &self.libraries).env("UTIPC_SOCKET", self.socket(node));
        start(command.env_remove("UTIPC_ENGINE"))
    }

    /// The output of another program that sees the same libraries.
    pub(super) fn output_of(&self, program: &str, words: &[&str]) -> Result<String> {
        output(Command::new(program).args(words).env("LD_LIBRARY_PATH", &self.libraries))
    }
}
