//! Reasons why sinks have left or were disconnected from their feeds, for the log, the metrics and `/disconnects`.

use thiserror::Error;

use crate::backbone::{Ended, SinkId};

/// Reason why a sink has left or was disconnected from its feeds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It was too slow. It was disconnected from its feeds; its connection stays open, and it resynchronises.
    #[error("it left {unread} bytes unread for {ms} ms")]
    Behind {
        /// Bytes that it had not credited.
        unread: u64,
        /// Time that the feed waited for it.
        ms: u64,
    },
    /// Its connection has ended.
    #[error("{0}")]
    Connection(Ended),
    /// It uses another version of the backbone's format.
    #[error(
        "it uses version {theirs} of the backbone's format and this program {ours}: run the same version of mdist on both sides"
    )]
    Version {
        /// The sink's version.
        theirs: u32,
        /// This program's version.
        ours: u32,
    },
    /// It sent something that is malformed or not allowed.
    #[error("{0}")]
    Protocol(String),
    /// The endpoint was lost, and all sinks with it.
    #[error("{0}")]
    Backbone(String),
}

impl Reason {
    /// One word, as a label of metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Behind { .. } => "behind",
            Self::Connection(Ended::Closed) => "closed",
            Self::Connection(Ended::Unread(_)) => "overflow",
            Self::Connection(Ended::Broke(_)) => "lost",
            Self::Version { .. } => "version",
            Self::Protocol(_) => "protocol",
            Self::Backbone(_) => "backbone_lost",
        }
    }
}

/// A sink that has left or was disconnected from its feeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Its id.
    pub sink: SinkId,
    /// Its name.
    pub name: String,
    /// The reason.
    pub reason: Reason,
}
