//! Locks on files, which the kernel drops when their holder dies.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::{OsError, Result, fork};

/// Period at which [`FileLock::lock`] tries again.
const RETRY: Duration = Duration::from_millis(2);

/// An exclusive lock (`flock`) on an open file, held until it is dropped or the process ends.
///
/// It belongs to the open file, not to the process: two openings in one process exclude each other.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    /// The process that holds it, by [`fork::generation`].
    generation: u32,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Unlock explicitly: a forked child has the open file too, which would keep the lock. The child itself must not
        // release its parent's lock.
        if self.generation == fork::generation() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl FileLock {
    fn new(file: File) -> FileLock {
        FileLock { file, generation: fork::generation() }
    }

    /// Locks `file`, which was opened from `path`; `None` if another process holds it.
    pub fn try_lock(file: File, path: &Path) -> Result<Option<FileLock>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(FileLock::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(OsError::new("lock", path.display(), errno)),
        }
    }

    /// Locks the file at `path`, created if missing, waiting at most `limit`.
    pub fn lock(path: &Path, limit: Duration) -> Result<FileLock> {
        let file = crate::runtime_dir::open_private(path, false)?;
        let mut waited = Duration::ZERO;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(FileLock::new(file)),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if waited < limit => {
                    std::thread::sleep(RETRY);
                    waited += RETRY;
                }
                Err(errno) => {
                    return Err(OsError::new("lock", path.display(), errno)
                        .with_remedy("another process holds it: `fuser` names it"));
                }
            }
        }
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Whether some process holds the file at `path` locked; symbolic links are not followed.
///
/// The check takes a shared lock for a moment, so that concurrent checks do not mistake each
/// other for a holder.
pub fn is_locked(path: &Path) -> Result<bool> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|cause| OsError::new("open", path.display(), cause))?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(OsError::new("check the lock of", path.display(), errno)),
    }
}

impl AsFd for FileLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_with_its_holder_despite_a_forked_child() {
        let path = std::env::temp_dir().join(format!("utipc-lock-{}", std::process::id()));
        let lock = FileLock::lock(&path, Duration::ZERO).unwrap();
        let inherited = lock.file().try_clone().unwrap();
        assert!(FileLock::lock(&path, Duration::ZERO).is_err());
        drop(lock);
        assert!(FileLock::lock(&path, Duration::ZERO).is_ok());
        drop(inherited);
        std::fs::remove_file(path).unwrap();
    }
}
