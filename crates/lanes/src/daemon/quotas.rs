//! Charges users for lanes and for the rings that they are granted. The user is that of the socket that writes the
//! lane; of a lane that the node writes, that of the socket that reads it.
//!
//! A process may touch more of an arena than its rings. The kernel charges such pages to the process, like its other
//! memory, and they are freed with the pair; the daemon touches granted rings only.

use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::Endpoint;
use utipc_core::stack::Stack;

use super::open::LARGEST_OF_MANY;
use crate::layout::{FIRST_RING, LARGEST_CLASS, RING_SHIFTS};

/// Bytes of a lane's slot in the arena.
const SLOT: u64 = crate::layout::slot::SIZE as u64;

/// Bytes charged for a lane on which a sender waits for room, from its beginning: the ring that takes the largest
/// message (256 KiB) must not be refused later, because then the sender would wait for ever.
pub(super) const RESERVED: u64 = SLOT + (1 << RING_SHIFTS[2]);

/// Bytes charged for a lane that the node writes: it may take the largest ring if its process has few lanes.
pub(super) const fn reserved_inbound(has_few_lanes: bool) -> u64 {
    SLOT + (1 << RING_SHIFTS[largest_inbound(has_few_lanes) as usize])
}

/// The class of the largest ring of a lane that the node writes.
pub(super) const fn largest_inbound(has_few_lanes: bool) -> u8 {
    if has_few_lanes { LARGEST_CLASS } else { LARGEST_OF_MANY }
}

/// Bytes charged for a new lane that a socket writes.
pub(super) fn reserved(stack: &Stack, from: u32) -> u64 {
    let connected =
        stack.endpoint(from).map(Endpoint::kind).is_some_and(|kind| kind.is_connection_oriented());
    if connected { RESERVED } else { SLOT + (1 << FIRST_RING) }
}

/// Whether a user may have one more lane of this many bytes.
pub(super) fn may_charge(stack: &mut Stack, user: Option<UserId>, memory: u64) -> bool {
    let Some(user) = user else { return true };
    let ledger = stack.ledger_mut();
    ledger.check(user, Resource::Lanes, 1).is_ok() && ledger.check(user, Resource::Memory, memory).is_ok()
}

/// What a user is charged for one lane; [`Charge::end`] it with the lane.
#[derive(Debug)]
pub(super) struct Charge {
    user: Option<UserId>,
    /// Bytes from the beginning.
    reserved: u64,
    memory: u64,
}

impl Charge {
    /// Charges a user for a new lane.
    pub(super) fn begin(stack: &mut Stack, user: Option<UserId>, reserved: u64) -> Self {
        if let Some(user) = user {
            stack.ledger_mut().charge(user, Resource::Lanes, 1);
            stack.ledger_mut().charge(user, Resource::Memory, reserved);
        }
        Self { user, reserved, memory: reserved }
    }

    /// Adjusts the charge for the ring that the writer wants; false if the quota does not allow it.
    pub(super) fn resize(&mut self, stack: &mut Stack, log2: u8) -> bool {
        let memory = self.reserved.max(SLOT + (1 << log2));
        if let Some(user) = self.user {
            let ledger = stack.ledger_mut();
            match memory.checked_sub(self.memory) {
                Some(more) if ledger.try_charge(user, Resource::Memory, more).is_err() => return false,
                Some(_) => {}
                None => ledger.release(user, Resource::Memory, self.memory - memory),
            }
        }
        self.memory = memory;
        true
    }

    /// The lane is gone.
    pub(super) fn end(self, stack: &mut Stack) {
        if let Some(user) = self.user {
            stack.ledger_mut().release(user, Resource::Lanes, 1);
            stack.ledger_mut().release(user, Resource::Memory, self.memory);
        }
    }
}
