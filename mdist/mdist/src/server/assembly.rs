//! Assembles the parts of a program: the common code of `p2ps` and `src_dist` before they run.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rssl::dictionary::Dictionary;
use rssl::transport::ClientOptions;

use crate::cache::FieldTypes;
use crate::config::Config;
use crate::dictionaries::{self, Dictionaries};
use crate::hub::{self, Batch, Hub, UpstreamId};
use crate::metrics::Metrics;
use crate::net::{Now, Poller, Registry, SocketOptions, reaches, resolve};

use super::connector::{Connector, Target};
use super::driver::Driver;
use super::feed_thread::FeedsToRead;
use super::hub_log::HubLog;
use super::hub_metrics::HubMetrics;
use super::identity::{component, login};
use super::known_dictionary::KnownDictionary;
use super::listeners::Listeners;
use super::reconnect::Reconnect;
use super::running::Running;
use super::side::Side;
use super::turns::TurnMeter;
use super::upstreams::Upstreams;
use super::workers::Workers;

/// A program under construction: its settings, dictionary and main poller.
pub(super) struct Assembly<'a> {
    pub(super) program: &'static str,
    pub(super) config: &'a Config,
    pub(super) metrics: &'a Metrics,
    pub(super) dictionary: Dictionary,
    /// The dictionary, encoded for consumers and publishers.
    pub(super) given_out: Arc<Dictionaries>,
    pub(super) poller: Poller,
}

/// The parts in which the programs differ.
pub(super) struct Parts {
    pub(super) hub: hub::Options,
    /// Whether reads are stamped with the time, for latency statistics.
    pub(super) timed: bool,
    pub(super) listeners: Listeners,
    pub(super) upstreams: Upstreams,
    /// The feeds of the backbone, if that is upstream.
    pub(super) feeds: Option<FeedsToRead>,
    pub(super) side: Side,
    pub(super) workers: Workers,
    pub(super) reconnect: Reconnect,
    pub(super) hub_metrics: HubMetrics,
}

impl<'a> Assembly<'a> {
    /// Reads the dictionary and opens the main poller. `max_message` is the largest frame payload of the connections
    /// that get the dictionary, bytes.
    ///
    /// # Errors
    /// A dictionary that cannot be read or has a text too long for the wire, or no descriptor for the poller.
    pub(super) fn new(
        program: &'static str,
        config: &'a Config,
        metrics: &'a Metrics,
        max_message: u16,
    ) -> Result<Self> {
        let files = &config.dictionary;
        let dictionary = dictionaries::load(files.fields.as_deref(), files.enums.as_deref())?;
        let given_out = Dictionaries::of(&dictionary, max_message.into()).context("encode the dictionary")?;
        let poller = open_poller(config.threads.main.busy_poll)?;
        Ok(Self { program, config, metrics, dictionary, given_out: Arc::new(given_out), poller })
    }

    /// The registry of the main poller.
    pub(super) fn registry(&self) -> Registry {
        self.poller.registry().clone()
    }

    /// Listens at `addresses`; `port` completes those without one.
    ///
    /// # Errors
    /// An address that is taken or not this host's.
    pub(super) fn listen(&self, addresses: &[String], port: u16, socket: SocketOptions) -> Result<Listeners> {
        Listeners::open(addresses, port, socket, &self.poller)
    }

    /// A target with this program's login and component name, and default transport and socket options.
    pub(super) fn target(&self, kind: &'static str, hosts: &[String], services: Vec<String>) -> Target {
        Target {
            kind,
            hosts: hosts.to_vec(),
            login: login(&self.config.login, self.program),
            transport: ClientOptions { component: component(self.program), ..ClientOptions::default() },
            socket: SocketOptions::default(),
            services,
        }
    }

    /// Connectors to `targets`; they are the hub's upstreams 0, 1, 2 and so on.
    ///
    /// # Errors
    /// A target is one of the program's own listeners: it would wait for itself for ever.
    pub(super) fn connect(
        &self,
        listeners: &Listeners,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<Vec<Connector>> {
        let own = listeners.addresses()?;
        let connector = |(number, target): (u16, Target)| {
            for host in &target.hosts {
                // A host that is unknown now may be known later.
                let Ok(to) = resolve(host, super::connector::PORT) else { continue };
                let found = own.iter().find(|listener| reaches(to, **listener));
                ensure!(
                    found.is_none(),
                    "the {} {host} is this program's own listener: a server cannot get data from itself (change the \
                     port of --listen or of the {})",
                    target.kind,
                    target.kind
                );
            }
            Ok(Connector::new(UpstreamId(number), target, self.registry(), self.metrics.clone()))
        };
        (0..).zip(targets).map(connector).collect()
    }

    /// Starts the program's threads.
    ///
    /// # Errors
    /// The system refuses a thread, or does not tell an address.
    pub(super) fn run(self, parts: Parts) -> Result<Running> {
        let addresses: Vec<SocketAddr> = parts.listeners.addresses()?;
        let files = &self.config.dictionary;
        let from_files = (files.fields.is_some(), files.enums.is_some());
        let types = FieldTypes::new(Arc::new(self.dictionary.fields.clone()));
        let mut side = parts.side;
        let known = KnownDictionary::new(self.dictionary.clone(), from_files, self.given_out.clone());
        side.dictionaries(&known);
        let driver = Driver {
            registry: self.registry(),
            dictionary: known,
            reconnect: parts.reconnect,
            hub: Hub::new(parts.hub, types),
            log: Batch { timed: parts.timed, ..Batch::default() },
            upstreams: parts.upstreams,
            listeners: parts.listeners,
            side,
            workers: parts.workers,
            requests: VecDeque::new(),
            poll_backbone_at: Now::ZERO,
            main_wakes_at: Now::ZERO,
            hub_metrics: parts.hub_metrics,
            hub_log: HubLog::default(),
            turns: TurnMeter::default(),
        };
        Running::start(driver, self.poller, parts.feeds, addresses, &self.config.threads)
    }
}

/// A poller; with `busy` it polls without sleeping.
///
/// # Errors
/// The process has no descriptor left.
pub(super) fn open_poller(busy: bool) -> Result<Poller> {
    Ok(Poller::new().context("open a poller")?.busy(busy))
}

/// The services to accept from an upstream, by name: its own list, else the program's; empty: all.
pub(super) fn accepted_services(upstream: &[String], program: &[String]) -> Vec<String> {
    if upstream.is_empty() { program } else { upstream }.to_vec()
}
