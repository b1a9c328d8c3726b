//! Members, their applications, the network and time.

use std::collections::BTreeMap;
use std::sync::Arc;

use utipc_core::{Rng, Time};
use utipc_vsync::{
    Class, Components, Config, Event, Founding, Member, MemberId, Ordering, SendError, State, Target, ViewId,
};

use crate::model::{Broken, History, Model};
use crate::network::{Network, Pair, pair};
use crate::{FaultKind, Outcome, SimConfig};

const MS: u64 = 1_000_000;

/// An event at a time.
#[derive(Debug)]
enum What {
    Up {
        pair: Pair,
        end: usize,
        number: u64,
    },
    Down {
        pair: Pair,
        end: usize,
        number: u64,
    },
    /// Try to open the session of a pair.
    Open(Pair),
    Message {
        from: MemberId,
        to: MemberId,
        number: u64,
        bytes: Arc<[u8]>,
    },
    Timer(MemberId),
    /// The application of a place acts.
    Act(usize),
    /// A new member at a place.
    Arrive(usize),
    Fault,
    Heal,
}

/// A member with its application.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) member: Member,
    place: usize,
    /// It does not run before this time; its events wait.
    asleep: Time,
    /// Its application does not take events before this time.
    deaf: Time,
    timer: Time,
    /// The state that it is giving to joiners: pieces left.
    giving: Option<(ViewId, Vec<Vec<u8>>)>,
    /// The state that it is receiving.
    taking: Vec<u8>,
    next_id: u64,
    /// Messages accepted since its state became complete.
    pub(crate) own: Vec<u64>,
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: SimConfig,
    pub(crate) now: Time,
    rng: Rng,
    events: BTreeMap<(Time, u64), What>,
    next_event: u64,
    network: Network,
    pub(crate) processes: BTreeMap<MemberId, Process>,
    places: Vec<Option<MemberId>>,
    incarnations: u64,
    component_of: Vec<u64>,
    pub(crate) busy: bool,
    pub(crate) model: Model,
    pub(crate) outcome: Outcome,
}

impl World {
    pub(crate) fn new(config: SimConfig) -> Self {
        let places = config.members;
        let mut world = Self {
            now: Time::from_millis(1),
            rng: Rng::new(config.seed),
            events: BTreeMap::new(),
            next_event: 0,
            network: Network::default(),
            processes: BTreeMap::new(),
            places: vec![None; places],
            incarnations: 0,
            component_of: vec![0; places],
            busy: true,
            model: Model::default(),
            outcome: Outcome { trace: config.seed ^ 0xcbf2_9ce4_8422_2325, ..Outcome::default() },
            config,
        };
        for place in 0..places {
            let at = world.rng.below(300 * MS);
            world.at(if place == 0 { 0 } else { at }, What::Arrive(place));
        }
        world
    }

    fn has(&self, kind: FaultKind) -> bool {
        self.busy && self.config.faults.contains(&kind)
    }

    fn at(&mut self, after: u64, what: What) {
        self.schedule(Time::from_nanos(self.now.as_nanos() + after), what);
    }

    fn schedule(&mut self, at: Time, what: What) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), what);
    }

    fn note(&mut self, what: u8, who: MemberId, word: u64, text: impl FnOnce() -> String) {
        self.outcome.events += 1;
        if self.config.log {
            eprintln!("{:>10} {} {who} {}", self.now.as_nanos() / 1000, char::from(what), text());
        }
        for word in [self.now.as_nanos(), u64::from(what) << 56 ^ who.0, word] {
            let mixed = (self.outcome.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.outcome.trace = mixed.rotate_left(23);
        }
    }

    /// Runs until `until`.
    pub(crate) fn run_until(&mut self, until: Time) -> Result<(), Broken> {
        while let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), what) = first.remove_entry();
            self.now = at;
            self.handle(what)?;
        }
        self.now = until;
        Ok(())
    }

    fn handle(&mut self, what: What) -> Result<(), Broken> {
        match what {
            What::Up { pair, end, number } => self.up(pair, end, number),
            What::Down { pair, end, number } => self.down(pair, end, number),
            What::Open(pair) => {
                self.open(pair);
                Ok(())
            }
            What::Message { from, to, number, bytes } => self.arrive(from, to, number, bytes),
            What::Timer(id) => self.timer(id),
            What::Act(place) => self.act(place),
            What::Arrive(place) => self.start(place),
            What::Fault => self.fault(),
            What::Heal => {
                self.heal();
                Ok(())
            }
        }
    }

    // Members.

    fn start(&mut self, place: usize) -> Result<(), Broken> {
        if self.places[place].is_some() {
            return Ok(());
        }
        self.incarnations += 1;
        let id = MemberId((place as u64 + 1) << 32 | self.incarnations);
        let all = self.config.components == Components::All;
        let config = Config {
            ordering: if self.config.seed % 5 == 4 { Ordering::Safe } else { Ordering::Agreed },
            components: self.config.components,
            window: if self.config.seed.is_multiple_of(3) { 3000 } else { 1 << 20 },
            founding: if all || self.incarnations == 1 { Founding::Alone } else { Founding::Never },
            weight: if self.config.seed % 7 == 6 { 1 + place as u16 % 3 } else { 1 },
            ..Config::default()
        };
        let mut member = Member::new(id, config);
        let joined = member.join(self.now);
        debug_assert!(joined.is_ok());
        let process = Process {
            member,
            place,
            asleep: Time::ZERO,
            deaf: Time::ZERO,
            timer: Time::NEVER,
            giving: None,
            taking: Vec::new(),
            next_id: 0,
            own: Vec::new(),
        };
        self.note(b'+', id, 0, || format!("starts at place {place}"));
        self.processes.insert(id, process);
        self.places[place] = Some(id);
        for other in self.places.clone().into_iter().flatten() {
            if other != id {
                let after = self.rng.below(20 * MS);
                self.at(after, What::Open(pair(id, other)));
            }
        }
        self.at(MS, What::Act(place));
        self.settle(id)
    }

    /// Removes a member: a crash, or the end of its process after it has left.
    fn end(&mut self, id: MemberId, why: &str) {
        let Some(process) = self.processes.remove(&id) else { return };
        self.note(b'-', id, 0, || why.to_owned());
        self.places[process.place] = None;
        for other in self.processes.keys().copied().collect::<Vec<_>>() {
            self.close(pair(id, other));
        }
        self.outcome.crashes += 1;
        let after = 50 * MS + self.rng.below(1500 * MS);
        self.at(after, What::Arrive(process.place));
    }

    // Network.

    fn reachable(&self, pair: Pair) -> bool {
        let place = |id| self.processes.get(&id).map(|process| self.component_of[process.place]);
        match (place(pair.0), place(pair.1)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }

    fn open(&mut self, pair: Pair) {
        let idle = self.network.sessions.get(&pair).is_none_or(|s| !s.open && s.up == [false; 2]);
        if !self.reachable(pair) || !idle {
            return;
        }
        let (number, at) = self.network.open(pair, self.now, &mut self.rng);
        for (end, at) in at.into_iter().enumerate() {
            self.schedule(at, What::Up { pair, end, number });
        }
    }

    fn close(&mut self, pair: Pair) {
        if let Some((number, at)) = self.network.close(pair, self.now, &mut self.rng) {
            for (end, at) in at.into_iter().enumerate() {
                self.schedule(at, What::Down { pair, end, number });
            }
        }
    }

    fn up(&mut self, pair: Pair, end: usize, number: u64) -> Result<(), Broken> {
        let Some(session) = self.network.sessions.get_mut(&pair).filter(|s| s.number == number) else {
            return Ok(());
        };
        session.up[end] = true;
        let (me, peer) = if end == 0 { (pair.0, pair.1) } else { (pair.1, pair.0) };
        self.note(b'u', me, peer.0, || format!("reaches {peer}"));
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&me) {
            process.member.peer_up(now, peer);
        }
        self.settle(me)
    }

    fn down(&mut self, pair: Pair, end: usize, number: u64) -> Result<(), Broken> {
        let Some(session) = self.network.sessions.get_mut(&pair).filter(|s| s.number == number) else {
            return Ok(());
        };
        session.up[end] = false;
        session.deaf[end] = true;
        if session.up == [false; 2] {
            let after = 10 * MS + self.rng.below(100 * MS);
            self.at(after, What::Open(pair));
        }
        let (me, peer) = if end == 0 { (pair.0, pair.1) } else { (pair.1, pair.0) };
        self.note(b'd', me, peer.0, || format!("loses {peer}"));
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&me) {
            process.member.peer_down(now, peer);
        }
        self.settle(me)
    }

    fn arrive(&mut self, from: MemberId, to: MemberId, number: u64, bytes: Arc<[u8]>) -> Result<(), Broken> {
        if !self.network.arrives(from, to, number) {
            return Ok(());
        }
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        if process.asleep > self.now {
            let at = process.asleep;
            self.schedule(at, What::Message { from, to, number, bytes });
            return Ok(());
        }
        let before = process.member.state();
        process.member.receive(self.now, from, &bytes);
        if self.config.log {
            let kind = bytes.get(1).copied().unwrap_or(0);
            let state = process.member.state();
            eprintln!(
                "{:>10} k {to} message {kind} of {from}, {before:?} then {state:?}",
                self.now.as_nanos() / 1000
            );
        }
        self.settle(to)
    }

    fn timer(&mut self, id: MemberId) -> Result<(), Broken> {
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        if process.timer > self.now {
            return Ok(());
        }
        process.timer = Time::NEVER;
        if process.asleep > self.now {
            process.timer = process.asleep;
            let at = process.asleep;
            self.schedule(at, What::Timer(id));
            return Ok(());
        }
        process.member.handle_timeout(self.now);
        self.settle(id)
    }

    /// Sends what a member has to send, takes its events, and sets its timer.
    fn settle(&mut self, id: MemberId) -> Result<(), Broken> {
        self.take_events(id)?;
        self.transmit(id);
        self.take_events(id)?;
        self.transmit(id);
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        let progress = process.member.progress();
        self.model.received(id, progress.view, progress.received);
        let deadline = process.member.deadline();
        if deadline < process.timer {
            process.timer = deadline;
            let at = deadline.max(self.now);
            self.schedule(at, What::Timer(id));
        }
        Ok(())
    }

    fn transmit(&mut self, id: MemberId) {
        while let Some(out) = self.processes.get_mut(&id).and_then(|p| p.member.poll_transmit()) {
            let receivers = match out.to {
                Target::One(to) => vec![to],
                Target::All => self.processes.keys().copied().filter(|to| *to != id).collect(),
            };
            for to in receivers {
                let long = self.has(FaultKind::Delay) && self.rng.below(30) == 0;
                let delay = if long { self.rng.below(200 * MS) } else { 20_000 + self.rng.below(300_000) };
                if let Some((number, at)) = self.network.send(id, to, self.now, delay) {
                    self.outcome.messages += 1;
                    let bytes = out.bytes.clone();
                    self.schedule(at, What::Message { from: id, to, number, bytes });
                }
            }
        }
    }

    // Applications.

    fn take_events(&mut self, id: MemberId) -> Result<(), Broken> {
        loop {
            let Some(process) = self.processes.get_mut(&id).filter(|p| p.deaf <= self.now) else {
                return Ok(());
            };
            let progress = process.member.progress();
            let Some(event) = process.member.poll_event() else { return Ok(()) };
            self.model.received(id, progress.view, progress.received);
            self.take_event(id, event)?;
        }
    }

    fn take_event(&mut self, id: MemberId, event: Event) -> Result<(), Broken> {
        let mode = self.config.components;
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        match event {
            Event::View(change) => {
                self.outcome.views += 1;
                let ids: Vec<String> = change.view.members().map(|m| m.to_string()).collect();
                self.note(b'v', id, change.view.id.round, || {
                    format!("view {} of {ids:?} {change:?}", change.view.id)
                });
                self.model.view(mode, id, &change)
            }
            Event::Deliver(d) => {
                let word = d.payload.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                self.outcome.delivered += 1;
                self.note(b'm', id, word, || format!("delivers {word:x} at {} of {}", d.place, d.view));
                let intact = d.payload.iter().skip(8).all(|b| *b == word as u8);
                if !intact {
                    return Err(Broken::Invented(format!("message {word:x} is damaged")));
                }
                self.model.deliver(mode, id, word, &d)
            }
            Event::StateWanted { view } => {
                let history = self.model.histories.get(&id).map(|h| h.messages.clone()).unwrap_or_default();
                let bytes: Vec<u8> = history.into_iter().flat_map(u64::to_be_bytes).collect();
                let mut pieces: Vec<Vec<u8>> = bytes.chunks(3000).map(<[u8]>::to_vec).collect();
                if pieces.is_empty() {
                    pieces.push(Vec::new());
                }
                pieces.reverse();
                process.giving = Some((view, pieces));
                Ok(())
            }
            Event::State { bytes, first, last } => {
                if first {
                    process.taking.clear();
                }
                process.taking.extend_from_slice(&bytes);
                if last {
                    let ids =
                        process.taking.as_chunks::<8>().0.iter().map(|c| u64::from_be_bytes(*c)).collect();
                    self.note(b's', id, 0, || "has the state".to_owned());
                    self.outcome.transfers += 1;
                    self.model.restart(id, History::of(ids)?);
                }
                Ok(())
            }
            Event::Outcome(token, outcome) => {
                self.outcome.atomic[outcome as usize] += 1;
                self.note(b'o', id, token.0, || format!("{token:?}: {outcome:?}"));
                self.model.outcome(id, token, outcome)
            }
            Event::Blocked => {
                self.outcome.blocked += 1;
                self.note(b'b', id, 0, || "blocked".to_owned());
                Ok(())
            }
            Event::Excluded(cause) => {
                process.own.clear();
                process.giving = None;
                self.outcome.excluded += 1;
                self.note(b'x', id, 0, || format!("excluded: {cause:?}"));
                self.model.restart(id, History::default());
                if cause == utipc_vsync::Cause::Protocol {
                    return Err(Broken::GaveUp(format!("{id}")));
                }
                if cause == utipc_vsync::Cause::SlowConsumer {
                    self.end(id, "was too slow");
                }
                Ok(())
            }
            Event::Left => {
                self.end(id, "has left");
                Ok(())
            }
            Event::Incompatible(peer) => Err(Broken::GaveUp(format!("{id} refuses {peer}"))),
        }
    }

    fn act(&mut self, place: usize) -> Result<(), Broken> {
        let Some(id) = self.places[place] else { return Ok(()) };
        let pause = 2 * MS + self.rng.below(if self.busy { 40 * MS } else { 200 * MS });
        self.at(pause, What::Act(place));
        let asleep = self.processes.get(&id).is_some_and(|process| process.asleep > self.now);
        if !asleep {
            self.give_state(id);
            if self.busy {
                let burst = 1 + self.rng.below(4);
                for _ in 0..burst {
                    self.send(id);
                }
            }
        }
        self.settle(id)
    }

    fn give_state(&mut self, id: MemberId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        for _ in 0..3 {
            let Some((view, pieces)) = process.giving.as_mut() else { return };
            let Some(piece) = pieces.last() else { return };
            match process.member.provide_state(*view, piece, pieces.len() == 1) {
                Ok(()) => drop(pieces.pop()),
                Err(_) => return,
            }
            if pieces.is_empty() {
                process.giving = None;
            }
        }
    }

    /// Sends a message of a random class; returns its number if it was accepted.
    pub(crate) fn send(&mut self, id: MemberId) -> Option<u64> {
        let class = match self.rng.below(6) {
            0 => Class::Safe,
            1 if self.config.components == Components::Primary => Class::Atomic,
            _ => Class::Agreed,
        };
        let long = self.rng.below(50) == 0;
        let filler = self.rng.below(if long { 3000 } else { 60 });
        let process = self.processes.get_mut(&id)?;
        let sender = id.0 >> 32 << 12 | id.0 & 0xfff;
        let word = (sender << 20) + process.next_id + 1;
        let mut payload = word.to_be_bytes().to_vec();
        payload.extend(std::iter::repeat_n(word as u8, filler as usize));
        match process.member.send_as(class, &payload) {
            Ok(token) => {
                process.next_id += 1;
                process.own.push(word);
                let safe = class == Class::Agreed && self.config.seed % 5 == 4;
                self.model.sent(word, id, if safe { Class::Safe } else { class }, token);
                Some(word)
            }
            Err(SendError::WouldBlock) => {
                self.outcome.would_block += 1;
                None
            }
            Err(_) => None,
        }
    }

    /// A member that is up and has the state.
    pub(crate) fn operational(&self) -> Vec<MemberId> {
        let operational = |(_, p): &(&MemberId, &Process)| p.member.state() == State::Operational;
        self.processes.iter().filter(operational).map(|(id, _)| *id).collect()
    }

    // Faults.

    pub(crate) fn begin_faults(&mut self) {
        self.busy = true;
        self.at(100 * MS, What::Fault);
    }

    fn any(&mut self) -> Option<MemberId> {
        let all: Vec<MemberId> = self.processes.keys().copied().collect();
        let n = self.rng.below(all.len() as u64) as usize;
        all.get(n).copied()
    }

    /// Whether a group in its primary component survives the loss of one more member.
    fn spares_one(&self) -> bool {
        let needed = self.config.members / 2 + 1;
        self.config.components == Components::All || self.operational().len() > needed
    }

    fn fault(&mut self) -> Result<(), Broken> {
        if !self.busy {
            return Ok(());
        }
        let pause = 20 * MS + self.rng.below(600 * MS);
        self.at(pause, What::Fault);
        let kinds = self.config.faults.clone();
        let Some(kind) = kinds.get(self.rng.below(kinds.len().max(1) as u64) as usize) else { return Ok(()) };
        match kind {
            FaultKind::Delay => {}
            FaultKind::Partition => self.partition(),
            FaultKind::Flap => {
                if let (Some(a), Some(b)) = (self.any(), self.any())
                    && a != b
                {
                    self.close(pair(a, b));
                }
            }
            FaultKind::Crash => {
                if let Some(id) = self.any().filter(|_| self.spares_one()) {
                    self.end(id, "crashes");
                }
            }
            FaultKind::Leave => {
                if let Some(id) = self.any().filter(|_| self.spares_one())
                    && let Some(process) = self.processes.get_mut(&id)
                {
                    let _ = process.member.leave(self.now);
                    self.note(b'l', id, 0, || "leaves".to_owned());
                    return self.settle(id);
                }
            }
            FaultKind::Slow => {
                if let Some(id) = self.any() {
                    let until = Time::from_nanos(self.now.as_nanos() + self.rng.below(900 * MS));
                    let asleep = self.rng.below(2) == 0;
                    if let Some(process) = self.processes.get_mut(&id) {
                        *(if asleep { &mut process.asleep } else { &mut process.deaf }) = until;
                    }
                }
            }
        }
        Ok(())
    }

    fn partition(&mut self) {
        let parts = 2 + self.rng.below(2);
        for place in 0..self.config.members {
            self.component_of[place] = self.rng.below(parts);
        }
        let pairs: Vec<Pair> =
            self.network.sessions.keys().copied().filter(|pair| !self.reachable(*pair)).collect();
        for pair in pairs {
            self.close(pair);
        }
        let after = 100 * MS + self.rng.below(1500 * MS);
        self.at(after, What::Heal);
    }

    pub(crate) fn heal(&mut self) {
        self.component_of.fill(0);
        let all: Vec<MemberId> = self.processes.keys().copied().collect();
        for (n, a) in all.iter().enumerate() {
            for b in all.iter().skip(n + 1) {
                let after = 1 + self.rng.below(100 * MS);
                self.at(after, What::Open(pair(*a, *b)));
            }
        }
    }

    /// Ends all faults.
    pub(crate) fn end_faults(&mut self) {
        self.busy = false;
        self.heal();
    }
}
