//! The hub's side that the main thread serves: mounts, or the sinks of the backbone.

use std::collections::VecDeque;
use std::time::Instant;

use crate::backbone::source_side::SourceSide;
use crate::hub::{Batch, Directory, HubRequest};
use crate::net::{Now, now};

use super::clients::Clients;
use super::known_dictionary::KnownDictionary;

/// A side of the hub.
pub(super) enum Side {
    /// Consumers, in a point-to-point server.
    Mounts(Box<Clients>),
    /// Sinks, in a source distributor.
    Backbone(Box<SourceSide>),
}

impl Side {
    /// Moves the side's requests to the hub into `into`.
    pub(super) fn take_hub_requests(&mut self, into: &mut VecDeque<HubRequest>) {
        match self {
            Self::Mounts(clients) => into.extend(clients.worker.hub_requests()),
            Self::Backbone(sinks) => into.extend(sinks.take_hub_requests()),
        }
    }

    /// Sends the dictionary to the sinks.
    pub(super) fn dictionaries(&mut self, known: &KnownDictionary) {
        if let Self::Backbone(sinks) = self
            && let Err(why) = sinks.dictionaries(&known.halves())
        {
            tracing::error!("cannot encode the dictionary for the sinks: {why}; they keep the one before");
        }
    }

    /// Applies the hub's log.
    ///
    /// # Errors
    /// The backbone refuses a packet.
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

    /// Sends the output that the applied log has caused.
    ///
    /// # Errors
    /// The backbone refuses a packet.
    pub(super) fn flush(&mut self, now: Now) -> anyhow::Result<()> {
        match self {
            Self::Mounts(clients) => clients.flush(now),
            Self::Backbone(sinks) => sinks.flush()?,
        }
        Ok(())
    }

    /// Runs the timers that are due, and polls the backbone if `poll_backbone`.
    ///
    /// # Errors
    /// The backbone refuses a packet.
    pub(super) fn tick(&mut self, now: Now, poll_backbone: bool) -> anyhow::Result<()> {
        match self {
            Self::Mounts(clients) => clients.worker.tick(now),
            Self::Backbone(sinks) if poll_backbone => sinks.poll()?,
            Self::Backbone(_) => {}
        }
        Ok(())
    }

    /// Time when [`Side::tick`] or [`Side::flush`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        match self {
            Self::Mounts(clients) => clients.deadline(),
            Self::Backbone(sinks) if sinks.has_released() => Some(Now::ZERO),
            Self::Backbone(sinks) => {
                sinks.deadline().map(|due| now() + due.saturating_duration_since(Instant::now()))
            }
        }
    }
}
