//! Discovery on one bearer: timers, and acceptance of messages. Spec: tipc.md §4.4, §4.5.

use thiserror::Error;

use super::own::OwnAddress;
use super::rate::RateLimit;
use super::{KnownNodes, in_domain, is_exact};
use crate::addr::{NodeAddr, NodeId};
use crate::error::WireError;
use crate::time::Time;
use crate::wire::{DiscoveryKind, DiscoveryMessage, MediaAddr, Message, View, same_medium, with_scope_of};

/// First interval between requests, and interval of trial messages, milliseconds. Spec: tipc.md §4.5.
const FIRST_MS: u64 = 125;
/// Longest interval of requests without a linked peer on the bearer, milliseconds.
const FAST_MS: u64 = 1000;
/// Longest interval of requests with linked peers, milliseconds.
const SLOW_MS: u64 = 60_000;

/// Properties of a bearer that discovery uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscovererConfig {
    /// The bearer's own address, as neighbours reach it.
    pub media: MediaAddr,
    /// Domain of the nodes to find; 0 for all. Spec: tipc.md §1.4.
    pub domain: NodeAddr,
}

/// A neighbour that sent a request or response which passed all checks of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address; never 0 and never this node's own.
    pub addr: NodeAddr,
    /// Its identity.
    pub id: NodeId,
    /// Its capability bits.
    pub capabilities: u16,
    /// Signature of its run.
    pub signature: u16,
    /// Random number of its network namespace.
    pub net_hash: u32,
    /// Media address for frames to it on this bearer.
    pub media: MediaAddr,
    /// The message was a request; answer it if [`super::evaluate`] allows.
    pub is_request: bool,
    /// Relation to the nodes known so far.
    pub relation: Relation,
}

/// Relation of a neighbour to the nodes known so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Neither its address nor its identity is known.
    New,
    /// Its address is known, with the same identity.
    Known,
    /// Its address is known with another identity. Linux continues with the stored node; the node layer may do the
    /// same.
    OtherIdentity(NodeId),
    /// Its identity is known under another address.
    OtherAddress(NodeAddr),
}

/// Actions for the node layer, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Broadcast on this bearer.
    Broadcast(Message),
    /// Send to one media address on this bearer.
    Unicast(MediaAddr, Message),
    /// The node's address is final: publish it, and set it in sockets and bindings.
    AddressFinal(NodeAddr),
    /// Evaluate this neighbour with [`super::evaluate`].
    Neighbour(Neighbour),
}

/// Reason why a discovery message was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The message is malformed.
    #[error("malformed discovery message: {0}")]
    Malformed(#[from] WireError),
    /// The message is from this node.
    #[error("discovery message of this node")]
    Own,
    /// The sender's media address is of another kind than the bearer's.
    #[error("the neighbour's address {0} does not fit this bearer")]
    OtherMedium(MediaAddr),
    /// The sender is in another cluster.
    #[error("the node is in another cluster, {0}")]
    OtherCluster(u32),
    /// Requests and responses are ignored before the node's address is final, and a TRIAL_FAIL after that.
    #[error("ignored in this phase of the address trial")]
    Phase,
    /// Another node uses this node's address; the administrator must change one of them.
    #[error("the node at {0} uses this node's address (change one of them)")]
    DuplicateAddress(MediaAddr),
    /// The message is addressed to another node, or from outside the bearer's domain.
    #[error("node {0} is outside the discovery domain")]
    OutsideDomain(NodeAddr),
    /// Too many unknown nodes in a short time.
    #[error("too many unknown nodes at once (node {0} will repeat its request)")]
    TooFast(NodeAddr),
    /// The limit of known nodes is reached.
    #[error("no room for node {0}: the limit of known nodes is reached")]
    TooMany(NodeAddr),
}

/// Discovery on one bearer.
#[derive(Clone, Debug)]
pub struct Discoverer {
    config: DiscovererConfig,
    /// Number of linked peers on this bearer.
    linked: usize,
    interval_ms: u64,
    /// Time of the next message; `None` once the only node of an exact domain is linked.
    deadline: Option<Time>,
    unknown: RateLimit,
}

impl Discoverer {
    /// Starts discovery on a bearer just enabled; the first message is sent at once.
    #[must_use]
    pub fn new(now: Time, config: DiscovererConfig, own: &mut OwnAddress, out: &mut Vec<Output>) -> Self {
        let mut this =
            Self { config, linked: 0, interval_ms: FIRST_MS, deadline: None, unknown: RateLimit::new(now) };
        this.restart(now, own, out);
        this
    }

    /// Starts discovery over, after the bearer and all its links were reset.
    pub fn restart(&mut self, now: Time, own: &mut OwnAddress, out: &mut Vec<Output>) {
        own.start_trial(now);
        self.linked = 0;
        self.schedule(now, FIRST_MS);
        out.push(Output::Broadcast(self.announcement(own)));
    }

    /// The bearer's media address and domain.
    #[must_use]
    pub fn config(&self) -> &DiscovererConfig {
        &self.config
    }

    /// Number of peers linked over this bearer.
    #[must_use]
    pub fn linked_peers(&self) -> usize {
        self.linked
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A link over this bearer came up.
    pub fn link_up(&mut self) {
        self.linked += 1;
    }

    /// A link over this bearer went down; after the last one requests start again.
    pub fn link_down(&mut self, now: Time) {
        self.linked = self.linked.saturating_sub(1);
        let slow = self.deadline.is_none() || self.interval_ms > FAST_MS;
        if self.linked == 0 && slow {
            self.schedule(now, FIRST_MS);
        }
    }

    /// Sends the next trial message or request, or ends the trial period, if that is due.
    pub fn handle_timeout(&mut self, now: Time, own: &mut OwnAddress, out: &mut Vec<Output>) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        if self.linked > 0 && is_exact(self.config.domain, own.is_legacy()) {
            self.deadline = None;
            return;
        }
        if own.conclude(now) {
            out.push(Output::AddressFinal(own.address()));
            return self.schedule(now, FIRST_MS);
        }
        let interval = match own.is_final() {
            false => FIRST_MS,
            true => (self.interval_ms * 2).min(if self.linked > 0 { SLOW_MS } else { FAST_MS }),
        };
        self.schedule(now, interval);
        out.push(Output::Broadcast(self.announcement(own)));
    }

    /// Processes a discovery message.
    ///
    /// # Errors
    /// [`Refusal`] is the reason why the message was ignored; count it, and log [`Refusal::DuplicateAddress`].
    pub fn receive(
        &mut self,
        now: Time,
        view: View<'_>,
        own: &mut OwnAddress,
        known: &dyn KnownNodes,
        out: &mut Vec<Output>,
    ) -> Result<(), Refusal> {
        let mut message = DiscoveryMessage::parse(view)?;
        message.media = with_scope_of(message.media, &self.config.media);
        self.check_origin(&message, own)?;
        if own.conclude(now) {
            out.push(Output::AddressFinal(own.address()));
        }
        match message.kind {
            DiscoveryKind::Trial => {
                if let Some(suggestion) = own.object_to(&message.identity, message.source, known) {
                    let refusal = self.refusal(own, message.source, suggestion);
                    out.push(Output::Unicast(message.media, refusal));
                }
                Ok(())
            }
            DiscoveryKind::TrialFail => {
                let taken = own.refused(now, message.dest_domain, message.suggestion);
                if taken { Ok(()) } else { Err(Refusal::Phase) }
            }
            DiscoveryKind::Request | DiscoveryKind::Response => {
                let neighbour = self.admit(now, &message, own, known)?;
                out.push(Output::Neighbour(neighbour));
                Ok(())
            }
        }
    }

    /// The response to a neighbour's request, for its media address; `None` if it sent no request.
    #[must_use]
    pub fn respond(&self, own: &OwnAddress, to: &Neighbour) -> Option<Message> {
        (to.is_request && own.is_final())
            .then(|| self.message(own, DiscoveryKind::Response, to.addr, NodeAddr::NONE))
    }

    fn schedule(&mut self, now: Time, interval_ms: u64) {
        self.interval_ms = interval_ms;
        self.deadline = Some(now.plus_millis(interval_ms));
    }

    /// Refuses messages that cannot be from another node of this cluster on this medium.
    fn check_origin(&self, message: &DiscoveryMessage, own: &OwnAddress) -> Result<(), Refusal> {
        // Two bearers on one medium receive each other's messages: compare the random values of this run, not only the
        // address.
        let ours = (own.identity(), own.signature(), own.net_hash());
        let theirs = (message.identity, message.signature, message.net_hash);
        if message.media.to_info() == self.config.media.to_info() || ours == theirs {
            return Err(Refusal::Own);
        }
        if !same_medium(&message.media, &self.config.media) {
            return Err(Refusal::OtherMedium(message.media));
        }
        if message.cluster != own.cluster() {
            return Err(Refusal::OtherCluster(message.cluster.0));
        }
        Ok(())
    }

    /// Acceptance rules of requests and responses.
    fn admit(
        &mut self,
        now: Time,
        message: &DiscoveryMessage,
        own: &OwnAddress,
        known: &dyn KnownNodes,
    ) -> Result<Neighbour, Refusal> {
        let addr = message.source;
        if !own.is_final() {
            return Err(Refusal::Phase);
        }
        if addr == own.address() {
            return Err(Refusal::DuplicateAddress(message.media));
        }
        let legacy = own.is_legacy();
        let for_us = in_domain(message.dest_domain, own.address(), legacy);
        if !for_us || !in_domain(self.config.domain, addr, legacy) {
            return Err(Refusal::OutsideDomain(addr));
        }
        let relation = match known.identity_of(addr) {
            Some(id) if id == message.identity => Relation::Known,
            Some(id) => Relation::OtherIdentity(id),
            None => match known.address_of(&message.identity) {
                Some(at) => Relation::OtherAddress(at),
                None if !known.has_room() => return Err(Refusal::TooMany(addr)),
                None if !self.unknown.admit(now, message.media) => return Err(Refusal::TooFast(addr)),
                None => Relation::New,
            },
        };
        Ok(Neighbour {
            addr,
            id: message.identity,
            capabilities: message.capabilities,
            signature: message.signature,
            net_hash: message.net_hash,
            media: message.media,
            is_request: message.kind == DiscoveryKind::Request,
            relation,
        })
    }

    /// The broadcast of this bearer: a trial message or a request.
    fn announcement(&self, own: &OwnAddress) -> Message {
        let kind = if own.is_final() { DiscoveryKind::Request } else { DiscoveryKind::Trial };
        self.message(own, kind, self.config.domain, NodeAddr::NONE)
    }

    fn refusal(&self, own: &OwnAddress, tried: NodeAddr, suggestion: NodeAddr) -> Message {
        self.message(own, DiscoveryKind::TrialFail, tried, suggestion)
    }

    fn message(
        &self,
        own: &OwnAddress,
        kind: DiscoveryKind,
        dest_domain: NodeAddr,
        suggestion: NodeAddr,
    ) -> Message {
        let message = DiscoveryMessage {
            kind,
            dest_domain,
            source: own.trial_address(),
            cluster: own.cluster(),
            capabilities: own.capabilities(),
            signature: own.signature(),
            media: self.config.media,
            net_hash: own.net_hash(),
            suggestion,
            identity: own.identity(),
        };
        message.build()
    }
}
