//! A whole chain in one process: publisher, source distributor and point-to-point server.

mod publisher;

use anyhow::{Context as _, Result};

use self::publisher::Publisher;
use super::backbone::Backbone;
use super::{Running, p2ps, src_dist};
use crate::config::{Config, Provider, Upstream, UpstreamKind};
use crate::metrics::Metrics;

/// Items to try.
const ITEMS: [&str; 3] = ["TRI.N", "IBM.N", "EUR="];

/// The parts of a chain; when dropped, they stop in the order from consumers to publisher.
pub struct Chain {
    /// The server: consumers connect to its addresses.
    pub server: Running,
    /// The distributor.
    pub distributor: Running,
    publisher: Publisher,
}

impl Chain {
    /// Starts a chain that publishes `rate` updates a second, spread over the open items; every item name exists.
    /// The distributor uses `above`, the server `below`: two ends of one backbone.
    ///
    /// # Errors
    /// The publisher cannot listen, or the distributor or the server does not start.
    pub fn start(
        config: &Config,
        metrics: &Metrics,
        above: &Backbone,
        below: &Backbone,
        rate: u64,
    ) -> Result<Self> {
        let publisher = Publisher::start(rate).context("start the publisher")?;
        let at = publisher.address();
        let mut config = config.clone();
        config.src_dist.provider = vec![Provider { hosts: vec![at.to_string()], services: Vec::new() }];
        config.src_dist.listen.clear();
        let distributor = src_dist::start(&config, metrics, above).context("start the distributor")?;
        config.p2ps.upstream = vec![Upstream { kind: UpstreamKind::Backbone, ..Upstream::default() }];
        let server = p2ps::start(&config, metrics, below).context("start the server")?;
        Ok(Self { server, distributor, publisher })
    }

    /// What a user can try: the service, some items, and a command that shows them.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let mut hints = vec![format!(
            "service {}: every item name exists and gets updates, such as {}",
            publisher::SERVICE,
            ITEMS.join(", ")
        )];
        let command = |at: &std::net::SocketAddr| format!("try: rmdsview --server {at} {}", ITEMS.join(" "));
        hints.extend(self.server.addresses.first().map(command));
        hints
    }

    /// Updates published so far.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.publisher.published()
    }
}
