//! Discovery on one bearer: its timer, and what it accepts. Spec: tipc.md §4.4, §4.5.

use thiserror::Error;

use super::own::OwnAddress;
use super::rate::RateLimit;
use super::{KnownNodes, in_domain, is_exact};
use crate::addr::{NodeAddr, NodeId};
use crate::error::WireError;
use crate::limits::MAX_PEERS;
use crate::time::Time;
use crate::wire::{DiscoveryKind, DiscoveryMessage, MediaAddr, Message, View, same_medium, with_scope_of};

/// First interval between requests, milliseconds; also the interval of trial messages. Spec: tipc.md §4.5.
const FIRST_MS: u64 = 125;
/// Longest interval while the bearer has no linked peer, milliseconds.
const FAST_MS: u64 = 1000;
/// Longest interval once it has one, milliseconds.
const SLOW_MS: u64 = 60_000;

/// What a bearer brings into discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscovererConfig {
    /// The bearer's own address, as neighbours reach it.
    pub media: MediaAddr,
    /// Whom to look for: 0 for everybody. Spec: tipc.md §1.4.
    pub domain: NodeAddr,
}

/// A neighbour that asked or answered and passed every check that discovery can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address, never 0 and never the own one.
    pub addr: NodeAddr,
    /// Its identity.
    pub id: NodeId,
    /// Its capability bits.
    pub capabilities: u16,
    /// The signature of its run.
    pub signature: u16,
    /// The mark of its network namespace.
    pub net_hash: u32,
    /// Where frames for it go on this bearer.
    pub media: MediaAddr,
    /// It asks for an answer, should [`super::evaluate`] allow one.
    pub is_request: bool,
    /// How it relates to the nodes known before.
    pub relation: Relation,
}

/// How a neighbour relates to the nodes that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Neither address nor identity is known.
    New,
    /// The address is known, with this identity.
    Known,
    /// The address is known with another identity: Linux goes on with the stored node; so may the node layer.
    OtherIdentity(NodeId),
    /// The identity is known under another address.
    OtherAddress(NodeAddr),
}

/// What the node layer has to do; in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to everybody on this bearer.
    Broadcast(Message),
    /// Send to one media address on this bearer.
    Unicast(MediaAddr, Message),
    /// The own address is final: publish it, give it to sockets and bindings.
    AddressFinal(NodeAddr),
    /// Judge this neighbour with [`super::evaluate`].
    Neighbour(Neighbour),
}

/// Why a discovery message led to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It breaks a rule of the format.
    #[error("malformed discovery message: {0}")]
    Malformed(#[from] WireError),
    /// It came back to its sender.
    #[error("own discovery message")]
    Own,
    /// Its media address is of another kind than the bearer.
    #[error("the neighbour's address {0} does not fit this bearer")]
    OtherMedium(MediaAddr),
    /// It belongs to another cluster.
    #[error("cluster {0} is another one")]
    OtherCluster(u32),
    /// Requests and answers do not count before the own address is final; nor does a TRIAL_FAIL after that.
    #[error("not to be answered in this phase of the trial period")]
    Phase,
    /// Another node uses the own address: the administrator must change one of them.
    #[error("the node at {0} uses this node's address: give one of them another")]
    DuplicateAddress(MediaAddr),
    /// It is not meant for this node, or not from the bearer's domain.
    #[error("node {0} is outside the discovery domain")]
    OutsideDomain(NodeAddr),
    /// Too many unknown nodes in a short time.
    #[error("too many unknown nodes at once; node {0} has to ask again")]
    TooFast(NodeAddr),
    /// No more nodes can be kept.
    #[error("no room for node {0}: the limit of known nodes is reached")]
    TooMany(NodeAddr),
}

/// Discovery on one bearer.
#[derive(Clone, Debug)]
pub struct Discoverer {
    config: DiscovererConfig,
    /// Linked peers on this bearer.
    linked: usize,
    interval_ms: u64,
    /// When to send next; `None` once the one node of an exact domain is linked.
    deadline: Option<Time>,
    unknown: RateLimit,
}

impl Discoverer {
    /// Starts discovery on a bearer that was just enabled: the first message goes out at once.
    #[must_use]
    pub fn new(now: Time, config: DiscovererConfig, own: &mut OwnAddress, out: &mut Vec<Output>) -> Self {
        let mut this =
            Self { config, linked: 0, interval_ms: FIRST_MS, deadline: None, unknown: RateLimit::new(now) };
        this.restart(now, own, out);
        this
    }

    /// Starts over, after the bearer was reset and all its links with it.
    pub fn restart(&mut self, now: Time, own: &mut OwnAddress, out: &mut Vec<Output>) {
        own.start_trial(now);
        self.linked = 0;
        self.schedule(now, FIRST_MS);
        out.push(Output::Broadcast(self.announcement(own)));
    }

    /// The bearer's own address and domain.
    #[must_use]
    pub fn config(&self) -> &DiscovererConfig {
        &self.config
    }

    /// Peers that are linked over this bearer.
    #[must_use]
    pub fn linked_peers(&self) -> usize {
        self.linked
    }

    /// When [`Self::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A link over this bearer came up.
    pub fn link_up(&mut self) {
        self.linked += 1;
    }

    /// A link over this bearer went down; with the last one the search starts afresh.
    pub fn link_down(&mut self, now: Time) {
        self.linked = self.linked.saturating_sub(1);
        let slow = self.deadline.is_none() || self.interval_ms > FAST_MS;
        if self.linked == 0 && slow {
            self.schedule(now, FIRST_MS);
        }
    }

    /// Does what is due: the next trial message or request, or the end of the trial period.
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

    /// Takes a discovery message from the wire.
    ///
    /// # Errors
    /// [`Refusal`] says why the message is to be dropped; worth a counter, and a log line if it is
    /// [`Refusal::DuplicateAddress`].
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

    /// The answer to a neighbour's request, for its media address; `None` if it did not ask.
    #[must_use]
    pub fn respond(&self, own: &OwnAddress, to: &Neighbour) -> Option<Message> {
        (to.is_request && own.is_final())
            .then(|| self.message(own, DiscoveryKind::Response, to.addr, NodeAddr::NONE))
    }

    fn schedule(&mut self, now: Time, interval_ms: u64) {
        self.interval_ms = interval_ms;
        self.deadline = Some(now.plus_millis(interval_ms));
    }

    /// Refuses what cannot come from another node of this cluster on this medium.
    fn check_origin(&self, message: &DiscoveryMessage, own: &OwnAddress) -> Result<(), Refusal> {
        // Two bearers on one medium hear each other: the marks of this run tell, not only the media address.
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

    /// The acceptance rules of requests and answers.
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
                None if known.count() >= MAX_PEERS => return Err(Refusal::TooMany(addr)),
                None if !self.unknown.admit(now) => return Err(Refusal::TooFast(addr)),
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

    /// What this bearer sends to everybody: a trial message or a request.
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
