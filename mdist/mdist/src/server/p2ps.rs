//! The point-to-point server: consumers below, providers, other servers or the backbone above.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rssl::dictionary::Dictionary;
use rssl::transport::{ClientOptions, Compression, ServerOptions};

use crate::backbone::sink_side::SinkSide;
use crate::cache::FieldTypes;
use crate::config::{self, Config, UpstreamKind};
use crate::dictionaries::{self, Dictionaries};
use crate::hub::{self, Batch, Hub, SideId, UpstreamId};
use crate::metrics::Metrics;
use crate::mounts::{self, AllowAll, Limits, Shared, Worker};
use crate::net::{Now, Poller, Registry, Role, SocketOptions};
use crate::upstream::Login;

use super::bus::{Bus, tipc_options};
use super::clients::{Clients, Writes};
use super::core::{Core, FIRST_UPSTREAM, READ};
use super::dialled::{Dialled, Target, taken};
use super::listeners::Listeners;
use super::mend::{Mend, Opener, watch};
use super::running::Running;
use super::shown::Shown;
use super::side::Side;
use super::workers::Workers;

/// The port of consumers.
const PORT: u16 = 14_002;

/// Sources on the backbone at a time.
const MAX_SOURCES: u16 = 256;
/// Packets of feeds that are read in a row, unless a service says otherwise.
const READ_BIAS: u32 = 8;

/// Bytes of output that do not wait for the timer.
const FULL: usize = 64 * 1024;

/// Starts a point-to-point server.
///
/// # Errors
/// An address that is taken, a dictionary that cannot be read, or the system's refusal of a thread; what is in the text.
pub fn start(config: &Config, metrics: &Metrics, bus: &Bus) -> Result<Running> {
    let settings = &config.p2ps;
    let files = &config.dictionary;
    let dictionary = dictionaries::load(files.fields.as_deref(), files.enums.as_deref())?;
    let poller = Poller::new().context("make a poller")?.busy(config.threads.main.busy_poll);

    let socket = client_socket(settings);
    let listeners = Listeners::open(&settings.listen, PORT, socket, &poller)?;
    let addresses = listeners.addresses()?;

    let mut dialled = Vec::new();
    for (number, upstream) in (0..).zip(settings.upstream.iter().filter(|u| u.kind != UpstreamKind::Backbone))
    {
        let target = Target {
            kind: if upstream.kind == UpstreamKind::P2ps { "p2ps" } else { "provider" },
            hosts: upstream.hosts.clone(),
            login: login(&config.login, "p2ps"),
            transport: ClientOptions { component: component("p2ps"), ..ClientOptions::default() },
            socket: SocketOptions::default(),
            services: taken(&upstream.services, &settings.services),
        };
        let token = FIRST_UPSTREAM + u64::from(number);
        dialled.push(Dialled::new(
            UpstreamId(number),
            token,
            target,
            poller.registry().clone(),
            metrics.clone(),
        ));
    }

    let mounts = Mounts::new(settings, &dictionary, metrics)?;
    let mut workers = Workers::default();
    let mut bodies = Vec::new();
    for number in 1..threads(settings.workers) {
        let busy = config.threads.mounts(number).busy_poll;
        let poller_of_worker = Poller::new().context("make a poller")?.busy(busy);
        let clients = mounts.clients(number, poller_of_worker.registry().clone());
        bodies.push((number, workers.add(clients, poller_of_worker, poller.waker())));
    }
    let clients = mounts.clients(0, poller.registry().clone());

    let (mut sources, mut feeds, mut mend) = (None, None, Mend::default());
    if settings.upstream.is_empty() || settings.upstream.iter().any(|u| u.kind == UpstreamKind::Backbone) {
        let first = UpstreamId(u16::try_from(dialled.len()).unwrap_or(u16::MAX));
        let (opener, end) = Opener::new(bus, tipc_options(config), Bus::sink, poller.waker())?;
        let mut side = SinkSide::new(end, first, MAX_SOURCES, "p2ps");
        side.take_only(from_backbone(settings));
        side.set_history((config.backbone.history_mib as usize) << 20);
        let bias = settings.service.keys().map(|name| settings.read_bias(name)).max().unwrap_or(READ_BIAS);
        let (to, from) = channel();
        if let Some(feeds) = side.feeds() {
            // The other half is below.
            let _ = to.send(feeds);
        }
        (mend.sinks, mend.feeds) = (Some(opener), Some(to));
        feeds = Some((from, bias as usize));
        watch(poller.registry(), side.descriptor())?;
        sources = Some(side);
    }
    let shown = Shown::new(metrics, "p2ps", false, sources.is_some());
    let core = Core {
        registry: poller.registry().clone(),
        mend,
        hub: Hub::new(hub_options(config), FieldTypes::new(Arc::new(dictionary.fields))),
        batch: Batch { timed: settings.latency_calc.enabled, ..Batch::default() },
        dialled,
        publishers: None,
        sources,
        listeners,
        side: Side::Mounts(Box::new(clients)),
        workers,
        asks: Vec::new(),
        look_at_backbone: Now::ZERO,
        buffer: vec![0; READ],
        looks_again: Now::ZERO,
        shown,
    };
    let mut running = Running::start(core, poller, feeds, addresses, &config.threads)?;
    for (number, body) in bodies {
        running.spawn(Role::Mounts(number), &config.threads.mounts(number), body)?;
    }
    Ok(running)
}

/// The services that are taken from the backbone, by name; none: all.
fn from_backbone(settings: &config::P2ps) -> Vec<String> {
    let backbone = settings.upstream.iter().find(|u| u.kind == UpstreamKind::Backbone);
    taken(backbone.map_or(&[], |own| &own.services), &settings.services)
}

/// How many threads serve mounts; the main thread is the first of them.
fn threads(wanted: u16) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if wanted == 0 { u16::try_from(cores).unwrap_or(u16::MAX) } else { wanted }
}

/// What the workers of one server have in common.
struct Mounts {
    config: Arc<mounts::Config>,
    shared: Arc<Shared>,
    dictionaries: Arc<Dictionaries>,
    writes: Writes,
    metrics: Metrics,
}

impl Mounts {
    fn new(settings: &config::P2ps, dictionary: &Dictionary, metrics: &Metrics) -> Result<Self> {
        let config = mounts_config(settings);
        let dictionaries =
            Dictionaries::of(dictionary, config.dictionary_part).context("encode the dictionary")?;
        Ok(Self {
            dictionaries: Arc::new(dictionaries),
            config: Arc::new(config),
            shared: Arc::new(Shared::new(settings.pool_size as usize)),
            writes: settings
                .flush_timer()
                .map_or(Writes::AtOnce, |every| Writes::Timed { every, full: FULL }),
            metrics: metrics.clone(),
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
}

/// What consumers' sockets are set to.
fn client_socket(settings: &config::P2ps) -> SocketOptions {
    let kib = |size: Option<u32>| size.map(|size| size as usize * 1024);
    SocketOptions {
        no_delay: settings.tcp_no_delay,
        receive_buffer: kib(settings.receive_buffer_kib),
        send_buffer: kib(settings.send_buffer_kib),
    }
}

fn mounts_config(settings: &config::P2ps) -> mounts::Config {
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
        ..hub::Options::default()
    }
}

/// How a program logs in upstream.
pub(super) fn login(settings: &config::Login, program: &str) -> Login {
    let position = settings.position.clone().unwrap_or_else(|| {
        let name = rustix::system::uname();
        format!("127.0.0.1/{}", name.nodename().to_string_lossy())
    });
    Login {
        user: settings.user.clone(),
        application_id: settings.application_id.clone(),
        application: settings.application_name.clone().unwrap_or_else(|| program.into()),
        position,
    }
}

/// How a program names itself in handshakes.
pub(super) fn component(program: &str) -> String {
    format!("mdist {program} {}", env!("CARGO_PKG_VERSION"))
}
