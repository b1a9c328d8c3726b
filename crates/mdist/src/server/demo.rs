//! A whole chain in one process: a publisher, a source distributor, a point-to-point server.

use anyhow::{Context as _, Result};

use super::bus::Bus;
use super::{Running, p2ps, src_dist};
use crate::config::{Config, Provider as Dialled, Upstream, UpstreamKind};
use crate::load::msgdata;
use crate::load::provider::{Provider, ProviderOptions};
use crate::metrics::Metrics;

/// The parts of a chain; dropped, they end from the consumers' end on.
pub struct Chain {
    /// The server: its addresses are where consumers connect.
    pub server: Running,
    /// The distributor.
    pub distributor: Running,
    publisher: Provider,
}

impl Chain {
    /// Starts a chain that publishes `rate` updates a second, spread over whatever items are open: it takes every name. The
    /// distributor is on `above`, the server on `below`, two ends of one backbone.
    ///
    /// # Errors
    /// What one of them says.
    pub fn start(config: &Config, metrics: &Metrics, above: &Bus, below: &Bus, rate: u64) -> Result<Self> {
        let mut sets = msgdata::built_in()?;
        sets.iter_mut().for_each(|set| set.running = true);
        let options = ProviderOptions { rate, ticks: 100, ..ProviderOptions::new(sets) };
        let publisher = Provider::start(options).context("start the publisher")?;
        let at = publisher.address().context("the publisher does not listen")?;
        let mut config = config.clone();
        config.src_dist.provider = vec![Dialled { hosts: vec![at.to_string()], services: Vec::new() }];
        config.src_dist.listen.clear();
        let distributor = src_dist::start(&config, metrics, above).context("start the distributor")?;
        config.p2ps.upstream = vec![Upstream { kind: UpstreamKind::Backbone, ..Upstream::default() }];
        let server = p2ps::start(&config, metrics, below).context("start the server")?;
        Ok(Self { server, distributor, publisher })
    }

    /// Updates published so far.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.publisher.counts().updates
    }
}
