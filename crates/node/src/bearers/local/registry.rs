//! The directory of a user's local nodes: a file for each, named by its address and locked by it.
//!
//! A process that changes the directory holds the lock of `.lock`, so that no other one removes a new file as stale
//! before it is locked. Reading needs no lock.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use utipc_os::file_lock::{self, FileLock};
use utipc_os::runtime_dir::open_private;
use utipc_os::{OsError, Result};

use crate::bearers::udp::REMOTES_MAX;

/// Longest wait for another node that changes the directory. It takes microseconds, but the process may be stopped
/// meanwhile.
const LOCK_WAIT: Duration = Duration::from_secs(5);

const LOCK_NAME: &str = ".lock";
const UNFINISHED: &str = ".new";

/// This node's entry in the directory.
pub(super) struct Registry {
    directory: PathBuf,
    own: SocketAddr,
    entry: FileLock,
}

impl Registry {
    /// Announces `own` in `directory`, after removing the files of dead processes.
    pub(super) fn publish(directory: &Path, own: SocketAddr) -> Result<Registry> {
        let guard = FileLock::lock(&directory.join(LOCK_NAME), LOCK_WAIT)?;
        prune(directory, &guard);
        let entry = announce(directory, own)?;
        Ok(Registry { directory: directory.to_owned(), own, entry })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The addresses of the other running nodes, at most as many as a bearer has remotes.
    ///
    /// Removes stale files unless another process is changing the directory, and restores the own entry if it was
    /// removed.
    pub(super) fn others(&mut self) -> Result<Vec<SocketAddr>> {
        let mut alive = Vec::new();
        let mut stale = false;
        for (path, address) in entries(&self.directory)? {
            if address == self.own {
                continue;
            }
            if is_held(&path) {
                alive.push(address);
            } else {
                stale = true;
            }
        }
        if (stale || !self.is_present())
            && let Ok(guard) = FileLock::lock(&self.directory.join(LOCK_NAME), Duration::ZERO)
        {
            prune(&self.directory, &guard);
            if !self.is_present() {
                self.entry = announce(&self.directory, self.own)?;
            }
        }
        alive.sort_unstable();
        alive.truncate(REMOTES_MAX);
        Ok(alive)
    }

    /// Whether the file of the own address is still the one that this node holds.
    fn is_present(&self) -> bool {
        let ours = self.entry.file().metadata().map(|meta| (meta.dev(), meta.ino()));
        let there = fs::symlink_metadata(self.directory.join(self.own.to_string()));
        matches!((ours, there), (Ok(ours), Ok(there)) if ours == (there.dev(), there.ino()))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The socket is still bound to this address, so no other node's entry can have its name.
        let _ = fs::remove_file(self.directory.join(self.own.to_string()));
    }
}

/// The address of an entry; none if the file is not an entry.
pub(super) fn address(name: &str) -> Option<SocketAddr> {
    name.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback())
}

/// Creates the entry under a temporary name and renames it once it is locked: other nodes never see it
/// unlocked. The caller holds the directory's lock.
fn announce(directory: &Path, own: SocketAddr) -> Result<FileLock> {
    let (unfinished, path) = (directory.join(UNFINISHED), directory.join(own.to_string()));
    let file = open_private(&unfinished, true)?;
    let busy = || OsError::new("lock", path.display(), io::ErrorKind::WouldBlock);
    let entry = FileLock::try_lock(file, &unfinished)?.ok_or_else(busy)?;
    fs::rename(&unfinished, &path).map_err(|cause| OsError::new("create", path.display(), cause))?;
    Ok(entry)
}

/// Removes the files that no process holds. Best effort: the next node removes the rest.
fn prune(directory: &Path, _held: &FileLock) {
    // Only a holder of the directory's lock creates it, so a dead process has left it.
    let _ = fs::remove_file(directory.join(UNFINISHED));
    for (path, _) in entries(directory).into_iter().flatten() {
        if !is_held(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn entries(directory: &Path) -> Result<Vec<(PathBuf, SocketAddr)>> {
    let failed = |cause| OsError::new("read directory", directory.display(), cause);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(address) = entry.file_name().to_str().and_then(address) {
            found.push((entry.path(), address));
        }
    }
    Ok(found)
}

/// Whether a living process holds the lock of an entry.
fn is_held(path: &Path) -> bool {
    file_lock::is_locked(path).unwrap_or(false)
}
