//! Members of an ordered group; paths come and go, members crash and join, and an attacker in the group, or a member
//! that lies, changes messages of the protocol.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use utipc_core::Time;
use utipc_vsync::{
    Class, Components, Config, Event, Founding, MAX_CHUNK, Member, MemberId, State, Target, ViewId,
};

use crate::source::Source;
use crate::{Seen, magnitude};

const PLACES: usize = 3;
const ATTACKER: MemberId = MemberId(9 << 32);
/// Messages kept for the attacker.
const CAPTURED: usize = 64;
/// Bytes that a member may have for the transport after a turn, which takes all.
const LARGEST_QUEUE: usize = 32 << 20;

/// A member, and what its application has seen.
struct Process {
    member: Member,
    /// Messages delivered in the view so far: their senders and numbers.
    history: Vec<(MemberId, u32)>,
}

struct World {
    now: u64,
    config: Config,
    processes: BTreeMap<MemberId, Process>,
    places: [MemberId; PLACES],
    incarnations: u64,
    /// Paths, by both ends in order.
    paths: BTreeSet<(MemberId, MemberId)>,
    wires: BTreeMap<(MemberId, MemberId), VecDeque<Arc<[u8]>>>,
    captured: VecDeque<(MemberId, Arc<[u8]>)>,
    attacked: bool,
    /// No message was changed or invented so far.
    honest: bool,
    sent: u32,
    /// The messages of members that have moved together, by the view before, the view after, and the first of them.
    moved: BTreeMap<(ViewId, ViewId, MemberId), Vec<(MemberId, u32)>>,
}

impl World {
    fn new(choice: u8) -> Self {
        let config = Config {
            components: if choice & 1 == 0 { Components::All } else { Components::Primary },
            ordering: if choice & 2 == 0 {
                utipc_vsync::Ordering::Agreed
            } else {
                utipc_vsync::Ordering::Safe
            },
            state_transfer: choice & 4 != 0,
            window: if choice & 8 == 0 { 1 << 20 } else { 2000 },
            ..Config::default()
        };
        let mut world = Self {
            now: 1_000_000,
            config,
            processes: BTreeMap::new(),
            places: [MemberId(0); PLACES],
            incarnations: 0,
            paths: BTreeSet::new(),
            wires: BTreeMap::new(),
            captured: VecDeque::new(),
            attacked: false,
            honest: true,
            sent: 0,
            moved: BTreeMap::new(),
        };
        (0..PLACES).for_each(|place| world.start(place));
        world
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Puts a new member in a place, in contact with all others; the one before crashes.
    fn start(&mut self, place: usize) {
        let old = self.places[place];
        for other in self.ids() {
            self.disconnect(old, other);
        }
        self.processes.remove(&old);
        self.incarnations += 1;
        let id = MemberId((place as u64 + 1) << 32 | self.incarnations);
        let founds = self.config.components == Components::All || self.incarnations == 1;
        let founding = if founds { Founding::Alone } else { Founding::Never };
        let mut member = Member::new(id, Config { founding, ..self.config.clone() });
        assert!(member.join(self.time()).is_ok());
        if self.attacked {
            member.peer_up(self.time(), ATTACKER);
        }
        self.processes.insert(id, Process { member, history: Vec::new() });
        self.places[place] = id;
        for other in self.ids() {
            self.connect(id, other);
        }
    }

    fn ids(&self) -> Vec<MemberId> {
        self.processes.keys().copied().collect()
    }

    fn connect(&mut self, a: MemberId, b: MemberId) {
        if a == b || !self.paths.insert((a.min(b), a.max(b))) {
            return;
        }
        for (me, peer) in [(a, b), (b, a)] {
            let now = self.time();
            if let Some(process) = self.processes.get_mut(&me) {
                process.member.peer_up(now, peer);
            }
        }
    }

    fn disconnect(&mut self, a: MemberId, b: MemberId) {
        if !self.paths.remove(&(a.min(b), a.max(b))) {
            return;
        }
        for (me, peer) in [(a, b), (b, a)] {
            let now = self.time();
            self.wires.remove(&(me, peer));
            if let Some(process) = self.processes.get_mut(&me) {
                process.member.peer_down(now, peer);
            }
        }
    }

    /// Sends what members have, and takes their events.
    fn settle(&mut self, id: MemberId, take: bool, seen: &mut Seen) {
        let now = self.time();
        let Some(process) = self.processes.get_mut(&id) else { return };
        for _ in 0..100 {
            if process.member.deadline() > now {
                break;
            }
            process.member.handle_timeout(now);
        }
        assert!(
            process.member.queued() < LARGEST_QUEUE,
            "{} bytes for the transport",
            process.member.queued()
        );
        while let Some(out) = process.member.poll_transmit() {
            let receivers: Vec<MemberId> = match out.to {
                Target::One(to) => vec![to],
                Target::All => self.places.to_vec(),
            };
            for to in receivers {
                if self.paths.contains(&(id.min(to), id.max(to))) {
                    self.wires.entry((id, to)).or_default().push_back(out.bytes.clone());
                }
            }
            seen.note(("sends", out.bytes.get(1)));
            self.captured.push_back((id, out.bytes));
            if self.captured.len() > CAPTURED {
                self.captured.pop_front();
            }
        }
        seen.note(("state", process.member.state()));
        while take && let Some(event) = self.processes.get_mut(&id).and_then(|p| p.member.poll_event()) {
            self.take(id, event, seen);
        }
    }

    fn take(&mut self, id: MemberId, event: Event, seen: &mut Seen) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        match event {
            Event::View(change) => {
                seen.note(("view", change.view.seats.len(), change.previous.is_some(), change.joining.len()));
                let history = std::mem::take(&mut process.history);
                let first = change.together.first().copied().unwrap_or_default();
                if self.honest
                    && let Some(previous) = change.previous
                {
                    let known = self.moved.entry((previous, change.view.id, first));
                    let known = known.or_insert_with(|| history.clone());
                    assert_eq!(*known, history, "members that move together from {previous}");
                }
            }
            Event::Deliver(delivery) => {
                seen.note(("deliver", delivery.transitional, magnitude(delivery.payload.len())));
                let number = delivery.payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                assert!(!self.honest || number < self.sent, "a message that was not sent");
                process.history.push((delivery.sender, number));
            }
            Event::StateWanted { view } => {
                seen.note("state wanted");
                // As much as the joiners take at once; the transfer ends with the view if it is not complete.
                let piece = vec![7; MAX_CHUNK];
                while process.member.provide_state(view, &piece, false).is_ok()
                    && process.member.queued() < 100_000
                {}
                let _ = process.member.provide_state(view, b"end", true);
            }
            Event::Outcome(_, outcome) => seen.note(("outcome", outcome as u8)),
            Event::Excluded(cause) => {
                process.history.clear();
                seen.note(("excluded", cause as u8));
                assert!(!self.honest || cause != utipc_vsync::Cause::Protocol, "{id} blames another member");
            }
            other => seen.note(core::mem::discriminant(&other)),
        }
    }

    /// Passes on one message of each path; returns whether there was one.
    fn exchange(&mut self, seen: &mut Seen) -> bool {
        let now = self.time();
        let mut any = false;
        for (from, to) in self.wires.keys().copied().collect::<Vec<_>>() {
            let Some(bytes) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { continue };
            any = true;
            if let Some(process) = self.processes.get_mut(&to) {
                process.member.receive(now, from, &bytes);
            }
            self.settle(to, true, seen);
        }
        any
    }

    /// Passes time in steps of 5 ms.
    fn run(&mut self, steps: usize, seen: &mut Seen) {
        for _ in 0..steps {
            self.now += 5_000_000;
            for id in self.ids() {
                self.settle(id, true, seen);
            }
            for _ in 0..50 {
                if !self.exchange(seen) {
                    break;
                }
            }
        }
    }

    fn inject(&mut self, place: usize, from: MemberId, bytes: &[u8], seen: &mut Seen) {
        let (now, to) = (self.time(), self.places[place]);
        self.honest = false;
        if let Some(process) = self.processes.get_mut(&to) {
            let before = process.member.stats().refused;
            process.member.receive(now, from, bytes);
            seen.note((
                "refused",
                process.member.stats().refused > before,
                bytes.get(1).map(|kind| kind % 16),
            ));
        }
        self.settle(to, true, seen);
    }

    fn send(&mut self, place: usize, class: Class, size: usize, seen: &mut Seen) {
        let mut data = vec![self.sent as u8; size.max(4)];
        data[..4].copy_from_slice(&self.sent.to_be_bytes());
        let Some(process) = self.processes.get_mut(&self.places[place]) else { return };
        let result = process.member.send_as(class, &data);
        self.sent += u32::from(result.is_ok());
        seen.note(("send", class as u8, result.err().map(|e| core::mem::discriminant(&e))));
    }
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let mut world = World::new(source.u8());
    for _ in 0..200 {
        if source.is_empty() {
            break;
        }
        step(&mut world, &mut source, seen);
    }
    seen.note(("honest", world.honest));
    if world.honest && world.config.components == Components::All {
        merge(&mut world, seen);
    }
}

/// Honest members that reach one another come to one view.
fn merge(world: &mut World, seen: &mut Seen) {
    let ids = world.ids();
    for (at, a) in ids.iter().enumerate() {
        ids.iter().skip(at + 1).for_each(|b| world.connect(*a, *b));
    }
    world.run(1200, seen);
    let remaining = |process: &&Process| process.member.state() != State::Idle;
    let views: BTreeSet<Option<ViewId>> =
        world.processes.values().filter(remaining).map(|p| p.member.view().map(|view| view.id)).collect();
    assert!(views.len() <= 1 && !views.contains(&None), "the members do not agree: {views:?}");
}

fn step(world: &mut World, source: &mut Source<'_>, seen: &mut Seen) {
    let op = source.u8();
    let place = usize::from(op >> 4) % PLACES;
    let (id, next) = (world.places[place], world.places[(place + 1) % PLACES]);
    match op & 0xf {
        0 | 1 => {
            let steps = source.below(64);
            world.run(steps, seen);
        }
        2 => {
            world.exchange(seen);
        }
        3 => world.connect(id, next),
        4 => world.disconnect(id, next),
        5..8 => {
            let class = source.pick(&[Class::Agreed, Class::Safe, Class::Atomic]);
            let size = source.pick(&[4, 100, 900, 20_000]);
            (0..1 + source.below(8)).for_each(|_| world.send(place, class, size, seen));
        }
        8 => world.start(place),
        9 => {
            let now = world.time();
            if let Some(process) = world.processes.get_mut(&id) {
                seen.note(("leave", process.member.leave(now).is_ok()));
            }
        }
        10 => {
            world.attacked = true;
            let now = world.time();
            for process in world.processes.values_mut() {
                if source.flag() {
                    process.member.peer_down(now, ATTACKER);
                }
                process.member.peer_up(now, ATTACKER);
            }
        }
        // A member or the attacker sends a changed message of another one.
        11..14 => {
            let from = if source.flag() { ATTACKER } else { next };
            let count = world.captured.len();
            let Some((_, bytes)) = world.captured.get(source.below(count)).cloned() else { return };
            let mut bytes = bytes.to_vec();
            for _ in 0..source.below(4) {
                let at = usize::from(source.u16()) % bytes.len().max(1);
                let change = source.u8();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= change;
                }
            }
            if source.flag() {
                bytes.truncate(usize::from(source.u8()));
            }
            world.inject(place, from, &bytes, seen);
        }
        _ => {
            let from = if source.flag() { ATTACKER } else { next };
            let mut bytes = vec![1, source.u8(), 0, 0];
            let len = usize::from(source.u8());
            bytes.extend_from_slice(source.bytes(len));
            world.inject(place, from, &bytes, seen);
        }
    }
}
