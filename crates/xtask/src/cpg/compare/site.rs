//! The place of a comparison: Debian's Corosync unpacked below `target/cpg`, and two network namespaces joined by
//! veth, each with a mount namespace of its own. Nothing is installed, and the namespaces end with this program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::sources::unpack;
use crate::process::{find, output, user_is_root};
use crate::running::Running;
use crate::workspace::{files, target};

/// Debian packages of Corosync with the libraries that a minimal system lacks.
const PACKAGES: &str = "corosync libcfg7 libcmap4 libcorosync-common-dev libcorosync-common4 libcpg-dev libcpg4 \
    libknet1 liblz4-1 liblzo2-2 libnl-3-200 libnl-route-3-200 libnozzle1 libnspr4 libnss3 libqb100 libquorum5 \
    libssl3 libstatgrab10 libsystemd0 libvotequorum8 libzstd1";

/// Programs that a comparison needs.
const TOOLS: [&str; 8] = ["unshare", "nsenter", "setpriv", "ip", "cc", "apt-get", "dpkg-deb", "stdbuf"];

/// Addresses of the two nodes.
pub(super) const ADDRESSES: [&str; 2] = ["10.97.19.1", "10.97.19.2"];

/// Mounts that keep Corosync's files apart from those of the host and of the other node.
const MOUNTS: &str = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && echo ready && exec cat";

/// Why a comparison cannot run here, if so: it needs root and some programs.
pub(super) fn obstacle() -> Option<String> {
    if !user_is_root() {
        return Some("network and mount namespaces need root".into());
    }
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| find(tool).is_none()).collect();
    (!missing.is_empty()).then(|| format!("no {} (apt-get install)", missing.join(", ")))
}

/// Debian's packages, unpacked.
pub(super) struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Downloads and unpacks the packages, unless an earlier run has.
    pub(super) fn unpack() -> Result<Self> {
        let debian = Self { root: target().join("cpg/corosync") };
        if !debian.daemon().exists() {
            unpack(PACKAGES, &debian.root)?;
        }
        let mut ldd = Command::new("ldd");
        let text = output(ldd.arg(debian.daemon()).env("LD_LIBRARY_PATH", debian.libraries()?))?;
        let missing: Vec<&str> = text.lines().filter(|line| line.contains("not found")).collect();
        ensure!(missing.is_empty(), "libraries of Corosync are missing: {}", missing.join(","));
        Ok(debian)
    }

    pub(super) fn daemon(&self) -> PathBuf {
        self.root.join("usr/sbin/corosync")
    }

    pub(super) fn includes(&self) -> PathBuf {
        self.root.join("usr/include")
    }

    /// The folders of the unpacked libraries.
    pub(super) fn folders(&self) -> Result<Vec<PathBuf>> {
        let mut all = files(&self.root.join("usr/lib"), "-linux-gnu")?;
        all.extend(files(&self.root.join("lib"), "-linux-gnu").unwrap_or_default());
        ensure!(!all.is_empty(), "{} has no libraries", self.root.display());
        Ok(all)
    }

    /// The value of `LD_LIBRARY_PATH` for Corosync's programs.
    pub(super) fn libraries(&self) -> Result<std::ffi::OsString> {
        std::env::join_paths(self.folders()?).context("join the libraries' folders")
    }

    /// The version of the daemon.
    pub(super) fn version(&self) -> Result<String> {
        let text = output(Command::new(self.daemon()).arg("-v").env("LD_LIBRARY_PATH", self.libraries()?))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// Two namespaces joined by veth. They end with their holders, and these with this program.
pub(super) struct Namespaces([Running; 2]);

impl Namespaces {
    pub(super) fn new() -> Result<Self> {
        let holder = || -> Result<Running> {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", MOUNTS]);
            let mut holder = Running::start_with_input(&mut command)?;
            holder
                .line_with("ready")
                .context("namespaces cannot be made here (unshare's message is above)")?;
            Ok(holder)
        };
        let own = Self([holder()?, holder()?]);
        let [a, b] = own.0.each_ref().map(|holder| holder.id().to_string());
        let ip = |words: &[&str]| output(Command::new("ip").args(words)).map(drop);
        ip(&["link", "add", "v0", "netns", &a, "type", "veth", "peer", "name", "v1", "netns", &b])?;
        for (node, address) in ADDRESSES.into_iter().enumerate() {
            let device = format!("v{node}");
            let inside = |words: &[&str]| output(own.command(node, Path::new("ip")).args(words)).map(drop);
            inside(&["address", "add", &format!("{address}/24"), "dev", &device])?;
            inside(&["link", "set", &device, "up"])?;
            inside(&["link", "set", "lo", "up"])?;
        }
        Ok(own)
    }

    /// A command that runs a program in the namespaces of a node, under the process id of the command. It is killed
    /// when this program ends.
    pub(super) fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", "--net", "--mount", "--target"]);
        command.arg(self.0[node].id().to_string()).arg(program);
        command
    }
}
