//! The private directory in which the running programs of a user find each other.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::{OsError, Result};

/// `$XDG_RUNTIME_DIR/<name>`, else `/run/user/<uid>/<name>`, else `<name>-<uid>` in the directory
/// for temporary files; created with mode 0700 if missing.
///
/// A directory that belongs to another user, or that others can enter, is refused: a process that
/// can write there could impersonate one of this user's nodes.
pub fn user_dir(name: &str) -> Result<PathBuf> {
    let uid = geteuid().as_raw();
    let path = bases(uid).into_iter().find(|base| is_private(base, uid)).map(|base| base.join(name));
    let path = path.unwrap_or_else(|| temporary_dir(name, uid));
    private_dir(&path)?;
    Ok(path)
}

/// The directories that [`user_dir`] may give in other sessions of this user, as far as they exist: a login may have
/// `XDG_RUNTIME_DIR` or not.
#[must_use]
pub fn user_dirs(name: &str) -> Vec<PathBuf> {
    let uid = geteuid().as_raw();
    let all = bases(uid).into_iter().map(|base| base.join(name)).chain([temporary_dir(name, uid)]);
    all.filter(|dir| is_private(dir, uid)).collect()
}

fn bases(uid: u32) -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    given.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]).collect()
}

fn temporary_dir(name: &str, uid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{name}-{uid}"))
}

/// Path of the socket of the daemon `instance`: in `/run/utipc` (created with mode 0755 if missing) for root, else in
/// the user's directory.
pub fn usual_socket(instance: &str) -> Result<PathBuf> {
    let dir = if geteuid().is_root() { system_dir(Path::new("/run/utipc"))? } else { user_dir("utipc")? };
    Ok(dir.join(format!("{instance}.sock")))
}

fn system_dir(path: &Path) -> Result<PathBuf> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            Err(OsError::new("create the directory", path.display(), cause)
                .with_remedy("name another place for the socket"))
        }
        _ => Ok(path.to_owned()),
    }
}

/// Creates `path` with mode 0700, or checks that it is a directory of this user that no other user
/// can enter.
pub fn private_dir(path: &Path) -> Result<()> {
    let failed = |cause| {
        OsError::new("use as runtime directory", path.display(), cause)
            .with_remedy("set XDG_RUNTIME_DIR to a directory of your own with mode 0700")
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
        Err(cause) => return Err(failed(cause)),
    }
    if is_private(path, geteuid().as_raw()) {
        return Ok(());
    }
    Err(failed(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is not a directory of this user with mode 0700",
    )))
}

/// Opens a file for writing that only this user can open, never through a symbolic link;
/// `fresh`: it must not exist yet.
pub fn open_private(path: &Path, fresh: bool) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .create_new(fresh)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(|cause| OsError::new("open", path.display(), cause))
}

/// A text that identifies this thread's network namespace.
pub fn network_namespace() -> String {
    std::fs::metadata("/proc/thread-self/ns/net")
        .map_or_else(|_| "default".to_owned(), |meta| format!("{:x}-{:x}", meta.dev(), meta.ino()))
}

fn is_private(path: &Path, uid: u32) -> bool {
    // Do not follow a symbolic link: its owner could change it.
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_private_directory_is_accepted() {
        let base = std::env::temp_dir().join(format!("utipc-os-test-{}", std::process::id()));
        private_dir(&base).unwrap();
        private_dir(&base).unwrap();
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = private_dir(&base).unwrap_err().to_string();
        assert!(error.contains("XDG_RUNTIME_DIR"), "{error}");
        let link = base.join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(private_dir(&link).is_err());
        assert!(open_private(&link, false).is_err());
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn lock_excludes_a_second_opening_until_its_holder_dies() {
        use crate::file_lock::FileLock;
        let path = std::env::temp_dir().join(format!("utipc-os-lock-{}", std::process::id()));
        let held = FileLock::lock(&path, std::time::Duration::ZERO).unwrap();
        let again = || FileLock::try_lock(File::open(&path).unwrap(), &path).unwrap();
        assert!(again().is_none());
        assert!(crate::file_lock::is_locked(&path).unwrap());
        assert!(FileLock::lock(&path, std::time::Duration::from_millis(5)).is_err());
        drop(held);
        assert!(!crate::file_lock::is_locked(&path).unwrap());
        assert!(again().is_some());
        std::fs::remove_file(&path).unwrap();
    }
}
