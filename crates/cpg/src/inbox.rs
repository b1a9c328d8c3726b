//! Events that wait for `cpg_dispatch`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use utipc_os::reactor::Waker;
use utipc_os::{OsError, lock};

use crate::layer::Event;
use crate::name::Name;

/// Maximum number of bytes that wait: above it the group's messages stay unacknowledged, so that senders wait.
const MAX_BYTES: usize = 16 << 20;
/// Bytes that become free before the membership's thread continues: few, because it counts as slow until then.
const ROOM: usize = 256 << 10;
/// Bytes that an event counts in addition to its data.
const EVENT_BYTES: usize = 128;

/// Why no further event will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The handle is finalized.
    Finalized,
    /// The group's transport has ended.
    Failed,
}

/// The result of a check for an event.
#[derive(Debug)]
pub(crate) enum Next {
    Event(Arc<Name>, Event),
    Empty,
    End(End),
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(Arc<Name>, Event)>,
    bytes: usize,
    end: Option<End>,
    /// Wakes the membership's thread when space is free again.
    wants_room: Option<Waker>,
    /// Calls that wait for an event. If none waits, an event needs no system call for them.
    waiting: usize,
}

/// The queue of a handle, with the descriptor that programs poll.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    ready: Waker,
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, OsError> {
        Ok(Self { state: Mutex::default(), changed: Condvar::new(), ready: Waker::new()? })
    }

    /// The descriptor: readable while an event or the end is pending.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.ready.as_fd().as_raw_fd()
    }

    pub(crate) fn push(&self, group: &Arc<Name>, event: Event) {
        let mut state = lock(&self.state);
        if state.end == Some(End::Finalized) {
            return;
        }
        state.bytes += size(&event);
        state.events.push_back((Arc::clone(group), event));
        if state.events.len() == 1 {
            self.ready.wake();
        }
        if state.waiting > 0 {
            self.changed.notify_one();
        }
    }

    /// Whether more may be pushed; if not, `waker` is woken as soon as it may.
    pub(crate) fn has_room(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        let room = state.bytes < MAX_BYTES;
        state.wants_room = (!room).then(|| waker.clone());
        room
    }

    /// Ends the queue. Waiting events are still delivered if the group has failed.
    pub(crate) fn end(&self, why: End) {
        let mut state = lock(&self.state);
        if why == End::Finalized {
            state.events.clear();
            state.bytes = 0;
            state.end = Some(why);
        } else {
            state.end.get_or_insert(why);
        }
        if let Some(waker) = state.wants_room.take() {
            waker.wake();
        }
        self.ready.wake();
        self.changed.notify_all();
    }

    pub(crate) fn is_finalized(&self) -> bool {
        lock(&self.state).end == Some(End::Finalized)
    }

    /// The next event; `waits`: for as long as it takes.
    pub(crate) fn next(&self, waits: bool) -> Next {
        let mut state = lock(&self.state);
        loop {
            if let Some((group, event)) = state.events.pop_front() {
                self.popped(&mut state, &event);
                return Next::Event(group, event);
            }
            if let Some(end) = state.end {
                return Next::End(end);
            }
            if !waits {
                return Next::Empty;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    fn popped(&self, state: &mut MutexGuard<'_, State>, event: &Event) {
        state.bytes = state.bytes.saturating_sub(size(event));
        if state.events.is_empty() && state.end.is_none() {
            self.ready.drain();
        }
        if state.bytes < MAX_BYTES - ROOM
            && let Some(waker) = state.wants_room.take()
        {
            waker.wake();
        }
    }
}

fn size(event: &Event) -> usize {
    EVENT_BYTES
        + match event {
            Event::Deliver { data, .. } => data.len(),
            Event::Change { members, left, joined } => 12 * (members.len() + left.len() + joined.len()),
            Event::Ring { nodes, .. } => 4 * nodes.len(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(len: usize) -> Event {
        Event::Deliver { nodeid: 1, pid: 1, data: vec![0; len] }
    }

    #[test]
    fn full_queue_wakes_the_thread_when_there_is_room() {
        let (inbox, waker) = (Inbox::new().unwrap(), Waker::new().unwrap());
        let group = Arc::new(Name::default());
        let woken = || rustix::io::read(&waker, &mut [0; 8]).is_ok();
        let mut pushed = 0;
        while inbox.has_room(&waker) {
            inbox.push(&group, deliver(100_000));
            pushed += 1;
        }
        assert_eq!(pushed, MAX_BYTES / (100_000 + EVENT_BYTES) + 1);
        for taken in 1..=pushed {
            assert!(matches!(inbox.next(false), Next::Event(..)));
            assert_eq!(woken(), taken == 4, "{taken}");
        }
        assert!(matches!(inbox.next(false), Next::Empty));
    }

    #[test]
    fn events_before_a_failure_are_delivered() {
        let inbox = Inbox::new().unwrap();
        inbox.push(&Arc::default(), deliver(1));
        inbox.end(End::Failed);
        assert!(matches!(inbox.next(true), Next::Event(..)));
        assert!(matches!(inbox.next(true), Next::End(End::Failed)));
        inbox.end(End::Finalized);
        assert!(matches!(inbox.next(true), Next::End(End::Finalized)));
    }
}
