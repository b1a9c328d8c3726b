//! The identity of the node across restarts. With the same identity a node gets the same address, so that the cluster
//! sees a restart instead of a new node and one that is down.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use utipc::NodeId;
use utipc::daemon::NodeConfig;

/// Maximum number of bytes of a state file; one has about 150.
const MAX_BYTES: u64 = 4096;

/// Directory of the system's state, for root.
const SYSTEM: &str = "/var/lib/utipc";

/// The content of a state file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// 32 hexadecimal digits.
    identity: String,
}

/// A state file in use: no other daemon takes its identity while this value lives.
#[derive(Debug)]
pub(crate) struct Kept {
    _lock: File,
}

/// The directory for the state if the configuration names none: the service manager's; else, for a daemon at its usual
/// place, the system's or the user's. A daemon at another place (`is_elsewhere`) keeps none, because several could run
/// side by side under one instance name.
pub(crate) fn usual_folder(is_elsewhere: bool) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let managed = std::env::var_os("STATE_DIRECTORY");
    if let Some(first) = managed.as_deref().and_then(|list| std::env::split_paths(list).next()) {
        return Some(first).filter(|path| path.is_absolute());
    }
    if is_elsewhere {
        return None;
    }
    if nix::unistd::geteuid().is_root() {
        return Some(SYSTEM.into());
    }
    let user = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    user.map(|folder| folder.join("utipc"))
}

/// Whether an instance has a state file.
pub(crate) fn exists(folder: &Path, instance: &str) -> bool {
    std::fs::symlink_metadata(folder.join(format!("{instance}.node"))).is_ok()
}

/// Gives the node the identity that it had at its last start, or one that it will have at the next. If that fails, the
/// node starts with a new identity: a lost state must not stop a node.
pub(crate) fn restore(node: &mut NodeConfig, folder: &Path, instance: &str) -> Option<Kept> {
    let path = folder.join(format!("{instance}.node"));
    match try_restore(node, folder, &path) {
        Ok(kept) => Some(kept),
        Err(why) => {
            node.stack.identity = None;
            tracing::warn!("the node's identity will not be kept: {why:#}");
            None
        }
    }
}

fn try_restore(node: &mut NodeConfig, folder: &Path, path: &Path) -> Result<Kept> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.with_context(|| {
        format!("cannot create the state directory {} (name another as `node.state`)", folder.display())
    })?;
    let lock = open(&path.with_extension("lock"), true)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(|| {
        format!("another daemon uses {} (give each an --instance or `node.state`)", path.display())
    })?;
    match read(path) {
        Ok(Some(identity)) => {
            tracing::info!(state = %path.display(), "the node has the identity of its last start");
            node.stack.identity = Some(identity);
            return Ok(Kept { _lock: lock });
        }
        Ok(None) => {}
        Err(why) => tracing::warn!("the node gets a new identity, because its state cannot be used: {why:#}"),
    }
    node.choose_identity()?;
    let identity = node.stack.identity.context("the node has no identity")?;
    write(folder, path, identity)?;
    Ok(Kept { _lock: lock })
}

fn open(path: &Path, write: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(write).create(write).truncate(false).mode(0o600);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// Reads a state file; `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<NodeId>> {
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let file = open(path, false)?;
    let found = file.metadata().with_context(|| format!("query {}", path.display()))?;
    let own = nix::unistd::geteuid().as_raw();
    let trusted = found.is_file() && [0, own].contains(&found.uid()) && found.mode() & 0o022 == 0;
    ensure!(trusted, "{} is not a file that only user {own} or root can write", path.display());
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(anyhow::Error::from)
        .and_then(|_| parse(&text))
        .with_context(|| format!("{} is damaged", path.display()))
        .map(Some)
}

fn parse(text: &str) -> Result<NodeId> {
    let Content { identity } =
        toml::from_str(text).map_err(|error| anyhow::anyhow!(error.message().to_owned()))?;
    ensure!(identity.len() == 32 && identity.is_ascii(), "the identity must have 32 hexadecimal digits");
    let number =
        u128::from_str_radix(&identity, 16).context("the identity must have 32 hexadecimal digits")?;
    if number == 0 {
        bail!("the identity is zero");
    }
    Ok(NodeId(number.to_be_bytes()))
}

/// Writes a state file completely or not at all.
fn write(folder: &Path, path: &Path, identity: NodeId) -> Result<()> {
    let failed = || format!("cannot write the state {}", path.display());
    let content = Content { identity: format!("{:032x}", u128::from_be_bytes(identity.0)) };
    let text = format!(
        "# The node that `utipcd` runs here. Without this file it becomes a new node of its cluster.\n{}",
        toml::to_string(&content).with_context(failed)?
    );
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut file = open(&new, true).with_context(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(failed)?;
    std::fs::rename(&new, path).with_context(failed)?;
    // The directory's entry survives a crash too, if its file system can sync directories.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("utipcd-state-{name}-{}", std::process::id()));
            Self(path)
        }

        /// The identity of a daemon that starts and ends.
        fn start(&self) -> (Option<NodeId>, Option<Kept>) {
            let mut node = NodeConfig::default();
            let kept = restore(&mut node, &self.0, "default");
            (node.stack.identity, kept)
        }

        fn file(&self) -> PathBuf {
            self.0.join("default.node")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn identity_survives_restarts() {
        let folder = Folder::new("again");
        let first = folder.start().0;
        assert!(first.is_some());
        for _ in 0..2 {
            assert_eq!(folder.start().0, first);
        }
        let meta = std::fs::metadata(folder.file()).unwrap();
        assert_eq!(meta.mode() & 0o777, 0o600);
        assert!(!folder.file().with_extension("new").exists());
    }

    #[test]
    fn damaged_state_is_replaced_by_a_new_identity() {
        let folder = Folder::new("damaged");
        let mut last = folder.start().0;
        let long = format!("# {}\n", "x".repeat(5000));
        for damage in
            ["", "identity = \"12\"", "nonsense", "identity = \"00000000000000000000000000000000\"", &long]
        {
            std::fs::write(folder.file(), damage).unwrap();
            let new = folder.start().0;
            assert!(new.is_some() && new != last, "{damage:?}");
            assert_eq!(folder.start().0, new, "{damage:?}");
            last = new;
        }
        std::fs::write(folder.file(), [0xff; 64]).unwrap();
        assert_ne!(folder.start().0, last);
    }

    #[test]
    fn file_that_others_can_write_and_symbolic_links_are_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = Folder::new("others");
        let first = folder.start().0;
        std::fs::set_permissions(folder.file(), std::fs::Permissions::from_mode(0o666)).unwrap();
        let second = folder.start().0;
        assert_ne!(second, first);
        let elsewhere = folder.0.join("elsewhere");
        std::fs::rename(folder.file(), &elsewhere).unwrap();
        symlink(&elsewhere, folder.file()).unwrap();
        let third = folder.start().0;
        assert!(third.is_some() && third != second);
        assert!(!std::fs::symlink_metadata(folder.file()).unwrap().is_symlink(), "the link was replaced");
    }

    #[test]
    fn two_daemons_never_have_the_same_identity() {
        let folder = Folder::new("twice");
        let (first, kept) = folder.start();
        let (second, not_kept) = folder.start();
        assert!(kept.is_some() && not_kept.is_none() && second != first);
        drop(kept);
        assert_eq!(folder.start().0, first);
    }

    #[test]
    fn state_that_cannot_be_written_stops_no_daemon() {
        let mut node = NodeConfig::default();
        assert!(restore(&mut node, Path::new("/proc/utipc"), "default").is_none());
        assert_eq!(node.stack.identity, None, "it is chosen as if there were no state");
    }
}
