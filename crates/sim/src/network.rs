//! The network: connects every node with every other, with the faults that are enabled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use utipc_core::{Rng, Time};

/// Network quality: probabilities in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quality {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) reorder: u64,
}

/// A frame in flight.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) at: Time,
    number: u64,
    sent: Time,
    pub(crate) plane: u8,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: Vec<u8>,
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug)]
struct Path {
    latency_us: u64,
    /// Time of arrival of the last frame sent in order.
    last: Time,
    cut: bool,
    /// Whether this network has failed in this direction, but not the other network.
    failed: bool,
    /// Frames sent before this time arrive only after it.
    held_until: Time,
    /// Frames sent before this time are lost.
    fresh_from: Time,
    /// Frames sent since counting started.
    sent: u64,
}

/// All paths, and the frames in flight on them.
#[derive(Debug)]
pub(crate) struct Network {
    nodes: usize,
    planes: u8,
    paths: Vec<Path>,
    flights: BinaryHeap<Reverse<Flight>>,
    pub(crate) quality: Quality,
    pub(crate) frames: u64,
    rng: Rng,
}

/// Longest extra delay of reordered frames and late duplicates, microseconds.
const LATE_US: u64 = 60_000;

impl Network {
    pub(crate) fn new(nodes: usize, planes: u8, mut rng: Rng) -> Self {
        let path = |rng: &mut Rng| Path {
            latency_us: 50 + rng.below(1000),
            last: Time::ZERO,
            cut: false,
            failed: false,
            held_until: Time::ZERO,
            fresh_from: Time::ZERO,
            sent: 0,
        };
        let paths = (0..nodes * nodes * usize::from(planes)).map(|_| path(&mut rng)).collect();
        Self { nodes, planes, paths, flights: BinaryHeap::new(), quality: Quality::default(), frames: 0, rng }
    }

    fn path(&mut self, plane: u8, from: usize, to: usize) -> &mut Path {
        &mut self.paths[(usize::from(plane) * self.nodes + from) * self.nodes + to]
    }

    /// Cuts or restores one direction on all networks.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        (0..self.planes).for_each(|plane| self.path(plane, from, to).cut = cut);
    }

    /// Starts or ends the failure of one network between two nodes.
    pub(crate) fn set_failed(&mut self, plane: u8, a: usize, b: usize, failed: bool) {
        self.path(plane, a, b).failed = failed;
        self.path(plane, b, a).failed = failed;
    }

    /// Drops the frames in flight from one node to another, when contact is lost. Packets of a link do not carry their
    /// session, so with any implementation a late packet of an earlier contact would be taken for a new one.
    pub(crate) fn clear(&mut self, now: Time, from: usize, to: usize) {
        (0..self.planes).for_each(|plane| self.clear_plane(now, plane, from, to));
    }

    /// As [`Self::clear`], on one network, when one of two links is lost.
    pub(crate) fn clear_plane(&mut self, now: Time, plane: u8, from: usize, to: usize) {
        self.path(plane, from, to).fresh_from = now;
    }

    /// Delays frames between two nodes until `until`.
    pub(crate) fn hold(&mut self, from: usize, to: usize, until: Time) {
        (0..self.planes).for_each(|plane| self.path(plane, from, to).held_until = until);
    }

    /// Restarts counting frames.
    pub(crate) fn start_counting(&mut self) {
        self.paths.iter_mut().for_each(|path| path.sent = 0);
    }

    /// Maximum number of frames on one path since counting started, and the path's network, sender and receiver.
    pub(crate) fn busiest(&self) -> (u64, (u8, usize, usize)) {
        let busiest = self.paths.iter().enumerate().max_by_key(|(_, path)| path.sent);
        busiest.map_or_else(Default::default, |(at, path)| {
            let (pair, to) = (at / self.nodes, at % self.nodes);
            (path.sent, ((pair / self.nodes) as u8, pair % self.nodes, to))
        })
    }

    fn chance(&mut self, millionths: u64) -> bool {
        millionths > 0 && self.rng.below(1_000_000) < millionths
    }

    /// Sends a frame to one node.
    pub(crate) fn send(&mut self, now: Time, plane: u8, from: usize, to: usize, frame: &[u8]) {
        self.frames += 1;
        self.path(plane, from, to).sent += 1;
        let quality = self.quality;
        let path = *self.path(plane, from, to);
        if path.cut || path.failed || self.chance(quality.loss) {
            return;
        }
        let jitter = self.rng.below(100);
        let late = if self.chance(quality.reorder) { self.rng.below(LATE_US / 10) + 1 } else { 0 };
        let path = self.path(plane, from, to);
        let earliest = now.max(path.held_until) + std::time::Duration::from_micros(path.latency_us + jitter);
        let in_order = earliest.max(path.last);
        let at = if late == 0 {
            path.last = in_order;
            in_order
        } else {
            in_order + std::time::Duration::from_micros(late)
        };
        if self.chance(quality.duplicate) {
            let later = self.rng.below(LATE_US);
            self.push(now, at + std::time::Duration::from_micros(later), (plane, from, to), frame);
        }
        self.push(now, at, (plane, from, to), frame);
    }

    fn push(&mut self, sent: Time, at: Time, (plane, from, to): (u8, usize, usize), frame: &[u8]) {
        let flight = Flight { at, number: self.frames, sent, plane, from, to, bytes: frame.to_vec() };
        self.flights.push(Reverse(flight));
    }

    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.flights.peek().map(|f| f.0.at)
    }

    pub(crate) fn arrive(&mut self, now: Time) -> Option<Flight> {
        if self.next_arrival()? > now {
            return None;
        }
        let flight = self.flights.pop()?.0;
        let lost = flight.sent < self.path(flight.plane, flight.from, flight.to).fresh_from;
        if lost { self.arrive(now) } else { Some(flight) }
    }
}
