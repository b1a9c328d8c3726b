//! The private directory in which the running programs of a user find each other.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use crate::{OsError, Result};

/// Maximum number of entries of the temporary directory that are searched for those of this user.
const ENTRIES_MAX: usize = 1 << 20;
/// Longer than the resolution of the file system's times, a tick of the kernel's clock of at least 100 Hz.
const TICK: Duration = Duration::from_millis(20);

/// `$XDG_RUNTIME_DIR/<name>`, else `/run/user/<uid>/<name>`, else `<name>-<uid>` in the directory
/// for temporary files; created with mode 0700 if missing.
///
/// A directory that belongs to another user, or that others can enter, is refused: a process that
/// can write there could impersonate one of this user's nodes. Every user can take the name in the directory for
/// temporary files; then it is `<name>-<uid>.<random>`, which the processes of this user find by its owner.
pub fn user_dir(name: &str) -> Result<PathBuf> {
    let uid = geteuid().as_raw();
    let base = bases(uid).into_iter().find(|base| is_private(base, uid));
    let Some(base) = base else { return temporary_dir(&std::env::temp_dir(), name, uid) };
    let path = base.join(name);
    private_dir(&path)?;
    Ok(path)
}

/// The directories that [`user_dir`] may give in other sessions of this user, as far as they exist: a login may have
/// `XDG_RUNTIME_DIR` or not.
#[must_use]
pub fn user_dirs(name: &str) -> Vec<PathBuf> {
    let uid = geteuid().as_raw();
    let temporary = std::env::temp_dir();
    let usual = usual_temporary(&temporary, name, uid);
    let is_taken = fs::symlink_metadata(&usual).is_ok_and(|found| found.uid() != uid);
    let other = if is_taken { oldest_other(&temporary, name, uid) } else { None };
    let all = bases(uid).into_iter().map(|base| base.join(name)).chain([usual]);
    all.filter(|dir| is_private(dir, uid)).chain(other).collect()
}

fn bases(uid: u32) -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    given.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]).collect()
}

fn usual_temporary(base: &Path, name: &str, uid: u32) -> PathBuf {
    base.join(format!("{name}-{uid}"))
}

/// The private directory of a user in a directory where every user can create files.
fn temporary_dir(base: &Path, name: &str, uid: u32) -> Result<PathBuf> {
    let usual = usual_temporary(base, name, uid);
    let owner = fs::symlink_metadata(&usual).map(|found| found.uid());
    if !matches!(owner, Ok(owner) if owner == uid) {
        // Even when the usual name is free again: other processes of this user may use the other directory.
        if let Some(other) = oldest_other(base, name, uid) {
            return Ok(other);
        }
        if owner.is_ok() {
            return create_other(base, name, uid);
        }
    }
    match private_dir(&usual) {
        // Another user has just taken the name.
        Err(_) if fs::symlink_metadata(&usual).is_ok_and(|found| found.uid() != uid) => {
            create_other(base, name, uid)
        }
        done => done.map(|()| usual),
    }
}

/// Creates the directory for when the usual name is taken. If processes create several at once, all use the oldest.
fn create_other(base: &Path, name: &str, uid: u32) -> Result<PathBuf> {
    let mut random = [0; 8];
    crate::random::fill(&mut random)?;
    let own = base.join(format!("{name}-{uid}.{:016x}", u64::from_ne_bytes(random)));
    private_dir(&own)?;
    // After that no directory with the same creation time can appear.
    std::thread::sleep(TICK);
    let oldest = oldest_other(base, name, uid).unwrap_or_else(|| own.clone());
    if oldest != own {
        // It is still empty.
        let _ = fs::remove_dir(&own);
    }
    Ok(oldest)
}

/// The oldest private directory of this user whose name begins as those of [`create_other`].
fn oldest_other(base: &Path, name: &str, uid: u32) -> Option<PathBuf> {
    let beginning = format!("{name}-{uid}.");
    let entries = fs::read_dir(base).ok()?.take(ENTRIES_MAX).flatten();
    let named =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(beginning.as_bytes()));
    let private = named.map(|entry| entry.path()).filter(|path| is_private(path, uid));
    // If the file system has no creation times, the name decides.
    let created = |path: &PathBuf| fs::symlink_metadata(path).and_then(|found| found.created()).ok();
    private.min_by_key(|path| (created(path), path.clone()))
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
    let why = match fs::symlink_metadata(path) {
        Ok(found) if found.uid() != geteuid().as_raw() => format!("it belongs to user {}", found.uid()),
        Ok(found) if found.is_dir() => {
            format!("its mode is {:o}, so that others can enter it", found.mode() & 0o777)
        }
        Ok(_) => "it is not a directory".to_owned(),
        Err(cause) => cause.to_string(),
    };
    Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why)))
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
    fn replacement_of_a_taken_name_is_found_by_all_processes_of_the_user() {
        let base = std::env::temp_dir().join(format!("utipc-os-taken-{}", std::process::id()));
        let uid = geteuid().as_raw();
        private_dir(&base).unwrap();
        let usual = base.join(format!("x-{uid}"));
        assert_eq!([(); 2].map(|()| temporary_dir(&base, "x", uid).unwrap()), [usual.clone(), usual.clone()]);
        fs::remove_dir(usual).unwrap();
        // Entries that look like the replacement, and are not private.
        fs::write(base.join(format!("x-{uid}.0")), "").unwrap();
        let open = base.join(format!("x-{uid}.1"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let one = create_other(&base, "x", uid).unwrap();
        assert!(is_private(&one, uid) && one != open);
        // Every process uses the oldest, also one that has just created its own.
        assert_eq!(create_other(&base, "x", uid).unwrap(), one);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 3);
        assert_eq!(temporary_dir(&base, "x", uid).unwrap(), one, "although the usual name is free again");
        fs::remove_dir_all(&base).unwrap();
    }

    /// As root: the name belongs to another user.
    #[test]
    fn directory_of_another_user_is_passed_over() {
        let uid = geteuid();
        let base = std::env::temp_dir().join(format!("utipc-os-foreign-{}", std::process::id()));
        private_dir(&base).unwrap();
        let usual = usual_temporary(&base, "x", uid.as_raw());
        fs::create_dir(&usual).unwrap();
        if std::os::unix::fs::chown(&usual, Some(uid.as_raw() + 1), None).is_ok() {
            let error = private_dir(&usual).unwrap_err().to_string();
            assert!(error.contains(&format!("it belongs to user {}", uid.as_raw() + 1)), "{error}");
            let dirs = [(); 3].map(|()| temporary_dir(&base, "x", uid.as_raw()).unwrap());
            assert!(is_private(&dirs[0], uid.as_raw()) && dirs.iter().all(|dir| *dir == dirs[0]));
        }
        fs::remove_dir_all(&base).unwrap();
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
