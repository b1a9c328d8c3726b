//! Messages that a process has built itself, header included, and that reach its node by a lane. Decision 16.

use super::endpoint::Endpoint;
use super::error::SendError;
use super::state::State;
use super::uplink::Uplink;
use crate::addr::{NodeAddr, Scope};
use crate::limits::MAX_RETURNED_DATA;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, SHORT_HEADER, reverse};

/// A message for other nodes with a checked header; see [`Endpoint::check_built`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built(Message);

impl Built {
    /// The node that it goes to, [`NodeAddr::NONE`] for a multicast; `None` for a message on a connection.
    #[must_use]
    pub fn node(&self) -> Option<NodeAddr> {
        self.0.dest_node()
    }

    /// Whether it goes to all other nodes with a socket in its range.
    fn is_multicast(&self) -> bool {
        self.0.message_type() == MessageType::Mcast
    }

    /// Size of header and data, bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// The message in other memory, to which `to` moves its bytes, or where it was.
    pub(crate) fn moved(self, to: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, Vec<u8>>) -> Result<Self, Self> {
        self.0.moved(to).map(Self).map_err(Self)
    }

    /// The message.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.0
    }
}

/// Why a message was not sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The connection or the link takes none now: send it again when the socket is writable.
    Blocked(Built),
    /// The socket sends nothing any more.
    Over,
}

impl Endpoint {
    /// Checks a message that a process has built as this socket on node `own`, for its connection or, without a
    /// connection, for a socket of another node or for all sockets of other nodes in a range. `bytes` are a claim of
    /// the process. Returns `None` if this endpoint would not have built the header, or there is no data.
    #[must_use]
    pub fn check_built(&self, own: NodeAddr, bytes: Vec<u8>) -> Option<Built> {
        let len = bytes.len();
        let mut message = Message::from_vec(bytes).ok().filter(|message| message.size() == len)?;
        let connected = self.kind.is_connection_oriented();
        let scope = message.lookup_scope();
        let fits = match message.message_type() {
            // After the end of the connection the peer is unknown, and nothing is sent.
            MessageType::Conn if connected => {
                scope == 0 && (self.state != State::Established || message.dest_port() == self.peer.port)
            }
            MessageType::Direct if !connected => scope == 0,
            MessageType::Named if !connected => {
                [Scope::Cluster, Scope::Node].iter().any(|known| known.number() == scope)
            }
            // The node sets the bit that tells the receiver the method.
            MessageType::Mcast if !connected => {
                scope == Scope::Cluster.number()
                    && message.dest_port() == 0
                    && message.service_range().is_valid()
                    && !message.src_droppable()
            }
            _ => false,
        };
        let is_multicast = message.message_type() == MessageType::Mcast;
        let is_elsewhere =
            message.dest_node().is_none_or(|node| node.is_none() == is_multicast && node != own);
        // A process may have built it before it learnt of the node's address.
        let names_own = |node: NodeAddr| node == own || node.is_none();
        let genuine = fits
            && is_elsewhere
            && message.is_unsent_data()
            && message.header_size() == message.required_header()
            && message.origin_port() == self.port
            && names_own(message.origin_node())
            && names_own(message.prev_node())
            && !message.data().is_empty();
        if !genuine {
            return None;
        }
        message.set_prev_node(own);
        if message.header_size() > SHORT_HEADER {
            message.set_origin_node(own);
        }
        Some(Built(message))
    }

    /// Sends a message with the header that it has. Nagle's algorithm collects the data of small ones in messages of
    /// its own. Without a connection, one that cannot be sent comes back to this socket, unless it is marked as
    /// droppable.
    ///
    /// # Errors
    /// See [`Unsent`].
    pub(crate) fn send_built(
        &mut self,
        now: Time,
        message: Built,
        uplink: &mut dyn Uplink,
    ) -> Result<(), Unsent> {
        self.blocked = None;
        let connected = self.kind.is_connection_oriented();
        if connected && (self.state != State::Established || self.shut || self.closing.is_some()) {
            return Err(Unsent::Over);
        }
        let congested = |node: &NodeAddr| self.congested.contains(node).then(|| self.link_reason(*node));
        let reason = match message.node() {
            // One full link delays the whole multicast.
            Some(_) if message.is_multicast() => self.congested.first().map(|node| self.link_reason(*node)),
            Some(_) if self.collects_receivers => self.congested.first().map(|node| self.link_reason(*node)),
            Some(node) => congested(&node),
            None => self.connection_blocked(),
        };
        if let Some(reason) = reason {
            self.note_blocked(reason);
            return Err(Unsent::Blocked(message));
        }
        match message.node() {
            Some(_) if message.is_multicast() => self.send_built_to_all(message.0, uplink),
            Some(node) => self.send_built_to(now, node, message.0, uplink),
            None => {
                let len = message.0.data().len() as u64;
                self.send_on_connection(message.0, uplink).map_err(|_| Unsent::Over)?;
                self.stats.sent_bytes += len;
            }
        }
        Ok(())
    }

    /// Sends a multicast to the other nodes; its process has sent it to the sockets of this one. If none is left that
    /// has a receiver, it is lost like one that was under way to them.
    fn send_built_to_all(&mut self, message: Message, uplink: &mut dyn Uplink) {
        let len = message.data().len() as u64;
        let size = message.size();
        if let Ok(submitted) = uplink.submit_multicast_elsewhere(message) {
            self.submitted(submitted, size);
            self.stats.sent_bytes += len;
        }
    }

    fn send_built_to(&mut self, now: Time, node: NodeAddr, message: Message, uplink: &mut dyn Uplink) {
        let head = (!message.dest_droppable()).then(|| message.head(MAX_RETURNED_DATA));
        let len = message.data().len() as u64;
        let Err(error) = self.submit(node, message, uplink) else {
            self.stats.sent_bytes += len;
            return;
        };
        let code = match SendError::from(error) {
            SendError::HostUnreachable => ErrorCode::NoNode,
            _ => ErrorCode::Overload,
        };
        if let Some(returned) = head.and_then(|head| reverse(uplink.own_node(), head, code)) {
            self.handle_message(now, returned, uplink);
        }
    }
}
