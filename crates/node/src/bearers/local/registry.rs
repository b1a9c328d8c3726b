//! The directory of a user's local nodes: a file for each, named by its address and locked by it.
//!
//! Whoever changes the directory holds the lock of `.lock`, so that nobody removes as stale a
//! file that is just being made. Reading needs no lock.

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

/// Longest wait for another node that changes the directory: it takes microseconds, but it may
/// be stopped in the middle.
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
    /// Announces `own` in `directory`, after removing what dead processes left there.
    pub(super) fn publish(directory: &Path, own: SocketAddr) -> Result<Registry> {
        let guard = FileLock::lock(&directory.join(LOCK_NAME), LOCK_WAIT)?;
        prune(directory, &guard);
        let entry = announce(directory, own)?;
        Ok(Registry { directory: directory.to_owned(), own, entry })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The addresses of the other living nodes, at most as many as a bearer takes.
    ///
    /// Removes stale files if nobody else is changing the directory, and puts the own entry back
    /// if something has cleaned it away.
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

    /// Whether the file of our name is still the one that we hold.
    fn is_present(&self) -> bool {
        let ours = self.entry.file().metadata().map(|meta| (meta.dev(), meta.ino()));
        let there = fs::symlink_metadata(self.directory.join(self.own.to_string()));
        matches!((ours, there), (Ok(ours), Ok(there)) if ours == (there.dev(), there.ino()))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The socket is still bound to this address, so nobody else's entry can bear its name.
        let _ = fs::remove_file(self.directory.join(self.own.to_string()));
    }
}

/// The address that an entry stands for; nothing if the file is not an entry.
pub(super) fn address(name: &str) -> Option<SocketAddr> {
    name.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback())
}

/// Makes the entry under a passing name and moves it into place once it is locked: it is never
/// seen without its lock. The caller holds the directory's lock.
fn announce(directory: &Path, own: SocketAddr) -> Result<FileLock> {
    let (unfinished, path) = (directory.join(UNFINISHED), directory.join(own.to_string()));
    let file = open_private(&unfinished, true)?;
    let busy = || OsError::new("lock", path.display(), io::ErrorKind::WouldBlock);
    let entry = FileLock::try_lock(file, &unfinished)?.ok_or_else(busy)?;
    fs::rename(&unfinished, &path).map_err(|cause| OsError::new("create", path.display(), cause))?;
    Ok(entry)
}

/// Removes the files that no process holds. Best effort: the next node does the rest.
fn prune(directory: &Path, _held: &FileLock) {
    // Only who holds the directory's lock makes one, so this one was left by a dead process.
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
