//! Paths of the daemon's AF_UNIX socket.

use std::path::PathBuf;

use utipc_os::runtime_dir::{user_dir, user_dirs};

/// The paths at which a daemon may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    paths: Vec<PathBuf>,
}

impl Place {
    /// The usual places: `$UTIPC_SOCKET` and nothing else if it is set; otherwise the user's own daemon, then the
    /// system's, of the instance `$UTIPC_INSTANCE` (`default`).
    #[must_use]
    pub fn usual() -> Self {
        if let Some(path) = std::env::var_os("UTIPC_SOCKET").filter(|path| !path.is_empty()) {
            return Self::at(PathBuf::from(path));
        }
        let instance = std::env::var("UTIPC_INSTANCE").unwrap_or_default();
        Self::instance(if instance.is_empty() { "default" } else { &instance })
    }

    /// This user's daemon with this instance name, then the system's.
    #[must_use]
    pub fn instance(name: &str) -> Self {
        let file = format!("{name}.sock");
        // A user without a private directory has no daemon of its own.
        let mut folders: Vec<PathBuf> = user_dir("utipc").into_iter().collect();
        // The daemon may have been started by a login with another runtime directory.
        for folder in user_dirs("utipc").into_iter().chain([PathBuf::from("/run/utipc")]) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Self { paths: folders.into_iter().map(|folder| folder.join(&file)).collect() }
    }

    /// The daemon whose socket has this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { paths: vec![path.into()] }
    }

    /// The paths, in the order in which they are tried.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn user_daemon_comes_before_system_daemon() {
        let place = Place::instance("blue");
        assert_eq!(place.paths().last().unwrap(), Path::new("/run/utipc/blue.sock"));
        assert!(place.paths().iter().all(|path| path.ends_with("blue.sock")));
        assert_eq!(Place::at("x.sock").paths(), [PathBuf::from("x.sock")]);
    }
}
