//! `utipcd`: a node for the programs of this host.

mod build;
mod faults;
mod file;
mod identity;
mod keys;
mod life;
mod metrics;
mod namesake;
mod parse;
mod rules;
mod sandbox;
mod settings;
mod state;
mod system;
mod users;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use utipc::NodeId;
use utipc::daemon::{Daemon, DaemonConfig, Heap, Key, KeyUse, Policy};

use faults::Fault;
pub(crate) use faults::Faults;
use file::{File, Local};
pub use life::raise_descriptor_limit;
use life::{Log, Signal, Stage};
use metrics::Monitoring;
use settings::Settings;
use users::Account;
use utipc_cli::log;

/// Messages that wait in the daemon lie in memory of their users.
#[global_allocator]
static HEAP: Heap = Heap;

/// User of `--sandbox` if root starts it without `node.user`; the unit file and sysusers.d have the same.
const SANDBOX_USER: &str = "utipc";

/// Default mode of the socket of a daemon in the group [`users::GROUP`].
const GROUP_MODE: u32 = 0o660;

/// Options of the daemon.
#[derive(Debug, Args)]
pub struct Options {
    /// Configuration file [default: none; the daemon then serves the programs of this host]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Join a cluster by UDP multicast from this IP address of the host, port 6118 unless given; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    udp: Vec<Local>,
    /// Join a cluster over this Ethernet interface (needs CAP_NET_RAW); may be repeated
    #[arg(long, value_name = "DEVICE")]
    ethernet: Vec<String>,
    /// Number of the cluster [default: 4711]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=9999))]
    cluster: Option<u32>,
    /// Identity of the node, up to 16 characters [default: the name of the host]
    #[arg(long, value_name = "NAME", value_parser = identity_of)]
    identity: Option<String>,
    /// Name of this daemon, if several run side by side, each with its own node
    #[arg(long, value_name = "NAME", env = "UTIPC_INSTANCE", default_value = "default", value_parser = instance_of)]
    instance: String,
    /// Path of the socket that programs attach to
    #[arg(long, value_name = "PATH", env = "UTIPC_SOCKET")]
    socket: Option<PathBuf>,
    /// Run with as few rights as possible: own user, only CAP_NET_RAW, filter of system calls, limits
    #[arg(long)]
    sandbox: bool,
    /// Serve metrics and the web page at this address and port, or at this port of 127.0.0.1 [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Only check what a start would check, without an effect, and report each fault with file and line
    #[arg(long)]
    check: bool,
}

fn identity_of(text: &str) -> Result<String, String> {
    identity::check(text).map(|()| text.to_owned())
}

fn instance_of(text: &str) -> Result<String, String> {
    // An empty variable counts as not set.
    let name = if text.is_empty() { "default" } else { text };
    build::check_instance(name).map(|()| name.to_owned())
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The configuration is invalid, or the system refuses something.
pub fn run(options: &Options) -> Result<()> {
    // Before the first thread: the function removes variables of the environment.
    let passed = if options.check { None } else { life::passed_socket()? };
    let settings = Settings::read(options, passed.as_ref().map(|doorway| doorway.path()))?;
    if options.check {
        return check(&settings);
    }
    let log = Log::start(settings.file.log.level.as_deref())?;
    let mut signals = life::Signals::new()?;
    life::raise_descriptor_limit();
    let mut config = settings.config()?;
    if passed.is_none() {
        settings.check_place()?;
    }
    config.passed = passed;
    let _kept = keep_identity(options, &settings, &mut config);
    build::open(&mut config, &settings.file).map_err(|fault| settings.source.faults(&[fault]))?;
    let port = metrics::Port::open(&settings.file.metrics)?;
    let place = config.passed.is_none().then_some(config.socket.as_path());
    give_up_rights(options, &settings.file, place)?;
    if settings.file.policy.socket_mode.is_none() && users::has_own_group() {
        config.socket_mode = GROUP_MODE;
    }
    let (what, identity) = (served(&config), config.node.stack.identity);
    let has_network = !config.node.bearers.is_empty();
    let keys = config.node.keys.clone();
    let daemon = Daemon::start(config).context("cannot start the daemon")?;
    tracing::info!(socket = %daemon.socket().display(), "programs may attach: {what}");
    let begun = Instant::now();
    let monitoring = port.map(|port| Monitoring::start(port, daemon.meter())).transpose()?;
    life::notify(Stage::Ready);
    life::feed_watchdog(daemon.pulse())?;
    let mut running = Running { daemon: &daemon, file: settings.file, keys };
    let watch = namesake::Watch::default();
    std::thread::scope(|scope| {
        if let Some(identity) = identity.filter(|_| has_network) {
            watch.start(scope, &daemon, identity)?;
        }
        let ended = running.until_end(options, &log, &mut signals);
        watch.end();
        ended
    })?;
    life::notify(Stage::Stopping);
    tracing::info!("stopping after {}", life::balance(begun.elapsed(), &daemon.counters()));
    drop(monitoring);
    daemon.stop();
    Ok(())
}

/// Reports every fault that a start would meet.
fn check(settings: &Settings) -> Result<()> {
    log::filter_of_environment().map_err(|why| anyhow::anyhow!(why))?;
    let runs = system::is_served(&settings.socket);
    let mut faults: Vec<Fault> = system::place(&settings.socket).into_iter().collect();
    faults.extend(system::keys(&settings.file));
    faults.extend(system::bearers(&settings.file.bearer, build::cluster(&settings.file), !runs));
    if !faults.is_empty() {
        bail!(settings.source.faults(&faults));
    }
    settings.config()?;
    println!("utipcd: the configuration is valid");
    let sources = *Policy::RESERVED.start();
    let announcers = users::list(build::policy(&settings.file.policy)?.binders(sources));
    println!(
        "utipcd: sources of market data (service type {sources}, policy.bind) may be announced by {announcers}"
    );
    if runs {
        println!(
            "utipcd: a daemon serves at {} now, so whether the ports are free was not checked",
            settings.socket.display()
        );
    }
    Ok(())
}

/// What the daemon will serve, for its log.
fn served(config: &DaemonConfig) -> String {
    let stack = &config.node.stack;
    let name = match (stack.identity, stack.address) {
        (Some(identity), _) => format!("node \"{identity}\""),
        (None, Some(address)) => format!("node {address}"),
        (None, None) => "a node".to_owned(),
    };
    let bearers: Vec<String> = config.node.bearers.iter().map(|plan| plan.bearer.description()).collect();
    let network = if bearers.is_empty() { "no network".to_owned() } else { bearers.join("; ") };
    format!("{name} of cluster {}, {network}", stack.cluster.0)
}

/// Gives the node its identity, unless the configuration has one: the identity of its last start, if a state file has
/// it; else the name of the host; else a random one, which a state file keeps.
fn keep_identity(options: &Options, settings: &Settings, config: &mut DaemonConfig) -> Option<state::Kept> {
    let stack = &mut config.node.stack;
    if stack.identity.is_some() || stack.address.is_some() {
        return None;
    }
    let folder = match &settings.file.node.state {
        // The configuration asks for a new node at each start.
        Some(folder) if folder.as_os_str().is_empty() => return None,
        Some(folder) => Some(folder.clone()),
        None => state::usual_folder(settings.is_elsewhere),
    };
    let is_kept = folder.as_deref().is_some_and(|folder| state::exists(folder, &options.instance));
    if let Some(identity) = settings.identity_by_host().filter(|_| !is_kept) {
        stack.identity = Some(NodeId::from_text(&identity));
        return None;
    }
    state::restore(&mut config.node, &folder?, &options.instance)
}

/// Becomes the user of the configuration, before the first program attaches and before the daemon starts threads.
/// The socket is at `place`, unless the service manager has passed it.
fn give_up_rights(options: &Options, file: &File, place: Option<&Path>) -> Result<()> {
    let is_root = nix::unistd::geteuid().is_root();
    let usual = Some(SANDBOX_USER).filter(|_| options.sandbox && is_root);
    let account = file.node.user.as_deref().or(usual).map(Account::find).transpose()?;
    let account = account.filter(|account| account.uid() != nix::unistd::geteuid().as_raw());
    if let (Some(account), Some(socket)) = (&account, place) {
        account.hand_over_place(socket)?;
    }
    match (&account, options.sandbox) {
        (account, true) => sandbox::enter(account.as_ref())?,
        (Some(account), false) => account.become_it()?,
        (None, false) => {}
    }
    if let (true, Some(socket)) = (account.is_some(), place) {
        users::check_place(socket)?;
    }
    Ok(())
}

/// A daemon in this process, at its own path, which serves until it is stopped.
///
/// # Errors
/// As [`run`].
pub fn private(config: Option<&Path>, socket: &Path) -> Result<Daemon> {
    let (source, file) = File::read(config)?;
    let settings = Settings::complete(source, file, socket.to_owned(), "private", true)?;
    let mut config = settings.config()?;
    build::open(&mut config, &settings.file).map_err(|fault| settings.source.faults(&[fault]))?;
    Daemon::start(config).context("cannot start a daemon for the program")
}

/// A daemon and its present configuration.
struct Running<'a> {
    daemon: &'a Daemon,
    file: File,
    /// The keys that its key files had when they were last read.
    keys: Vec<(KeyUse, Key)>,
}

impl Running<'_> {
    /// Handles signals until one of them ends the daemon.
    fn until_end(&mut self, options: &Options, log: &Log, signals: &mut life::Signals) -> Result<()> {
        loop {
            match signals.next() {
                Signal::End => return Ok(()),
                Signal::Reload => {
                    life::notify(Stage::Reloading);
                    // The old configuration stays in force: a typing error must not stop a node.
                    if let Err(error) = self.reload(options, log) {
                        tracing::error!("configuration not reloaded: {error:#}");
                    }
                    life::notify(Stage::Ready);
                }
                Signal::Count => {
                    tracing::info!("counters: {}", serde_json::to_string(&self.daemon.counters())?)
                }
            }
        }
    }

    /// Applies keys that can change while the daemon runs; the error names keys that cannot.
    fn reload(&mut self, options: &Options, log: &Log) -> Result<()> {
        let Settings { source, file: new, .. } = Settings::read(options, None)?;
        let fixed = self.file.fixed_difference(&new);
        if !fixed.is_empty() {
            bail!("{} cannot change while the daemon runs (restart it)", fixed.join(", "));
        }
        let keys = build::keys(&new).map_err(|fault| source.faults(&[fault]))?;
        let (policy, limits) = (build::policy(&new.policy)?, build::limits(&new.limits));
        log.set(new.log.level.as_deref())?;
        self.daemon.change(policy, limits);
        self.file = new;
        self.introduce(keys)?;
        tracing::info!("configuration reloaded");
        Ok(())
    }

    /// Introduces the keys of key files that have changed.
    fn introduce(&mut self, keys: Vec<(KeyUse, Key)>) -> Result<()> {
        for (key_use, key) in keys.iter().filter(|key| !self.keys.contains(key)).cloned() {
            let set = self.daemon.with(move |stack, now| stack.set_key(now, key_use, key));
            set.transpose().context("cannot introduce the new key")?;
            tracing::info!(
                "a key file has changed: its key is introduced (`utipc node get key` shows its state)"
            );
        }
        self.keys = keys;
        Ok(())
    }
}
