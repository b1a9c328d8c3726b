//! The choice among the receivers of an anycast: in turn, and of those that are next the least loaded. Decision 38.

use super::layout::{Access, PackedPort, Ring};
use super::view::{CURSOR_ATTEMPTS, Found, Reading, Torn, View, ViewError};
use crate::Load;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::names::Lookup;

/// Receivers whose loads are compared: those that are next in turn. Ours: each costs a few cache lines.
const CHOICES: usize = 8;
/// Most receivers that are looked at while none of them takes messages.
const EXAMINED: usize = 64;

/// The receiver that was chosen for an anycast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The receiver.
    pub found: Lookup,
    /// Its load. [`Load::Full`]: no receiver takes the message, and this is one of those to wait for.
    pub load: Load,
    /// Number of bindings that were looked at; 1 if there is no choice.
    pub receivers: u32,
    /// The range has no other binding: see [`View::lookup_cacheable`].
    pub is_sole: bool,
}

impl Choice {
    /// Whether the message may have other receivers.
    #[must_use]
    pub const fn has_others(&self) -> bool {
        !self.is_sole && self.found.port != 0
    }
}

/// A binding chosen in a ring.
pub(super) struct Picked {
    pub(super) socket: PackedPort,
    pub(super) load: Load,
    pub(super) receivers: u32,
}

impl<A: Access> View<'_, A> {
    /// Finds a socket for an anycast as [`View::lookup`] does. Of several it takes the one with the least `load` among
    /// those that are next in turn; the first that is idle is taken at once. The turn moves on behind the socket that
    /// was taken, and stays if all are full. `load` may be called more than once for a socket, and is not called for
    /// the only one.
    ///
    /// # Errors
    /// As for [`View::lookup`].
    pub fn choose(
        &self,
        to: ServiceAddr,
        domain: NodeAddr,
        mut load: impl FnMut(Lookup) -> Load,
    ) -> Result<Option<Choice>, ViewError> {
        self.find(to, domain, |found, ring, lookup| {
            let cursor = self.areas.cursors.get(found.meta.slot() as usize);
            let mut attempt = 0;
            loop {
                attempt += 1;
                let seen = cursor.map_or(0, A::cursor);
                let (picked, next) =
                    self.least_loaded(found, ring, seen, &mut |socket| load(lookup(socket)))?;
                let stays = picked.load == Load::Full || attempt == CURSOR_ATTEMPTS;
                if stays || cursor.is_none_or(|cursor| A::exchange(cursor, seen, ring.with(seen, next))) {
                    return Ok(picked);
                }
            }
        })
    }

    /// The least loaded binding of those that are next in turn, and the record behind it.
    fn least_loaded(
        &self,
        found: &Found,
        ring: Ring,
        cursor: u64,
        load: &mut dyn FnMut(PackedPort) -> Load,
    ) -> Reading<(Picked, u32)> {
        let slot = found.meta.slot();
        let (start, mut record) = self.head(found, ring, cursor)?;
        let mut best: Option<(Picked, u32)> = None;
        let mut receivers = 0;
        for step in 1..=EXAMINED {
            let next = ring.half(record.next());
            // A record that is being withdrawn still links to the next one.
            if record.tag().is_of(slot) {
                receivers += 1;
                let socket = record.socket();
                let load = load(socket);
                if best.as_ref().is_none_or(|(least, _)| load < least.load) {
                    best = Some((Picked { socket, load, receivers }, next));
                }
                if load == Load::IDLE {
                    break;
                }
            }
            let is_enough = step >= CHOICES && best.as_ref().is_some_and(|(least, _)| least.load.is_open());
            if next == start || is_enough {
                break;
            }
            record = self.record(next)?;
        }
        let (best, next) = best.ok_or(Torn::Retry)?;
        Ok((Picked { receivers, ..best }, next))
    }
}
