//! Sending by requests to the daemon, whose node delivers the message.

use utipc_attach::{Reply, Request, SocketCall};
use utipc_core::addr::{PortId, Scope};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::Destination;
use utipc_lanes::Address;

use crate::base::unless_blocked;
use crate::error::Error;
use crate::send::SendPath;
use crate::send::lanes::ByLane;
use crate::send::outbox::SendHalf;

/// Number of lanes to one receiver that may end under the same message. After the last the message is dropped, like one
/// to a closed socket.
const COPY_ATTEMPTS: u32 = 8;

/// The node's reply to a message.
pub(super) struct TakenByNode {
    /// Bytes taken.
    bytes: u32,
    /// Local receivers to which the process has lanes; the node has not delivered the message to them.
    lanes: Vec<u32>,
    /// Bytes that the request carried.
    given: usize,
}

impl SendPath {
    /// Sends by one request, then through lanes to the receivers that the reply lists.
    pub(super) fn send_through_node(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        request: &Request,
    ) -> Result<Option<usize>, Error> {
        let Some(taken) = self.give_to_node(data, request)? else {
            self.ready.note_full_node()?;
            return Ok(None);
        };
        if self.base().kind().is_connection_oriented() {
            return Ok(Some((taken.bytes as usize).min(taken.given)));
        }
        let to = match request {
            Request::Socket { call: SocketCall::SendFound { to, .. }, .. } => Some(*to),
            Request::Socket { call: SocketCall::Send { to }, .. } => to.or(half.default_to),
            _ => None,
        };
        // If the message has other receivers too, the node counts it.
        let counted = (taken.bytes > 0).then_some((half.lanes.messages, half.lanes.bytes));
        for port in taken.lanes {
            let Some(to) = to else { break };
            self.send_copy(half, port, data, to)?;
        }
        (half.lanes.messages, half.lanes.bytes) = counted.unwrap_or((half.lanes.messages, half.lanes.bytes));
        Ok(Some(data.len()))
    }

    /// Gives a message to the node; `None` if it takes nothing now.
    pub(super) fn give_to_node(&self, data: &[u8], request: &Request) -> Result<Option<TakenByNode>, Error> {
        // One request of a stream carries this part; the next call sends the rest.
        let part = data.get(..MAX_USER_DATA).unwrap_or(data);
        unless_blocked(self.base().attachment.call(request, part, |reply, _| match reply {
            Reply::Sent { bytes, lanes } => Some(TakenByNode { bytes, lanes, given: part.len() }),
            _ => None,
        }))
    }

    /// Sends a message, or one copy of a multicast, to a local socket that has a lane. If the lane has ended, the node
    /// delivers it.
    pub(super) fn send_copy(
        &self,
        half: &mut SendHalf,
        port: u32,
        data: &[u8],
        to: Destination,
    ) -> Result<(), Error> {
        let address = match to {
            Destination::Service { addr, domain } => {
                let scope = if domain.is_none() { Scope::Cluster } else { Scope::Node };
                Address::Named(addr, scope.number())
            }
            Destination::Range(range) => Address::Multicast(range),
            Destination::Port(_) => Address::Direct,
        };
        for _ in 0..COPY_ATTEMPTS {
            if self.send_through_lane(half, port, address, data, false)? != ByLane::NoLane {
                return Ok(());
            }
            let found = PortId { port, node: self.base().attachment.address() };
            let request = match to {
                Destination::Port(_) => SocketCall::Send { to: Some(to) }.on(self.base().port()),
                to => SocketCall::SendFound { to, found }.on(self.base().port()),
            };
            match self.give_to_node(data, &request) {
                // There is a new lane to it.
                Ok(Some(taken)) if taken.lanes.contains(&port) => {}
                // The node has taken the message, or the socket is gone.
                Ok(_) | Err(Error::Failed(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
