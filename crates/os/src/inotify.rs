//! Watching a directory for changes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::{OsError, Result};

/// Buffer of one read, bytes: room for at least 15 of the longest events.
const BUFFER: usize = 4096;

/// A change in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file of this name was moved into place.
    Appeared(String),
    /// The file of this name was removed, or its last writer closed it or died.
    Gone(String),
    /// Events were lost, or the directory itself was removed: list it again.
    Unknown,
}

/// A watch of one directory; readable while there are changes to take.
#[derive(Debug)]
pub struct DirWatch {
    fd: OwnedFd,
}

impl DirWatch {
    /// Starts to watch `path`.
    pub fn new(path: &Path) -> Result<DirWatch> {
        let failed = |errno: rustix::io::Errno| {
            OsError::new("watch directory", path.display(), errno)
                .with_remedy("`sysctl fs.inotify` shows the limits on watches")
        };
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?;
        let what = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, path, what).map_err(failed)?;
        Ok(DirWatch { fd })
    }

    /// Hands the changes since the last call to `sink`, without waiting.
    pub fn take(&self, sink: &mut dyn FnMut(Change)) -> Result<()> {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; BUFFER];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => sink(decode(&event)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
                Err(errno) => return Err(OsError::new("read from", "a directory watch", errno)),
            }
        }
    }
}

impl AsFd for DirWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn decode(event: &inotify::Event<'_>) -> Change {
    let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) else { return Change::Unknown };
    if event.events().contains(ReadFlags::MOVED_TO) {
        Change::Appeared(name.to_owned())
    } else {
        Change::Gone(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appearing_and_removed_files_are_reported() {
        let dir = std::env::temp_dir().join(format!("utipc-os-watch-{}", std::process::id()));
        crate::runtime_dir::private_dir(&dir).unwrap();
        let watch = DirWatch::new(&dir).unwrap();
        let file = crate::runtime_dir::open_private(&dir.join(".new"), true).unwrap();
        std::fs::rename(dir.join(".new"), dir.join("a")).unwrap();
        let mut seen = Vec::new();
        watch.take(&mut |change| seen.push(change)).unwrap();
        assert_eq!(seen, [Change::Gone(".new".into()), Change::Appeared("a".into())]);
        drop(file);
        std::fs::remove_dir_all(&dir).unwrap();
        seen.clear();
        watch.take(&mut |change| seen.push(change)).unwrap();
        assert_eq!(seen[..2], [Change::Gone("a".into()), Change::Gone("a".into())]);
        assert!(seen[2..].iter().all(|change| *change == Change::Unknown) && seen.len() > 2);
    }
}
