//! Sending multicasts: a copy through the lane to each receiver on this node, one message through the node lane for the
//! other nodes, or one request for all.

use utipc_attach::Request;
use utipc_core::addr::{PortId, ServiceRange};
use utipc_core::socket::Destination;
use utipc_lanes::{Address, LaneError, Route};

use crate::attachment::lookup::Found;
use crate::attachment::names::Receivers;
use crate::error::Error;
use crate::send::SendPath;
use crate::send::lanes::ByLane;
use crate::send::outbox::SendHalf;

impl SendPath {
    /// Sends to all sockets bound to a range: by lanes if there is one to each receiver on this node and, for those
    /// elsewhere, the node lane. Otherwise one request serves all receivers without a lane; its reply lists the others.
    pub(super) fn send_multicast(
        &self,
        half: &mut SendHalf,
        range: ServiceRange,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        let Found::Bound(receivers) = self.base().attachment.receivers(range, half.receivers.take())? else {
            return self.send_through_node(half, data, node_request);
        };
        self.process_events(half)?;
        let sent = self.send_to_receivers(half, &receivers, data, node_request);
        half.receivers = Some(receivers);
        sent
    }

    fn send_to_receivers(
        &self,
        half: &mut SendHalf,
        receivers: &Receivers,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        if !self.may_send_copies(half, &receivers.ports, data.len())? {
            return Ok(None);
        }
        if !half.lanes.reaches_all(&receivers.ports) || receivers.is_empty() {
            return self.send_multicast_by_node(half, receivers, data, node_request);
        }
        if receivers.remote {
            match self.send_by_node_lane(
                half,
                PortId::default(),
                Address::Multicast(receivers.range),
                data,
            )? {
                ByLane::Taken => {}
                ByLane::Waits => return Ok(None),
                ByLane::NoLane => return self.send_multicast_by_node(half, receivers, data, node_request),
            }
        }
        let to = Destination::Range(receivers.range);
        let before = (half.lanes.messages, half.lanes.bytes);
        for port in &receivers.ports {
            self.send_copy(half, *port, data, to)?;
        }
        // All copies count as one message, which the node counts if it has any.
        let (messages, bytes) = if receivers.remote { (0, 0) } else { (1, data.len() as u64) };
        (half.lanes.messages, half.lanes.bytes) = (before.0 + messages, before.1 + bytes);
        Ok(Some(data.len()))
    }

    /// Sends a multicast by a request, and requests the lanes that would make it unnecessary.
    fn send_multicast_by_node(
        &self,
        half: &mut SendHalf,
        receivers: &Receivers,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        let sent = self.send_through_node(half, data, node_request)?;
        if sent.is_some() {
            for port in &receivers.ports {
                if half.lanes.note_request_to(*port) {
                    self.base().ask_for_lane(*port)?;
                }
            }
            if receivers.remote && half.lanes.note_remote_request() {
                self.base().ask_for_lane(0)?;
            }
        }
        Ok(sent)
    }

    /// Whether the copies of a multicast go to these sockets now. All lanes are checked before the first copy is sent:
    /// while one is full whose reader is worth a wait, the whole multicast waits. All waits run at the same time.
    fn may_send_copies(&self, half: &mut SendHalf, ports: &[u32], bytes: usize) -> Result<bool, Error> {
        let mut may = true;
        for port in ports {
            while let Err(error) = half.lanes.check_room(*port, bytes) {
                if self.resolves(half, Route::Socket(*port), error)? {
                    continue;
                }
                // Sending the copy reacts to any other error.
                may &= error != LaneError::Full || !self.waits_for_reader(half, *port);
                break;
            }
        }
        Ok(may)
    }
}
