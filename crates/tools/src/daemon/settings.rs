//! A configuration file together with the options of the command line.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use utipc::daemon::DaemonConfig;

use super::faults::{Faults, Source};
use super::file::{Bearer, File, Media};
use super::{Options, build, identity, metrics, rules, system};

/// A configuration without faults.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) source: Source,
    pub(super) file: File,
    pub(super) socket: PathBuf,
    /// Name of the instance.
    pub(super) instance: String,
    /// Whether the socket is not where programs look for a daemon of this instance.
    pub(super) is_elsewhere: bool,
}

impl Settings {
    /// Reads the file and adds the options. `passed`: path of the socket that the service manager has passed.
    pub(super) fn read(options: &Options, passed: Option<&Path>) -> Result<Self> {
        let (mut source, mut file) = File::read(options.config.as_deref())?;
        add_bearers(options, &mut source, &mut file);
        options.metrics.as_deref().map(metrics::address).transpose()?;
        file.metrics.listen = options.metrics.clone().or(file.metrics.listen);
        file.node.identity = options.identity.clone().or(file.node.identity);
        file.node.cluster = options.cluster.or(file.node.cluster);
        let option = options.socket.as_deref().filter(|path| !path.as_os_str().is_empty());
        let given = passed.or(option);
        let usual = build::usual_place(&options.instance, given.is_none() && !options.check);
        let socket = match given.or(file.node.socket.as_deref()) {
            Some(path) => path.to_owned(),
            None => usual.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?.clone(),
        };
        let is_elsewhere = usual.is_ok_and(|usual| usual != socket);
        Ok(Self::complete(source, file, socket, &options.instance, is_elsewhere)?)
    }

    /// Checks the values.
    pub(super) fn complete(
        source: Source,
        file: File,
        socket: PathBuf,
        instance: &str,
        is_elsewhere: bool,
    ) -> Result<Self, Faults> {
        let mut faults = rules::faults(&file);
        faults.extend(system::users(&file));
        if !faults.is_empty() {
            return Err(source.faults(&faults));
        }
        Ok(Self { source, file, socket, instance: instance.to_owned(), is_elsewhere })
    }

    /// The daemon's configuration, with nothing opened.
    pub(super) fn config(&self) -> Result<DaemonConfig> {
        build::config(&self.file, &self.instance, self.socket.clone())
    }

    /// Refuses a path where the socket cannot be created or a daemon serves.
    pub(super) fn check_place(&self) -> Result<()> {
        let second = || system::is_served(&self.socket).then(|| system::second(&self.socket));
        match system::place(&self.socket).or_else(second) {
            Some(fault) => bail!(self.source.faults(&[fault])),
            None => Ok(()),
        }
    }

    /// The identity that the host's name gives the node. A daemon other than the system's usual one adds its instance,
    /// its user or a hash of its socket's path. `None` if the host has no name, or for a private daemon that a program
    /// started for itself.
    pub(super) fn identity_by_host(&self) -> Option<String> {
        if self.is_elsewhere && self.file.bearer.is_empty() {
            return None;
        }
        let mut beside = Vec::new();
        if self.is_elsewhere {
            let path = std::path::absolute(&self.socket).unwrap_or_else(|_| self.socket.clone());
            beside.push(format!("{:08x}", identity::hash(path.as_os_str().as_encoded_bytes())));
        } else {
            beside.extend(Some(&self.instance).filter(|name| *name != "default").cloned());
            beside.extend(user_beside_system());
        }
        let beside = Some(beside.join("-")).filter(|beside| !beside.is_empty());
        identity::by_host(&identity::host(), beside.as_deref())
    }
}

/// The user, unless it runs the system's daemon: root, or the user of a service.
fn user_beside_system() -> Option<String> {
    let user = nix::unistd::geteuid();
    if user.is_root() || std::env::var_os("RUNTIME_DIRECTORY").is_some() {
        return None;
    }
    let known = nix::unistd::User::from_uid(user).ok().flatten();
    Some(known.map_or_else(|| user.to_string(), |user| user.name))
}

fn add_bearers(options: &Options, source: &mut Source, file: &mut File) {
    for local in &options.udp {
        source.add_option(format!("--udp {}", local.shown()));
        let name = Some(free_name(&file.bearer));
        file.bearer.push(Bearer { media: Media::Udp, name, local: Some(*local), ..Bearer::default() });
    }
    for device in &options.ethernet {
        source.add_option(format!("--ethernet {device}"));
        file.bearer.push(Bearer { media: Media::Ethernet, name: Some(device.clone()), ..Bearer::default() });
    }
}

/// A name for a UDP bearer that has none: `UDP`, `UDP2`…
fn free_name(all: &[Bearer]) -> String {
    let numbered = (2..).map(|number| format!("UDP{number}"));
    let mut names = std::iter::once("UDP".to_owned()).chain(numbered);
    let is_taken = |name: &String| {
        all.iter().any(|bearer| bearer.media == Media::Udp && bearer.name.as_deref().unwrap_or("UDP") == name)
    };
    names.find(|name| !is_taken(name)).unwrap_or_default()
}
