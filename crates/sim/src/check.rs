//! The invariants: what must hold whatever goes wrong.

use thiserror::Error;
use utipc_core::{NodeAddr, Time};

/// An invariant was broken. The text names who and what.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// A message differs from the one that was sent.
    #[error("corrupted: {0}")]
    Corrupted(String),
    /// A message was delivered, or delivered and returned, more than once.
    #[error("duplicate: {0}")]
    Duplicate(String),
    /// A message was delivered before an earlier one from the same socket that has not arrived, or after a later one.
    #[error("lost or reordered: {0}")]
    Order(String),
    /// A message vanished although the contact that carried it was never lost.
    #[error("lost: {0}")]
    Lost(String),
    /// A message came back, or a send was refused, without a reason.
    #[error("refused without reason: {0}")]
    Refused(String),
    /// What a connection delivered is not a prefix of what was sent.
    #[error("connection is not an exact prefix: {0}")]
    NotAPrefix(String),
    /// A connection broke although its peer and the way to it were there.
    #[error("connection broke without reason: {0}")]
    SpuriousBreak(String),
    /// A connection did not break although its peer, or the way to it, was gone.
    #[error("connection outlived its peer: {0}")]
    Survived(String),
    /// A connection could not be made, or never ended its setup.
    #[error("connection setup: {0}")]
    Setup(String),
    /// Contact was lost although the network and both nodes were well.
    #[error("contact lost without reason: {0}")]
    FalseDown(String),
    /// Contact was not made though nothing stood in the way.
    #[error("no contact: {0}")]
    NoContact(String),
    /// Binding tables differ after the quiet time.
    #[error("tables differ: {0}")]
    Tables(String),
    /// A topology subscriber was told something untrue, or not told.
    #[error("topology: {0}")]
    Topology(String),
    /// A socket waits for something that will not come.
    #[error("stalled: {0}")]
    Stalled(String),
    /// Ever more happens and virtual time does not go on.
    #[error("livelock: {0}")]
    Livelock(String),
    /// A queue outgrew its limit.
    #[error("memory: {0}")]
    Memory(String),
}

/// A broken invariant with its time: what a run ends with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("at {} ms, node {node}: {broken}", at.as_millis())]
pub struct Violation {
    /// When, on the virtual clock.
    pub at: Time,
    /// Where it was seen.
    pub node: NodeAddr,
    /// What.
    pub broken: Broken,
}
