//! The environment of a measurement: this host or two joined namespaces, with daemons or without.

use std::path::PathBuf;

use anyhow::{Context, Result};
use utipc_netns::{Cable, Namespace};

use crate::daemon::Daemon;

/// Namespaces, daemons and a folder of a run. Dropped: the daemons end, the namespaces and the folder are removed.
pub struct Place {
    folder: PathBuf,
    // Before the namespaces, in which they run.
    daemons: Vec<Daemon>,
    namespaces: Option<([Namespace; 2], Cable)>,
}

impl Place {
    /// Makes a place: this host, or with `cable` two namespaces. Its folder begins with `prefix`; the process id
    /// follows.
    ///
    /// # Errors
    /// The namespaces cannot be made.
    pub fn new(prefix: &str, cable: Option<Cable>) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("{prefix}{}", std::process::id()));
        let join = |cable: Cable| Ok::<_, anyhow::Error>((cable.join()?, cable));
        Ok(Self { folder, daemons: Vec::new(), namespaces: cable.map(join).transpose()? })
    }

    /// The folder of the run, made on first use.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self) -> Result<&PathBuf> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("make {}", self.folder.display()))?;
        Ok(&self.folder)
    }

    /// Starts a daemon for this host, or one in each namespace. `command`: the program, then its first arguments.
    ///
    /// # Errors
    /// A daemon does not start.
    pub fn start_daemons(&mut self, command: &[&std::ffi::OsStr], cluster: u32) -> Result<()> {
        let namespaces = self.namespaces.as_ref();
        let folder = self.folder()?;
        let start = |side| Daemon::start(command, cluster, folder, side, namespaces);
        let daemons = (0..if namespaces.is_some() { 2 } else { 1 }).map(start).collect::<Result<Vec<_>>>()?;
        daemons.iter().try_for_each(Daemon::wait_ready)?;
        self.daemons = daemons;
        Ok(())
    }

    /// The daemons: none, the one of this host, or one for each namespace.
    #[must_use]
    pub fn daemons(&self) -> &[Daemon] {
        &self.daemons
    }

    /// The daemon that serves programs on `side` (0 or 1).
    #[must_use]
    pub fn daemon_of(&self, side: usize) -> Option<&Daemon> {
        self.daemons.get(side).or(self.daemons.first())
    }

    /// The two namespaces; `None` on this host.
    #[must_use]
    pub fn namespaces(&self) -> Option<&[Namespace; 2]> {
        self.namespaces.as_ref().map(|(pair, _)| pair)
    }

    /// Fails if a daemon has ended.
    ///
    /// # Errors
    /// A daemon has ended.
    pub fn check_alive(&self) -> Result<()> {
        self.daemons.iter().try_for_each(Daemon::check_alive)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.daemons.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders that killed runs have left behind.
pub fn remove_old_folders(prefix: &str) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if id.is_some_and(|id| !PathBuf::from(format!("/proc/{id}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
