//! What endpoints of all roles have: port, options, receive queue, congestion, memory and counters.

use super::account::Account;
use super::congestion::Congestion;
use super::error::SendError;
use super::queue::{ReceiveQueue, charge};
use super::settings::Settings;
use super::types::{EndpointStats, SocketKind, WaitReason};
use super::uplink::Submitted;
use crate::addr::NodeAddr;
use crate::wire::Message;

/// How far the application has ended the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Open,
    /// Receives do not wait; a connection ends as soon as congestion allows.
    ShutDown,
    Closed,
}

/// The part of an endpoint that does not depend on its role.
#[derive(Debug)]
pub(super) struct Base {
    port: u32,
    kind: SocketKind,
    life: Life,
    /// Number of bindings.
    bindings: u32,
    /// Reason why the last call would have blocked.
    wait: Option<WaitReason>,
    pub(super) account: Account,
    pub(super) settings: Settings,
    pub(super) queue: ReceiveQueue,
    pub(super) congestion: Congestion,
    pub(super) stats: EndpointStats,
}

impl Base {
    pub(super) fn new(kind: SocketKind, port: u32) -> Self {
        Self {
            port,
            kind,
            life: Life::Open,
            bindings: 0,
            wait: None,
            account: Account::new(),
            settings: Settings::new(kind),
            queue: ReceiveQueue::default(),
            congestion: Congestion::default(),
            stats: EndpointStats::default(),
        }
    }

    pub(super) fn port(&self) -> u32 {
        self.port
    }

    pub(super) fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Whether the application has shut the socket down or closed it.
    pub(super) fn is_shut_down(&self) -> bool {
        self.life >= Life::ShutDown
    }

    pub(super) fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    pub(super) fn shut_down(&mut self) {
        self.life = self.life.max(Life::ShutDown);
    }

    /// Nothing delays the end of the socket any more.
    pub(super) fn close(&mut self) {
        self.life = Life::Closed;
        self.queue.clear();
        self.congestion = Congestion::default();
    }

    /// Number of bindings.
    pub(super) fn bindings(&self) -> u32 {
        self.bindings
    }

    pub(super) fn set_bindings(&mut self, bindings: u32) {
        self.bindings = bindings;
    }

    /// Bytes of the queued messages, and of those that congested links have taken beyond their limits.
    pub(super) fn bytes(&self) -> u64 {
        self.queue.charged() as u64 + self.congestion.excess()
    }

    /// How many more bytes the messages may use; those of the role have `role_bytes`.
    pub(super) fn room(&self, role_bytes: u64) -> u64 {
        self.account.room(self.bytes() + role_bytes)
    }

    /// Whether there is memory to queue a message. Counts one that is refused.
    #[inline]
    pub(super) fn has_memory(&mut self, msg: &Message, role_bytes: u64) -> bool {
        let has_memory = charge(msg) as u64 <= self.room(role_bytes) && self.queue.has_place();
        if !has_memory {
            self.account.refuse();
        }
        has_memory
    }

    /// Records that a message of the application of `size` bytes was submitted.
    #[inline]
    pub(super) fn submitted(&mut self, submitted: Submitted, size: usize) {
        self.stats.sent_messages += 1;
        self.congestion.submitted(submitted, size);
    }

    /// Counts the data of a send that has succeeded; returns its length.
    #[inline]
    pub(super) fn sent(&mut self, data: &[u8]) -> usize {
        self.stats.sent_bytes += data.len() as u64;
        data.len()
    }

    /// Reason why the last call would have blocked. The caller checks whether it still holds.
    pub(super) fn wait(&self) -> Option<WaitReason> {
        self.wait
    }

    pub(super) fn set_wait(&mut self, reason: Option<WaitReason>) {
        self.wait = reason;
    }

    /// A send has to wait.
    pub(super) fn note_wait(&mut self, reason: WaitReason) {
        match reason {
            WaitReason::PeerWindow { .. }
            | WaitReason::ReceiversFull { .. }
            | WaitReason::MemberWindow { .. }
            | WaitReason::MemberAck { .. } => {
                self.stats.window_waits += 1;
            }
            _ => self.stats.link_waits += 1,
        }
        self.wait = Some(reason);
    }

    pub(super) fn would_block<T>(&mut self, reason: WaitReason) -> Result<T, SendError> {
        self.note_wait(reason);
        Err(SendError::WouldBlock)
    }

    pub(super) fn link_reason(&self, node: NodeAddr) -> WaitReason {
        WaitReason::LinkCongested { node, importance: self.settings.send.importance }
    }

    /// Checks that the endpoint does not wait for the link to `node`.
    pub(super) fn check_link(&mut self, node: NodeAddr) -> Result<(), SendError> {
        if self.congestion.contains(node) { self.would_block(self.link_reason(node)) } else { Ok(()) }
    }

    /// Checks that the endpoint does not wait for any link: one congested link delays a multicast.
    pub(super) fn check_links(&mut self) -> Result<(), SendError> {
        match self.congestion.first() {
            Some(node) => self.would_block(self.link_reason(node)),
            None => Ok(()),
        }
    }
}
