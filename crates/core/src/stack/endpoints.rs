//! The sockets of a node by port number, with their timers and the reports about them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::socket::Endpoint;
use crate::switch::Room;
use crate::time::Time;
use crate::waiting::Waiters;

/// All sockets.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    all: BTreeMap<u32, Endpoint>,
    /// Those with timers, by the time when they are due.
    deadlines: Waiters<u32, Time>,
    /// Those whose readiness may have changed, in the order of the changes.
    ready: VecDeque<u32>,
    ready_ports: BTreeSet<u32>,
}

/// What senders see of a receiver.
pub(super) fn room(endpoint: &Endpoint) -> Room {
    let (charged, limit) = endpoint.queue_usage();
    Room { is_full: endpoint.is_full(), charged, limit }
}

impl Endpoints {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, port: u32) -> Option<&Endpoint> {
        self.all.get(&port)
    }

    pub(super) fn get_mut(&mut self, port: u32) -> Option<&mut Endpoint> {
        self.all.get_mut(&port)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.all.values()
    }

    /// The sockets from a port on.
    pub(super) fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.all.range(first..).map(|(port, endpoint)| (*port, endpoint))
    }

    pub(super) fn insert(&mut self, port: u32, endpoint: Endpoint) {
        self.set_deadline(port, endpoint.deadline());
        self.all.insert(port, endpoint);
    }

    pub(super) fn remove(&mut self, port: u32) {
        self.all.remove(&port);
        self.deadlines.leave(port);
    }

    /// The timer of a socket is due at another time.
    pub(super) fn set_deadline(&mut self, port: u32, deadline: Option<Time>) {
        match deadline {
            Some(at) => self.deadlines.set(port, at),
            None => _ = self.deadlines.leave(port),
        }
    }

    /// When the first timer is due; [`Time::NEVER`] without timers.
    pub(super) fn deadline(&self) -> Time {
        self.deadlines.deadline()
    }

    /// The first socket whose timer is due. It stays due until [`Self::set_deadline`].
    pub(super) fn next_due(&self, now: Time) -> Option<u32> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, port)| port)
    }

    /// The readiness of a socket may have changed.
    pub(super) fn touch(&mut self, port: u32) {
        if self.ready_ports.insert(port) {
            self.ready.push_back(port);
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next socket whose readiness may have changed.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let port = self.ready.pop_front()?;
        self.ready_ports.remove(&port);
        Some(port)
    }

    /// When the timer of a socket is due.
    #[cfg(test)]
    pub(super) fn deadline_of(&self, port: u32) -> Option<Time> {
        self.deadlines.rank(port)
    }
}
