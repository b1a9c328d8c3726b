//! All upstreams of a program, whichever way they are connected.

use std::time::Duration;

use super::connector::Connector;
use super::publishers::Publishers;
use super::tokens::{FIRST_CONNECTOR, FIRST_PUBLISHER};
use crate::backbone::sink_side::SinkSide;
use crate::dictionaries::Half;
use crate::hub::{HubTurn, UpstreamId};
use crate::net::{Event, Now};

/// Maximum number of bytes that one read of an upstream takes, so that many updates share a turn.
const READ: usize = 256 * 1024;

/// Dictionaries that have arrived, each with the name of its source.
pub(super) type Received = Vec<(String, Half)>;

/// The upstreams of a program.
pub(super) struct Upstreams {
    /// Connections that this program makes, by upstream number.
    pub(super) connectors: Vec<Connector>,
    /// Publishers that connect to this program; their upstream numbers are above the connectors'.
    pub(super) publishers: Option<Publishers>,
    /// The sources of the backbone, if it is upstream.
    pub(super) sources: Option<SinkSide>,
    /// Memory for what is read.
    buffer: Vec<u8>,
}

impl Upstreams {
    /// These upstreams; [`Upstreams::sources`] are added later.
    pub(super) fn new(connectors: Vec<Connector>, publishers: Option<Publishers>) -> Self {
        Self { connectors, publishers, sources: None, buffer: vec![0; READ] }
    }

    /// Handles readiness of a connector or publisher; returns the dictionaries that have arrived.
    pub(super) fn ready(&mut self, event: Event, turn: &mut HubTurn<'_>) -> Received {
        let buffer = &mut self.buffer;
        if event.token >= FIRST_PUBLISHER {
            if let Some(publishers) = &mut self.publishers {
                publishers.ready(event, buffer, turn);
            }
            return Vec::new();
        }
        let place = usize::try_from(event.token.wrapping_sub(FIRST_CONNECTOR)).unwrap_or(usize::MAX);
        let Some(connector) = self.connectors.get_mut(place) else { return Vec::new() };
        connector.ready(event, buffer, turn);
        connector.take_dictionaries()
    }

    /// Runs the timers that are due.
    pub(super) fn tick(&mut self, turn: &mut HubTurn<'_>) {
        for connector in &mut self.connectors {
            connector.tick(turn);
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.tick(turn);
        }
    }

    /// Polls the backbone, if it is upstream; returns the dictionaries that have arrived.
    ///
    /// # Errors
    /// As [`SinkSide::poll`].
    pub(super) fn poll_sources(&mut self, turn: &mut HubTurn<'_>) -> anyhow::Result<Received> {
        let Some(sources) = &mut self.sources else { return Ok(Vec::new()) };
        sources.poll(turn)?;
        Ok(sources.take_dictionaries())
    }

    /// Sends the hub's messages to the upstreams, as far as their connections take them.
    pub(super) fn send(&mut self, turn: &mut HubTurn<'_>) {
        for (up, message) in turn.hub.outgoing() {
            if let Some(sources) = self.sources.as_mut().filter(|sources| sources.owns(up)) {
                sources.order(up, message);
            } else if let Some(connector) = self.connectors.get_mut(usize::from(up.0)) {
                connector.send(&message);
            } else if let Some(publishers) = &mut self.publishers {
                publishers.send(up, &message);
            }
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.flush(turn);
        }
        for connector in &mut self.connectors {
            connector.flush(turn);
        }
        if let Some(sources) = &mut self.sources {
            sources.flush();
        }
    }

    /// Records how long a message of a connector or publisher stayed in the program.
    pub(super) fn record_latency(&mut self, up: UpstreamId, took: Duration) {
        if let Some(connector) = self.connectors.get_mut(usize::from(up.0)) {
            connector.record_latency(took);
        } else if let Some(publishers) = &mut self.publishers {
            publishers.record_latency(up, took);
        }
    }

    /// Time when [`Upstreams::tick`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        let publishers = self.publishers.as_ref().and_then(Publishers::deadline);
        self.connectors.iter().filter_map(Connector::deadline).chain(publishers).min()
    }
}
