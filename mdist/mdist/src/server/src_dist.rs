//! The source distributor: providers above, the backbone below.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rssl::transport::{ClientOptions, ServerOptions};

use crate::backbone::source_side::{Policy, SourceSide};
use crate::cache::FieldTypes;
use crate::config::{Config, OnFull, Posts, SourceServiceSettings};
use crate::dictionaries::{self, Dictionaries};
use crate::hub::{self, Batch, Hub, SideId, UpstreamId};
use crate::metrics::Metrics;
use crate::net::{Now, Poller, SocketOptions};

use super::bus::{Bus, tipc_options};
use super::core::{Core, FIRST_PUBLISHER, FIRST_UPSTREAM, READ};
use super::dialled::{Dialled, Target, taken};
use super::listeners::Listeners;
use super::mend::{Mend, Opener, watch};
use super::p2ps::{component, login};
use super::publishers::{Publishers, Welcome};
use super::running::Running;
use super::shown::Shown;
use super::side::Side;
use super::workers::Workers;

/// The port of publishers.
const PORT: u16 = 14_003;
/// Publishers at a time.
const MAX_PUBLISHERS: u16 = 1024;

/// Starts a source distributor.
///
/// # Errors
/// An address that is taken, a dictionary that cannot be read, no backbone; what is in the text.
pub fn start(config: &Config, metrics: &Metrics, bus: &Bus) -> Result<Running> {
    let settings = &config.src_dist;
    let files = &config.dictionary;
    let dictionary = dictionaries::load(files.fields.as_deref(), files.enums.as_deref())?;
    let poller = Poller::new().context("make a poller")?.busy(config.threads.main.busy_poll);

    let mut dialled = Vec::new();
    for (number, provider) in (0..).zip(&settings.provider) {
        let target = Target {
            kind: "provider",
            hosts: provider.hosts.clone(),
            login: login(&config.login, "src_dist"),
            transport: ClientOptions {
                component: component("src_dist"),
                ping_timeout: settings.ping_timeout_s,
                ..ClientOptions::default()
            },
            socket: SocketOptions { no_delay: settings.tcp_no_delay, ..SocketOptions::default() },
            services: taken(&provider.services, &settings.services),
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

    let (opener, end) = Opener::new(bus, tipc_options(config), Bus::source, poller.waker())?;
    let mut side = SourceSide::new(end, SideId(0), "src_dist");
    if settings.latency_calc.enabled {
        side.measure();
    }
    side.set_policy(None, policy(&settings.defaults));
    for name in settings.service.keys() {
        side.set_policy(Some(name), policy(&settings.service(name)));
    }
    side.directory(&[])?;
    watch(poller.registry(), side.descriptor())?;

    let options = hub::Options {
        hold: Duration::from_millis(settings.close_hold_ms.into()),
        recovery_rate: settings.recovery_rate,
        cache: settings.defaults.cache,
        cache_of: settings.service.iter().filter_map(|(name, s)| Some((name.clone(), s.cache?))).collect(),
        cache_limits: config.cache.limits(),
        max_awaited: settings.max_unpublished as usize,
        posts_to_publishers: settings.posts == Posts::Publisher,
        ..hub::Options::default()
    };
    let socket = SocketOptions { no_delay: settings.tcp_no_delay, ..SocketOptions::default() };
    let listeners = Listeners::open(&settings.listen, PORT, socket, &poller)?;
    let addresses = listeners.addresses()?;
    let welcome = Welcome {
        transport: ServerOptions {
            component: component("src_dist"),
            ping_timeout: (settings.ping_timeout_s.min(20), settings.ping_timeout_s),
            ..ServerOptions::default()
        },
        dictionaries: Arc::new(
            Dictionaries::of(&dictionary, dictionaries::PART).context("encode the dictionary")?,
        ),
    };
    let publishers = Publishers::new(
        u16::try_from(dialled.len()).unwrap_or(u16::MAX),
        MAX_PUBLISHERS,
        FIRST_PUBLISHER,
        welcome,
        settings.services.clone(),
        poller.registry().clone(),
        metrics.clone(),
    );
    let core = Core {
        registry: poller.registry().clone(),
        mend: Mend { sources: Some(opener), ..Mend::default() },
        hub: Hub::new(options, FieldTypes::new(Arc::new(dictionary.fields))),
        batch: Batch { timed: settings.latency_calc.enabled, ..Batch::default() },
        dialled,
        publishers: Some(publishers),
        sources: None,
        listeners,
        side: Side::Backbone(Box::new(side)),
        workers: Workers::default(),
        asks: Vec::new(),
        look_at_backbone: Now::ZERO,
        buffer: vec![0; READ],
        looks_again: Now::ZERO,
        shown: Shown::new(metrics, "src_dist", true, false).measuring(settings.latency_calc),
    };
    Running::start(core, poller, None, addresses, &config.threads)
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
