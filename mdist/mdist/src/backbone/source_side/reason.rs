//! Why a sink went, or has to begin anew: logged, counted and shown.

use thiserror::Error;

use crate::backbone::{Ended, SinkId};

/// Why a sink went, or was cut.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It did not keep up with the feed: its link stays, and it begins anew.
    #[error("it left {unread} bytes unread for {ms} ms")]
    Behind {
        /// Bytes that it had not said to have read.
        unread: u64,
        /// How long the feed waited for it.
        ms: u64,
    },
    /// Its link ended.
    #[error("{0}")]
    Link(Ended),
    /// It speaks another version of the backbone.
    #[error("it speaks version {theirs} of the backbone, this is {ours}: run the same on both sides")]
    Version {
        /// What it speaks.
        theirs: u32,
        /// What we speak.
        ours: u32,
    },
    /// It sent what is not understood, or not allowed.
    #[error("{0}")]
    Protocol(String),
    /// The backbone itself was lost, and all sinks with it.
    #[error("{0}")]
    Backbone(String),
}

impl Reason {
    /// One word, as a label of counters.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Behind { .. } => "behind",
            Self::Link(Ended::Closed) => "closed",
            Self::Link(Ended::Unread(_)) => "overflow",
            Self::Link(Ended::Broke(_)) => "lost",
            Self::Version { .. } => "version",
            Self::Protocol(_) => "protocol",
            Self::Backbone(_) => "backbone_lost",
        }
    }
}

/// A sink that went, or was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Which.
    pub sink: SinkId,
    /// What it calls itself.
    pub name: String,
    /// Why.
    pub reason: Reason,
}
