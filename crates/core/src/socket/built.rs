//! Messages that a process has built itself, header included, and that reach its node by a lane. Decision 16.

use super::call::Call;
use super::connection::Connection;
use super::datagram::Datagram;
use super::endpoint::{Endpoint, Role};
use super::state::State;
use super::uplink::Uplink;
use crate::addr::{NodeAddr, Scope};
use crate::time::Time;
use crate::wire::{Message, MessageType, SHORT_HEADER};

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
        let connected = self.kind().is_connection_oriented();
        let scope = message.lookup_scope();
        let fits = match message.message_type() {
            // Without a connection nothing is sent.
            MessageType::Conn if connected => {
                let peer = self.connection().and_then(Connection::remote_port);
                scope == 0 && (self.state() != State::Established || Some(message.dest_port()) == peer)
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
            && message.origin_port() == self.port()
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
        self.base.set_wait(None);
        let call = &mut Call::new(&mut self.base, uplink);
        let node = match &mut self.role {
            Role::Datagram(_) => message.node().filter(|_| !message.is_multicast()),
            Role::Connection(connection) => return connection.send_built(message, call),
            Role::Listener => return Err(Unsent::Over),
        };
        let is_clear = match node {
            Some(node) if !call.base.congestion.holds_all() => call.base.check_link(node),
            _ => call.base.check_links(),
        };
        if is_clear.is_err() {
            return Err(Unsent::Blocked(message));
        }
        match node {
            None => Datagram::send_built_to_all(message.0, call),
            Some(node) => {
                if let Some(returned) = Datagram::send_built(node, message.0, call) {
                    self.handle_message(now, returned, uplink);
                }
            }
        }
        Ok(())
    }
}
