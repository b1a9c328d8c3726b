//! The descriptors that applications poll in place of sockets: packet socket pairs of which the daemon has the *far
//! ends*.
//!
//! The near end is readable while it has a byte to read, unwritable while its send buffer is full, and hung up
//! after the far end's shutdown. The daemon adds the byte and drains the buffer; the library reads the byte and
//! fills the buffer, and then checks its doorbell and lanes again. So the daemon rings the doorbell before it adds the
//! byte, and need not add one while one is there: the library has not checked yet.
//!
//! A far end that was shut down stays hung up, so that only the *change* shows that the last copy of the near end is
//! closed. [`Descriptors`] therefore watches the changes of each user's far ends by a separate reactor, which it reads
//! right after each shutdown: a hang-up reported later is that of the near end. While there are more changes than one
//! read reports, the shutdown waits, and they are read step by step.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use utipc_core::quota::UserId;
use utipc_core::socket::Readiness;
use utipc_os::disposal::Disposal;
use utipc_os::fdpass::{Channel, Put};
use utipc_os::heap::shrink_queue;
use utipc_os::many::Index;
use utipc_os::packets;
use utipc_os::reactor::{EVENTS_MAX, Event, Interest, Reactor};

use super::reactors::Reactors;
use super::token;

/// The far end of a descriptor.
#[derive(Debug)]
struct FarEnd {
    channel: Channel,
    /// This end has hung up, or will when the events of its user are read.
    hung_up: bool,
    /// It has.
    is_shut: bool,
    /// Its own hang-up is not reported yet.
    is_unread: bool,
    /// No process has the near end; or the library owned it, and this end has hung up.
    closed: bool,
    /// The user that is charged for it and whose reactor watches it.
    user: UserId,
    /// The cookie of the near end, if the program owns that: it may pass it on and keep it over an exec.
    cookie: Option<u64>,
}

impl FarEnd {
    fn new(channel: Channel, user: UserId) -> Self {
        Self { channel, hung_up: false, is_shut: false, is_unread: false, closed: false, user, cookie: None }
    }

    /// Makes the near end readable or writable; the library does the opposite.
    fn update(&self, readiness: Readiness, disposal: &Disposal) {
        if readiness.readable {
            self.set_readable();
        }
        if readiness.writable {
            self.drain(disposal);
        }
    }

    /// Makes the near end writable, unless that could bring descriptors of a user whose others are not closed yet.
    fn drain(&self, disposal: &Disposal) {
        if !disposal.is_full(self.user.0) {
            disposal.close(self.user.0, packets::drain_foreign(&self.channel));
        }
    }

    /// Makes the near end readable, unless it is. False if no process has it.
    fn set_readable(&self) -> bool {
        packets::has_unread(&self.channel)
            || !matches!(self.channel.send(&[IoSlice::new(&[1])], &[], false), Ok(Put::Gone))
    }
}

/// Whether a near end that the program owns is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NearEnd {
    /// The program does not own it, or no process has it: the socket ends.
    Closed,
    /// A process has it.
    Open,
    /// The far end has hung up. A process probably has it: the close of the last copy is reported later, unless it came
    /// at the same moment as the hang-up.
    HungUp,
}

/// Consequence of the end of a near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HangUp {
    /// Nothing: the far end is unknown, or was replaced.
    Ignore,
    /// The library closed its own descriptor: the far end is dropped.
    Drop,
    /// The program owned it: the socket ends.
    EndSocket,
}

/// The far ends of one user.
#[derive(Debug)]
struct Ends {
    /// Reports each change of a far end once.
    reactor: Reactor,
    /// Their number.
    watched: usize,
    /// The far ends that hang up when all changes so far are read.
    waiting: VecDeque<u32>,
    /// The number of reads so far for the first of them.
    reads: usize,
}

/// Maximum number of far ends that hang up in one step.
const HANG_UPS: usize = 8;

/// All far ends, by port.
#[derive(Debug)]
pub(super) struct Descriptors {
    far_ends: Index<u32, FarEnd>,
    /// Ports of descriptors that programs own, by the cookie of the near end.
    by_cookie: Index<u64, u32>,
    /// Those of each user.
    ends: BTreeMap<UserId, Ends>,
    /// Users whose far ends have begun to wait for their hang-up.
    waiting: VecDeque<UserId>,
    /// Buffer for events.
    events: Vec<Event>,
    /// Ports whose near end is closed, to be handled, with their users; each at most once while its far end exists.
    closed: VecDeque<(UserId, u32)>,
    /// Closes what processes have sent.
    disposal: Disposal,
}

impl Descriptors {
    /// No far ends.
    pub(super) fn new(disposal: Disposal) -> Self {
        Self {
            far_ends: Index::default(),
            by_cookie: Index::default(),
            ends: BTreeMap::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            closed: VecDeque::new(),
            disposal,
        }
    }

    /// Watches a far end of a user. The user's event loop reports by [`token::DESCRIPTORS`] that [`Self::collect`] has
    /// something to do.
    fn watch(
        &mut self,
        reactors: &mut Reactors,
        user: UserId,
        port: u32,
        far: impl AsFd,
    ) -> utipc_os::Result<()> {
        let ends = match self.ends.entry(user) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let reactor = Reactor::new()?;
                reactors.watch(user, &reactor, (token::DESCRIPTORS | u64::from(user.0), Interest::Read))?;
                entry.insert(Ends { reactor, watched: 0, waiting: VecDeque::new(), reads: 0 })
            }
        };
        ends.watched += 1;
        let added = ends.reactor.add(far, u64::from(port), Interest::EndOnce);
        if added.is_err() {
            self.unwatch(reactors, user, None);
        }
        added
    }

    /// The counterpart of [`Self::watch`]; `None` if the far end is not watched.
    fn unwatch(&mut self, reactors: &mut Reactors, user: UserId, far: Option<&Channel>) {
        let Some(ends) = self.ends.get_mut(&user) else { return };
        ends.watched -= 1;
        // A process forked since then may hold a copy.
        let _ = far.map(|far| ends.reactor.remove(far));
        if ends.watched == 0
            && let Some(ends) = self.ends.remove(&user)
        {
            reactors.unwatch(user, &ends.reactor);
        }
    }

    /// Gives back memory of one of the [`PARTS`](utipc_os::many::PARTS) of tables that many entries have left.
    pub(super) fn shrink(&mut self, part: usize) {
        self.far_ends.shrink(part);
        self.by_cookie.shrink(part);
        shrink_queue(&mut self.closed);
    }

    pub(super) fn len(&self) -> usize {
        self.far_ends.len()
    }

    pub(super) fn contains(&self, port: u32) -> bool {
        self.far_ends.contains(&port)
    }

    /// Creates the descriptor of a socket that has none, and returns the near end; `user` is charged for it.
    pub(super) fn open(
        &mut self,
        reactors: &mut Reactors,
        (port, user): (u32, UserId),
        readiness: Readiness,
    ) -> utipc_os::Result<OwnedFd> {
        let (near, channel) = packets::pair()?;
        self.watch(reactors, user, port, &channel)?;
        if !readiness.writable {
            packets::fill(&near);
        }
        self.far_ends.insert(port, FarEnd::new(channel, user));
        self.update(port, readiness);
        Ok(near.into_fd())
    }

    /// The user that is charged for a descriptor.
    pub(super) fn user(&self, port: u32) -> Option<UserId> {
        self.far_ends.get(&port).map(|far| far.user)
    }

    /// Takes over the far end, one of [`packets::hold_far_end`], that a process kept while there was no daemon; false
    /// if there is none.
    /// The process has a copy of it, as after [`Self::share`].
    pub(super) fn adopt_far(
        &mut self,
        reactors: &mut Reactors,
        (port, user): (u32, UserId),
        far: &mut Option<OwnedFd>,
        readiness: Readiness,
    ) -> utipc_os::Result<bool> {
        if self.far_ends.contains(&port) {
            return Ok(false);
        }
        if let Some(far) = far {
            self.watch(reactors, user, port, far)?;
        }
        let Some(far) = far.take() else { return Ok(false) };
        let channel = Channel::from_fd(far);
        channel.refuse_descriptors();
        self.disposal.close(0, packets::drain_foreign(&channel));
        self.far_ends.insert(port, FarEnd::new(channel, user));
        self.update(port, readiness);
        Ok(true)
    }

    /// Notes that the program owns the near end of an adopted descriptor; false if it cannot be claimed or belongs to
    /// another socket.
    pub(super) fn adopt_near(&mut self, port: u32, near: &OwnedFd) -> utipc_os::Result<bool> {
        let Some(far) = self.far_ends.get_mut(&port).filter(|far| far.cookie.is_none()) else {
            return Ok(false);
        };
        if !packets::is_marked(near) {
            return Ok(false);
        }
        let cookie = packets::cookie(near.as_fd())?;
        if self.by_cookie.contains(&cookie) {
            return Ok(false);
        }
        far.cookie = Some(cookie);
        self.by_cookie.insert(cookie, port);
        Ok(true)
    }

    /// Notes that the library owns the near end of a descriptor, which cannot become the far end of another one.
    pub(super) fn give_to_library(&self, port: u32) -> utipc_os::Result<()> {
        self.far_ends.get(&port).map_or(Ok(()), |far| packets::hold(&far.channel))
    }

    /// The program owns the near end of a descriptor from now on.
    pub(super) fn give_to_program(&mut self, port: u32, near: &OwnedFd) -> utipc_os::Result<()> {
        let Some(far) = self.far_ends.get_mut(&port) else { return Ok(()) };
        packets::mark(&far.channel)?;
        let cookie = packets::cookie(near.as_fd())?;
        far.cookie = Some(cookie);
        far.closed = false;
        self.by_cookie.insert(cookie, port);
        Ok(())
    }

    /// The port of a descriptor that a process has passed to the daemon. Only the near end itself has its cookie, so a
    /// process cannot claim a socket without its descriptor. The process may belong to another user than the one that
    /// opened the socket, as after an exec or SCM_RIGHTS: the descriptor is the right.
    pub(super) fn find(&self, passed: &OwnedFd) -> Option<u32> {
        if !packets::is_marked(passed) {
            return None;
        }
        let cookie = packets::cookie(passed.as_fd()).ok()?;
        self.by_cookie.get(&cookie).copied()
    }

    /// A copy of a far end. Its holder can do what this end can (read, write, shut down, change the flags of the open
    /// file), so no call here relies on the far end's flags or on bytes in it.
    pub(super) fn share(&self, port: u32) -> Option<OwnedFd> {
        let far = self.far_ends.get(&port).filter(|far| !far.hung_up)?;
        far.channel.as_fd().try_clone_to_owned().ok()
    }

    /// Brings a descriptor up to date. True if it has hung up now; otherwise [`Self::hang_up_some`] may do that later.
    pub(super) fn update(&mut self, port: u32, readiness: Readiness) -> bool {
        let Some(far) = self.far_ends.get_mut(&port).filter(|far| !far.hung_up) else { return false };
        if !readiness.hung_up {
            far.update(readiness, &self.disposal);
            return false;
        }
        far.hung_up = true;
        if far.cookie.is_none() {
            // A descriptor of the library serves no further purpose. It may still become the program's.
            (far.is_shut, far.is_unread) = (true, true);
            far.channel.shut();
            self.set_closed(port);
            return true;
        }
        let user = far.user;
        let others_wait = self.ends.get(&user).is_some_and(|ends| !ends.waiting.is_empty());
        if !others_wait && self.is_read(user) {
            self.hang_up(port);
            return true;
        }
        if let Some(ends) = self.ends.get_mut(&user) {
            ends.waiting.push_back(port);
        }
        if !others_wait {
            self.waiting.push_back(user);
        }
        false
    }

    /// The next user for whom [`Self::hang_up_some`] has work.
    pub(super) fn next_waiting(&mut self) -> Option<UserId> {
        self.waiting.pop_front()
    }

    /// Reads some changes of a user's far ends, and hangs up some of those that wait for this; returns their ports, and
    /// whether others wait.
    pub(super) fn hang_up_some(&mut self, user: UserId) -> (Vec<u32>, bool) {
        let mut ports = Vec::new();
        while ports.len() < HANG_UPS && self.is_read(user) {
            let Some(ends) = self.ends.get_mut(&user) else { break };
            ends.reads = 0;
            let Some(port) = ends.waiting.pop_front() else { break };
            if self.far_ends.get(&port).is_some_and(|far| far.hung_up && !far.is_shut) {
                self.hang_up(port);
                ports.push(port);
            }
        }
        (ports, self.ends.get(&user).is_some_and(|ends| !ends.waiting.is_empty()))
    }

    /// Whether one read reports all changes of a user's far ends, except a few that come at this moment. Reads some.
    fn is_read(&mut self, user: UserId) -> bool {
        let Some(ends) = self.ends.get_mut(&user) else { return true };
        // Each change is reported once, the oldest first, so that these reads find all earlier changes. A process that
        // keeps causing changes does not delay the hang-up of descriptors that it has passed to another one.
        if ends.watched <= EVENTS_MAX || ends.reads > ends.watched / EVENTS_MAX {
            return true;
        }
        ends.reads += 1;
        self.collect(user) < EVENTS_MAX
    }

    /// Hangs a near end up that the program owns, without losing sight of whether it is open.
    fn hang_up(&mut self, port: u32) {
        let Some(far) = self.far_ends.get_mut(&port) else { return };
        (far.is_shut, far.is_unread) = (true, true);
        // The packet shows whether the near end is closed between here and the end of `collect`; unless a process reads
        // it and closes its end in that moment.
        let is_open = far.set_readable();
        far.channel.shut();
        let user = far.user;
        self.collect(user);
        let Some(far) = self.far_ends.get(&port) else { return };
        if !is_open || packets::was_left_unread(&far.channel) {
            self.set_closed(port);
        }
    }

    fn set_closed(&mut self, port: u32) {
        if let Some(far) = self.far_ends.get_mut(&port)
            && !std::mem::replace(&mut far.closed, true)
        {
            self.closed.push_back((far.user, port));
        }
    }

    /// Notes which near ends of a user were closed, only some if there are many; returns the number of changes.
    pub(super) fn collect(&mut self, user: UserId) -> usize {
        let Some(ends) = self.ends.get_mut(&user) else { return 0 };
        let mut events = std::mem::take(&mut self.events);
        if ends.reactor.wait(Some(Duration::ZERO), &mut events).is_err() {
            events.clear();
        }
        for port in events.iter().map(|event| event.token as u32) {
            self.note_change(port);
        }
        let count = events.len();
        self.events = events;
        count
    }

    /// A far end has changed: its near end is closed, unless the change is its own hang-up.
    fn note_change(&mut self, port: u32) {
        let Some(far) = self.far_ends.get_mut(&port) else { return };
        if !std::mem::replace(&mut far.is_unread, false) || packets::was_left_unread(&far.channel) {
            self.set_closed(port);
        }
    }

    /// The next descriptor whose near end was closed, and its user.
    pub(super) fn next_closed(&mut self) -> Option<(UserId, u32)> {
        self.closed.pop_front()
    }

    /// The consequence of the close of a near end.
    pub(super) fn consequence(&self, port: u32) -> HangUp {
        match self.far_ends.get(&port).filter(|far| far.closed) {
            None => HangUp::Ignore,
            Some(far) if far.cookie.is_none() => HangUp::Drop,
            Some(_) => HangUp::EndSocket,
        }
    }

    /// Makes a descriptor readable.
    pub(super) fn set_readable(&self, port: u32) {
        if let Some(far) = self.far_ends.get(&port) {
            // False only if no process has the near end, which is reported.
            let _ = far.set_readable();
        }
    }

    /// Makes a descriptor writable.
    pub(super) fn set_writable(&self, port: u32) {
        if let Some(far) = self.far_ends.get(&port) {
            far.drain(&self.disposal);
        }
    }

    /// Whether a process has the near end of a descriptor that its program owns.
    pub(super) fn near_end(&mut self, port: u32) -> NearEnd {
        let Some(far) = self.far_ends.get(&port).filter(|far| far.cookie.is_some()) else {
            return NearEnd::Closed;
        };
        if !far.is_shut {
            return if packets::is_peer_closed(&far.channel) { NearEnd::Closed } else { NearEnd::Open };
        }
        let user = far.user;
        self.collect(user);
        let is_closed = self.far_ends.get(&port).is_none_or(|far| far.closed);
        if is_closed { NearEnd::Closed } else { NearEnd::HungUp }
    }

    /// Hangs up a descriptor and removes it. Returns false if it has none.
    pub(super) fn close(&mut self, reactors: &mut Reactors, port: u32) -> bool {
        let Some(far) = self.far_ends.remove(&port) else { return false };
        self.unwatch(reactors, far.user, Some(&far.channel));
        if let Some(cookie) = far.cookie {
            self.by_cookie.remove(&cookie);
        }
        self.disposal.end(far.user.0, far.channel);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserId = UserId(1);

    const READY: Readiness =
        Readiness { readable: false, writable: true, read_closed: false, hung_up: false };
    const OVER: Readiness = Readiness { hung_up: true, ..READY };

    /// Descriptors, and the near ends of those that programs own.
    fn given(ports: &[u32]) -> (Reactors, Descriptors, Vec<OwnedFd>) {
        let mut reactor = Reactors::new().unwrap();
        let mut descriptors = Descriptors::new(Disposal::default());
        let open = |port: &u32| {
            let near = descriptors.open(&mut reactor, (*port, USER), READY).unwrap();
            descriptors.give_to_program(*port, &near).unwrap();
            near
        };
        let near = ports.iter().map(open).collect();
        (reactor, descriptors, near)
    }

    fn closed(descriptors: &mut Descriptors) -> Vec<(u32, HangUp)> {
        while descriptors.collect(USER) > 0 {}
        let closed = std::iter::from_fn(|| descriptors.next_closed()).collect::<Vec<_>>();
        closed.into_iter().map(|(_, port)| (port, descriptors.consequence(port))).collect()
    }

    #[test]
    fn closed_descriptor_is_not_found_and_leaves_the_others() {
        let (mut reactors, mut descriptors, near) = given(&[10, 20]);
        assert_eq!((descriptors.find(&near[0]), descriptors.find(&near[1])), (Some(10), Some(20)));
        assert_eq!((descriptors.near_end(10), descriptors.near_end(30)), (NearEnd::Open, NearEnd::Closed));
        assert!(descriptors.close(&mut reactors, 10) && !descriptors.close(&mut reactors, 10));
        assert_eq!((descriptors.find(&near[0]), descriptors.find(&near[1])), (None, Some(20)));
        assert_eq!(closed(&mut descriptors), []);
    }

    /// A hostile process names its own socket as the daemon names far ends.
    #[test]
    fn forged_descriptor_finds_no_socket() {
        let (_reactor, descriptors, near) = given(&[10]);
        let (forged, far) = packets::pair().unwrap();
        packets::mark(&far).unwrap();
        let forged = forged.into_fd();
        assert!(packets::is_marked(&forged) && packets::is_marked(&near[0]));
        assert_eq!((descriptors.find(&near[0]), descriptors.find(&forged)), (Some(10), None));
    }

    #[test]
    fn close_of_a_descriptor_ends_the_socket_only_if_the_program_owned_it() {
        let (mut reactors, mut descriptors, near) = given(&[10]);
        let library = descriptors.open(&mut reactors, (20, USER), READY).unwrap();
        assert_eq!(closed(&mut descriptors), []);
        drop((near, library));
        let mut found = closed(&mut descriptors);
        found.sort_by_key(|(port, _)| *port);
        assert_eq!(found, [(10, HangUp::EndSocket), (20, HangUp::Drop)]);
        assert_eq!(closed(&mut descriptors), []);
    }

    #[test]
    fn close_of_a_descriptor_that_has_hung_up_is_noticed() {
        // More than one wait of a reactor reports.
        let ports: Vec<u32> = (1..=100).collect();
        let (_reactor, mut descriptors, near) = given(&ports);
        for port in &ports {
            assert!(descriptors.update(*port, OVER) && !descriptors.update(*port, OVER));
            assert_eq!(descriptors.near_end(*port), NearEnd::HungUp);
        }
        assert_eq!(closed(&mut descriptors), []);
        for (port, near) in ports.iter().zip(near) {
            let copy = near.as_fd().try_clone_to_owned().unwrap();
            packets::drain(&copy);
            drop(near);
            assert_eq!(descriptors.near_end(*port), NearEnd::HungUp);
            drop(copy);
            // A process that inspects the descriptors of all others holds one for a moment.
            let begun = std::time::Instant::now();
            while descriptors.near_end(*port) != NearEnd::Closed {
                assert!(begun.elapsed() < Duration::from_secs(10), "the close of {port} is not noticed");
                std::thread::yield_now();
            }
        }
        assert_eq!(closed(&mut descriptors).len(), ports.len());
    }

    #[test]
    fn descriptor_closed_before_its_hang_up_is_noticed() {
        let (_reactor, mut descriptors, near) = given(&[10, 20]);
        descriptors.set_readable(10);
        drop(near);
        for port in [10, 20] {
            descriptors.update(port, OVER);
            assert_eq!(descriptors.near_end(port), NearEnd::Closed);
        }
        assert_eq!(closed(&mut descriptors).len(), 2);
    }

    /// The connection of an accepted socket has ended before the program gets its descriptor.
    #[test]
    fn descriptor_that_hung_up_before_the_program_got_it_is_open() {
        let (mut reactors, mut descriptors) =
            (Reactors::new().unwrap(), Descriptors::new(Disposal::default()));
        let near = descriptors.open(&mut reactors, (10, USER), OVER).unwrap();
        descriptors.give_to_program(10, &near).unwrap();
        assert!(closed(&mut descriptors).iter().all(|(_, what)| *what == HangUp::Ignore));
        drop(near);
        assert_eq!(closed(&mut descriptors), [(10, HangUp::EndSocket)]);
    }

    #[test]
    fn hang_up_among_many_closes_waits_until_they_are_read() {
        let ports: Vec<u32> = (1..=200).collect();
        let (_reactor, mut descriptors, mut near) = given(&ports);
        let open = near.split_off(150);
        drop(near);
        for port in 198..=200 {
            assert!(!descriptors.update(port, OVER), "it waits");
            assert_eq!(descriptors.near_end(port), NearEnd::Open);
        }
        assert_eq!((descriptors.next_waiting(), descriptors.next_waiting()), (Some(USER), None));
        let (mut hung_up, mut found) = (Vec::new(), descriptors.closed.len());
        loop {
            let (ports, has_more) = descriptors.hang_up_some(USER);
            assert!(descriptors.closed.len() <= found + 2 * EVENTS_MAX, "a step is bounded");
            found = descriptors.closed.len();
            hung_up.extend(ports);
            if !has_more {
                break;
            }
        }
        assert_eq!(hung_up, [198, 199, 200]);
        let mut all = closed(&mut descriptors);
        all.sort_by_key(|(port, _)| *port);
        assert_eq!(all, (1..=150).map(|port| (port, HangUp::EndSocket)).collect::<Vec<_>>());
        for port in hung_up {
            assert_eq!(descriptors.near_end(port), NearEnd::HungUp);
        }
        drop(open);
    }

    #[test]
    fn descriptor_that_goes_while_its_hang_up_waits_is_forgotten() {
        let ports: Vec<u32> = (1..=100).collect();
        let (mut reactors, mut descriptors, mut near) = given(&ports);
        let open = near.split_off(50);
        drop(near);
        assert!(!descriptors.update(99, OVER) && !descriptors.update(100, OVER));
        descriptors.close(&mut reactors, 99);
        drop(open);
        let hung_up: Vec<u32> = std::iter::repeat_with(|| descriptors.hang_up_some(USER))
            .take(20)
            .flat_map(|(ports, _)| ports)
            .collect();
        assert_eq!(hung_up, [100]);
        let all = closed(&mut descriptors);
        assert_eq!(all.len(), 99, "the near end of the other was closed in between");
    }

    /// Each shutdown of a near end is a change of its far end.
    #[test]
    fn process_that_shuts_near_ends_down_all_the_time_delays_no_hang_up() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let ports: Vec<u32> = (1..=100).collect();
        let (_reactor, mut descriptors, near) = given(&ports);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (over, near) = (&over, &near);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for near in &near[..99] {
                        let _ = rustix::net::shutdown(near, rustix::net::Shutdown::Both);
                    }
                }
            });
            let mut has_hung_up = descriptors.update(100, OVER);
            for _ in 0..10 {
                has_hung_up |= descriptors.hang_up_some(USER).0 == [100];
            }
            over.store(true, Ordering::Relaxed);
            assert!(has_hung_up);
        });
    }

    #[test]
    fn descriptor_of_the_library_is_dropped_when_it_hangs_up() {
        let (mut reactor, mut descriptors, _) = given(&[]);
        let near = descriptors.open(&mut reactor, (10, USER), READY).unwrap();
        descriptors.update(10, OVER);
        assert_eq!(closed(&mut descriptors), [(10, HangUp::Drop)]);
        drop((near, reactor));
    }
}
