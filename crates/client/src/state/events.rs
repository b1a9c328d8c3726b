//! Events of one half of a socket: what notices say about its lanes, until a thread that has locked the half processes
//! it.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use utipc_attach::LaneId;
use utipc_core::addr::{NodeAddr, ServiceAddr};
use utipc_os::lock;

/// An event of one half of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The node has something for the socket to receive.
    Ready,
    /// There is a lane to or from the socket `peer`, which is on another node, or a member of a group, if that is
    /// given.
    LaneOpened { peer: u32, node: Option<NodeAddr>, lane: LaneId, member: Option<ServiceAddr> },
    /// The other end of the lane is gone.
    LaneOver(LaneId),
    /// A member of the socket's group has come or gone.
    GroupChanged,
}

/// Events of one half of a socket, oldest first. The queue is bounded: the daemon bounds the number of lanes, and
/// `Ready` and `GroupChanged` are queued once.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: Mutex<Vec<Event>>,
    some: AtomicBool,
}

impl EventQueue {
    pub(crate) fn put(&self, event: Event) {
        let mut events = lock(&self.events);
        let again = match event {
            Event::Ready => events.iter().any(|e| matches!(e, Event::Ready)),
            Event::GroupChanged => events.iter().any(|e| matches!(e, Event::GroupChanged)),
            _ => false,
        };
        if !again {
            events.push(event);
        }
        self.some.store(true, Release);
    }

    /// Drops events about new lanes, because these lanes have ended.
    pub(crate) fn forget_lanes(&self) {
        lock(&self.events).retain(|event| !matches!(event, Event::LaneOpened { .. }));
    }

    /// Makes [`EventQueue::has_some`] true without an event: a returned message waits.
    pub(crate) fn announce(&self) {
        self.some.store(true, Release);
    }

    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Acquire)
    }

    /// Puts back an event that could not be processed yet, and those after it.
    pub(crate) fn put_back(&self, event: Event, after: impl Iterator<Item = Event>) {
        let mut later = lock(&self.events);
        let rest = std::iter::once(event).chain(after).chain(later.drain(..)).collect();
        *later = rest;
        self.some.store(true, Release);
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        let mut events = lock(&self.events);
        self.some.store(false, Release);
        core::mem::take(&mut *events)
    }
}

#[cfg(test)]
mod tests {
    use utipc_attach::PairId;

    use super::*;

    #[test]
    fn events_that_are_put_back_precede_later_ones() {
        let over = |slot| Event::LaneOver(LaneId { pair: PairId(0), writer: 0, slot });
        let queue = EventQueue::default();
        for event in [over(1), over(2), Event::Ready, Event::Ready] {
            queue.put(event);
        }
        let mut taken = queue.take().into_iter();
        assert!(!queue.has_some());
        queue.put(over(3));
        let first = taken.next().unwrap();
        queue.put_back(first, taken);
        assert!(queue.has_some());
        let slots = queue.take().into_iter().map(|event| match event {
            Event::LaneOver(lane) => lane.slot,
            _ => 0,
        });
        assert_eq!(slots.collect::<Vec<_>>(), [1, 2, 0, 3]);
    }
}
