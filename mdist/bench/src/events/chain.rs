//! The programs of a run of events: publisher, distributor, server and consumer, each in a process of its own that can
//! be killed, stopped and started again on its address.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use utipc_bench_kit::interrupt;
use utipc_bench_kit::process::Process;

use super::super::place::{Place, Side};
use super::Part;

/// Time limit of a connection to a metrics port.
const METRICS_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the end of a process that is asked to end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// The ports to listen on: below those that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The programs, as far as they run.
pub(super) struct Chain<'p> {
    place: &'p Place,
    items: usize,
    rate: u64,
    /// Ports of the publisher, of the server, and of the metrics of distributor and server.
    ports: [u16; 4],
    settings: [PathBuf; 2],
    /// The programs, by [`Part`].
    running: [Option<Process>; 4],
    /// Version of the publisher's dictionary.
    pub(super) dictionary: u32,
    /// Items that the watchdogs of distributor and server had requested at the last look.
    stale: [u64; 2],
}

impl<'p> Chain<'p> {
    /// Starts the programs; their items load afterwards.
    pub(super) fn start(place: &'p Place, items: usize, rate: u64) -> Result<Self> {
        let settings = [("src_dist", Side::Source), ("p2ps", Side::Sink)];
        let [source, sink] = settings.map(|(name, side)| place.settings(name, &place.node_settings(side)));
        let mut chain = Self {
            place,
            items,
            rate,
            ports: free_ports()?,
            settings: [source?, sink?],
            running: [None, None, None, None],
            dictionary: 1,
            stale: [0, 0],
        };
        Part::ALL.into_iter().try_for_each(|part| chain.start_part(part))?;
        Ok(chain)
    }

    /// Starts a program that does not run.
    pub(super) fn start_part(&mut self, part: Part) -> Result<()> {
        let [provider, server, source_metrics, server_metrics] =
            self.ports.map(|port| format!("127.0.0.1:{port}"));
        let place = self.place;
        let process = match part {
            Part::Provider => {
                let mut command = place.command(Side::Source, "sink_driven_src")?;
                command.args(["--control", "--address", "127.0.0.1", "--values", "running"]);
                command.args(["--port", &self.ports[0].to_string(), "--update-rate", &self.rate.to_string()]);
                command.args(["--dictionary-version", &format!("{}.0.0", self.dictionary)]);
                let mut process = Process::start(part.name(), command)?;
                process.line()?;
                process
            }
            Part::Source => {
                let mut command = place.command(Side::Source, "src_dist")?;
                command.args([
                    "--provider",
                    &provider,
                    "--listen",
                    "127.0.0.1:0",
                    "--metrics",
                    &source_metrics,
                ]);
                command.arg("--config").arg(&self.settings[0]);
                start_server(part, command)?
            }
            Part::Server => {
                let mut command = place.command(Side::Sink, "p2ps")?;
                command.args(["--listen", &server, "--metrics", &server_metrics]);
                command.arg("--config").arg(&self.settings[1]);
                start_server(part, command)?
            }
            Part::Consumer => {
                let mut command = place.command(Side::Sink, "rmdstestclient")?;
                command.args(["--control", "--compare", "--host", "127.0.0.1"]);
                command.args(["--port", &self.ports[1].to_string(), "--item-count", &self.items.to_string()]);
                Process::start(part.name(), command)?
            }
        };
        if let Some(at) = part.watchdog() {
            self.stale[at] = 0;
        }
        self.running[part as usize] = Some(process);
        Ok(())
    }

    fn process(&mut self, part: Part) -> Result<&mut Process> {
        self.running[part as usize].as_mut().with_context(|| format!("{} does not run", part.name()))
    }

    /// Kills a program.
    pub(super) fn kill(&mut self, part: Part) -> Result<()> {
        self.process(part)?.kill()?;
        self.running[part as usize] = None;
        Ok(())
    }

    /// Ends a program in good order.
    pub(super) fn end(&mut self, part: Part) -> Result<()> {
        self.signal(part, Signal::TERM)?;
        let since = Instant::now();
        // The process answers no longer: its end closes its output.
        self.process(part)?.remaining_output(END_LIMIT)?;
        ensure!(since.elapsed() < END_LIMIT, "{} does not end", part.name());
        self.running[part as usize] = None;
        Ok(())
    }

    /// Sends a program a signal.
    pub(super) fn signal(&mut self, part: Part, signal: Signal) -> Result<()> {
        self.process(part)?.signal(signal)
    }

    /// Sends the publisher a command.
    pub(super) fn publisher(&mut self, command: &str) -> Result<Value> {
        self.process(Part::Provider)?.request(command)
    }

    /// Sends the consumer a command.
    pub(super) fn consumer(&mut self, command: &str) -> Result<Value> {
        self.process(Part::Consumer)?.request(command)
    }

    /// Number of items that the consumer requests.
    pub(super) fn items(&self) -> u64 {
        self.items as u64
    }

    /// Fails if a program has ended by itself.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.running.iter_mut().flatten().try_for_each(Process::check_alive)?;
        self.place.check_alive()
    }

    /// The file in which the publisher writes its items.
    pub(super) fn published(&self) -> Result<PathBuf> {
        self.place.settings("published", "")
    }

    /// The metrics page of a program that has a watchdog, and the index of its count.
    fn metrics(&self, part: Part) -> Result<Option<(usize, String)>> {
        let Some(at) = part.watchdog() else { return Ok(None) };
        let (side, port) = (if part == Part::Source { Side::Source } else { Side::Sink }, self.ports[2 + at]);
        Ok(Some((at, self.place.inside(side, || metrics(port))?.context("read the metrics")?)))
    }

    /// Logs what distributor and server have counted.
    pub(super) fn log_counts(&self) {
        for part in Part::ALL {
            let Ok(Some((_, page))) = self.metrics(part) else { continue };
            let lines = page.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
            lines.for_each(|line| tracing::info!("{}: {line}", part.name()));
        }
    }

    /// Items that the watchdogs have requested since the last call, because they stayed suspect.
    pub(super) fn stale_requests(&mut self) -> Result<u64> {
        let mut new = 0;
        for part in Part::ALL {
            let Some((at, page)) = self.metrics(part)? else { continue };
            let line = page.lines().find(|line| line.starts_with("mdist_hub_stale_requests_total"));
            let count = line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
            let count = count
                .with_context(|| format!("no count of stale items in the metrics of {}", part.name()))?;
            new += count.saturating_sub(std::mem::replace(&mut self.stale[at], count));
        }
        Ok(new)
    }

    /// Waits for `time`; fails if a program ends by itself.
    pub(super) fn wait(&mut self, time: Duration) -> Result<()> {
        interrupt::sleep(time, || self.check_alive())
    }
}

/// Starts a program that prints when it is ready.
fn start_server(part: Part, mut command: std::process::Command) -> Result<Process> {
    command.env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into()));
    let mut process = Process::start(part.name(), command)?;
    while !process.line()?.ends_with("ready") {}
    Ok(process)
}

/// Ports that are free now.
fn free_ports() -> Result<[u16; 4]> {
    let first = PORTS.start + (std::process::id() % u32::from(PORTS.end - PORTS.start)) as u16;
    let mut free = (first..PORTS.end).chain(PORTS.start..first).filter(|port| is_free(*port));
    let mut next = || free.next().context("no port is free");
    Ok([next()?, next()?, next()?, next()?])
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// The metrics page of a program.
fn metrics(port: u16) -> Result<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(METRICS_LIMIT))?;
    write!(socket, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    socket.read_to_string(&mut page)?;
    Ok(page)
}
