//! How loaded a receiver is, as senders compare it when a message may go to any of several. Decisions 29 and 50.

use crate::group::ACTIVE_WINDOW;

/// Receivers whose unread blocks differ by less get messages in turn. A member of a group tells only every so many
/// blocks what was read: an active one when it has a quarter of its window left to grant. The reader of a lane reports
/// less than half of that late.
const STEP: u32 = ACTIVE_WINDOW as u32 / 4;

/// The load of a receiver; the least is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// It takes messages; the steps of unread blocks.
    Open(u32),
    /// It takes one message beyond its limit.
    Brimming,
    /// It takes nothing now, and its senders wait for it.
    Full,
    /// It takes nothing and does not read: its senders do not wait for it any more.
    Silent,
}

impl Load {
    /// The load of a receiver with next to nothing unread.
    pub const IDLE: Self = Self::Open(0);

    /// The load of a receiver that takes messages and has not read this many blocks.
    #[must_use]
    pub const fn of_blocks(unread: u32) -> Self {
        Self::Open(unread / STEP)
    }

    /// Whether a message may be sent to the receiver without a wait.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_that_take_messages_are_preferred_by_what_is_unread() {
        let loads = [Load::IDLE, Load::of_blocks(STEP), Load::Open(u32::MAX), Load::Brimming, Load::Full];
        assert!(loads.is_sorted());
        assert!(Load::Full < Load::Silent);
        assert_eq!(Load::of_blocks(STEP - 1), Load::IDLE);
    }
}
