//! What is below the hub: mounts, or the sinks of the backbone.

use std::time::Instant;

use crate::backbone::source_side::SourceSide;
use crate::hub::{Batch, Directory, HubRequest};
use crate::net::{Now, now};

use super::clients::Clients;

/// The side that the holder of the hub serves itself.
pub(super) enum Side {
    /// Consumers: a point-to-point server.
    Mounts(Box<Clients>),
    /// Sinks: a source distributor.
    Backbone(Box<SourceSide>),
}

impl Side {
    /// What the hub is to be asked.
    pub(super) fn asks(&mut self, into: &mut Vec<HubRequest>) {
        match self {
            Self::Mounts(clients) => into.extend(clients.worker.hub_requests()),
            Self::Backbone(sinks) => into.extend(sinks.take_asks()),
        }
    }

    /// Takes the hub's log.
    ///
    /// # Errors
    /// The backbone is over.
    pub(super) fn apply(&mut self, batch: &Batch, directory: &Directory) -> anyhow::Result<()> {
        match self {
            Self::Mounts(clients) => clients.worker.apply(batch, &directory.services),
            Self::Backbone(sinks) => {
                if sinks.apply(batch)? {
                    sinks.directory(&directory.services)?;
                }
            }
        }
        Ok(())
    }

    /// Writes, or sends, what came of it.
    ///
    /// # Errors
    /// The backbone is over.
    pub(super) fn flush(&mut self, now: Now) -> anyhow::Result<()> {
        match self {
            Self::Mounts(clients) => clients.flush(now),
            Self::Backbone(sinks) => sinks.flush()?,
        }
        Ok(())
    }

    /// Does what is due; `look`: at the backbone as well.
    ///
    /// # Errors
    /// The backbone is over.
    pub(super) fn tick(&mut self, now: Now, look: bool) -> anyhow::Result<()> {
        match self {
            Self::Mounts(clients) => clients.worker.tick(now),
            Self::Backbone(sinks) if look => sinks.poll()?,
            Self::Backbone(_) => {}
        }
        Ok(())
    }

    /// When that is; `None`: nothing is planned.
    pub(super) fn deadline(&self) -> Option<Now> {
        match self {
            Self::Mounts(clients) => clients.deadline(),
            Self::Backbone(sinks) => {
                sinks.deadline().map(|due| now() + due.saturating_duration_since(Instant::now()))
            }
        }
    }
}
