//! Returning a message to its sender. Spec: tipc.md §2.5.

use super::{BASIC_HEADER, ErrorCode, Message, SHORT_HEADER};
use crate::addr::NodeAddr;
use crate::limits::MAX_RETURNED_DATA;
use crate::planted::{self, Fault};

/// Turns `msg`, which node `own` cannot deliver for the reason `code`, into the rejected message for its sender; the
/// destination node becomes that of the sender. Returns `None` if the message must be dropped instead: because the
/// sender asked for that, or because it is itself a returned message.
#[must_use]
pub fn reverse(own: NodeAddr, msg: Message, code: ErrorCode) -> Option<Message> {
    if planted::active(Fault::ReturnLost) || msg.dest_droppable() || msg.error_code() != ErrorCode::Ok {
        return None;
    }
    let (from, to) = (msg.origin_port(), msg.dest_port());
    // Not the previous node: a node that redirected an anycast does not need the message.
    let node = msg.origin_node();
    // The sender of a connection request keeps a copy for the next attempt.
    let keep = if msg.syn() && code == ErrorCode::Overload { 0 } else { MAX_RETURNED_DATA };
    let mut back = with_node_fields(msg);
    if back.data().len() > keep {
        back.truncate_data(keep);
    }
    back.set_error_code(code);
    back.set_non_sequenced(false);
    back.set_origin_port(to);
    back.set_dest_port(from);
    back.set_prev_node(own);
    back.set_origin_node(own);
    back.set_dest_node(node);
    Some(back)
}

/// `msg` with a header that holds the nodes.
fn with_node_fields(msg: Message) -> Message {
    if msg.header_size() >= BASIC_HEADER {
        return msg;
    }
    let data = msg.data();
    let data = data.get(..MAX_RETURNED_DATA).unwrap_or(data);
    let mut longer = Message::build(msg.user(), msg.kind(), BASIC_HEADER, data);
    let header_and_size = (0xf << 21) | 0x1_ffff;
    longer.set_word(0, msg.word(0) & !header_and_size | longer.word(0) & header_and_size);
    for word in 1..SHORT_HEADER / 4 {
        longer.set_word(word, msg.word(word));
    }
    longer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MessageType, NAMED_HEADER, User};

    #[test]
    fn redirected_message_returns_to_its_origin() {
        let (began, redirected, own) = (NodeAddr(1), NodeAddr(2), NodeAddr(3));
        let mut msg = Message::build(User::Low, MessageType::Named.into(), NAMED_HEADER, b"x");
        msg.set_origin_node(began);
        msg.set_prev_node(redirected);
        msg.set_origin_port(7);
        let back = reverse(own, msg, ErrorCode::NoName).unwrap();
        assert_eq!((back.dest_node(), back.dest_port()), (Some(began), 7));
    }
}
