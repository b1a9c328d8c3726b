//! The result of a run, and whether it is as expected.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use utipc::{Engine, Node};

use crate::crew::{Deaths, Work};
use crate::daemon::{Held, Watched};
use crate::tally::Tally;

/// Time limit of the daemon for releasing everything. Pairs without lanes stay for ten seconds.
const SETTLED: Duration = Duration::from_secs(60);

/// Time limit for giving memory back to the system.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// What the daemon may gain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Resident memory, KiB.
    pub(crate) kib: u64,
    /// Mappings, which its allocator needs.
    pub(crate) mappings: usize,
}

impl Tolerance {
    /// Mappings that the system's allocator needs.
    pub(crate) const MAPPINGS: usize = 16;

    /// The growth of a daemon with the system's allocator.
    pub(crate) fn of(kib: u64) -> Self {
        Self { kib, mappings: Self::MAPPINGS }
    }
}

/// The daemon while no process is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rest {
    attached: u64,
    sockets: u64,
    lanes: u64,
    pairs: u64,
    /// Bindings in the table, counted by a process that attaches for that purpose.
    bindings: usize,
    descriptors: usize,
    mappings: usize,
    resident_kib: u64,
    shared_kib: u64,
    /// Lanes with malformed records, since the start.
    lanes_corrupt: u64,
    /// Ended attachments by reason, since the start.
    ended: BTreeMap<String, u64>,
    requests: u64,
}

impl Rest {
    /// Reads the state of the daemon.
    pub(crate) fn take(daemon: &mut Watched) -> Result<Self> {
        let node = Node::builder().engine(Engine::Daemon).daemon_at(daemon.socket()).start();
        let bindings = node.context("attach to the daemon")?.bindings().len();
        let begun = Instant::now();
        loop {
            let rest = Self { bindings, ..Self::look(daemon)? };
            // Do not count the process that has just counted the bindings.
            if rest.attached == 0 || begun.elapsed() > SETTLED {
                return Ok(rest);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn look(daemon: &mut Watched) -> Result<Self> {
        let counters = daemon.counters()?;
        let count = |name: &str| counters.get(name).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        let Held { descriptors, mappings, resident_kib, shared_kib } = daemon.held()?;
        let ended = counters.get("ended").cloned().unwrap_or_default();
        Ok(Self {
            attached: count("attached"),
            sockets: count("sockets"),
            lanes: count("lanes"),
            pairs: count("pairs"),
            bindings: 0,
            descriptors,
            mappings,
            resident_kib,
            shared_kib,
            lanes_corrupt: count("lanes_corrupt"),
            ended: serde_json::from_value(ended).unwrap_or_default(),
            requests: count("requests"),
        })
    }

    /// Reads the state of the daemon once it has released everything and given memory back, or after a time limit.
    pub(crate) fn after(daemon: &mut Watched, fresh: &Rest, tolerance: Tolerance) -> Result<Self> {
        let begun = Instant::now();
        loop {
            let rest = Self::take(daemon)?;
            let limit = match rest.leaks(fresh).is_empty() {
                false => SETTLED,
                true if rest.gained(fresh, tolerance).is_empty() => Duration::ZERO,
                true => GIVEN_BACK,
            };
            if begun.elapsed() >= limit {
                return Ok(rest);
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.resident_kib
    }

    /// The resources, except memory, that the daemon holds beyond those of a fresh one.
    pub(crate) fn leaks(&self, fresh: &Rest) -> Vec<String> {
        let rows = [
            ("attached processes", self.attached, fresh.attached),
            ("sockets", self.sockets, fresh.sockets),
            ("lanes", self.lanes, fresh.lanes),
            ("pairs", self.pairs, fresh.pairs),
            ("bindings", self.bindings as u64, fresh.bindings as u64),
            ("descriptors", self.descriptors as u64, fresh.descriptors as u64),
        ];
        let leaked = rows.into_iter().filter(|(_, now, then)| now > then);
        leaked.map(|(what, now, then)| format!("{} {what} are left", now - then)).collect()
    }

    /// Everything that is wrong after a run that began with a fresh daemon; memory is compared with that of `since`.
    pub(crate) fn faults(&self, fresh: &Rest, since: &Rest, tolerance: Tolerance) -> Vec<String> {
        let mut found = self.leaks(fresh);
        found.extend(self.gained(since, tolerance));
        if self.lanes_corrupt > 0 {
            found.push(format!("{} lanes were reported corrupt", self.lanes_corrupt));
        }
        found
    }

    /// Memory gained since another state.
    pub(crate) fn gained(&self, since: &Rest, tolerance: Tolerance) -> Vec<String> {
        let mut found = Vec::new();
        if self.resident_kib > since.resident_kib + tolerance.kib {
            let more = self.resident_kib - since.resident_kib;
            found.push(format!("{more} KiB more are resident than at the baseline"));
        }
        if self.mappings > since.mappings + tolerance.mappings {
            found.push(format!("{} more mappings than at the baseline", self.mappings - since.mappings));
        }
        found
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} attached, {} sockets, {} lanes, {} pairs, {} bindings, {} descriptors, {} mappings, {} KiB resident \
             ({} shared)",
            self.attached,
            self.sockets,
            self.lanes,
            self.pairs,
            self.bindings,
            self.descriptors,
            self.mappings,
            self.resident_kib,
            self.shared_kib
        )
    }
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    test: &'static str,
    pub(crate) ok: bool,
    elapsed_s: f64,
    processes: usize,
    deaths: Deaths,
    sums: Tally,
    fresh: Rest,
    /// The first is the baseline.
    rests: Vec<Rest>,
    tolerance_kib: u64,
    leaks: Vec<String>,
    daemon_ended_well: bool,
}

impl Verdict {
    pub(crate) fn new(work: Work, fresh: Rest, rests: Vec<Rest>, tolerance: u64, ended_well: bool) -> Self {
        let mut leaks = Vec::new();
        for (number, rest) in rests.iter().enumerate() {
            let of_rest = rest.leaks(&fresh).into_iter();
            leaks.extend(of_rest.map(|leak| format!("rest {}: {leak}", number + 1)));
        }
        if let (Some(baseline), Some(last)) = (rests.first(), rests.last()) {
            leaks.extend(last.gained(baseline, Tolerance::of(tolerance)));
        }
        let corrupt = rests.last().map_or(0, |rest| rest.lanes_corrupt);
        if corrupt > 0 {
            leaks.push(format!("{corrupt} lanes had malformed records"));
        }
        // A run without traffic or deaths tests nothing.
        let idle = work.sums.received == 0 || work.deaths.killed == 0;
        if idle {
            leaks.push("no message was sent, or no process died".to_owned());
        }
        Self {
            test: "soak",
            ok: leaks.is_empty() && work.sums.violations.is_empty() && ended_well,
            elapsed_s: work.lasted.as_secs_f64(),
            processes: work.processes,
            deaths: work.deaths,
            sums: work.sums,
            fresh,
            rests,
            tolerance_kib: tolerance,
            leaks,
            daemon_ended_well: ended_well,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deaths, sums, .. } = self;
        writeln!(f, "{} processes for {:.0} s", self.processes, self.elapsed_s)?;
        writeln!(
            f,
            "  lives        {} started: {} ended by kill -9, {} in the middle of work, {} in good order",
            deaths.started, deaths.killed, deaths.exited, deaths.orderly
        )?;
        writeln!(
            f,
            "  messages     {} sent, {} received whole and in order ({} MiB); {} returned, {} requests without answer \
             (server dead), {} answers after more than 3 s ({} of them found by a repeated receive call), {} gaps in flows of datagrams",
            sums.sent,
            sums.received,
            sums.bytes >> 20,
            sums.returned,
            sums.unanswered,
            sums.late,
            sums.late_at_look,
            sums.gaps
        )?;
        writeln!(
            f,
            "  connections  {} set up, {} broken by a death; {} refused; {} multicasts; {} topology events, {} \
             repeated subscriptions",
            sums.connections, sums.broken, sums.refused, sums.multicasts, sums.events, sums.resubscribed
        )?;
        writeln!(f, "  fresh        {}", self.fresh)?;
        for (number, rest) in self.rests.iter().enumerate() {
            writeln!(f, "  rest {:<7} {rest}", number + 1)?;
        }
        for violation in &sums.violations {
            writeln!(f, "  VIOLATION    {violation}")?;
        }
        for leak in &self.leaks {
            writeln!(f, "  LEAK         {leak}")?;
        }
        if !self.daemon_ended_well {
            writeln!(f, "  the daemon did not end well")?;
        }
        writeln!(f, "soak: {}", if self.ok { "ok" } else { "failed" })
    }
}
