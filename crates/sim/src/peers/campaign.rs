//! A campaign: virtual time, two networks, honest nodes, and hostile peers in turn.

use std::collections::BTreeMap;

use clap::ValueEnum as _;
use utipc_bench_kit::Named as _;
use utipc_core::{ClusterId, FrameBatch, MediaAddr, NodeAddr, Rng, Target, Time};

use super::attack::Attack;
use super::honest::{Honest, address, media};
use super::hostile::{Frame, Hostile, Victim};
use super::{Cost, Probe, Report, ceilings};

/// Honest nodes: the attacked node, two neighbours, and a newcomer that starts in the middle.
const HONEST: usize = 4;
/// The newcomer.
const NEWCOMER: usize = 3;
/// Step of the virtual time, milliseconds.
const STEP_MS: u64 = 5;
/// Step while the node forgets the hostile peers, milliseconds.
const LONG_STEP_MS: u64 = 50;
/// Steps between two messages of an application.
const PACE: u64 = 8;
/// Interval at which a hostile peer sends, milliseconds: less than the tolerance of a link.
const SPEAK_MS: u64 = 500;
/// Time in which the honest nodes find each other, milliseconds.
const QUIET_MS: u64 = 5_000;
/// Time after which a peer that is down is forgotten, with a margin, milliseconds.
const FORGET_MS: u64 = 330_000;
/// Longest time until a newcomer has contact, milliseconds: the trial of its address, and an interval of discovery.
const NEWCOMER_MS: u64 = 2_000;
/// Hostile peers that begin in each virtual second: as many unknown nodes as discovery admits.
const BEGIN_PER_STEP: usize = 2;

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Hostile peers.
    pub peers: usize,
    /// Virtual length of the attack after all peers have begun, milliseconds.
    pub attack_ms: u64,
    /// Frames of a peer each time that it speaks.
    pub burst: usize,
    /// The attacks; the peers take them in turns.
    pub attacks: Vec<Attack>,
    /// Seed of all randomness.
    pub seed: u64,
}

struct Run {
    config: Campaign,
    probe: Probe,
    now: Time,
    steps: u64,
    step_ms: u64,
    honest: Vec<Honest>,
    victim: Victim,
    hostile: Vec<Hostile>,
    /// Hostile peers by their place on the networks.
    places: BTreeMap<MediaAddr, usize>,
    begun: usize,
    costs: BTreeMap<Attack, Cost>,
    report: Report,
    base: usize,
    newcomer_at: Option<Time>,
    disagree_since: Option<Time>,
    out: Vec<Frame>,
}

fn place(index: usize) -> MediaAddr {
    let [_, _, high, low] = (index as u32).to_be_bytes();
    MediaAddr::Udp(format!("10.9.{high}.{low}:6118").parse().expect("an address"))
}

/// Runs a campaign.
///
/// # Errors
/// What went wrong, and the results until then: honest traffic or an honest link was lost, or a ceiling of
/// [`ceilings`] was exceeded.
pub fn run(config: Campaign, probe: Probe) -> Result<Report, Box<(String, Report)>> {
    let mut run = Run::new(config, probe);
    let outcome = run.whole();
    let report = run.finish();
    match outcome.and_then(|()| judge(&report)) {
        Ok(()) => Ok(report),
        Err(reason) => Err(Box::new((reason, report))),
    }
}

fn judge(report: &Report) -> Result<(), String> {
    if report.memory > ceilings::MEMORY {
        return Err(format!("{} bytes of memory, the ceiling is {}", report.memory, ceilings::MEMORY));
    }
    let most_left = ceilings::memory_left(report.bindings);
    if report.memory_left > most_left {
        return Err(format!("{} bytes are left, the ceiling is {most_left}", report.memory_left));
    }
    for (attack, cost) in &report.costs {
        let (name, cpu) = (attack.name(), cost.cpu_per_frame());
        if cost.amplification() > ceilings::amplification(*attack) {
            return Err(format!("{name}: {:.1} bytes are sent for each received", cost.amplification()));
        }
        let most = ceilings::cpu_per_frame(*attack);
        if !cfg!(debug_assertions) && cpu > most {
            return Err(format!("{name}: {cpu:?} for a frame, the ceiling is {most:?}"));
        }
    }
    Ok(())
}

impl Run {
    fn new(config: Campaign, probe: Probe) -> Self {
        let now = Time::from_millis(1000);
        let base = (probe.memory)();
        let mut rng = Rng::new(config.seed);
        let mut honest: Vec<Honest> =
            (0..HONEST - 1).map(|index| Honest::new(now, index, HONEST, rng.next_u64() >> 8)).collect();
        honest.reserve(1);
        let victim = Victim {
            addr: address(0),
            media: media(0, 0),
            cluster: ClusterId::default(),
            neighbours: (1..HONEST).map(address).collect(),
        };
        let all = Attack::value_variants();
        let attacks = if config.attacks.is_empty() { all } else { &config.attacks };
        let hostile: Vec<Hostile> = (0..config.peers)
            .map(|index| {
                Hostile::new(index as u32, attacks[index % attacks.len()], place(index), config.seed)
            })
            .collect();
        let places = (0..config.peers).map(|index| (place(index), index)).collect();
        let report = Report { peers: config.peers, ..Report::default() };
        Self {
            config,
            probe,
            now,
            steps: 0,
            step_ms: STEP_MS,
            honest,
            victim,
            hostile,
            places,
            begun: 0,
            costs: BTreeMap::new(),
            report,
            base,
            newcomer_at: None,
            disagree_since: None,
            out: Vec::new(),
        }
    }

    fn whole(&mut self) -> Result<(), String> {
        self.steps_for(QUIET_MS)?;
        let linked = (1..NEWCOMER).all(|n| self.honest[0].knows(address(n)));
        if !linked {
            return Err("the honest nodes did not find each other".to_owned());
        }
        self.base = (self.probe.memory)();
        while self.begun < self.hostile.len() {
            self.begun = (self.begun + BEGIN_PER_STEP).min(self.hostile.len());
            self.step()?;
        }
        self.steps_for(self.config.attack_ms / 2)?;
        self.start_newcomer();
        self.steps_for(self.config.attack_ms / 2)?;
        while self.newcomer_at.is_some() {
            self.step()?;
        }
        self.check_work()?;
        self.begun = 0;
        self.step_ms = LONG_STEP_MS;
        self.steps_for(FORGET_MS)?;
        self.check_end()
    }

    fn steps_for(&mut self, ms: u64) -> Result<(), String> {
        let end = self.now.plus_millis(ms);
        while self.now < end {
            self.step()?;
        }
        Ok(())
    }

    fn start_newcomer(&mut self) {
        let seed = self.config.seed + 99;
        self.honest.push(Honest::new(self.now, NEWCOMER, HONEST, seed));
        self.newcomer_at = Some(self.now);
    }

    fn step(&mut self) -> Result<(), String> {
        self.now = self.now.plus_millis(self.step_ms);
        self.steps += 1;
        self.attack();
        self.timers();
        if self.steps.is_multiple_of(PACE) {
            self.act();
        }
        for _ in 0..8 {
            if !self.exchange() {
                break;
            }
        }
        for node in &mut self.honest {
            node.read(self.now)?;
        }
        self.exchange();
        self.check_links()?;
        if self.steps.is_multiple_of(100) {
            self.measure()?;
        }
        Ok(())
    }

    /// Every honest node that has contact sends to the others.
    fn act(&mut self) {
        let count = self.honest.len();
        for from in 0..count {
            let to: Vec<usize> =
                (0..count).filter(|to| *to != from && self.honest[from].knows(address(*to))).collect();
            self.honest[from].act(self.now, &to);
        }
    }

    /// The hostile peers whose turn it is send.
    fn attack(&mut self) {
        let turns = SPEAK_MS / STEP_MS;
        let turn = (self.steps % turns) as usize;
        for index in (turn..self.begun).step_by(turns as usize) {
            let peer = &mut self.hostile[index];
            let mut out = core::mem::take(&mut self.out);
            peer.speak(&self.victim, self.config.burst, &mut out);
            let attack = peer.attack();
            let before = (self.probe.cpu)();
            for (_, frame) in &out {
                self.honest[0].stack.receive(self.now, 0, frame);
            }
            let cpu = (self.probe.cpu)().saturating_sub(before);
            let cost = self.costs.entry(attack).or_default();
            cost.frames += out.len() as u64;
            cost.bytes += out.iter().map(|(_, frame)| frame.len() as u64).sum::<u64>();
            cost.cpu += cpu;
            cost.longest = cost.longest.max(cpu);
            out.clear();
            self.out = out;
            // Frames leave after a few received frames, as in a turn of the daemon.
            self.deliver(0);
        }
    }

    fn timers(&mut self) {
        for index in 0..self.honest.len() {
            let before = (self.probe.cpu)();
            let mut calls = 0;
            while self.honest[index].stack.deadline().is_some_and(|at| at <= self.now) && calls < 64 {
                self.honest[index].stack.handle_timeout(self.now);
                calls += 1;
            }
            if index == 0 && calls > 0 {
                let cpu = (self.probe.cpu)().saturating_sub(before);
                self.report.timers += cpu;
                self.report.longest_timer = self.report.longest_timer.max(cpu / calls);
            }
            self.deliver(index);
        }
    }

    /// Carries the frames of all honest nodes; false if there were none.
    fn exchange(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.honest.len() {
            any |= self.deliver(index);
        }
        any
    }

    fn deliver(&mut self, from: usize) -> bool {
        let batch: FrameBatch = core::mem::take(self.honest[from].stack.frames());
        let mut any = false;
        for frame in batch.frames() {
            any = true;
            let bytes = batch.frame(frame);
            for to in 0..self.honest.len() {
                let reaches = match frame.to {
                    Target::Broadcast => true,
                    Target::Unicast(at) => at == media(frame.bearer, to),
                };
                if to != from && reaches {
                    self.honest[to].stack.receive(self.now, frame.bearer, &bytes);
                }
            }
            if from == 0 {
                self.answer(frame.to, &bytes);
            }
        }
        any
    }

    /// A frame of the node that is attacked reaches the hostile peers.
    fn answer(&mut self, to: Target, bytes: &[u8]) {
        let Target::Unicast(at) = to else { return };
        if let Some(index) = self.places.get(&at) {
            let peer = &mut self.hostile[*index];
            peer.hear(bytes);
            self.costs.entry(peer.attack()).or_default().answered += bytes.len() as u64;
            return;
        }
        let is_honest = (0..HONEST).any(|node| (0..2).any(|network| at == media(network, node)));
        // An invented host.
        if let Some(cost) = self.costs.get_mut(&Attack::Identities).filter(|_| !is_honest) {
            cost.answered += bytes.len() as u64;
        }
    }

    fn check_links(&mut self) -> Result<(), String> {
        let honest: Vec<NodeAddr> = (0..HONEST).map(address).collect();
        for node in &mut self.honest {
            for (peer, reason) in node.lost_links() {
                if honest.contains(&peer) {
                    return Err(format!("node {} lost its link to {peer}: {reason}", node.index));
                }
                self.report.resets += 1;
            }
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<(), String> {
        let memory = (self.probe.memory)().saturating_sub(self.base);
        self.report.memory = self.report.memory.max(memory);
        let node = &self.honest[0];
        let up = node.stack.nodes().iter().filter(|peer| peer.up).count();
        self.report.most_linked = self.report.most_linked.max(up);
        self.report.deferred = self.report.deferred.max(node.stack.stats().deferred_bytes);
        // The table of the node that is attacked is large: it is listed less often.
        let lists_all = self.steps.is_multiple_of(1000);
        let agree = self.honest[1].agrees_with(node) && (!lists_all || node.agrees_with(&self.honest[1]));
        match (agree, self.disagree_since) {
            (true, Some(_)) if !lists_all => {}
            (true, _) => self.disagree_since = None,
            (false, None) => self.disagree_since = Some(self.now),
            (false, Some(since)) => {
                let late = self.now.as_millis() - since.as_millis();
                self.report.names_late_ms = self.report.names_late_ms.max(late);
            }
        }
        let Some(since) = self.newcomer_at else { return Ok(()) };
        let waited = self.now.as_millis() - since.as_millis();
        if self.honest[0].knows(address(NEWCOMER)) {
            self.report.newcomer_ms = waited;
            self.newcomer_at = None;
        } else if waited > NEWCOMER_MS {
            return Err(format!("a new neighbour has no contact after {waited} ms"));
        }
        Ok(())
    }

    /// The attacks must have reached the node, and honest messages too.
    fn check_work(&mut self) -> Result<(), String> {
        let most = self.config.peers.min(16);
        if self.report.most_linked < most {
            return Err(format!(
                "only {} peers were linked: the attack does not work",
                self.report.most_linked
            ));
        }
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (NEWCOMER, 0)] {
            if self.honest[to].received_from(from) == 0 {
                return Err(format!("node {to} received nothing from node {from}"));
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), String> {
        for from in 0..HONEST {
            for to in (0..HONEST).filter(|to| *to != from) {
                let (sent, received) = (self.honest[from].sent_to(to), self.honest[to].received_from(from));
                // The last message may be on its way.
                if received + 4 < sent {
                    return Err(format!("node {to} has {received} of {sent} messages of node {from}"));
                }
                if !self.honest[to].agrees_with(&self.honest[from]) {
                    return Err(format!("node {to} does not know the bindings of node {from}"));
                }
            }
        }
        let node = &self.honest[0];
        let known = node.stack.nodes().len();
        if known != HONEST - 1 {
            return Err(format!("{known} nodes are still known"));
        }
        let foreign = node.stack.bindings().iter().filter(|b| b.range.service >= 100_000).count();
        let subscribers = node.stack.topology_stats();
        let deferred = node.stack.stats().deferred_bytes;
        if foreign + subscribers.connections + subscribers.subscriptions + deferred > 0 {
            return Err(format!(
                "{foreign} bindings, {} connections, {} subscriptions and {deferred} early bytes of forgotten peers",
                subscribers.connections, subscribers.subscriptions
            ));
        }
        self.report.memory_left = (self.probe.memory)().saturating_sub(self.base);
        Ok(())
    }

    fn finish(self) -> Report {
        let messages =
            self.honest.iter().map(|node| (0..HONEST).map(|n| u64::from(node.received_from(n))).sum::<u64>());
        Report {
            bindings: self.honest[0].stack.stats().names.applied,
            virtual_ms: self.now.as_millis(),
            messages: messages.sum(),
            costs: self.costs.into_iter().collect(),
            ..self.report
        }
    }
}
