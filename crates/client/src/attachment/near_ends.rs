//! The descriptors that the program polls hang up when the daemon dies.
//!
//! The kernel does that for a descriptor whose far end only the daemon has. A process that writes lanes to the socket
//! may have a copy of that end (decision 19), and whether it closes the copy is not this process's to decide.

use std::sync::Mutex;

use utipc_os::lock;
use utipc_os::packets::{self, Near, NearHandle};

/// The near ends of one attachment.
#[derive(Debug, Default)]
pub(crate) struct NearEnds {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    ends: Vec<NearHandle>,
    /// The number of ends at which those of closed sockets are removed.
    full: usize,
    /// It is known whether a thread with its own descriptor table reaches them.
    probed: bool,
}

/// How the watching thread can hang them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It reaches them.
    Reached,
    /// Another thread is needed, which shares the process's descriptors.
    NeedsThread,
}

impl NearEnds {
    /// Adds one. `NeedsThread` is returned at most once.
    pub(crate) fn add(&self, near: &Near) -> Reach {
        let list = &mut *lock(&self.list);
        if list.ends.len() >= list.full {
            list.ends.retain(|end| !end.is_closed());
            list.full = (list.ends.len() * 2).max(64);
        }
        list.ends.push(near.handle());
        if list.probed {
            return Reach::Reached;
        }
        let Some(reached) = near.with(|near| packets::reaches_main_table(near)) else {
            return Reach::Reached;
        };
        list.probed = true;
        if reached { Reach::Reached } else { Reach::NeedsThread }
    }

    /// Removes one, which is not to hang up.
    pub(crate) fn forget(&self, near: &Near) {
        lock(&self.list).ends.retain(|end| !end.is_of(near));
    }

    /// Hangs all of them up.
    pub(crate) fn hang_up(&self) {
        // Without the lock: a near end waits for the thread that uses it.
        let ends = std::mem::take(&mut lock(&self.list).ends);
        for end in ends {
            end.hang_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_hang_up_although_a_copy_of_the_far_end_is_left() {
        let (near, far) = packets::pair().unwrap();
        let near = Near::owned(near.into_fd());
        let ends = NearEnds::default();
        assert_eq!(ends.add(&near), Reach::Reached);
        ends.hang_up();
        assert_eq!(near.with(|near| packets::drain_to_end(near)), Some((false, true)));
        assert!(packets::is_peer_closed(&far));
    }

    #[test]
    fn forgotten_end_does_not_hang_up() {
        let pairs = [packets::pair().unwrap(), packets::pair().unwrap()];
        let [one, other] = pairs.map(|(near, far)| (Near::owned(near.into_fd()), far));
        let ends = NearEnds::default();
        ends.add(&one.0);
        ends.add(&other.0);
        ends.forget(&one.0);
        ends.hang_up();
        assert!(!packets::is_peer_closed(&one.1) && packets::is_peer_closed(&other.1));
    }

    /// A handle that closed the last descriptor did so in the table of the watching thread, which has another file
    /// there or none.
    #[test]
    fn end_is_closed_by_its_socket_although_a_handle_is_left() {
        let (near, far) = packets::pair().unwrap();
        let near = Near::owned(near.into_fd());
        let handle = near.handle();
        drop(near);
        assert!(handle.is_closed() && !handle.hang_up());
        assert!(packets::is_peer_closed(&far));
    }

    #[test]
    fn closed_ends_are_forgotten() {
        let ends = NearEnds::default();
        for _ in 0..1000 {
            let (near, _far) = packets::pair().unwrap();
            ends.add(&Near::owned(near.into_fd()));
        }
        assert!(lock(&ends.list).ends.len() <= 64);
    }
}
