//! The choice among the receivers of an anycast: in turn, and of those that are next the least loaded. Decision 50.

use super::layout::{Access, PackedPort, Ring};
use super::view::{CURSOR_ATTEMPTS, Found, Reading, Torn, View, ViewError};
use crate::Load;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::names::Lookup;

/// Receivers whose loads are compared: those that are next in turn. Ours: each costs a few cache lines.
const CHOICES: usize = 8;
/// Maximum number of receivers that are looked at while none of them takes messages.
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
    /// The range has no other binding. The caller may use the choice again as long as [`View::version`] and
    /// [`View::own_node`] return what they returned before.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Binding, PortId, Scope, ServiceRange};
    use crate::names::NameTable;

    const OWN: NodeAddr = NodeAddr(0x0100_1001);
    const PEER: NodeAddr = NodeAddr(0x0100_1002);
    const TO: ServiceAddr = ServiceAddr { service: 1000, instance: 5 };
    const RANGE: ServiceRange = ServiceRange::new(1000, 0, 9);

    /// A table with the sockets 1, 2 … bound to one range; the last of them is next in turn.
    fn table(legacy: bool, sockets: u32) -> NameTable {
        let mut table = NameTable::new(OWN, legacy);
        for port in 1..=sockets {
            table.bind(port, RANGE, Scope::Cluster).unwrap();
        }
        table
    }

    fn everywhere(table: &NameTable, load: impl FnMut(Lookup) -> Load) -> Option<Choice> {
        table.choose(TO, NodeAddr::NONE, load)
    }

    #[test]
    fn idle_sockets_are_chosen_as_a_lookup_does() {
        let (mut plain, chosen) = (table(false, 5), table(false, 5));
        for _ in 0..12 {
            let found = plain.lookup(TO, NodeAddr::NONE);
            assert_eq!(everywhere(&chosen, |_| Load::IDLE).map(|choice| choice.found), found);
        }
    }

    #[test]
    fn turn_moves_on_behind_the_socket_that_was_taken() {
        let table = table(false, 4);
        let first = everywhere(&table, |_| Load::IDLE).unwrap().found.port;
        // The two next ones are loaded.
        let mut asked = Vec::new();
        let choice = everywhere(&table, |found| {
            asked.push(found.port);
            if asked.len() < 3 { Load::Open(1) } else { Load::IDLE }
        });
        let (choice, third) = (choice.unwrap(), asked[2]);
        assert_eq!((choice.found.port, choice.load, choice.receivers), (third, Load::IDLE, 3));
        assert!(choice.has_others() && !asked.contains(&first));
        assert_eq!(everywhere(&table, |_| Load::IDLE).unwrap().found.port, first);
    }

    #[test]
    fn turn_stays_while_all_are_full() {
        let table = table(false, 100);
        let mut asked = 0;
        let full = everywhere(&table, |_| {
            asked += 1;
            Load::Full
        });
        let full = full.unwrap();
        assert_eq!((full.load, full.receivers, asked), (Load::Full, EXAMINED as u32, EXAMINED));
        assert_eq!(everywhere(&table, |_| Load::IDLE).unwrap().found, full.found);
        // Senders wait for none of the silent ones, if there is a full one.
        let mixed = everywhere(&table, |found| if found.port == 90 { Load::Full } else { Load::Silent });
        assert_eq!(mixed.map(|choice| choice.load), Some(Load::Full));
    }

    #[test]
    fn of_loaded_sockets_the_next_eight_are_compared_unless_none_takes_a_message() {
        let table = table(false, 30);
        let mut asked = 0;
        let mut count = |load| {
            asked += 1;
            load
        };
        assert_eq!(everywhere(&table, |_| count(Load::Open(3))).unwrap().receivers, CHOICES as u32);
        let last =
            everywhere(&table, |found| count(if found.port == 12 { Load::Open(9) } else { Load::Full }));
        assert_eq!(last.map(|choice| choice.found.port), Some(12));
        assert!(asked > CHOICES + 8);
    }

    #[test]
    fn only_socket_is_not_examined_and_own_ones_are_first_with_a_legacy_address() {
        let sole = everywhere(&table(false, 1), |_| panic!("it is the only one")).unwrap();
        assert!(sole.is_sole && !sole.has_others());
        let mut table = table(true, 2);
        let port = PortId { port: 9, node: PEER };
        table.publish(Binding { range: RANGE, scope: Scope::Cluster, port, key: 10 }).unwrap();
        let choice = everywhere(&table, |found| {
            assert_eq!(found.node, OWN);
            Load::Full
        });
        assert_eq!(choice.map(|choice| choice.receivers), Some(2));
        // The other node chooses.
        let there = table.choose(TO, PEER, |_| panic!("it is not known")).unwrap();
        assert!(there.found.port == 0 && !there.has_others());
    }
}
