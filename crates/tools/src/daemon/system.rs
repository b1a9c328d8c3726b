//! Checks of a configuration against this host: users, the socket's place, addresses and interfaces.

use std::fs::File as Opened;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};
use utipc::ClusterId;
use utipc::bearers::{EthernetBearer, UdpBearer, UdpMode};
use utipc::daemon::key_file;

use super::faults::{At, Fault};
use super::file::{Bearer, File, Media};
use super::{build, users};

/// Longest path of a socket, bytes: the system's limit, less the mark of a socket that does not listen yet.
const MAX_PATH: usize = 106;

/// The directory of the system's daemons, which a daemon of root creates.
pub(super) const SYSTEM: &str = "/run/utipc";

/// The faults of key files.
pub(super) fn keys(file: &File) -> Vec<Fault> {
    let wrong = |(_, key, path): (_, String, &Path)| {
        let error = key_file::read(path).err()?;
        Some(Fault::new(At::key("encryption", &key), error.to_string()))
    };
    file.encryption.files().filter_map(wrong).collect()
}

/// The faults of users and groups.
pub(super) fn users(file: &File) -> Vec<Fault> {
    let policy = &file.policy;
    let lists = [("attach", policy.attach.as_ref()), ("manage", policy.manage.as_ref())];
    let lists = lists.into_iter().filter_map(|(key, names)| Some((key.to_owned(), names?)));
    let binds = policy.bind.iter().map(|(types, names)| (format!("bind.{types}"), names));
    let mut faults: Vec<Fault> = lists
        .chain(binds)
        .filter_map(|(key, names)| {
            let why = users::who(names).err()?;
            Some(Fault::new(At::key("policy", &key), format!("{key}: {why}")))
        })
        .collect();
    if let Some(name) = &file.node.user {
        let is_root = nix::unistd::geteuid().is_root();
        let why = match users::Account::find(name) {
            Err(why) => Some(why.to_string()),
            Ok(account) if !is_root && account.uid() != nix::unistd::geteuid().as_raw() => {
                Some(format!("only root can become user {name:?} (start as root, or leave `user` out)"))
            }
            Ok(_) => None,
        };
        faults.extend(why.map(|why| Fault::new(At::key("node", "user"), format!("user = {name:?}: {why}"))));
    }
    faults
}

/// Whether a daemon serves at this path: it holds the lock next to the socket.
pub(super) fn is_served(socket: &Path) -> bool {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    let Ok(file) = Opened::open(lock) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// The fault of the socket's place.
pub(super) fn place(socket: &Path) -> Option<Fault> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (length, shown) = (socket.as_os_str().as_bytes().len(), socket.display());
    let is_root = nix::unistd::geteuid().is_root();
    let writable = || accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    let why = if length > MAX_PATH {
        format!("the path has {length} bytes (use at most {MAX_PATH}, for example in /run/utipc)")
    } else if socket.file_name().is_none() {
        "it names no file (write a path such as /run/utipc/default.sock)".to_owned()
    } else if !folder.exists() && is_root && folder == Path::new(SYSTEM) {
        return None;
    } else if !folder.is_dir() {
        format!(
            "the directory {} does not exist (create it, or name another place with --socket)",
            folder.display()
        )
    } else if let Err(errno) = writable() {
        format!(
            "user {} cannot create files in {}: {errno} (make the directory writable, or name another place with --socket)",
            nix::unistd::geteuid(),
            folder.display()
        )
    } else if socket.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket()) {
        "this path exists and is not a socket (remove it, or name another place with --socket)".to_owned()
    } else {
        return None;
    };
    Some(Fault::new(At::key("node", "socket"), format!("cannot create the socket {shown}: {why}")))
}

/// The fault of a second daemon at the same place.
pub(super) fn second(socket: &Path) -> Fault {
    let text = format!(
        "cannot serve at {}: another daemon does (stop that one, or give this one an --instance NAME)",
        socket.display()
    );
    Fault::new(At::key("node", "socket"), text)
}

/// The faults of bearers that this host cannot open. Ports are tried only if they can be free: not while the daemon
/// itself runs. Nothing is sent, and no multicast group is joined.
pub(super) fn bearers(all: &[Bearer], cluster: ClusterId, ports: bool) -> Vec<Fault> {
    let faults = all.iter().enumerate().filter_map(|(number, bearer)| {
        let (key, opened) = match bearer.media {
            Media::Udp => ("local", try_udp(bearer, cluster, ports)),
            Media::Ethernet => {
                let name = bearer.name.as_deref().unwrap_or_default();
                ("name", EthernetBearer::open(name).map(drop).map_err(|error| error.to_string()))
            }
            Media::Host => ("directory", try_host(bearer)),
        };
        Some(Fault::new(At::bearer(number, Some(key)), utipc_cli::plain(&opened.err()?)))
    });
    faults.collect()
}

fn try_udp(bearer: &Bearer, cluster: ClusterId, ports: bool) -> Result<(), String> {
    let mut config = build::udp(bearer, cluster).map_err(|error| format!("{error:#}"))?;
    config.mode = UdpMode::Replicast { remotes: Vec::new() };
    if !ports {
        config.local.set_port(0);
    }
    UdpBearer::open(&config).map(drop).map_err(|error| error.to_string())
}

fn try_host(bearer: &Bearer) -> Result<(), String> {
    let Some(folder) = &bearer.directory else { return Ok(()) };
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() || !folder.exists() && parent.is_dir() {
        return Ok(());
    }
    Err(format!(
        "directory = {:?}: it cannot be created (create {} first)",
        folder.display().to_string(),
        parent.display()
    ))
}
