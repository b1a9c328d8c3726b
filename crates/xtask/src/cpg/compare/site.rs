//! The place of a comparison: Debian's Corosync unpacked below `target/cpg`, and two network namespaces joined by
//! veth, each with a mount namespace of its own. Nothing is installed, and the namespaces end with this program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::super::sources::unpack;
use crate::process::{output, user_is_root};

/// Debian packages of Corosync with the libraries that a minimal system lacks.
const PACKAGES: &[&str] = &[
    "corosync",
    "libcfg7",
    "libcmap4",
    "libcorosync-common-dev",
    "libcorosync-common4",
    "libcpg-dev",
    "libcpg4",
    "libknet1",
    "liblz4-1",
    "liblzo2-2",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnozzle1",
    "libnspr4",
    "libnss3",
    "libqb100",
    "libquorum5",
    "libssl3",
    "libstatgrab10",
    "libsystemd0",
    "libvotequorum8",
    "libzstd1",
];

/// Programs that a comparison needs.
const TOOLS: &[&str] = &["unshare", "nsenter", "setpriv", "ip", "cc", "apt-get", "dpkg-deb", "stdbuf"];

/// Addresses of the two nodes.
pub(super) const ADDRESSES: [&str; 2] = ["10.97.19.1", "10.97.19.2"];

/// Mounts that keep Corosync's files apart from those of the host and of the other node.
const MOUNTS: &str = "mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && echo ready && exec cat";

/// Why a comparison cannot run here, if so: it needs root and some programs.
pub(super) fn obstacle() -> Option<String> {
    if !user_is_root() {
        return Some("network and mount namespaces need root".into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let lacks = |tool: &&&str| !std::env::split_paths(&folders).any(|folder| folder.join(tool).exists());
    let missing: Vec<&str> = TOOLS.iter().filter(lacks).copied().collect();
    (!missing.is_empty()).then(|| format!("no {} (apt-get install)", missing.join(", ")))
}

/// Debian's packages, unpacked.
pub(super) struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Downloads and unpacks the packages, unless an earlier run has.
    pub(super) fn unpack(place: &Path) -> Result<Self> {
        let root = place.join("corosync");
        let debian = Self { root };
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
        let mut all = Vec::new();
        for lib in ["usr/lib", "lib"] {
            let Ok(folders) = fs::read_dir(self.root.join(lib)) else { continue };
            all.extend(
                folders.flatten().map(|f| f.path()).filter(|f| f.to_string_lossy().ends_with("-linux-gnu")),
            );
        }
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
pub(super) struct Namespaces {
    holders: Vec<Child>,
}

impl Namespaces {
    pub(super) fn new() -> Result<Self> {
        let mut own = Self { holders: Vec::new() };
        for _ in ADDRESSES {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", MOUNTS]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut holder = command.spawn().context("run unshare")?;
            let printed = holder.stdout.take().context("a pipe")?;
            own.holders.push(holder);
            let mut line = String::new();
            BufReader::new(printed).read_line(&mut line).context("read from a namespace")?;
            ensure!(line.trim() == "ready", "namespaces cannot be made here (unshare's message is above)");
        }
        let ids: Vec<String> = own.holders.iter().map(|holder| holder.id().to_string()).collect();
        let [a, b] = ids.as_slice() else { anyhow::bail!("two namespaces") };
        let ip = |words: &[&str]| output(Command::new("ip").args(words)).map(drop);
        ip(&["link", "add", "v0", "netns", a, "type", "veth", "peer", "name", "v1", "netns", b])?;
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
        let holder = self.holders.get(node).map_or_else(String::new, |holder| holder.id().to_string());
        command
            .args(["--pdeathsig", "KILL", "nsenter", "--net", "--mount", "--target", &holder])
            .arg(program);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
