//! Charges the sockets of users: their number, their bindings and the messages that wait in them.

use crate::quota::{Ledger, Resource, UserId};
use crate::socket::Endpoint;

/// What a socket was charged for before a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charges {
    user: Option<UserId>,
    bindings: u64,
    memory: u64,
}

impl Charges {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let (bindings, memory) = (u64::from(endpoint.binding_count()), endpoint.memory());
        Self { user: endpoint.user(), bindings, memory }
    }

    /// The user of the socket.
    pub(super) fn user(self) -> Option<UserId> {
        self.user
    }

    /// Limits what the socket may keep to what its user has left.
    pub(super) fn limit(self, endpoint: &mut Endpoint, ledger: &Ledger) {
        if let Some(user) = self.user {
            endpoint.set_room(ledger.message_room(user));
        }
    }

    /// Charges the difference after the call. Of a socket that is closed nothing is left.
    pub(super) fn update(self, endpoint: &mut Endpoint, ledger: &mut Ledger) {
        let Some(user) = self.user else { return };
        let closed = endpoint.is_closed();
        let after = if closed { Self { bindings: 0, memory: 0, ..self } } else { Self::of(endpoint) };
        ledger.change(user, Resource::Bindings, self.bindings, after.bindings);
        ledger.change_messages(user, self.memory, after.memory);
        if closed {
            ledger.release(user, Resource::Sockets, 1);
        }
        let refused = endpoint.take_refused();
        if refused > 0 {
            ledger.refuse(user, Resource::Memory, refused);
        }
    }

    /// Charges a user for a new socket and everything in it.
    pub(super) fn begin(endpoint: &mut Endpoint, user: UserId, ledger: &mut Ledger) {
        endpoint.set_user(user);
        let Self { bindings, memory, .. } = Self::of(endpoint);
        ledger.charge(user, Resource::Sockets, 1);
        ledger.charge(user, Resource::Bindings, bindings);
        ledger.change_messages(user, 0, memory);
    }

    /// Whether everything that users are charged for exists. Takes time in proportion to the sockets.
    pub(super) fn are_balanced<'a>(all: impl Iterator<Item = &'a Endpoint>, ledger: &Ledger) -> bool {
        let mut sums = [0; 3];
        for charges in all.map(Self::of).filter(|charges| charges.user.is_some()) {
            sums = [sums[0] + 1, sums[1] + charges.bindings, sums[2] + charges.memory];
        }
        let [sockets, bindings, memory] = sums;
        let used = ledger.total().used;
        let lanes_too = used.get(Resource::Memory) >= memory;
        ledger.is_balanced()
            && (used.get(Resource::Sockets), used.get(Resource::Bindings)) == (sockets, bindings)
            && lanes_too
    }
}
