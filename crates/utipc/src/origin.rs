//! Why a node has its engine, and what may keep it from finding other programs.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;

use utipc_os::runtime_dir::{network_namespace, user_dir};

use crate::{Engine, NodeAddr};

/// The errno EPROTOTYPE: a socket of another type listens, which a daemon's is to the probe.
const OTHER_TYPE: i32 = 91;

/// How a node came to its engine.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The program, `UTIPC_ENGINE` or a setting selected the embedded engine.
    Embedded,
    /// No daemon could be used at any of these paths, so the node is embedded.
    Alone(Vec<PathBuf>),
    Daemon,
    Kernel,
}

/// What a node is, and why: see [`Node::describe`](crate::Node::describe). `Display` gives one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The engine that carries out the calls; never [`Engine::Auto`].
    pub engine: Engine,
    /// The node's address.
    pub address: NodeAddr,
    /// Number of other nodes with which there is contact.
    pub neighbours: usize,
    /// Why no daemon is used, if the program has not chosen the embedded engine.
    pub why: Option<String>,
    /// What would help, if there is such a reason.
    pub help: Option<String>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match self.engine {
            Engine::Daemon => write!(f, "node {address} of utipcd")?,
            Engine::Kernel => write!(f, "node {address} of the kernel")?,
            Engine::Embedded | Engine::Auto => write!(f, "a node of its own, {address}")?,
        }
        write!(f, ", {}", self.contact())?;
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}

impl Description {
    /// The number of neighbours, as text.
    pub(crate) fn contact(&self) -> String {
        match self.neighbours {
            1 => "1 neighbour".to_owned(),
            number => format!("{number} neighbours"),
        }
    }
}

/// What is at the path of a daemon's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nothing,
    /// This user may not open it.
    Forbidden,
    /// A daemon listens, or in the directory of nodes a node.
    Daemon,
}

fn look(path: &Path) -> Place {
    match UnixStream::connect(path).map_err(|error| (error.kind(), error.raw_os_error())) {
        Ok(_) | Err((_, Some(OTHER_TYPE))) => Place::Daemon,
        Err((ErrorKind::PermissionDenied, _)) => Place::Forbidden,
        Err(_) => Place::Nothing,
    }
}

impl Origin {
    fn engine(&self) -> Engine {
        match self {
            Self::Embedded | Self::Alone(_) => Engine::Embedded,
            Self::Daemon => Engine::Daemon,
            Self::Kernel => Engine::Kernel,
        }
    }

    /// Whether the node is embedded only because there is no daemon.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Alone(_))
    }

    /// Describes a node of this origin as things are now.
    pub(crate) fn describe(&self, address: NodeAddr, neighbours: usize) -> Description {
        let (why, help) = match self {
            Self::Alone(paths) => {
                let (why, help) = why_alone(paths);
                (Some(why), Some(help))
            }
            _ => (None, None),
        };
        Description { engine: self.engine(), address, neighbours, why, help }
    }
}

/// Why a node without a daemon may find no other programs, and what helps.
fn why_alone(paths: &[PathBuf]) -> (String, String) {
    let at = |place| paths.iter().find(|path| look(path) == place);
    if let Some(path) = at(Place::Daemon) {
        let why = format!("utipcd answers at {} now, but this program started before it", path.display());
        return (why, "start this program again".to_owned());
    }
    if let Some(path) = at(Place::Forbidden) {
        return (may_not_open(path), ADMIT.to_owned());
    }
    let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut why = format!("no utipcd answers at {}", places.join(" or "));
    let elsewhere = nodes_in_other_namespaces();
    if elsewhere > 0 {
        why.push_str(&format!("; nodes of this user in other network namespaces: {elsewhere}"));
    }
    let help = "programs of other users, in other network namespaces and with another XDG_RUNTIME_DIR do not find \
                this node: start utipcd before them, as root for all users";
    (why, help.to_owned())
}

const ADMIT: &str = "set `socket_mode` and `attach` in utipcd's [policy] to admit this user";

fn may_not_open(path: &Path) -> String {
    format!("utipcd's socket is at {}, but this user may not open it", path.display())
}

/// Cause and remedy if this user may not open a daemon's socket at one of the paths.
pub(crate) fn forbidden(paths: &[PathBuf]) -> Option<String> {
    let path = paths.iter().find(|path| look(path) == Place::Forbidden)?;
    Some(format!("{} ({ADMIT})", may_not_open(path)))
}

/// Number of embedded nodes of this user that run in other network namespaces of this host.
fn nodes_in_other_namespaces() -> usize {
    let own = format!("nodes-{}", network_namespace());
    let Ok(base) = user_dir("utipc") else { return 0 };
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_other = |name: &str| name.starts_with("nodes-") && name != own;
    files(&base)
        .filter(|folder| folder.file_name().to_str().is_some_and(is_other))
        .flat_map(|folder| files(&folder.path()))
        // Each node listens at a socket there, of the daemon's type.
        .filter(|node| look(&node.path()) == Place::Daemon)
        .count()
}

/// Reports, once in a process, that its node has no neighbours: to the program's subscriber of `tracing`, else on
/// standard error unless `UTIPC_LOG` is `off`.
pub(crate) fn warn_once(description: &Description) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        if tracing::dispatcher::has_been_set() {
            tracing::warn!("this program is {description}");
        } else if std::env::var_os("UTIPC_LOG").is_none_or(|level| level != "off") {
            eprintln!("utipc: this program is {description}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_one_line_with_cause_and_remedy() {
        let alone = Origin::Alone(vec!["/nonexistent/a.sock".into(), "/nonexistent/b.sock".into()]);
        let text = alone.describe(NodeAddr(0x1001), 0).to_string();
        assert!(text.starts_with("a node of its own, "), "{text}");
        assert!(
            text.contains("0 neighbours: no utipcd answers at /nonexistent/a.sock or /nonexistent/b.sock")
        );
        assert!(text.ends_with("as root for all users)") && !text.contains('\n'), "{text}");
        let chosen = Origin::Embedded.describe(NodeAddr(0x1001), 2);
        assert_eq!((chosen.engine, chosen.why, chosen.help), (Engine::Embedded, None, None));
        let daemon = Origin::Daemon.describe(NodeAddr(0x1001), 2).to_string();
        assert!(daemon.starts_with("node ") && daemon.ends_with("of utipcd, 2 neighbours"), "{daemon}");
    }

    #[test]
    fn a_socket_that_listens_is_a_daemon() {
        let path = std::env::temp_dir().join(format!("utipc-origin-{}", std::process::id()));
        assert_eq!(look(&path), Place::Nothing);
        let door = utipc_os::fdpass::Doorway::open(&path, 0o600).unwrap();
        assert_eq!(look(&path), Place::Daemon);
        let text = Origin::Alone(vec![path.clone()]).describe(NodeAddr(1), 0).to_string();
        assert!(text.contains("started before it (start this program again)"), "{text}");
        drop(door);
        let _ = std::fs::remove_file(format!("{}.lock", path.display()));
    }
}
