//! Two links to one peer. Failover: the packets of a failed link travel over the other one. Synchronisation: a new link
//! waits for the packets of the old one. Spec: tipc.md §5.12, §5.13.

use super::fragment::{self, FragmentFault, Reassembly};
use super::receive::{Arrival, ReceiveQueue};
use super::unpack::{Carrier, Unpacker};
use super::{Link, LinkIo, Outgoing, SendFault};
use crate::limits::capability;
use crate::outbox::BearerId;
use crate::wire::{BASIC_HEADER, ErrorCode, INTERNAL_HEADER, Message, MessageType, User, View};

/// TUNNEL type: the new link delivers after a packet of the old one. Spec: tipc.md §3.6.
const SYNCH: u8 = 0;
/// TUNNEL type: a packet of the failed link. Spec: tipc.md §3.6.
const FAILOVER: u8 = 1;

/// The receiving half of a failed link; its next packet is the drop point.
#[derive(Debug)]
pub(super) struct Inherited {
    queue: ReceiveQueue,
    pub(super) unpacker: Unpacker,
    /// Reassembles a tunnelled packet that arrives in parts.
    parts: Reassembly,
}

impl Inherited {
    fn new(queue: ReceiveQueue, reassembly: Reassembly) -> Self {
        let unpacker = Unpacker { reassembly, ..Unpacker::default() };
        Self { queue, unpacker, parts: Reassembly::default() }
    }

    pub(super) fn deferred_bytes(&self) -> usize {
        self.queue.deferred_bytes() + self.unpacker.reassembly.bytes() + self.parts.bytes()
    }
}

/// State of a failed link that the other link takes over.
#[derive(Debug)]
pub struct Failover {
    packets: Vec<Message>,
    peer_bearer: BearerId,
    inherited: Inherited,
}

/// The packet of the old link after which the new link may deliver; `None` if the packet is not a SYNCH. Spec: tipc.md
/// §5.12.
#[must_use]
pub fn synch_point(packet: View<'_>) -> Option<u16> {
    if packet.user() != User::Tunnel || packet.kind() != SYNCH || !packet.header_fits() {
        return None;
    }
    if packet.payload().is_empty() {
        return Some(packet.sync_point());
    }
    let inner = View::parse(packet.payload()).ok()?;
    Some(inner.seqno().wrapping_add(packet.message_count()).wrapping_sub(1))
}

/// The tunnel packet that ends the failover according to this packet; `None` if it is not a FAILOVER. The smallest
/// value received counts. Spec: tipc.md §5.13.
#[must_use]
pub fn failover_point(packet: View<'_>) -> Option<u16> {
    let is_failover = packet.user() == User::Tunnel && packet.kind() == FAILOVER && packet.header_fits();
    is_failover.then(|| packet.seqno().wrapping_add(packet.message_count()).wrapping_sub(1))
}

impl Link {
    /// The message that a new link must send first if this link is already up.
    #[must_use]
    pub fn synch_message(&self) -> Message {
        let mut synch = self.tunnel_packet(SYNCH, self.peer_bearer, &[]);
        let waiting = self.backlog.len() as u16;
        synch.set_sync_point(self.snd_nxt().wrapping_add(waiting).wrapping_sub(1));
        synch
    }

    /// Removes the state that the other link must take over. The caller resets this link afterwards.
    #[must_use]
    pub fn take_failover(&mut self) -> Failover {
        let mut next = self.snd_nxt();
        let mut packets: Vec<Message> =
            self.session.transmit.take(next).map(|sent| sent.packet.into_message()).collect();
        let waiting = core::iter::from_fn(|| self.backlog.pop()).map(Outgoing::into_message);
        let mut unsent: Vec<Message> = waiting.collect();
        unsent.push(self.dummy());
        for mut packet in unsent {
            packet.set_seqno(next);
            next = next.wrapping_add(1);
            packets.push(packet);
        }
        let queue = core::mem::replace(&mut self.session.receive, ReceiveQueue::new(self.config.first_seqno));
        let reassembly = core::mem::take(&mut self.session.unpacker.reassembly);
        Failover { packets, peer_bearer: self.peer_bearer, inherited: Inherited::new(queue, reassembly) }
    }

    /// Sends the packets of the failed link over this one, and expects those of the peer.
    ///
    /// # Errors
    /// [`SendFault`] if this link is down, or a packet is too large and the peer does not accept parts; nothing is
    /// sent.
    pub fn carry_failover(&mut self, failover: Failover, io: &mut LinkIo<'_>) -> Result<(), SendFault> {
        if !self.is_up() {
            return Err(SendFault::Down);
        }
        let mut tunnelled = Vec::with_capacity(failover.packets.len());
        for packet in &failover.packets {
            self.wrap(packet, failover.peer_bearer, &mut tunnelled)?;
        }
        self.session.inherited = Some(failover.inherited);
        let count = tunnelled.len() as u16;
        for mut packet in tunnelled {
            packet.set_message_count(count);
            self.send_packet(packet, io);
        }
        Ok(())
    }

    /// Enters a failover that only the peer started: the failed link never carried packets at this end. `failed_bearer`
    /// is the peer's bearer of that link.
    pub fn join_failover(&mut self, failed_bearer: BearerId, io: &mut LinkIo<'_>) {
        let queue = ReceiveQueue::new(self.config.first_seqno);
        self.session.inherited = Some(Inherited::new(queue, Reassembly::default()));
        let mut packet = self.tunnel_packet(FAILOVER, failed_bearer, self.dummy().bytes());
        packet.set_message_count(1);
        self.send_packet(packet, io);
    }

    /// Number of the next packet expected from the failed link, during a failover.
    #[must_use]
    pub fn drop_point(&self) -> Option<u16> {
        self.session.inherited.as_ref().map(|i| i.queue.rcv_nxt())
    }

    /// Handles a TUNNEL packet that is in order.
    pub(super) fn receive_tunnel(
        &mut self,
        packet: View<'_>,
        io: &mut LinkIo<'_>,
    ) -> Result<(), FragmentFault> {
        if packet.kind() == SYNCH && packet.header_fits() {
            return Ok(());
        }
        let inherited =
            self.session.inherited.as_mut().filter(|_| packet.kind() == FAILOVER && packet.header_fits());
        let Some(inherited) = inherited else {
            self.session.stats.refused += 1;
            return Ok(());
        };
        let (number, count) = (packet.fragment_number(), packet.fragment_count());
        let inner = if count == 0 {
            View::parse(packet.payload()).ok().map(|inner| inner.to_message())
        } else if number == 0 || number > count || count == 1 {
            None
        } else {
            let kind = match number {
                1 => fragment::FIRST,
                n if n == count => fragment::LAST,
                _ => fragment::MIDDLE,
            };
            match inherited.parts.add_slice(kind, packet.payload(), io.pool)? {
                Some(whole) => Some(whole),
                None => return Ok(()),
            }
        };
        let Some(inner) = inner else {
            self.session.stats.refused += 1;
            return Ok(());
        };
        let mut next = match inherited.queue.accept_owned(inner, io.deferral_room) {
            Ok(packet) => Some(packet),
            Err(arrival) => {
                self.session.stats.refused += u64::from(arrival == Arrival::Full);
                return Ok(());
            }
        };
        while let Some(packet) = next {
            inherited.unpacker.unpack(Carrier::Owned(packet), io.pool, io.delivered)?;
            next = inherited.queue.pop();
        }
        Ok(())
    }

    fn wrap(&self, packet: &Message, bearer: BearerId, out: &mut Vec<Message>) -> Result<(), SendFault> {
        let room = self.largest().saturating_sub(INTERNAL_HEADER).max(1);
        if packet.size() <= room {
            out.push(self.tunnel_packet(FAILOVER, bearer, packet.bytes()));
            return Ok(());
        }
        if !self.peer_can(capability::TUNNEL_ENHANCED) {
            return Err(SendFault::TooLarge { size: packet.size() + INTERNAL_HEADER, mtu: self.mtu });
        }
        let count = packet.size().div_ceil(room) as u16;
        for (number, slice) in (1u16..).zip(packet.bytes().chunks(room)) {
            let mut part = self.tunnel_packet(FAILOVER, bearer, slice);
            part.set_fragment_number(number);
            part.set_fragment_count(count);
            out.push(part);
        }
        Ok(())
    }

    fn tunnel_packet(&self, kind: u8, bearer: BearerId, data: &[u8]) -> Message {
        let mut packet = Message::build(User::Tunnel, kind, INTERNAL_HEADER, data);
        packet.set_prev_node(self.config.own);
        packet.set_origin_node(self.config.own);
        packet.set_dest_node(self.config.peer);
        packet.set_bearer_id(bearer);
        packet
    }

    /// An empty packet, for a failover without packets: at least one must be sent.
    fn dummy(&self) -> Message {
        let mut dummy = Message::build(User::Low, MessageType::Direct.into(), BASIC_HEADER, &[]);
        dummy.set_error_code(ErrorCode::NoPort);
        dummy.set_prev_node(self.config.own);
        dummy.set_origin_node(self.config.own);
        dummy.set_dest_node(self.config.peer);
        dummy
    }
}
