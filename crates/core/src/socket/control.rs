//! CONN_MANAGER: acknowledgements and probes. Spec: tipc.md §3.4, §8.4, §8.5.

use super::endpoint::Endpoint;
use super::error::ConnectError;
use super::state::{Event, State};
use super::uplink::Uplink;
use crate::addr::NodeAddr;
use crate::time::Time;
use crate::wire::reverse;
use crate::wire::{ErrorCode, INTERNAL_HEADER, Message, Packet, User};

/// Interval at which the peer of an idle connection is probed, milliseconds. Spec: tipc.md §8.4.
pub(super) const PROBE_INTERVAL_MS: u64 = 3_600_000;

const PROBE: u8 = 0;
const PROBE_REPLY: u8 = 1;
const ACK: u8 = 2;

impl Endpoint {
    /// Handles a CONN_MANAGER message for this port.
    pub(super) fn connection_control(&mut self, mut msg: Message, uplink: &mut dyn Uplink) {
        if !self.is_from_peer(&msg, uplink.own_node()) {
            self.stats.dropped += 1;
            return;
        }
        if msg.error_code() != ErrorCode::Ok {
            self.stats.returned_to_us += 1;
            self.lost_peer(msg.error_code(), uplink);
            return;
        }
        self.probe_unanswered = false;
        match msg.kind() {
            PROBE => {
                msg.set_kind(PROBE_REPLY);
                if let Some(reply) = reverse(uplink.own_node(), msg, ErrorCode::Ok) {
                    // a lost reply costs the peer one probe interval
                    let _ = uplink.submit(self.peer.node, reply);
                }
            }
            PROBE_REPLY => {}
            ACK => self.acknowledged(&msg, uplink),
            _ => self.stats.dropped += 1,
        }
    }

    fn acknowledged(&mut self, msg: &Message, uplink: &mut dyn Uplink) {
        if u32::from(msg.conn_acked()) > self.flow.unacked() {
            self.stats.dropped += 1;
            return;
        }
        if msg.nagle_ack() {
            self.nagle.acknowledged();
        }
        self.push_collected(uplink);
        self.flow.acknowledged(msg.conn_acked(), msg.advertised_window());
        self.continue_closing(uplink);
    }

    /// Acknowledges consumed data to the peer, if there is any.
    pub(super) fn acknowledge(&mut self, nagle: bool, uplink: &mut dyn Uplink) {
        if self.state != State::Established {
            return;
        }
        let (acked, window) = self.flow.take_ack(self.settings.receive_buffer);
        let mut ack = self.control_message(ACK, uplink.own_node());
        ack.set_conn_acked(acked);
        ack.set_advertised_window(window);
        ack.set_nagle_ack(nagle);
        if uplink.submit(self.peer.node, ack).is_err() {
            self.flow.defer_ack(acked);
            return;
        }
        self.stats.acks_sent += 1;
    }

    fn control_message(&self, kind: u8, own: NodeAddr) -> Message {
        let mut msg = Packet::build(User::ConnManager, kind, INTERNAL_HEADER, &[]);
        msg.set_prev_node(own);
        msg.set_origin_node(own);
        msg.set_origin_port(self.port);
        msg.set_dest_node(self.peer.node);
        msg.set_dest_port(self.peer.port);
        msg
    }

    /// Handles the probe timer of a connection.
    pub(super) fn probe(&mut self, now: Time, uplink: &mut dyn Uplink) {
        self.probe_at = None;
        if self.state != State::Established {
            return;
        }
        if self.probe_unanswered {
            self.enter(Event::ProbeLost);
            self.error = Some(ConnectError::Aborted);
            uplink.unregister_connection(self.port);
            self.continue_closing(uplink);
            return;
        }
        let probe = self.control_message(PROBE, uplink.own_node());
        // if the probe cannot be sent, the next timeout ends the connection
        let _ = uplink.submit(self.peer.node, probe);
        self.probe_unanswered = true;
        self.probe_at = Some(now.plus_millis(PROBE_INTERVAL_MS));
    }

    /// True if `msg` is from the peer of an established connection.
    pub(super) fn is_from_peer(&self, msg: &Message, own: NodeAddr) -> bool {
        // the node may have got its address after the connection was established, or after the message was sent
        self.state == State::Established && msg.origin().on(own) == self.peer.on(own)
    }
}
