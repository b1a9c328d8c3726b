//! Requests that send, receive and accept.

use utipc_attach::{Failure, Reply};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{AcceptError, Destination, Received, RecvError, RecvOptions, SendError};
use utipc_core::{Origin, PortId, Stack, Time};
use utipc_lanes::daemon::is_datagram;

use super::requests::Done;
use super::{Answer, Dispatcher};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::quotas;

impl Dispatcher {
    pub(super) fn send_found(
        &mut self,
        now: Time,
        port: u32,
        (to, found): (Destination, PortId),
        payload: &[u8],
    ) -> Done {
        self.check_earlier_messages(port)?;
        let sent = self.driver.stack.send_found(now, port, payload, to, found);
        self.sent(now, port, sent, false)
    }

    pub(super) fn send_keyed(
        &mut self,
        now: Time,
        (id, port): (AttachmentId, u32),
        (to, key): (Option<Destination>, u64),
        payload: &[u8],
        answer: &mut Answer,
    ) -> Done {
        let endpoint = self.endpoint(port, Failure::Send(SendError::Broken))?;
        if endpoint.group().is_none() {
            return Err(Failure::State);
        }
        self.with_lanes(now, |lanes, context| lanes.stop_group_lanes(context, port));
        self.submit(now, (id, port), to, answer, |stack| stack.send_keyed(now, port, payload, to, key))
    }

    pub(super) fn send(
        &mut self,
        now: Time,
        (id, port): (AttachmentId, u32),
        to: Option<Destination>,
        payload: &[u8],
        answer: &mut Answer,
    ) -> Done {
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
            self.sockets.wants_to_write(port);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        if endpoint.group().is_some() {
            // Messages that a member sends through the node follow those that it has written into lanes.
            self.with_lanes(now, |lanes, context| lanes.stop_group_lanes(context, port));
        }
        self.submit(now, (id, port), to, answer, |stack| stack.send(now, port, payload, to))
    }

    /// Sends; if that begins to collect the receivers, the request is answered when all are known.
    fn submit(
        &mut self,
        now: Time,
        (id, port): (AttachmentId, u32),
        to: Option<Destination>,
        answer: &mut Answer,
        send: impl FnOnce(&mut Stack) -> Result<usize, SendError>,
    ) -> Done {
        let was_collecting = self.driver.stack.is_collecting(port);
        let sent = send(&mut self.driver.stack);
        self.check_subscription(port)?;
        let reply = self.sent(now, port, sent, matches!(to, Some(Destination::Range(_))))?;
        if let Reply::Sent { bytes, .. } = reply
            && !was_collecting
            && self.driver.stack.is_collecting(port)
        {
            answer.comes_later = true;
            self.collecting.insert(port, (id, bytes));
        }
        Ok(reply)
    }

    /// Continues the multicasts of a sender; false if all copies are made.
    pub(super) fn continue_spread(&mut self, now: Time, origin: Origin) -> bool {
        let has_more = self.driver.stack.continue_spread(now, origin);
        if let Some((port, lanes)) = self.driver.stack.take_collected()
            && let Some((id, bytes)) = self.collecting.remove(&port)
        {
            self.reply_later(id, Reply::Sent { bytes, lanes }, Vec::new());
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
            self.sockets.wants_to_write(port);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        Ok(())
    }

    /// The reply to a send. Its `lanes` are receivers that the process must reach by its lanes. `is_multicast`:
    /// other sockets got the message.
    fn sent(&mut self, now: Time, port: u32, sent: Result<usize, SendError>, is_multicast: bool) -> Done {
        if sent == Err(SendError::WouldBlock) {
            self.sockets.wants_to_write(port);
        }
        let lanes = self.driver.stack.take_diverted();
        let bytes = sent.map_err(Failure::Send)?;
        self.with_lanes(now, |lanes, context| lanes.consider_node_lanes(context, port));
        Ok(Reply::Sent { bytes: if is_multicast || lanes.is_empty() { bytes as u32 } else { 0 }, lanes })
    }

    pub(super) fn accept(&mut self, now: Time, id: AttachmentId, port: u32) -> Done {
        self.check_new_socket(id)?;
        let accepted = self.driver.stack.accept(now, port);
        if accepted == Err(AcceptError::WouldBlock) {
            self.sockets.wants_to_read(port);
        }
        let (new, peer) = accepted.map_err(Failure::Accept)?;
        self.add_socket(id, new);
        if self.sockets.contains(peer.port) {
            self.with_lanes(now, |lanes, context| lanes.connect(context, [new, peer.port]));
        }
        Ok(Reply::Accepted { port: new, peer })
    }

    pub(super) fn receive(
        &mut self,
        now: Time,
        port: u32,
        room: u32,
        options: RecvOptions,
        answer: &mut Answer,
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
            self.sockets.wants_to_read(port);
            return Err(Failure::Receive(RecvError::WouldBlock));
        }
        // No more than is available: an idle call costs no memory. One byte at least, because an empty buffer is an
        // error.
        let room = (room as usize).min(endpoint.available().clamp(1, MAX_USER_DATA));
        answer.payload.resize(room, 0);
        let received = self.driver.stack.recv(now, port, &mut answer.payload, options);
        let group = received.as_ref().ok().and_then(|received| received.group);
        if !group.is_some_and(|group| group.kind.is_event()) {
            answer.payload.truncate(received.as_ref().map_or(0, |r| r.len));
        }
        if received == Err(RecvError::WouldBlock) {
            self.sockets.wants_to_read(port);
        }
        if options.peek {
            // After a peek, the process may wait for more messages than the queue holds.
            self.sockets.watch(port);
        }
        self.with_lanes(now, |lanes, context| lanes.consider_node_lanes(context, port));
        let reply = |received: Received| match group {
            Some(group) if received.after_loss => Reply::ReceivedAfterLoss(received, group),
            Some(group) => Reply::ReceivedInGroup(received, group),
            None => Reply::Received(received),
        };
        received.map(reply).map_err(Failure::Receive)
    }
}
