//! An established connection: sending, acknowledgements and probes. Spec: tipc.md §3.4, §8.4 to §8.6.

use super::flow::Flow;
use super::nagle::{Batch, Collected, Nagle};
use super::probe::Probe;
use crate::addr::{NodeAddr, PortId, ServiceAddr};
use crate::limits::{MAX_MESSAGE, MAX_USER_DATA, capability};
use crate::socket::base::Base;
use crate::socket::call::Call;
use crate::socket::error::SendError;
use crate::socket::types::{SocketKind, WaitReason};
use crate::socket::uplink::SubmitError;
use crate::time::Time;
use crate::wire::{ErrorCode, INTERNAL_HEADER, Message, Packet, SHORT_HEADER, User, blocks, reverse};

// Kinds of CONN_MANAGER messages. Spec: tipc.md §3.4.
const PROBE: u8 = 0;
const PROBE_REPLY: u8 = 1;
const ACK: u8 = 2;

/// The connection to one peer.
#[derive(Debug)]
pub(in crate::socket) struct Session {
    peer: PortId,
    /// The service address by which the connection was set up.
    service: Option<ServiceAddr>,
    flow: Flow,
    nagle: Nagle,
    probe: Probe,
}

impl Session {
    /// A connection that begins now.
    pub(super) fn new(now: Time, peer: PortId, service: Option<ServiceAddr>, call: &mut Call<'_>) -> Self {
        let peer = peer.on(call.own());
        let capabilities = call.uplink.capabilities(peer.node);
        let collects = call.base.kind() == SocketKind::Stream && capabilities & capability::NAGLE != 0;
        let mss = if collects { call.uplink.mss(peer.node) } else { 0 };
        call.uplink.register_connection(call.base.port(), peer);
        Self {
            peer,
            service,
            flow: Flow::new(capabilities),
            nagle: Nagle::new(mss, call.base.settings.no_delay),
            probe: Probe::new(now),
        }
    }

    /// The connection request carried data: they count as sent.
    pub(super) fn with_request(mut self, request: &Message) -> Self {
        if !request.data().is_empty() {
            self.flow.sent(blocks(request.size()));
        }
        self
    }

    pub(super) fn peer(&self) -> PortId {
        self.peer
    }

    pub(super) fn service(&self) -> Option<ServiceAddr> {
        self.service
    }

    /// Whether `msg` is from the peer.
    pub(super) fn is_from_peer(&self, msg: &Message, own: NodeAddr) -> bool {
        // the node may have got its address after the connection was established, or after the message was sent
        msg.origin().on(own) == self.peer.on(own)
    }

    /// Whether the peer counts messages, not blocks.
    pub(super) fn is_legacy(&self) -> bool {
        self.flow.is_legacy()
    }

    /// Blocks that the peer has not acknowledged.
    #[cfg(test)]
    pub(in crate::socket) fn unacked(&self) -> u32 {
        self.flow.unacked()
    }

    /// Whether collected data has not been sent yet.
    pub(in crate::socket) fn has_unsent(&self) -> bool {
        !self.nagle.is_empty()
    }

    /// Bytes of collected data.
    pub(super) fn bytes(&self) -> u64 {
        self.nagle.bytes()
    }

    pub(in crate::socket) fn set_no_delay(&mut self, no_delay: bool) {
        self.nagle.set_no_delay(no_delay);
    }

    /// Why nothing can be sent now.
    pub(super) fn send_wait(&self, base: &Base) -> Option<WaitReason> {
        match base.congestion.first() {
            Some(node) => Some(base.link_reason(node)),
            None => self.window_wait(),
        }
    }

    /// Why the peer's window allows no message now.
    pub(super) fn window_wait(&self) -> Option<WaitReason> {
        let (unacked, window) = (self.flow.unacked(), self.flow.send_window());
        self.flow.is_congested().then_some(WaitReason::PeerWindow { peer: self.peer, unacked, window })
    }

    pub(super) fn send(&mut self, data: &[u8], call: &mut Call<'_>) -> Result<usize, SendError> {
        if call.base.kind() == SocketKind::Stream && data.is_empty() {
            return Ok(0);
        }
        let mut rest = data;
        let mut sent = 0;
        loop {
            if let Some(reason) = self.send_wait(call.base) {
                let refused = call.base.would_block(reason);
                return if sent > 0 { Ok(sent) } else { refused };
            }
            let (chunk, later) = rest.split_at(rest.len().min(MAX_USER_DATA));
            match self.send_chunk(chunk, call) {
                Ok(()) => {}
                Err(_) if sent > 0 => return Ok(sent),
                Err(e) => return Err(e.into()),
            }
            sent += call.base.sent(chunk);
            rest = later;
            if rest.is_empty() {
                return Ok(sent);
            }
        }
    }

    fn send_chunk(&mut self, chunk: &[u8], call: &mut Call<'_>) -> Result<(), SubmitError> {
        if self.collects(chunk.len(), call.base) {
            return self.collect(chunk, call);
        }
        let memory = call.uplink.memory(SHORT_HEADER + chunk.len());
        let msg = call.connection_message(self.peer, memory, chunk);
        self.submit(msg, call)
    }

    /// Sends a message that was built for the connection, unless Nagle's algorithm collects its data.
    pub(super) fn send_built(&mut self, msg: Message, call: &mut Call<'_>) -> Result<(), SubmitError> {
        if !self.collects(msg.data().len(), call.base) {
            return self.submit(msg, call);
        }
        let collected = self.collect(msg.data(), call);
        call.uplink.recycle(msg);
        collected
    }

    /// Whether Nagle's algorithm collects a write, and the user of the socket has memory left for it.
    fn collects(&mut self, len: usize, base: &Base) -> bool {
        self.nagle.wants(len) && base.room(self.bytes()) >= (len + MAX_MESSAGE) as u64
    }

    fn collect(&mut self, chunk: &[u8], call: &mut Call<'_>) -> Result<(), SubmitError> {
        let peer = self.peer;
        let empty = |room| {
            let memory = call.uplink.memory(room);
            call.connection_message(peer, memory, &[])
        };
        match self.nagle.collect(chunk, empty) {
            Collected::Hold => Ok(()),
            Collected::FlushFull => {
                let full = self.nagle.take_full();
                self.submit_collected(full, call)
            }
            Collected::Flush => self.send_collected(call),
        }
    }

    fn submit(&mut self, msg: Message, call: &mut Call<'_>) -> Result<(), SubmitError> {
        // an empty message is never acknowledged
        let cost = if msg.data().is_empty() { 0 } else { self.flow.cost(msg.size()) };
        call.may_send(self.peer.node, msg.size(), self.bytes())?;
        self.send_collected(call)?;
        call.submit(self.peer.node, msg)?;
        self.flow.sent(cost);
        Ok(())
    }

    /// Sends everything that Nagle has collected, regardless of the window, which was checked when it was collected.
    fn send_collected(&mut self, call: &mut Call<'_>) -> Result<(), SubmitError> {
        if self.nagle.is_empty() {
            return Ok(());
        }
        let all = self.nagle.take();
        self.submit_collected(all, call)
    }

    fn submit_collected(&mut self, collected: Batch, call: &mut Call<'_>) -> Result<(), SubmitError> {
        let Batch { messages, blocks } = collected;
        self.flow.sent(if self.flow.is_legacy() { messages.len() as u32 } else { blocks });
        for msg in messages {
            call.submit(self.peer.node, msg)?;
        }
        Ok(())
    }

    /// Sends collected data after a message from the peer or a wake-up of the link, unless the link is congested.
    ///
    /// # Errors
    /// Data of the stream is lost: the connection cannot continue.
    pub(super) fn push_collected(&mut self, call: &mut Call<'_>) -> Result<(), SubmitError> {
        if self.nagle.is_empty() || !call.base.congestion.is_empty() {
            return Ok(());
        }
        self.nagle.pushed();
        self.send_collected(call)
    }

    /// A payload message has arrived, maybe not from the peer.
    pub(super) fn note_payload(&mut self) {
        self.nagle.peer_message();
    }

    /// A message of `bytes` arrived over another path: the peer did not count it.
    pub(in crate::socket) fn prepay(&mut self, bytes: usize) {
        self.flow.prepay(bytes);
    }

    /// The application has consumed a message of `bytes`.
    pub(super) fn consumed(&mut self, bytes: usize, call: &mut Call<'_>) {
        if self.flow.consume(bytes) {
            self.acknowledge(false, call);
        }
    }

    /// Acknowledges consumed data to the peer, if there is any.
    pub(super) fn acknowledge(&mut self, nagle: bool, call: &mut Call<'_>) {
        let (acked, window) = self.flow.take_ack(call.base.settings.receive_buffer);
        let mut ack = self.control_message(ACK, call.base.port(), call.own());
        ack.set_conn_acked(acked);
        ack.set_advertised_window(window);
        ack.set_nagle_ack(nagle);
        if call.uplink.submit(self.peer.node, ack).is_err() {
            self.flow.defer_ack(acked);
            return;
        }
        call.base.stats.acks_sent += 1;
    }

    /// Handles a CONN_MANAGER message of the peer.
    ///
    /// # Errors
    /// As [`Self::push_collected`].
    pub(super) fn control(&mut self, mut msg: Message, call: &mut Call<'_>) -> Result<(), SubmitError> {
        self.probe.answered();
        match msg.kind() {
            PROBE => {
                msg.set_kind(PROBE_REPLY);
                if let Some(reply) = reverse(call.own(), msg, ErrorCode::Ok) {
                    // a lost reply costs the peer one probe interval
                    let _ = call.uplink.submit(self.peer.node, reply);
                }
            }
            PROBE_REPLY => {}
            ACK if self.flow.acknowledged(msg.conn_acked(), msg.advertised_window()) => {
                if msg.nagle_ack() {
                    self.nagle.acknowledged();
                }
                return self.push_collected(call);
            }
            _ => call.base.stats.dropped += 1,
        }
        Ok(())
    }

    /// Time when [`Self::probe`] is due.
    pub(super) fn probe_due(&self) -> Time {
        self.probe.due()
    }

    /// Probes the peer; false if it has not answered the last probe.
    pub(super) fn probe(&mut self, now: Time, call: &mut Call<'_>) -> bool {
        let is_alive = self.probe.next(now);
        if is_alive {
            let probe = self.control_message(PROBE, call.base.port(), call.own());
            // if the probe cannot be sent, the next timeout ends the connection
            let _ = call.uplink.submit(self.peer.node, probe);
        }
        is_alive
    }

    fn control_message(&self, kind: u8, port: u32, own: NodeAddr) -> Message {
        let mut msg = Packet::build(User::ConnManager, kind, INTERNAL_HEADER, &[]);
        msg.set_prev_node(own);
        msg.set_origin_node(own);
        msg.set_origin_port(port);
        msg.set_dest_node(self.peer.node);
        msg.set_dest_port(self.peer.port);
        msg
    }
}
