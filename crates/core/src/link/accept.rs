//! Selects the messages that a link delivers; all others are dropped.

use crate::wire::{MessageType, User, View};

/// True for a message that a link may deliver from a bundle or from fragments. Spec: tipc.md §14.2.
pub(super) fn may_be_inside(message: View<'_>) -> bool {
    let user = message.user();
    let known = match user {
        User::ConnManager | User::GroupProtocol | User::NameDistributor => true,
        _ => user.is_data() && message.message_type() != MessageType::GroupEvent,
    };
    known && message.header_fits()
}

/// True for a message that a link may deliver from a packet of its own.
pub(super) fn may_be_top(message: View<'_>) -> bool {
    let user = message.user();
    may_be_inside(message) || matches!(user, User::BcastProtocol | User::Crypto) && message.header_fits()
}
