//! One event loop for each user, inside the daemon's: the activity of a user's processes is one event, so that a user
//! with thousands of ready descriptors does not hide another user's. The work that follows is done in the order of
//! [`utipc_core::shares::Shares`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::AsFd;
use std::time::Duration;

use utipc_core::quota::UserId;
use utipc_os::reactor::{Event, Interest, Reactor};

use super::token;

/// The descriptors of one user.
#[derive(Debug)]
struct Watched {
    reactor: Reactor,
    descriptors: usize,
    /// Its events are read, and not all of them are handled.
    is_polled: bool,
}

/// The daemon's event loop, which contains those of all users with descriptors.
#[derive(Debug)]
pub(super) struct Reactors {
    /// Reports [`token::USER`] with the user's number for what the others report.
    pub(super) main: Reactor,
    users: BTreeMap<UserId, Watched>,
}

impl Reactors {
    pub(super) fn new() -> utipc_os::Result<Self> {
        Ok(Self { main: Reactor::new()?, users: BTreeMap::new() })
    }

    /// Watches a descriptor of a user.
    pub(super) fn watch(
        &mut self,
        user: UserId,
        fd: impl AsFd,
        (token, interest): (u64, Interest),
    ) -> utipc_os::Result<()> {
        let watched = match self.users.entry(user) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let reactor = Reactor::new()?;
                self.main.add(&reactor, token::USER | u64::from(user.0), Interest::Read)?;
                entry.insert(Watched { reactor, descriptors: 0, is_polled: false })
            }
        };
        let added = watched.reactor.add(fd, token, interest);
        watched.descriptors += usize::from(added.is_ok());
        self.drop_if_empty(user);
        added
    }

    /// Watches a descriptor no longer.
    pub(super) fn unwatch(&mut self, user: UserId, fd: impl AsFd) {
        if let Some(watched) = self.users.get_mut(&user)
            && watched.reactor.remove(fd).is_ok()
        {
            watched.descriptors -= 1;
        }
        self.drop_if_empty(user);
    }

    fn drop_if_empty(&mut self, user: UserId) {
        if self.users.get(&user).is_some_and(|watched| watched.descriptors == 0)
            && let Some(watched) = self.users.remove(&user)
        {
            // Fails only if it is not watched.
            let _ = self.main.remove(&watched.reactor);
        }
    }

    /// Whether a user has descriptors.
    pub(super) fn contains(&self, user: UserId) -> bool {
        self.users.contains_key(&user)
    }

    /// A user's event loop has events; true if they are to be read now.
    pub(super) fn note_ready(&mut self, user: UserId) -> bool {
        self.users.get_mut(&user).is_some_and(|watched| !std::mem::replace(&mut watched.is_polled, true))
    }

    /// Reads some events of a user.
    pub(super) fn poll(&mut self, user: UserId, events: &mut Vec<Event>) {
        events.clear();
        if let Some(watched) = self.users.get_mut(&user) {
            // Anything that cannot be read now is reported again.
            let _ = watched.reactor.wait(Some(Duration::ZERO), events);
        }
    }

    /// The events that were read are handled.
    pub(super) fn end_poll(&mut self, user: UserId) {
        if let Some(watched) = self.users.get_mut(&user) {
            watched.is_polled = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_os::reactor::Waker;

    const A: UserId = UserId(1);
    const B: UserId = UserId(2);

    #[test]
    fn user_with_many_ready_descriptors_is_one_event() {
        let (mut users, mut events) = (Reactors::new().unwrap(), Vec::new());
        let wakers: Vec<Waker> = (0..100).map(|_| Waker::new().unwrap()).collect();
        for (number, waker) in wakers.iter().enumerate() {
            users.watch(A, waker, (number as u64, Interest::Read)).unwrap();
            waker.wake();
        }
        let last = Waker::new().unwrap();
        users.watch(B, &last, (7, Interest::Read)).unwrap();
        last.wake();
        users.main.wait(Some(Duration::ZERO), &mut events).unwrap();
        let mut tokens: Vec<u64> = events.iter().map(|event| event.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [token::USER | 1, token::USER | 2]);
        assert!(users.note_ready(B) && !users.note_ready(B));
        users.poll(B, &mut events);
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        users.end_poll(B);
        assert!(users.note_ready(B));
        users.poll(A, &mut events);
        assert!(events.len() < wakers.len() && !events.is_empty(), "{}", events.len());
    }

    #[test]
    fn event_loop_of_a_user_goes_with_its_last_descriptor() {
        let (mut users, mut events) = (Reactors::new().unwrap(), Vec::new());
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        for waker in &wakers {
            users.watch(A, waker, (7, Interest::Read)).unwrap();
            waker.wake();
        }
        assert!(users.watch(A, &wakers[0], (8, Interest::Read)).is_err(), "watched twice");
        users.unwatch(A, &wakers[0]);
        assert!(users.contains(A));
        users.unwatch(A, &wakers[1]);
        assert!(!users.contains(A));
        users.main.wait(Some(Duration::ZERO), &mut events).unwrap();
        assert!(events.is_empty());
    }
}
