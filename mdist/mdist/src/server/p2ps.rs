//! The point-to-point server: consumers below; providers, other servers or the backbone above.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::Result;
use rssl::transport::{Compression, ServerOptions};

use crate::backbone::sink_side::SinkSide;
use crate::config::{self, Config, P2ps, UpstreamKind};
use crate::dictionaries::Dictionaries;
use crate::hub::{self, SideId, UpstreamId};
use crate::metrics::Metrics;
use crate::mounts::{self, AllowAll, Limits, Shared, Worker};
use crate::net::{Registry, Role, SocketOptions};

use super::assembly::{Assembly, Parts, accepted_services, open_poller};
use super::backbone::Backbone;
use super::clients::{Clients, Writes};
use super::connector::Target;
use super::feed_thread::FeedsToRead;
use super::hub_metrics::HubMetrics;
use super::identity::component;
use super::reconnect::{Opener, Reconnect, watch};
use super::running::Running;
use super::side::Side;
use super::upstreams::Upstreams;
use super::workers::Workers;

/// Default port of the listeners for consumers.
const PORT: u16 = 14_002;

/// Maximum number of sources on the backbone at a time.
const MAX_SOURCES: u16 = 256;
/// Packets of feeds that are read in a row, unless configured for a service.
const READ_BIAS: u32 = 8;

/// Bytes of output above which a mount is written without waiting for the flush timer.
const FULL: usize = 64 * 1024;

/// Starts a point-to-point server.
///
/// # Errors
/// An address that is taken, a dictionary that cannot be read, no backbone, or a thread that the system refuses; the
/// error names it.
pub fn start(config: &Config, metrics: &Metrics, backbone: &Backbone) -> Result<Running> {
    let settings = &config.p2ps;
    let assembly = Assembly::new("p2ps", config, metrics, settings.max_fragment)?;
    let mut listeners = assembly.listen(&settings.listen, PORT, client_socket(settings))?;
    listeners.allow(settings.admission.networks(), "p2ps.admission.allow", "read all data");
    if settings.posts {
        tracing::warn!("consumers may post to sources (p2ps.posts = true)");
    } else {
        tracing::info!("posts of consumers are refused (p2ps.posts = false)");
    }
    let connectors = assembly.connect(&listeners, upstreams(settings, &assembly))?;
    let mounts = Mounts::new(settings, &assembly)?;
    let (workers, threads) = mounts.workers(&assembly)?;
    let mut parts = Parts {
        hub: hub_options(config),
        timed: settings.latency_calc.enabled,
        listeners,
        upstreams: Upstreams::new(connectors, None),
        feeds: None,
        side: Side::Mounts(Box::new(mounts.clients(0, assembly.registry()))),
        workers,
        reconnect: Reconnect::default(),
        hub_metrics: HubMetrics::new(metrics, "p2ps", false, reads_backbone(settings)),
    };
    if reads_backbone(settings) {
        open_sources(&assembly, backbone, &mut parts)?;
    }
    let mut running = assembly.run(parts)?;
    for (number, body) in threads {
        running.spawn(Role::Mounts(number), &config.threads.mounts(number), body)?;
    }
    Ok(running)
}

/// The providers and other servers to connect to.
fn upstreams<'a>(settings: &'a P2ps, assembly: &'a Assembly<'_>) -> impl Iterator<Item = Target> + 'a {
    settings.upstream.iter().filter(|u| u.kind != UpstreamKind::Backbone).map(move |upstream| {
        let kind = if upstream.kind == UpstreamKind::P2ps { "p2ps" } else { "provider" };
        assembly.target(kind, &upstream.hosts, accepted_services(&upstream.services, &settings.services))
    })
}

fn reads_backbone(settings: &P2ps) -> bool {
    settings.upstream.is_empty() || settings.upstream.iter().any(|u| u.kind == UpstreamKind::Backbone)
}

/// Adds the backbone's sources to `parts`, as upstreams after the connectors.
fn open_sources(assembly: &Assembly<'_>, backbone: &Backbone, parts: &mut Parts) -> Result<()> {
    let Config { p2ps: settings, backbone: limits, .. } = assembly.config;
    let first = UpstreamId(u16::try_from(parts.upstreams.connectors.len()).unwrap_or(u16::MAX));
    let (opener, end) = Opener::new(backbone, |carrier| carrier.open_sink(), assembly.poller.waker())?;
    let mut sources = SinkSide::new(end, first, MAX_SOURCES, "p2ps");
    sources.accept_only(services_of_backbone(settings));
    sources.set_history((limits.history_mib as usize) << 20);
    let bias = settings.service.keys().map(|name| settings.read_bias(name)).max().unwrap_or(READ_BIAS);
    let (to, from) = channel();
    if let Some(feeds) = sources.feeds() {
        // Cannot fail: the receiver is in scope.
        let _ = to.send(feeds);
    }
    parts.reconnect = Reconnect { sink_end: Some(opener), feeds: Some(to), ..Reconnect::default() };
    parts.feeds = Some(FeedsToRead { endpoints: from, in_a_row: bias as usize });
    watch(assembly.poller.registry(), sources.descriptor())?;
    parts.upstreams.sources = Some(sources);
    Ok(())
}

/// The services to accept from the backbone, by name; empty: all.
fn services_of_backbone(settings: &P2ps) -> Vec<String> {
    let backbone = settings.upstream.iter().find(|u| u.kind == UpstreamKind::Backbone);
    accepted_services(backbone.map_or(&[], |own| &own.services), &settings.services)
}

/// Threads that serve mounts, the main thread included; `configured` 0: one per core.
fn mount_threads(configured: u16) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if configured == 0 { u16::try_from(cores).unwrap_or(u16::MAX) } else { configured }
}

/// The parts that all workers of a server share.
struct Mounts {
    config: Arc<mounts::Config>,
    shared: Arc<Shared>,
    dictionaries: Arc<Dictionaries>,
    writes: Writes,
    metrics: Metrics,
    threads: u16,
}

impl Mounts {
    fn new(settings: &P2ps, assembly: &Assembly<'_>) -> Result<Self> {
        let (config, threads) = (mounts_config(settings), mount_threads(settings.workers));
        Ok(Self {
            dictionaries: assembly.given_out.clone(),
            config: Arc::new(mounts::Config { pending: config.pending.share(threads), ..config }),
            shared: Arc::new(Shared::new(settings.pool_size as usize)),
            writes: settings
                .flush_timer()
                .map_or(Writes::AtOnce, |every| Writes::Timed { every, full: FULL }),
            metrics: assembly.metrics.clone(),
            threads,
        })
    }

    fn clients(&self, number: u16, registry: Registry) -> Clients {
        let worker = Worker::new(
            SideId(number),
            self.config.clone(),
            self.shared.clone(),
            self.dictionaries.clone(),
            Box::new(AllowAll),
        );
        Clients::new(number, worker, registry, self.writes, self.metrics.clone())
    }

    /// The workers besides the main thread, and the body of each one's thread by its number.
    #[expect(clippy::type_complexity, reason = "the bodies' type has no name")]
    fn workers(
        &self,
        assembly: &Assembly<'_>,
    ) -> Result<(Workers, Vec<(u16, impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static + use<>)>)> {
        let mut workers = Workers::default();
        let mut bodies = Vec::new();
        for number in 1..self.threads {
            let poller = open_poller(assembly.config.threads.mounts(number).busy_poll)?;
            let clients = self.clients(number, poller.registry().clone());
            bodies.push((number, workers.add(clients, poller, assembly.poller.waker())));
        }
        Ok((workers, bodies))
    }
}

/// Options of the consumers' sockets.
fn client_socket(settings: &P2ps) -> SocketOptions {
    let kib = |size: Option<u32>| size.map(|size| size as usize * 1024);
    SocketOptions {
        no_delay: settings.tcp_no_delay,
        receive_buffer: kib(settings.receive_buffer_kib),
        send_buffer: kib(settings.send_buffer_kib),
    }
}

fn mounts_config(settings: &P2ps) -> mounts::Config {
    let compression = match settings.compression {
        config::Compression::None => Vec::new(),
        config::Compression::Zlib => vec![Compression::Zlib],
        config::Compression::Lz4 => vec![Compression::Lz4],
    };
    let defaults = mounts::Config::default();
    mounts::Config {
        transport: ServerOptions {
            ping_timeout: (settings.min_ping_timeout_s, settings.ping_timeout_s),
            max_fragment: settings.max_fragment,
            compression,
            component: component("p2ps"),
            ..ServerOptions::default()
        },
        output: Limits {
            guaranteed: settings.guaranteed_output_buffers as usize,
            max: settings.max_output_buffers as usize,
        },
        max_mounts: settings.max_mounts,
        open_limit: settings.open_limit.unwrap_or(defaults.open_limit),
        open_bytes: (settings.open_kib as usize) << 10,
        open_bytes_total: (settings.open_total_mib as usize) << 20,
        posts: settings.posts,
        mounts_per_user: settings.login_limits().per_user,
        mounts_per_address: settings.login_limits().per_address,
        mounts_per_user_and_address: settings.login_limits().per_user_and_address,
        pending: settings.admission.pending(),
        login_timeout: settings.admission.login_timeout(),
        open_window: settings.open_window.unwrap_or(defaults.open_window),
        latency: settings.latency_calc.enabled.then_some(settings.latency_calc.per_connection),
        ..defaults
    }
}

fn hub_options(config: &Config) -> hub::Options {
    let settings = &config.p2ps;
    hub::Options {
        hold: Duration::from_millis(settings.close_hold_ms.into()),
        recovery_rate: settings.recovery_rate,
        cache: settings.cache,
        cache_of: settings.service.iter().filter_map(|(name, s)| Some((name.clone(), s.cache?))).collect(),
        cache_limits: config.cache.limits(),
        cache_budget: config.cache.budget(),
        ..hub::Options::default()
    }
}
