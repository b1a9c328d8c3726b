//! Whom an endpoint is charged to, and how much memory its messages may use.

use crate::quota::UserId;

/// The user of an endpoint, and the limit of its memory.
#[derive(Debug)]
pub(super) struct Account {
    user: Option<UserId>,
    /// Bytes that the endpoint's messages may use together.
    limit: u64,
    /// Messages refused because of it.
    refused: u64,
}

impl Account {
    pub(super) const fn new() -> Self {
        Self { user: None, limit: u64::MAX, refused: 0 }
    }

    pub(super) fn user(&self) -> Option<UserId> {
        self.user
    }

    pub(super) fn set_user(&mut self, user: UserId) {
        self.user = Some(user);
    }

    /// Lets the `used` bytes grow by `room` more.
    pub(super) fn set_room(&mut self, used: u64, room: u64) {
        self.limit = used.saturating_add(room);
    }

    /// By how much the `used` bytes may still grow.
    pub(super) fn room(&self, used: u64) -> u64 {
        self.limit.saturating_sub(used)
    }

    /// Counts a message that was refused for lack of room.
    pub(super) fn refuse(&mut self) {
        self.refused += 1;
    }

    /// Messages refused since the last call.
    pub(super) fn take_refused(&mut self) -> u64 {
        core::mem::take(&mut self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_limit_leaves() {
        let mut account = Account::new();
        assert_eq!(account.room(1000), u64::MAX - 1000, "no limit");
        account.set_room(1000, 500);
        assert_eq!((account.room(1000), account.room(1200), account.room(1501)), (500, 300, 0));
        account.set_room(1000, u64::MAX);
        assert_eq!(account.room(0), u64::MAX);
    }

    #[test]
    fn refused_messages_are_reported_once() {
        let mut account = Account::new();
        account.refuse();
        account.refuse();
        assert_eq!((account.take_refused(), account.take_refused()), (2, 0));
    }
}
