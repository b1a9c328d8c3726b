//! Sending, receiving and accepting by the node.

use utipc_attach::{Failure, Reply};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{AcceptError, Destination, Received, RecvError, RecvOptions, SendError};
use utipc_core::{Origin, PortId, Stack};
use utipc_lanes::daemon::is_datagram;

use super::{Done, Sockets};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::quotas;

/// The reply to a send; `None` if it follows when all receivers are known.
pub(crate) type Sent = Result<Option<Reply>, Failure>;

impl Sockets {
    pub(crate) fn send_found(
        &mut self,
        port: u32,
        (to, found): (Destination, PortId),
        payload: &[u8],
    ) -> Done {
        self.check_earlier_messages(port)?;
        let sent = self.driver.stack.send_found(self.now, port, payload, to, found);
        self.sent(port, sent, false)
    }

    /// Sends a message with a key.
    pub(crate) fn send_keyed(
        &mut self,
        (id, port): (AttachmentId, u32),
        (to, key): (Option<Destination>, u64),
        payload: &[u8],
    ) -> Sent {
        let endpoint = self.endpoint(port, Failure::Send(SendError::Broken))?;
        if endpoint.group().is_none() {
            return Err(Failure::State);
        }
        self.with_lanes(|lanes, context| lanes.stop_group_lanes(context, port));
        let now = self.now;
        self.submit((id, port), to, |stack| stack.send_keyed(now, port, payload, to, key))
    }

    pub(crate) fn send(
        &mut self,
        (id, port): (AttachmentId, u32),
        to: Option<Destination>,
        payload: &[u8],
    ) -> Sent {
        self.check_earlier_messages(port)?;
        let endpoint = self.endpoint(port, Failure::Send(SendError::Broken))?;
        let peer = endpoint.peer().map_or(0, |p| p.port);
        if self.lanes.is_ending(port) {
            return Err(Failure::Send(SendError::Broken));
        }
        // A message on a connection with a lane would overtake those in the lane.
        if self.lanes.connects(port, peer)
            || self.lanes.holds_back(port) && endpoint.kind().is_connection_oriented()
        {
            self.holders.wants_to_write(port);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        if endpoint.group().is_some() {
            // Messages that a member sends through the node follow those that it has written into lanes.
            self.with_lanes(|lanes, context| lanes.stop_group_lanes(context, port));
        }
        let now = self.now;
        self.submit((id, port), to, |stack| stack.send(now, port, payload, to))
    }

    /// Sends; if that begins to collect the receivers, the reply follows when all are known.
    fn submit(
        &mut self,
        (id, port): (AttachmentId, u32),
        to: Option<Destination>,
        send: impl FnOnce(&mut Stack) -> Result<usize, SendError>,
    ) -> Sent {
        let was_collecting = self.driver.stack.is_collecting(port);
        let sent = send(&mut self.driver.stack);
        self.check_subscription(port)?;
        let reply = self.sent(port, sent, matches!(to, Some(Destination::Range(_))))?;
        if let Reply::Sent { bytes, .. } = reply
            && !was_collecting
            && self.driver.stack.is_collecting(port)
        {
            self.collecting.insert(port, (id, bytes));
            return Ok(None);
        }
        Ok(Some(reply))
    }

    /// Continues the multicasts of a sender; false if all copies are made.
    pub(super) fn continue_spread(&mut self, origin: Origin) -> bool {
        let has_more = self.driver.stack.continue_spread(self.now, origin);
        if let Some((port, lanes)) = self.driver.stack.take_collected()
            && let Some((id, bytes)) = self.collecting.remove(&port)
        {
            self.reply(id, Ok(Reply::Sent { bytes, lanes }));
        }
        has_more
    }

    /// The protocol does not tell a subscriber why its connection ends: the reply to its request does.
    fn check_subscription(&mut self, port: u32) -> Result<(), Failure> {
        let refused = self.driver.stack.take_refused_subscribers();
        let own = refused.iter().find(|refused| refused.port == port);
        own.map_or(Ok(()), |refused| Err(quotas::refuse(self.driver.stack.ledger(), refused.quota)))
    }

    /// Checks that nothing from a connectionless socket's lane is unsent: a request must not overtake it.
    fn check_earlier_messages(&mut self, port: u32) -> Result<(), Failure> {
        if !self.lanes.holds_back(port) || !is_datagram(&self.driver.stack, port) {
            return Ok(());
        }
        if self.lanes.has_unsent(port) {
            self.holders.wants_to_write(port);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        Ok(())
    }

    /// The reply to a send. Its `lanes` are receivers that the process must reach by its lanes. `is_multicast`:
    /// other sockets got the message.
    fn sent(&mut self, port: u32, sent: Result<usize, SendError>, is_multicast: bool) -> Done {
        if sent == Err(SendError::WouldBlock) {
            self.holders.wants_to_write(port);
        }
        let lanes = self.driver.stack.take_diverted();
        let bytes = sent.map_err(Failure::Send)?;
        self.with_lanes(|lanes, context| lanes.consider_node_lanes(context, port));
        Ok(Reply::Sent { bytes: if is_multicast || lanes.is_empty() { bytes as u32 } else { 0 }, lanes })
    }

    pub(crate) fn accept(&mut self, id: AttachmentId, port: u32) -> Done {
        self.check_new(id)?;
        let accepted = self.driver.stack.accept(self.now, port);
        if accepted == Err(AcceptError::WouldBlock) {
            self.holders.wants_to_read(port);
        }
        let (new, peer) = accepted.map_err(Failure::Accept)?;
        self.add(id, new);
        if self.holders.contains(peer.port) {
            self.with_lanes(|lanes, context| lanes.connect(context, [new, peer.port]));
        }
        Ok(Reply::Accepted { port: new, peer })
    }

    /// Receives into `payload`.
    pub(crate) fn receive(
        &mut self,
        port: u32,
        (room, options): (u32, RecvOptions),
        payload: &mut Vec<u8>,
    ) -> Done {
        let stack = &self.driver.stack;
        let endpoint = self.endpoint(port, Failure::Receive(RecvError::NotConnected))?;
        if self.lanes.is_ending(port) {
            return Err(Failure::Receive(RecvError::NotConnected));
        }
        if self.lanes.comes_by_lane(stack, port) {
            return Err(Failure::Receive(RecvError::WouldBlock));
        }
        if self.lanes.follows_a_lane(stack, port) || self.lanes.is_behind_a_lane(stack, port) {
            self.holders.wants_to_read(port);
            return Err(Failure::Receive(RecvError::WouldBlock));
        }
        // No more than is available: an idle call costs no memory. One byte at least, because an empty buffer is an
        // error.
        let room = (room as usize).min(endpoint.available().clamp(1, MAX_USER_DATA));
        payload.resize(room, 0);
        let received = self.driver.stack.recv(self.now, port, payload, options);
        let group = received.as_ref().ok().and_then(|received| received.group);
        if !group.is_some_and(|group| group.kind.is_event()) {
            payload.truncate(received.as_ref().map_or(0, |r| r.len));
        }
        if received == Err(RecvError::WouldBlock) {
            self.holders.wants_to_read(port);
        }
        if options.peek {
            // After a peek, the process may wait for more messages than the queue holds.
            self.holders.watch(port);
        }
        self.with_lanes(|lanes, context| lanes.consider_node_lanes(context, port));
        let reply = |received: Received| match group {
            Some(group) if received.after_loss => Reply::ReceivedAfterLoss(received, group),
            Some(group) => Reply::ReceivedInGroup(received, group),
            None => Reply::Received(received),
        };
        received.map(reply).map_err(Failure::Receive)
    }
}
