//! The source distributor: publishers above, the backbone below.

use std::time::Duration;

use anyhow::Result;
use rssl::transport::{ClientOptions, MAX_FRAGMENT, ServerOptions};

use crate::backbone::SourceEnd;
use crate::backbone::source_side::{Policy, SourceSide};
use crate::config::{Config, OnFull, Posts, SourceServiceSettings, SrcDist};
use crate::hub::{self, SideId};
use crate::metrics::Metrics;
use crate::net::SocketOptions;

use super::assembly::{Assembly, Parts, accepted_services};
use super::backbone::Backbone;
use super::connector::Target;
use super::hub_metrics::HubMetrics;
use super::identity::component;
use super::publishers::{Acceptance, Publishers};
use super::reconnect::{Opener, Reconnect, watch};
use super::running::Running;
use super::side::Side;
use super::upstreams::Upstreams;
use super::workers::Workers;

/// Default port of the listeners for publishers.
const PORT: u16 = 14_003;
/// Maximum number of publishers that are connected at a time.
const MAX_PUBLISHERS: u16 = 1024;

/// Starts a source distributor.
///
/// # Errors
/// An address that is taken, a dictionary that cannot be read, no backbone, or a thread that the system refuses; the
/// error names it.
pub fn start(config: &Config, metrics: &Metrics, backbone: &Backbone) -> Result<Running> {
    let settings = &config.src_dist;
    let assembly = Assembly::new("src_dist", config, metrics, MAX_FRAGMENT)?;
    let mut listeners = assembly.listen(&settings.listen, PORT, socket(settings))?;
    let connectors = assembly.connect(&listeners, providers(settings, &assembly))?;
    let (opener, end) = Opener::new(backbone, |carrier| carrier.open_source(), assembly.poller.waker())?;
    let side = source_side(settings, end)?;
    watch(assembly.poller.registry(), side.descriptor())?;
    listeners.allow(settings.admission.networks(), "src-dist.admission.allow", "publish data");
    log_posts(settings.posts);
    let first_publisher = u16::try_from(connectors.len()).unwrap_or(u16::MAX);
    let publishers = Publishers::new(
        first_publisher,
        MAX_PUBLISHERS,
        acceptance(settings, &assembly)?,
        assembly.registry(),
        metrics.clone(),
    );
    assembly.run(Parts {
        hub: hub_options(config),
        timed: settings.latency_calc.enabled,
        listeners,
        upstreams: Upstreams::new(connectors, Some(publishers)),
        feeds: None,
        side: Side::Backbone(Box::new(side)),
        workers: Workers::default(),
        reconnect: Reconnect { source_end: Some(opener), ..Reconnect::default() },
        hub_metrics: HubMetrics::new(metrics, "src_dist", true, false)
            .with_latency_per_server(settings.latency_calc.per_connection),
    })
}

/// Logs what happens to posts.
fn log_posts(posts: Posts) {
    match posts {
        Posts::Refuse => tracing::info!("posts for items of publishers are refused (src-dist.posts)"),
        Posts::Cache => {
            tracing::warn!(
                "consumers may overwrite items of publishers for everyone (src-dist.posts = \"cache\")"
            )
        }
        Posts::Publisher => {
            tracing::warn!("consumers may post to publishers (src-dist.posts = \"publisher\")")
        }
    }
}

/// The interactive providers to connect to.
fn providers<'a>(settings: &'a SrcDist, assembly: &'a Assembly<'_>) -> impl Iterator<Item = Target> + 'a {
    settings.provider.iter().map(move |provider| {
        let services = accepted_services(&provider.services, &settings.services);
        let target = assembly.target("provider", &provider.hosts, services);
        let transport = ClientOptions { ping_timeout: settings.ping_timeout_s, ..target.transport };
        Target { transport, socket: socket(settings), ..target }
    })
}

/// The hub's side on the backbone; it announces no services yet.
fn source_side(settings: &SrcDist, end: Option<Box<dyn SourceEnd>>) -> Result<SourceSide> {
    let mut side = SourceSide::new(end, SideId(0), "src_dist");
    if settings.latency_calc.enabled {
        side.measure();
    }
    side.set_policy(None, policy(&settings.defaults));
    for name in settings.service.keys() {
        side.set_policy(Some(name), policy(&settings.service(name)));
    }
    side.set_stall((settings.stall_mib as usize) << 20);
    side.directory(&[])?;
    Ok(side)
}

/// The terms for publishers that connect here.
fn acceptance(settings: &SrcDist, assembly: &Assembly<'_>) -> Result<Acceptance> {
    Ok(Acceptance {
        transport: ServerOptions {
            component: component("src_dist"),
            max_fragment: MAX_FRAGMENT,
            ping_timeout: (settings.ping_timeout_s.min(20), settings.ping_timeout_s),
            ..ServerOptions::default()
        },
        dictionaries: assembly.given_out.clone(),
        services: settings.services.clone().into(),
        pending: settings.admission.pending(),
        login_timeout: settings.admission.login_timeout(),
    })
}

fn socket(settings: &SrcDist) -> SocketOptions {
    SocketOptions { no_delay: settings.tcp_no_delay, ..SocketOptions::default() }
}

fn hub_options(config: &Config) -> hub::Options {
    let settings = &config.src_dist;
    hub::Options {
        hold: Duration::from_millis(settings.close_hold_ms.into()),
        recovery_rate: settings.recovery_rate,
        cache: settings.defaults.cache,
        cache_of: settings.service.iter().filter_map(|(name, s)| Some((name.clone(), s.cache?))).collect(),
        cache_limits: config.cache.limits(),
        cache_budget: config.cache.budget(),
        max_awaited: settings.max_unpublished as usize,
        posts: match settings.posts {
            Posts::Refuse => hub::Posts::Refuse,
            Posts::Cache => hub::Posts::Cache,
            Posts::Publisher => hub::Posts::Publisher,
        },
        ..hub::Options::default()
    }
}

fn policy(settings: &SourceServiceSettings) -> Policy {
    let hold = match settings.on_full {
        OnFull::Hold => Duration::from_millis(settings.hold_ms.into()),
        OnFull::Cut => Duration::ZERO,
    };
    Policy {
        hold,
        window: u64::from(settings.window_kib) << 10,
        flush: Duration::from_millis(settings.flush_interval_ms.into()),
    }
}
