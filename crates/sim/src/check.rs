//! The invariants, which must hold under all faults.

use thiserror::Error;
use utipc_core::{NodeAddr, Time};

/// A broken invariant. The text names the sockets, nodes or connections involved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// A message differs from the message sent.
    #[error("corrupted: {0}")]
    Corrupted(String),
    /// A message was delivered, or delivered and returned, more than once.
    #[error("duplicate: {0}")]
    Duplicate(String),
    /// Messages of one socket were delivered out of order.
    #[error("lost or reordered: {0}")]
    Order(String),
    /// A message was lost although the contact that carried it was never lost.
    #[error("lost: {0}")]
    Lost(String),
    /// A message was returned, or a send refused, without a reason.
    #[error("refused without reason: {0}")]
    Refused(String),
    /// The data delivered by a connection is not a prefix of the data sent.
    #[error("connection is not an exact prefix: {0}")]
    NotAPrefix(String),
    /// A connection broke although its peer existed and was reachable.
    #[error("connection broke without reason: {0}")]
    SpuriousBreak(String),
    /// A connection did not break although its peer was gone or unreachable.
    #[error("connection outlived its peer: {0}")]
    Survived(String),
    /// A connection could not be set up, or its setup did not end.
    #[error("connection setup: {0}")]
    Setup(String),
    /// Contact was lost although the network and both nodes worked.
    #[error("contact lost without reason: {0}")]
    FalseDown(String),
    /// Contact was not established although nothing prevented it.
    #[error("no contact: {0}")]
    NoContact(String),
    /// Binding tables differ after the quiet period.
    #[error("tables differ: {0}")]
    Tables(String),
    /// A topology subscriber got a wrong event, or missed one.
    #[error("topology: {0}")]
    Topology(String),
    /// A socket waits for an event that will not happen.
    #[error("stalled: {0}")]
    Stalled(String),
    /// Activity does not end while virtual time stands still.
    #[error("livelock: {0}")]
    Livelock(String),
    /// Two frames under the key of all nodes had one nonce.
    #[error("nonce: {0}")]
    Nonce(String),
    /// A queue exceeded its limit.
    #[error("memory: {0}")]
    Memory(String),
}

/// A broken invariant and its time; ends a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("at {} ms, node {node}: {broken}", at.as_millis())]
pub struct Violation {
    /// Virtual time.
    pub at: Time,
    /// Node at which it was detected.
    pub node: NodeAddr,
    /// The invariant.
    pub broken: Broken,
}
