//! Charges the sockets of users: their number, their bindings and the messages that wait in them.

use super::Stack;
use crate::memory::MessageMemory;
use crate::pool::Pool;
use crate::quota::{Ledger, Resource, UserId};
use crate::socket::{Built, Endpoint};

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
}

impl Stack {
    /// What each user uses. Resources outside of the node may be charged here too.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// See [`Self::ledger`].
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The user that a socket is charged to.
    #[must_use]
    pub fn user_of(&self, port: u32) -> Option<UserId> {
        self.endpoints.get(&port).and_then(Endpoint::user)
    }

    /// Charges a user for a new socket and everything in it, until it is gone. The caller has checked
    /// [`Resource::Sockets`].
    pub fn set_user(&mut self, port: u32, user: UserId) {
        let Some(endpoint) = self.endpoints.get_mut(&port).filter(|e| e.user().is_none()) else { return };
        endpoint.set_user(user);
        let Charges { bindings, memory, .. } = Charges::of(endpoint);
        self.ledger.charge(user, Resource::Sockets, 1);
        self.ledger.charge(user, Resource::Bindings, bindings);
        self.ledger.change_messages(user, 0, memory);
    }

    /// Replaces the memory of messages. Call it before the first socket is opened.
    pub fn set_memory(&mut self, memory: Box<dyn MessageMemory>) {
        self.switch.pool = Pool::of(memory);
    }

    /// Charges users for the memory that their messages take.
    pub(super) fn charge_memory(&mut self) {
        let memory = &mut self.switch.pool.memory;
        while let Some((user, bytes)) = memory.take_changed() {
            self.ledger.set_held(user, bytes);
        }
        self.ledger.set_short(memory.is_short());
    }

    /// Moves a message that waits outside of its socket to the memory of the socket's user.
    ///
    /// # Errors
    /// The message: its user, or the node, has no memory left.
    pub fn keep(&mut self, port: u32, message: Built) -> Result<Built, Built> {
        let Some(user) = self.user_of(port) else { return Ok(message) };
        let growth = self.ledger.growth(user);
        let kept = message.moved(|bytes| self.switch.pool.memory.keep(user, bytes, growth));
        self.charge_memory();
        kept
    }

    /// Whether everything that is charged exists. Takes time in proportion to the sockets.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let mut sums = [0; 3];
        for charges in self.endpoints.values().map(Charges::of).filter(|charges| charges.user.is_some()) {
            sums = [sums[0] + 1, sums[1] + charges.bindings, sums[2] + charges.memory];
        }
        let [sockets, bindings, memory] = sums;
        let used = self.ledger.total().used;
        let lanes_too = used.get(Resource::Memory) >= memory;
        self.ledger.is_balanced()
            && (used.get(Resource::Sockets), used.get(Resource::Bindings)) == (sockets, bindings)
            && lanes_too
    }
}
