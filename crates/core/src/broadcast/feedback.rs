//! Broadcast acknowledgements and gaps in unicast packets and LINK_PROTOCOL messages of a peer. Spec: tipc.md §7.3.

use super::BroadcastIo;
use super::receiver::BroadcastReceiver;
use super::sender::{Acknowledged, BroadcastSender};
use crate::addr::NodeAddr;
use crate::error::WireError;
use crate::limits::capability;
use crate::time::Time;
use crate::wire::{GapBlock, GapRecord, LinkProtocolType, User, View};

/// Processes the broadcast part of a LINK_PROTOCOL message of `peer`, before its link sees the message. Returns true if
/// a STATE must be sent in answer (and the message is not a probe, which is always answered).
///
/// # Errors
/// [`WireError`] if the gap record is malformed: the caller must drop the whole message. Spec: tipc.md §3.1, §6.1.
pub fn receive_link_protocol(
    sender: &mut BroadcastSender,
    receiver: &mut BroadcastReceiver,
    now: Time,
    peer: NodeAddr,
    view: View<'_>,
    io: &mut BroadcastIo<'_>,
) -> Result<bool, WireError> {
    if view.link_type() != LinkProtocolType::State {
        if !view.redundant_link() {
            receiver.start_legacy(view.last_bcast());
        }
        return Ok(false);
    }
    if view.bcast_ack_invalid() {
        return Ok(false);
    }
    let blocks = broadcast_blocks(view, receiver.capabilities())?;
    if !receiver.is_open() {
        return Ok(false);
    }
    sender.acknowledge(now, peer, (view.bcast_ack(), view.bcast_gap()), &blocks, io);
    if view.ack() != 0 {
        sender.open_peer(peer);
    }
    let lacking = sender.is_open(peer) && receiver.announce(view.last_bcast());
    Ok(lacking && !view.probe() && receiver.take_answer(now))
}

/// Processes the broadcast ack that every sequenced packet of `peer` carries.
pub fn receive_ack(
    sender: &mut BroadcastSender,
    now: Time,
    peer: NodeAddr,
    view: View<'_>,
    io: &mut BroadcastIo<'_>,
) -> Acknowledged {
    let may_be_invalid =
        matches!(view.user(), User::BcastProtocol | User::LinkProtocol | User::NameDistributor);
    let invalid = may_be_invalid && view.bcast_ack_invalid();
    if invalid || sender.acked(peer).is_none_or(|acked| acked == view.bcast_ack()) {
        return Acknowledged::Ignored;
    }
    sender.acknowledge(now, peer, (view.bcast_ack(), 0), &[], io)
}

/// Processes a broadcast BCAST_PROTOCOL message: peers without BCAST_STATE_NACK report gaps this way. Only the node
/// whose packets are missing acts on it. Spec: tipc.md §3.2.
pub fn receive_legacy_nack(
    sender: &mut BroadcastSender,
    own: NodeAddr,
    now: Time,
    view: View<'_>,
    io: &mut BroadcastIo<'_>,
) -> Acknowledged {
    let legal = view.user() == User::BcastProtocol && view.kind() == 0 && view.header_fits();
    if !legal || view.dest_node() != Some(own) {
        return Acknowledged::Ignored;
    }
    let gap = view.bcast_gap_to().wrapping_sub(view.bcast_ack());
    sender.acknowledge(now, view.prev_node(), (view.bcast_ack(), gap), &[], io)
}

/// The broadcast blocks of a STATE's gap record; empty if the peer does not send the record. Spec: tipc.md §3.1, §5.8.
fn broadcast_blocks(view: View<'_>, capabilities: u16) -> Result<Vec<GapBlock>, WireError> {
    let data = view.payload();
    if capabilities & capability::GAP_ACK_BLOCK == 0 || data.is_empty() {
        return Ok(Vec::new());
    }
    Ok(GapRecord::parse(data)?.broadcast)
}
