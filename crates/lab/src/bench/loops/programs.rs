//! The programs with event loops: how they are made and started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use utipc_bench_kit::Named as _;
use utipc_bench_kit::compiler::compile;
use utipc_bench_kit::machine::two_cores;
use utipc_bench_kit::process::Process;

use super::Family;
use crate::bench::place::Place;
use crate::bench::variant::Mode;

/// The program in C, and the header that it needs.
const SOURCE: &str = include_str!("../../../../../bench/loops/epoll.c");
const HEADER: &str = include_str!("../../../../c/include/utipc.h");
/// The program in Python.
const SCRIPT: &str = include_str!("../../../../../bench/loops/asyncio_echo.py");
/// The libraries, as cargo names them.
const LIBRARY: &str = "libutipc.so";
const SHIM: &str = "libutipc_preload.so";

/// The library that runs the event loop of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Ends {
    /// `epoll_wait` under the shim.
    Shim,
    /// `utipc_epoll_wait` of the C library.
    Library,
    Tokio,
    Asyncio,
}

/// A program that is ready to be started.
pub(in crate::bench) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Option<(&'static str, OsString)>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct Case {
    pub(in crate::bench) family: Family,
    pub(in crate::bench) mode: Mode,
    pub(in crate::bench) idle: u32,
    pub(in crate::bench) seconds: f64,
    pub(in crate::bench) messages: u64,
}

impl Program {
    /// Makes the program; the inner error is the reason why that is not possible here.
    pub(in crate::bench) fn new(ends: Ends, place: &Place) -> Result<Result<Self, String>> {
        let own = std::env::current_exe().context("find this program's own path")?;
        match ends {
            Ends::Tokio => {
                let arguments = ["bench", "loop-end"].map(OsString::from).to_vec();
                Ok(Ok(Self { path: own, arguments, environment: None }))
            }
            Ends::Asyncio => Self::python(place),
            Ends::Shim | Ends::Library => Self::compiled(ends, place, &own),
        }
    }

    fn compiled(ends: Ends, place: &Place, own: &Path) -> Result<Result<Self, String>> {
        let (name, package) = if ends == Ends::Shim { (SHIM, "utipc-preload") } else { (LIBRARY, "utipc-c") };
        let library = own.with_file_name(name);
        if !library.exists() {
            let remedy = format!("cargo build{} -p {package}", utipc_cli::build_options(own));
            return Ok(Err(format!("{name} is not in the folder of this program ({remedy})")));
        }
        let folder = place.folder()?;
        let mut options: Vec<OsString> = Vec::new();
        if ends == Ends::Library {
            std::fs::write(folder.join("utipc.h"), HEADER).context("write utipc.h")?;
            // Under the name that the linker writes into the program.
            for name in ["libutipc.so", "libutipc.so.0"] {
                let link = folder.join(name);
                if !link.exists() {
                    std::os::unix::fs::symlink(&library, link).context("link to the C library")?;
                }
            }
            let path = format!("-Wl,-rpath,{}", folder.display());
            options = vec!["-DLIBUTIPC".into(), "-I".into(), folder.into(), "-L".into(), folder.into()];
            options.extend(["-lutipc".into(), path.into()]);
        }
        let name = if ends == Ends::Shim { "epoll-shim" } else { "epoll-c" };
        let path = match compile(folder, name, SOURCE, &options)? {
            Ok(path) => path,
            Err(why) => return Ok(Err(why)),
        };
        let environment = (ends == Ends::Shim).then(|| ("LD_PRELOAD", library.into_os_string()));
        Ok(Ok(Self { path, arguments: Vec::new(), environment }))
    }

    fn python(place: &Place) -> Result<Result<Self, String>> {
        let probe = Command::new("python3").args(["-c", "import utipc.aio"]).output();
        match probe {
            Err(why) => return Ok(Err(format!("no Python found (python3: {why})"))),
            Ok(output) if !output.status.success() => {
                return Ok(Err("Python has no package utipc (see docs/python.md; PYTHONPATH)".to_owned()));
            }
            Ok(_) => {}
        }
        let script = place.folder()?.join("asyncio_echo.py");
        std::fs::write(&script, SCRIPT).context("write asyncio_echo.py")?;
        Ok(Ok(Self { path: "python3".into(), arguments: vec![script.into()], environment: None }))
    }

    fn start(&self, name: &str, place: &Place, case: &Case, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(&self.path);
        place.attach(&mut command)?;
        command.args(&self.arguments).args(arguments).env("UTIPC_SPIN", case.mode.name());
        if let Some((name, value)) = &self.environment
            && case.family == Family::Tipc
        {
            command.env(name, OsStr::new(value));
        }
        Process::start(name, command)
    }

    /// Median round trip of a case, microseconds.
    pub(in crate::bench) fn measure(&self, place: &Place, case: &Case) -> Result<f64> {
        let [server_core, client_core] =
            two_cores().map(|core| core.map_or_else(|| "-1".to_owned(), |core| core.to_string()));
        let (family, idle) = (case.family.name(), case.idle.to_string());
        let mut server = self.start("server", place, case, &["serve", &family, &idle, &server_core])?;
        let port = server.word_after("ready ")?;
        let (seconds, messages) = (case.seconds.to_string(), case.messages.to_string());
        let arguments = ["drive", &family, &idle, &client_core, &port, &seconds, &messages];
        let mut client = self.start("client", place, case, &arguments)?;
        let median = client.word_after("median ")?;
        client.close_and_wait()?;
        server.close_and_wait()?;
        let nanoseconds: f64 = median.parse().with_context(|| format!("the client printed '{median}'"))?;
        Ok(nanoseconds / 1e3)
    }
}
