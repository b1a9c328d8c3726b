//! A listener: connection requests that arrive. They wait in the receive queue. Spec: tipc.md §8.2.

use super::call::Call;
use super::uplink::Uplink;
use crate::limits::capability;
use crate::wire::{ErrorCode, Message, MessageType};

/// Handles a payload message for the port: queues a request, rejects anything else.
pub(super) fn handle_data(msg: Message, call: &mut Call<'_>) {
    if call.base.is_closed() || !is_request(&msg, call.uplink) {
        call.respond(msg, ErrorCode::NoPort);
    } else {
        call.enqueue(msg, false, 0);
    }
}

fn is_request(msg: &Message, uplink: &dyn Uplink) -> bool {
    let old_node = || uplink.capabilities(msg.origin_node()) & capability::SYN_BIT == 0;
    matches!(msg.message_type(), MessageType::Named | MessageType::Direct)
        && msg.error_code() == ErrorCode::Ok
        && (msg.syn() || msg.origin_node() != uplink.own_node() && old_node())
}
