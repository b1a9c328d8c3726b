//! Selection of the engine of a program.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use utipc_client::{Place, Spin};

use super::{Node, kernel};
use crate::daemon::is_named_by_environment;
use crate::origin::{self, Origin};
use crate::{Error, Result};

/// The implementation behind a [`Node`](crate::Node); the API is the same for each.
///
/// The environment variable `UTIPC_ENGINE` (`auto`, `embedded`, `daemon` or `kernel`) selects it for programs that do
/// not choose one themselves ([`Builder::engine`](crate::Builder::engine)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The daemon if its socket answers and the program sets nothing that only an embedded node can have (bearers, an
    /// address); else embedded. If `UTIPC_SOCKET` or `UTIPC_INSTANCE` names a daemon, that daemon or an error.
    #[default]
    Auto,
    /// A node in this process.
    Embedded,
    /// The node of the user's or the system's `utipcd`.
    Daemon,
    /// The kernel's TIPC, configured by the system's own tools. It does not report the importance of received messages
    /// or the reason why a call waits, and its counters are per link only.
    Kernel,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Embedded => "embedded",
            Self::Daemon => "daemon",
            Self::Kernel => "kernel",
        })
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Auto, Self::Embedded, Self::Daemon, Self::Kernel];
        all.into_iter().find(|engine| engine.to_string() == text).ok_or(Error::OutOfRange {
            what: "the engine's name (UTIPC_ENGINE)",
            remedy: "auto, embedded, daemon or kernel",
        })
    }
}

/// The settings of the builder that select the engine.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) engine: Option<Engine>,
    pub(crate) place: Option<Place>,
    pub(crate) spin: Option<Spin>,
    /// Whether connectionless sockets go on with the next daemon.
    pub(crate) resume: Option<bool>,
}

/// The mode set by `UTIPC_SPIN`; [`Spin::Adaptive`] if it is unset.
fn spin_from_environment() -> Result<Spin> {
    match std::env::var("UTIPC_SPIN").unwrap_or_default().as_str() {
        "" | "adaptive" => Ok(Spin::Adaptive),
        "busy" => Ok(Spin::Busy),
        "parked" => Ok(Spin::Parked),
        _ => {
            Err(Error::OutOfRange { what: "the spin mode (UTIPC_SPIN)", remedy: "busy, adaptive or parked" })
        }
    }
}

/// The error for a daemon that is required and cannot be used.
fn unusable(absent: utipc_client::Error, paths: &[PathBuf]) -> Error {
    match origin::forbidden(paths) {
        Some(why) => Error::Engine { engine: Engine::Daemon, why },
        None => Error::Daemon(absent),
    }
}

impl Choice {
    /// How a waiting call spins.
    pub(crate) fn spin(&self) -> Result<Spin> {
        self.spin.map_or_else(spin_from_environment, Ok)
    }

    /// Attaches to the daemon or opens the kernel's node; `None` selects an embedded one. `embedded_only` names a
    /// setting that only an embedded node can have.
    ///
    /// A daemon that the program or the environment names is never replaced by an embedded node.
    pub(crate) fn attach(self, embedded_only: Option<&'static str>) -> Result<(Option<Node>, Origin)> {
        let engine = match (self.engine, std::env::var("UTIPC_ENGINE")) {
            (Some(engine), _) => engine,
            (None, Ok(name)) if !name.is_empty() => name.parse()?,
            // A daemon's socket implies the daemon.
            (None, _) if self.place.is_some() => Engine::Daemon,
            (None, _) => Engine::Auto,
        };
        let spin = self.spin()?;
        let resume = self.resume.unwrap_or_else(|| std::env::var("UTIPC_RESUME").as_deref() == Ok("1"));
        let named = self.place.is_some() || is_named_by_environment();
        let place = self.place.unwrap_or_else(Place::usual);
        let paths = place.paths().to_vec();
        match (engine, embedded_only) {
            (Engine::Embedded, _) | (Engine::Auto, Some(_)) => Ok((None, Origin::Embedded)),
            (Engine::Auto | Engine::Daemon, None) => match utipc_client::Node::attach(place, spin) {
                Ok(node) => Ok((Some(Node::Daemon(node.resuming(resume))), Origin::Daemon)),
                Err(error) if error.is_absent() && engine == Engine::Auto && !named => {
                    Ok((None, Origin::Alone(paths)))
                }
                Err(error) if error.is_absent() => Err(unusable(error, &paths)),
                Err(error) => Err(Error::Daemon(error)),
            },
            (Engine::Kernel, None) => Ok((Some(Node::Kernel(kernel::Node::open()?)), Origin::Kernel)),
            (Engine::Daemon | Engine::Kernel, Some(what)) => {
                let why = format!(
                    "the program sets {what}, but the {engine} has its own configuration (configure the \
                     {engine}, or choose the embedded engine)"
                );
                Err(Error::Engine { engine, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_parse_to_their_engine() {
        for engine in [Engine::Auto, Engine::Embedded, Engine::Daemon, Engine::Kernel] {
            assert_eq!(engine.to_string().parse::<Engine>().unwrap(), engine);
        }
        assert!("kernal".parse::<Engine>().unwrap_err().to_string().contains("UTIPC_ENGINE"));
    }

    #[test]
    fn unavailable_engine_is_a_named_error() {
        let choice = |engine| Choice {
            engine: Some(engine),
            place: Some(Place::at("/nonexistent/utipc.sock")),
            spin: None,
            resume: None,
        };
        assert!(choice(Engine::Auto).attach(None).unwrap_err().to_string().contains("/nonexistent/"));
        assert!(choice(Engine::Embedded).attach(None).unwrap().0.is_none());
        let absent = choice(Engine::Daemon).attach(None).unwrap_err().to_string();
        assert!(absent.contains("/nonexistent/utipc.sock") && absent.contains("utipcd"), "{absent}");
        let own = choice(Engine::Daemon).attach(Some("a bearer")).unwrap_err().to_string();
        assert!(own.contains("a bearer"), "{own}");
        let own = choice(Engine::Kernel).attach(Some("a bearer")).unwrap_err().to_string();
        assert!(own.contains("a bearer") && own.contains("the kernel has"), "{own}");
        if !utipc_os::af_tipc::is_available() {
            let kernel = choice(Engine::Kernel).attach(None).unwrap_err().to_string();
            assert!(kernel.contains("AF_TIPC"), "{kernel}");
        }
    }

    #[test]
    fn auto_fails_if_the_daemon_hangs_up() {
        let path = std::env::temp_dir().join(format!("utipc-choice-{}", std::process::id()));
        let door = utipc_os::fdpass::Doorway::open(&path, 0o600).unwrap();
        let place = Some(Place::at(&path));
        let program = std::thread::spawn(move || {
            Choice { engine: Some(Engine::Auto), place, spin: None, resume: None }.attach(None).map(drop)
        });
        // Hang up on each attempt.
        while !program.is_finished() {
            drop(door.accept().unwrap());
            std::thread::yield_now();
        }
        let error = program.join().unwrap().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("try again"), "{error}");
        drop(door);
        let _ = std::fs::remove_file(format!("{}.lock", path.display()));
    }
}
