//! Network namespaces of a thread, in which tests and the lab build small networks.

use std::fs::File;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{OsError, Result};

const REMEDY: &str = "network namespaces need root (CAP_SYS_ADMIN)";

/// Moves the calling thread, and threads and processes that it starts later, into a new empty
/// network namespace, which the kernel removes when its last thread and socket are gone.
pub fn unshare() -> Result<()> {
    // SAFETY: NEWNET changes which network the thread's future system calls see; unlike unsafe flags, it touches
    // neither memory nor the descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| OsError::new("create", "a network namespace", errno).with_remedy(REMEDY))
}

/// Moves the calling thread into the namespace of the file `path`, such as `/run/netns/<name>` or
/// `/proc/<pid>/ns/net`.
pub fn enter(path: &Path) -> Result<()> {
    let file = File::open(path)
        .map_err(|cause| OsError::new("open network namespace", path.display(), cause).with_remedy(REMEDY))?;
    use std::os::fd::AsFd;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| OsError::new("enter network namespace", path.display(), errno).with_remedy(REMEDY))
}
