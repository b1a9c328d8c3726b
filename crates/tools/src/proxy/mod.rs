//! `utipc proxy`: TCP or Unix sockets in front of a service, or a service in front of a TCP or Unix server.

mod address;
mod back;
mod front;
mod relay;
mod session;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use utipc::{Engine, Node, SocketKind};

use address::Address;
use back::Back;
use front::{Client, Front};

/// Pause after a listening socket has failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of connections that `--max-connections` allows.
const MOST: u32 = 65_536;

/// The log without UTIPC_LOG.
pub(crate) const LOG: &str = "utipc::proxy=info,warn";

/// Options of `utipc proxy`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  utipc proxy --listen tcp:127.0.0.1:8080 --connect service:1000:1     a service for programs that use TCP
  utipc proxy --listen service:1000:1 --connect tcp:127.0.0.1:80       a TCP server as a service
  utipc proxy --listen service:1000:1 --connect unix:/run/app.sock     the same, of a Unix socket

Set UTIPC_LOG=utipc::proxy=debug to see each connection, and UTIPC_LOG=off for silence.")]
pub(crate) struct Options {
    /// Where clients connect: tcp:HOST:PORT, unix:PATH, service:TYPE:INSTANCE or service:TYPE:FIRST-LAST
    #[arg(long, value_name = "ADDRESS")]
    listen: Address,
    /// The server: service:TYPE:INSTANCE, tcp:HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    connect: Address,
    /// Carry the end of each direction separately; the service at the other end is a proxy with this option too
    #[arg(long)]
    half_close: bool,
    /// While the server is down: close the listening socket (a service is unbound), or accept and wait for it
    #[arg(long, value_name = "ACTION", default_value = "refuse")]
    when_down: WhenDown,
    /// Longest wait of a client for a server that is down, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// Maximum number of connections at once; further clients wait in the queue of the listening socket
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    max_connections: u32,
    /// After a client has ended its direction: close when the service has sent nothing for this long, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    linger: u64,
    /// After SIGTERM or SIGINT: let connections continue for this long, seconds; a second signal ends them at once
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    grace: u64,
    /// Threads that copy
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhenDown {
    Refuse,
    Wait,
}

impl Options {
    fn check(&self) -> Result<()> {
        match (&self.listen, &self.connect) {
            (_, Address::Service(_)) if self.connect.instance().is_none() => {
                bail!(
                    "cannot connect to {}: a connection goes to one instance (use service:TYPE:INSTANCE)",
                    self.connect
                )
            }
            (listen, connect) if listen.is_service() == connect.is_service() => bail!(
                "cannot proxy {listen} to {connect}: exactly one of them must be a service (service:TYPE:INSTANCE)"
            ),
            _ => Ok(()),
        }
    }

    fn kind(&self) -> SocketKind {
        // The messages of SEQPACKET frame.
        if self.half_close { SocketKind::SeqPacket } else { SocketKind::Stream }
    }
}

/// Runs the proxy until a signal.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Err(usage) = options.check() {
        eprintln!("utipc: {usage}");
        return Ok(ExitCode::from(2));
    }
    utipc_tools::daemon::raise_descriptor_limit();
    let mut builder = if options.threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let threads = usize::try_from(options.threads).context("--threads is out of range (1 to 256)")?;
    let runtime = builder.worker_threads(threads).enable_all().build().context("cannot start threads")?;
    let node = Node::start()?;
    info!("this program is {}", node.describe());
    runtime.block_on(serve(options, &node))?;
    drop(runtime);
    drain(&node);
    Ok(ExitCode::SUCCESS)
}

/// Waits until the peers have received everything: an ending node drops what its links have not delivered.
fn drain(node: &Node) {
    if node.describe().engine != Engine::Embedded {
        return;
    }
    for peer in node.peers().iter().filter(|peer| peer.up) {
        if let Err(error) = utipc_tools::drain::wait(node, 0, peer.addr) {
            warn!("{}", utipc_cli::one_line(&error));
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals(Signal, Signal);

impl Signals {
    fn new() -> Result<Self> {
        let new = |kind| signal(kind).context("cannot handle signals");
        Ok(Self(new(SignalKind::terminate())?, new(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

async fn serve(options: &Options, node: &Node) -> Result<()> {
    let mut signals = Signals::new()?;
    let mut front = Front::new(&options.listen, node, options.kind());
    // A service is not bound before its server is up: clients would see it come and go.
    if !options.listen.is_service() || options.when_down == WhenDown::Wait {
        front.reopen().await?;
    }
    let wait = (options.when_down == WhenDown::Wait).then(|| Duration::from_secs(options.wait));
    let back = Arc::new(Back::new(options.connect.clone(), node.clone(), options.kind(), wait));
    let supervised = Arc::clone(&back);
    let supervisor = tokio::spawn(async move { supervised.supervise().await });
    let is_up = *back.health().borrow();
    info!("{} leads to {}, which is {}", front.address(), options.connect, state(is_up));
    // The service manager, if there is one.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    let mut sessions = JoinSet::new();
    tokio::select! {
        done = accept_all(options, &mut front, &back, &mut sessions) => done?,
        () = signals.next() => {}
    }
    front.close();
    supervisor.abort();
    info!("stops; open connections: {}", sessions.len());
    let grace = Duration::from_secs(options.grace);
    let all = async { while sessions.join_next().await.is_some() {} };
    tokio::select! {
        _ = timeout(grace, all) => {}
        () = signals.next() => {}
    }
    if !sessions.is_empty() {
        warn!("connections closed after {} s or a second signal: {}", options.grace, sessions.len());
    }
    sessions.shutdown().await;
    Ok(())
}

fn state(is_up: bool) -> &'static str {
    if is_up { "up" } else { "not up yet" }
}

/// Accepts clients as long as the program runs.
async fn accept_all(
    options: &Options,
    front: &mut Front,
    back: &Arc<Back>,
    sessions: &mut JoinSet<()>,
) -> Result<()> {
    let mut health = back.health();
    let room = Arc::new(Semaphore::new(options.max_connections as usize));
    let (mut is_full, mut is_open) = (false, None);
    loop {
        if options.when_down == WhenDown::Refuse {
            follow_health(front, &mut health, &mut is_open).await;
        } else {
            log_state(front, true, &mut is_open);
        }
        while sessions.try_join_next().is_some() {}
        if room.available_permits() == 0 && !std::mem::replace(&mut is_full, true) {
            warn!(
                "{} connections are open: further clients wait (--max-connections)",
                options.max_connections
            );
        }
        let permit = Arc::clone(&room).acquire_owned().await.context("no more connections")?;
        is_full &= room.available_permits() == 0;
        let client = tokio::select! {
            client = front.accept() => client,
            changed = health.changed(), if options.when_down == WhenDown::Refuse => {
                changed.context("the supervision of the server has ended")?;
                continue;
            }
        };
        match client {
            Ok(client) => {
                let (back, half_close) = (Arc::clone(back), options.half_close);
                let linger = Duration::from_secs(options.linger);
                sessions.spawn(async move {
                    session::run(client, &back, half_close, linger).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("{}", utipc_cli::one_line(&error));
                recover(front, &error).await;
            }
        }
    }
}

/// Opens the listening socket while the server is up, and closes it while it is not.
async fn follow_health(front: &mut Front, health: &mut watch::Receiver<bool>, is_open: &mut Option<bool>) {
    if !*health.borrow_and_update() {
        front.close();
        log_state(front, false, is_open);
        let _ = health.wait_for(|is_up| *is_up).await;
    }
    reopen(front).await;
    log_state(front, true, is_open);
}

/// Logs the state of the listening socket if it has changed.
fn log_state(front: &Front, now: bool, is_open: &mut Option<bool>) {
    if is_open.replace(now) != Some(now) {
        info!("{} is {}", front.address(), if now { "open" } else { "closed until the server is up" });
    }
}

/// Opens the listening socket, as often as it takes.
async fn reopen(front: &mut Front) {
    let mut is_known = false;
    while let Err(error) = front.reopen().await {
        if !std::mem::replace(&mut is_known, true) {
            warn!("{}", utipc_cli::one_line(&error));
        }
        sleep(PAUSE).await;
    }
}

/// After an error of the listening socket: a service is opened again, because its daemon may have ended. Other errors
/// mean too few descriptors, which become free again.
async fn recover(front: &mut Front, error: &anyhow::Error) {
    sleep(PAUSE).await;
    if error.downcast_ref::<utipc::Error>().is_some() {
        front.close();
        reopen(front).await;
    }
}

impl Client {
    fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}
